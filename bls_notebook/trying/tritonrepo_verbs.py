"""The verb ``%tritonrepo try``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import bls_notebook as bls
from bls_notebook import Response
from bls_notebook.commands import add_options, names, seconds
from bls_notebook.magics import Notebook, Verb, reported

from .records import TrialReport


def _latencies(text: str) -> dict[str, float]:
    out = {}
    for pair in names(text):
        name, equals, value = pair.rpartition("=")
        if not equals or not name:
            raise argparse.ArgumentTypeError(f"got {pair!r}, expected MODEL=TIME, such as resize=5ms")
        out[name] = seconds(value)
    return out


def _try(notebook: Notebook, arguments: argparse.Namespace) -> TrialReport:
    before = bls.current_repository()
    real = arguments.real
    values = arguments.values
    with reported(notebook):
        repository, report = bls.try_repository(
            arguments.folder,
            fill=dict(arguments.fill),
            model_config_name=arguments.model_config_name,
            values="zeros" if values == "recorded" else values,
            seed=arguments.seed,
            latency={name: s for latencies in arguments.latency for name, s in latencies.items()},
            recorded=dict(_recorded(notebook)) if values == "recorded" else None,
            real=None if real is None else [name for name in real if name != "none"],
            load_timeout=arguments.load_timeout,
            ask=not arguments.no_ask,
            tell=lambda text: notebook.say(text, "info"),
        )
        bls.set_current_repository(repository)
        before.close()
    return report


def _recorded(notebook: Notebook) -> Iterator[tuple[str, Any]]:
    """Yield the successful real responses in the notebook's variables, with their models."""
    for value in list(notebook.shell.user_ns.values()):
        if isinstance(value, Response) and value.error is None and not value.stubs:
            yield value.model, value


TRY = Verb("try", "run any model repository, with stubs for models that cannot load", _try, __file__)
TRY.parser.add_argument(
    "--values", choices=("zeros", "random", "recorded"), default="zeros",
    help="outputs of stubs (default: zeros); recorded: the outputs of responses in the notebook's variables",
)  # fmt: skip
add_options(TRY.parser, __file__, "%tritonrepo try", latencies=_latencies)
