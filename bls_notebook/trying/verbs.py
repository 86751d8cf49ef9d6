"""``%tritonrepo try``: anybody's model repository, as far as it goes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import bls_notebook as bls
from bls_notebook import Response
from bls_notebook.magics.arguments import key_and_value, names, seconds
from bls_notebook.magics.cell_errors import reported
from bls_notebook.magics.magic import Verb
from bls_notebook.magics.notebook import Notebook

if TYPE_CHECKING:
    from .records import Tried


def _latencies(text: str) -> dict[str, float]:
    out = {}
    for pair in names(text):
        name, equals, value = pair.rpartition("=")
        if not equals or not name:
            raise argparse.ArgumentTypeError(f"got {pair!r}, expected MODEL=TIME, such as resize=5ms")
        out[name] = seconds(value)
    return out


def _try(notebook: Notebook, arguments: argparse.Namespace) -> Tried:
    before = bls.current_repository()
    real = arguments.real
    values = arguments.values
    with reported(notebook):
        repository, report = bls.try_repository(
            arguments.folder,
            fill=dict(arguments.fill),
            values="zeros" if values == "recorded" else values,
            seed=arguments.seed,
            latency={name: s for each in arguments.latency for name, s in each.items()},
            recorded=dict(_recorded(notebook)) if values == "recorded" else None,
            real=None if real is None else [name for name in real if name != "none"],
            load_timeout=arguments.load_timeout,
            tell=lambda text: notebook.say(text, "info"),
        )
        bls.set_current_repository(repository)
        before.close()
    return report


def _recorded(notebook: Notebook) -> Iterator[tuple[str, Any]]:
    """The responses that the notebook has in variables, by model; of several the last."""
    for value in list(notebook.shell.user_ns.values()):
        if isinstance(value, Response) and value.error is None and not value.stubs:
            yield value.model, value


TRY = Verb(
    "try", "run anybody's model repository: what cannot be loaded is stood in for by a stub", _try,
    "The report says which models are real, which are stubs and why, and what to type to make each real. A "
    "stub answers from its model's configuration: names, data types and shapes of its outputs; every "
    "response that one had a part in says so. FOLDER may be a project that holds a repository; nothing is "
    "written to it. The code of its models runs in this kernel, with your rights; --real says whose may. The "
    "repository before is closed, and models that were defined by cells go with it. Ctrl-C keeps what is "
    "loaded.",
    "  %tritonrepo try their_project\n"
    "  %tritonrepo try their_project --latency resize=5ms,detect=20ms --values random --seed 1\n"
    "  %tritonrepo try their_project --real pipeline --fill max_batch_size=8\n",
)  # fmt: skip
_add = TRY.parser.add_argument
_add("folder", metavar="FOLDER", help="a model repository, or a folder that holds one")
_add("--real", type=names, metavar="MODEL,...", help="run the code of these models alone; none for nobody's")
_add(
    "--fill", type=key_and_value, action="append", default=[], metavar="KEY=VALUE",
    help="a value for the template ${KEY} in configurations",
)  # fmt: skip
_add(
    "--values", choices=("zeros", "random", "recorded"), default="zeros",
    help="what stubs answer (default: zeros); recorded: what responses in the notebook's variables hold",
)  # fmt: skip
_add("--seed", type=int, default=0, metavar="N", help="of random values")
_add(
    "--latency", type=_latencies, action="append", default=[], metavar="MODEL=TIME,...",
    help="how long each execute of a stub takes, such as resize=5ms",
)  # fmt: skip
_add(
    "--load-timeout", type=seconds, default=60.0, metavar="TIME",
    help="how long a model may take to load before a stub takes its place (default: 60s)",
)  # fmt: skip
