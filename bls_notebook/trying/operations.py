"""``%tritonrepo try`` and ``python -m bls_notebook try``."""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentTypeError
from collections.abc import Generator
from contextlib import redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import bls_notebook as bls
from bls_notebook.operations import FILL, SEED, OperationSpec, flag, names, option, pairs, seconds, timeout
from bls_notebook.records import listed, on_surface

from .records import TrialReport, TriedModel

if TYPE_CHECKING:
    from bls_notebook.magics import MagicCall


def _try(call: MagicCall, **options: Any) -> TrialReport:
    before = bls.current_repository()
    if lost := sorted({record.name for record in before.index() if record.source == "cell"}):
        words = f"the current repository is replaced, and with it go the models of cells: {listed(lost, 12)}"
        call.notebook.say(f"{words}; their cells define them again", "info")
    if options.get("values") == "recorded":
        variables = list(call.notebook.shell.user_ns.values())
        answers = [each for each in variables if isinstance(each, bls.Response)]
        answers = [each for each in answers if each.error is None and not each.stubs]
        options |= {"values": "zeros", "recorded": {each.model: each for each in answers}}
    repository, report = bls.try_repository(tell=lambda text: call.notebook.say(text, "info"), **options)
    bls.set_current_repository(repository)
    before.close()
    return report


def _try_in_shell(folder: str, **options: Any) -> Generator[TrialReport, None, None]:
    with on_surface("shell"):
        with redirect_stdout(sys.stderr):  # keeps the models' output out of the report
            repository, report = bls.try_repository(folder, tell=print, **options)
            repository.close()
        yield in_shell(report, folder)


def in_shell(report: TrialReport, folder: str) -> TrialReport:
    """Return a report whose remedies are text; example requests follow the lines that open the repository."""
    opens = "%load_ext bls_notebook", f"%tritonrepo try {shlex.quote(folder)}"
    models = tuple(replace(model, remedy=str(model.remedy)) for model in report.models)
    requests = tuple("\n".join(filter(None, (*opens, line))) for line in report.requests[:1]) + report.requests[1:]
    return replace(report, models=models, requests=requests)


def _real(text: str) -> list[str]:
    return [name for name in names(text) if name != "none"]


def _latencies(text: str) -> dict[str, float]:
    out = {}
    for pair in names(text):
        name, equals, value = pair.rpartition("=")
        if not equals or not name:
            raise ArgumentTypeError(f"got {pair!r}, expected MODEL=TIME, such as resize=5ms")
        out[name] = seconds(value)
    return out


def _failed(model: TriedModel) -> bool:
    """Return whether the repository lacks or breaks a model; a server's backend may declare outputs that it omits."""
    return model.broken or model.unknown or (model.kind == "absent" and not model.backend)


_CHOICES = ("zeros", "random", "recorded")
_VALUES = "zeros (the default), random or recorded: those of responses in the notebook's variables"

TRY = OperationSpec(
    """Run any model repository, with stubs for models that cannot load. The report says which models are real, which
    are stubs and why, and how to make each real. A stub makes up responses from its model's configuration: names,
    data types and shapes of outputs; every response that depends on a stub names it. FOLDER may be a project that
    contains a repository; nothing is written to it. The models' code runs with your
    permissions, in processes of its own, where it stays; --in-kernel runs it here; --real limits it to some models. In
    a notebook, the previous repository is closed, with the models that cells defined. Each real model gets requests
    with generated values until it answers one; --no-ask sends none. After Ctrl-C, loaded models stay loaded.
    Guide: docs/guides/templates.md.""",
    options=(
        option("folder", "FOLDER", "a model repository, or a folder that contains one"),
        option("--values", "VALUES", f"outputs of stubs: {_VALUES}", str, "notebook", choices=_CHOICES),
        option("--real", "MODEL,...", "run only the code of these models; none: of no model", _real),
        FILL,
        option("--model-config-name", "CONFIG", "use configs/CONFIG.pbtxt of models that have it"),
        flag("--in-kernel", "run the models' code in this process, with simulated GPUs; it can end or change it"),
        flag("--install", "ask to install the project's requirements into an environment for its Python models"),
        timeout("time limit for loading a model, after which a stub replaces it (default: 60s)", "--load-timeout"),
        flag("--no-ask", "do not send generated requests to real models", dest="ask", action="store_false"),
        SEED,
        pairs("--latency", "MODEL=TIME,...", "duration of each execute of a stub, such as resize=5ms", _latencies),
    ),
    examples="""
    %tritonrepo try their_project
    %tritonrepo try their_project --latency resize=5ms,detect=20ms --values random --seed 1
    %tritonrepo try their_project --real pipeline --fill max_batch_size=8
    """,
    notebook=_try,
    shell=_try_in_shell,
    failed=lambda report: any(map(_failed, report.models)) or report.left,
)
