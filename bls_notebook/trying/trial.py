"""`try_repository`: load the models of any repository; stubs replace models that cannot load."""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, TextIO

from bls_notebook.checking.discovery import project_of, repository_folder
from bls_notebook.checking.server_files import located
from bls_notebook.engine import BLSError, perform, undo
from bls_notebook.extending import Host
from bls_notebook.records import count, listed, remedy, surfaces, visible
from bls_notebook.repository import ModelRepository, Values
from bls_notebook.repository.source import shown_path

from .failure_reasons import PATH, of_request
from .generated_requests import RequestOutcome, TrialRequests, send_requests
from .hub_offline import offline_if_unreachable
from .load_or_stub import TrialLoad, load_models, places_of
from .model_environment import project_environment
from .observations import MissingFiles
from .records import TrialReport, TriedModel
from .trial_plan import ModelPlan, TrialOptions, TrialPlan, plan_trial

log = logging.getLogger("bls_notebook")

_STAY = "Python models stay in processes of their own; debuggers and simulated GPUs need the kernel: {load}"
_LOADS = {
    "load": (
        "`repository.load({name!r}, isolation='kernel')`, or try with `in_kernel=True`",
        "`%tritonrepo load {name} --in-kernel`, or try with `--in-kernel`",
    )
}
# Advice of libraries if HF_HUB_OFFLINE is set; the trial sets it.
_GO_ONLINE = re.compile(r"(: offline mode is enabled)?\. To (disable it|enable hf\.co)[^()]*")
_OWN_SERVER = re.compile(r"(?:localhost|127\.0\.0\.1|0\.0\.0\.0):800[01]\b")


class Trial(NamedTuple):
    """Result of `try_repository`: the repository, open, and the report on its models."""

    repository: ModelRepository
    report: TrialReport

    @property
    def record(self) -> TrialReport:
        return self.report

    def __str__(self) -> str:
        return str(self.report)


def try_repository(
    folder: str | Path,
    *,
    fill: Mapping[str, object] | None = None,
    model_config_name: str = "",
    values: Values = "zeros",
    seed: int = 0,
    latency: Mapping[str, float] | None = None,
    recorded: Mapping[str, Mapping[str, Any]] | None = None,
    real: Collection[str] | None = None,
    load_timeout: float = 60.0,
    in_kernel: bool = False,
    install: bool = False,
    ask: bool = True,
    tell: Callable[[str], None] | None = None,
) -> Trial:
    """Load the models of a repository; stubs replace models that cannot load.

    A stub makes up responses from its model's configuration: names, data types and shapes of outputs; variable
    dimensions take sizes from the request. Every response that depends on a stub names it (`Response.stubs`). Writes
    nothing to the folder. Runs the code of Python models in processes of their own, which a crash, an endless loop or a
    change of global state does not leave; see `in_kernel`. The models stay there: reload one with
    ``repository.load(name, isolation="kernel")`` to debug it.

    Parameters
    ----------
    folder : str or Path
        A model repository, or a folder that contains one.
    fill : mapping of str to object, optional
        Values for templates such as ``${max_batch_size}`` in the configurations.
    model_config_name : str
        Use ``configs/NAME.pbtxt`` of models that have it, like a server with ``--model-config-name=NAME``.
    values : str
        Outputs of stubs: ``"random"`` numbers that depend on `seed` and the request, or ``"zeros"``. Models that fail
        with zeros get random numbers, if they answer a generated request then.
    seed : int
        Seed of random outputs.
    latency : mapping of str to float, optional
        Duration (s) of each `execute` of a stub, by model.
    recorded : mapping, optional
        Fixed outputs of stubs, by model: arrays by name, or a `Response`.
    real : collection of str, optional
        Run and import only the code of these models; all others are stubs.
    load_timeout : float
        Time limit (s) for loading a model, after which a stub replaces it, and for its answer to a generated request.
    in_kernel : bool
        Run the code of Python models in this process, with simulated GPUs if the machine has none. A model can end or
        change it then.
    install : bool
        Show what the project asks pip to install (requirements.txt, environment.yml, pyproject.toml, ``pip install`` in
        a Dockerfile), ask, and run Python models without an environment of their own in one with these packages.
    ask : bool
        Send each real model generated requests until it answers one, and report errors and the runtime's warnings.
    tell : callable, optional
        Called with a line that names the models whose code will run, before it runs; default: log the line.

    Returns
    -------
    Trial
        The repository and the report: ``repository, report = try_repository(...)``.

    Raises
    ------
    BLSError
        The folder contains no model repository or several, an option is invalid, or the question of `install` cannot
        be asked.

    Examples
    --------
    >>> repository, report = bls.try_repository("their_project", latency={"resize": 0.005})
    >>> report.requests[0]
    "%bls pipeline TEXT='It was a bright cold day in April.'"
    """
    began = perf_counter()
    path = repository_folder(folder)
    project = project_of(path, Path(folder).expanduser().resolve())
    options = TrialOptions(
        path,
        project,
        fill or {},
        model_config_name,
        values,
        seed,
        latency or {},
        recorded or {},
        real,
        load_timeout,
        in_kernel or not hasattr(socket, "SCM_RIGHTS"),
    )
    installed = ""
    if install:
        if options.in_kernel:
            raise BLSError("try: install: got in_kernel as well, but an environment needs processes; omit one of them")
        environment, installed = project_environment(project, path, tell)
        options = replace(options, environment=environment)

    def run() -> Trial:
        repository = ModelRepository(fill=options.fill)
        undo(repository.close)
        host = Host(repository)
        plan = plan_trial(host, options)
        _announce(tell, plan)
        fetches = any(model.uses_hub and model.may_run for model in plan.models.values())
        missing = MissingFiles(project)
        with _kept_open_streams(), _no_bytecode(), missing.recorded(), offline_if_unreachable(fetches) as offline:
            load = load_models(host, plan, missing)
            requests = send_requests(host, plan, load, load_timeout if ask and not load.left else 0.0)
        plan = replace(plan, notes=(*filter(None, [installed]), *plan.notes))
        return Trial(repository, _report(plan, offline, load, requests, missing.by_model, perf_counter() - began))

    return perform(run, partial_result=True)


def _announce(tell: Callable[[str], None] | None, plan: TrialPlan) -> None:
    """Name the models whose code will run, before it runs."""
    if names := sorted(name for name, model in plan.models.items() if model.runs_code):
        where = "in this process" if plan.options.in_kernel else "in processes of their own"
        (tell or log.warning)(
            f"this runs Python code of {count(len(names), 'model')} of {shown_path(plan.options.folder)} {where}, "
            f"with your permissions: {', '.join(names)}; `--real a,b` runs only the code of a and b, "
            "`--real none` no code"
        )


class _KeptOpen:
    """A stream that models cannot close: on a server, each has its own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close(self) -> None:
        """Do nothing."""


@contextmanager
def _kept_open_streams() -> Iterator[None]:
    out, err = (stream and _KeptOpen(stream) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        yield


@contextmanager
def _no_bytecode() -> Iterator[None]:
    """Let models in this process import modules of the project without writing bytecode beside them."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def _places(plan: TrialPlan, model: ModelPlan, files: Iterable[str], named: Iterable[str]) -> Iterator[str]:
    """Yield the files that are still missing, and those `named` by an error, with their places in the project."""
    named = [f for f in named if located(f, plan.options.project, plan.options.folder, model.folder)]
    for file in dict.fromkeys([*files, *named]):
        if not os.path.exists(file):
            found = located(file, plan.options.project, plan.options.folder, model.folder)
            shown = shown_path(Path(file)) if os.path.isabs(file) else visible(file)
            yield f"{shown} ({found})" if found else shown


def _report(
    plan: TrialPlan, offline: str, load: TrialLoad, requests: TrialRequests, in_vain: Mapping[str, Iterable[str]],
    seconds: float,
) -> TrialReport:  # fmt: skip
    """Return the report from the records of the other steps.

    `offline` is a note on the hub, if any; `in_vain` are the files that models looked for and did not find.
    """
    models = {name: TriedModel(name, "", "absent", r.why, r.remedy) for name, r in plan.absent.items()}
    for name, outcome in load.outcomes.items():
        model, reason = plan.models[name], outcome.reason
        sent = requests.outcomes.get(name, RequestOutcome(asked=False))
        refused = model.prepared.refused
        why = reason.why if outcome.kind == "real" or not refused else f"{reason.why}; {refused}"
        why = _GO_ONLINE.sub("", why) if offline else why
        mend = reason.remedy or of_request(name, sent.problem, places_of(plan, model))
        models[name] = TriedModel(
            name, model.backend, outcome.kind, why, mend, outcome.seconds, tuple(sorted(model.calls)),
            reason.broken or bool(refused), reason.unknown, sent.asked, sent.problem, sent.warnings,
            tuple(_places(plan, model, (p for p in in_vain.get(name, ()) if p not in why), PATH.findall(sent.problem))),
        )  # fmt: skip
    real = [plan.models[name] for name, outcome in sorted(load.outcomes.items()) if outcome.kind == "real"]
    notes = [*plan.notes, *load.notes, offline, *requests.notes]
    if surfaces[-1:] != ["shell"] and (name := next((m.name for m in real if m.runs_code), "")):
        notes += [] if plan.options.in_kernel else [str(remedy(_STAY, _LOADS, name=name))]
    if missing := [model.prepared.missing_version for model in real if model.prepared.missing_version]:
        line = f"`mkdir {' '.join(missing)}`"
        notes.append(f"version folders are missing, because Git stores no empty folders; a server needs them: {line}")
    if callers := [model.name for model in real if any(map(_OWN_SERVER.search, model.sources))]:
        notes.append(
            f"the code of {listed(callers, 6)} names a server on this machine, at Triton's port: if it is the server "
            "of these models, `bls.endpoint(http_port=8000, grpc_port=8001, token='')` runs one here, for any program"
        )
    return TrialReport(
        shown_path(plan.options.folder), tuple(models[name] for name in sorted(models)), requests.entries,
        requests.lines, tuple(filter(None, notes)), load.left, seconds,
    )  # fmt: skip
