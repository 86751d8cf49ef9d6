"""The verbs ``export``, ``serve`` and ``prove`` of ``%tritonrepo``."""

from __future__ import annotations

import argparse
from typing import Any

from IPython.core.error import UsageError

import bls_notebook as bls
from bls_notebook.magics import Notebook, Verb, add_options, reported, serves

from .commands import add_container_option, add_target_options, prove_options, target_options
from .records import Certificate, Exported


def _export(notebook: Notebook, arguments: argparse.Namespace) -> Exported:
    names = arguments.names
    if arguments.inputs and len(names) != 1:
        raise UsageError("%tritonrepo export: inputs need exactly one model; name it before them.")
    if arguments.inputs and arguments.requests:
        raise UsageError("%tritonrepo export: give either inputs or --requests, not both.")
    with reported(notebook):
        requests: Any = {names[0]: [arguments.inputs]} if arguments.inputs else None
        if arguments.requests:
            requests = bls.load(arguments.requests)
        return bls.export(arguments.place, *names, requests=requests, **target_options(arguments))


EXPORT = Verb(
    "export", "write models and their callees as a model repository for a server", _export,
    __file__, suggests=serves, takes_inputs=True,
)  # fmt: skip
EXPORT.parser.usage = "%(prog)s FOLDER [MODEL ...] [INPUT=EXPRESSION ...] [options]"
add_options(EXPORT.parser, __file__, "a place", "loaded models", "requests")
add_target_options(EXPORT.parser)


def _serve(notebook: Notebook, arguments: argparse.Namespace) -> object:
    previous: Any = notebook.state.get("shipping.server")
    if arguments.stop and (previous is None or arguments.names):
        problem = "takes no models" if arguments.names else "no server runs; start one with %tritonrepo serve"
        raise UsageError(f"%tritonrepo serve --stop: {problem}")
    with reported(notebook):
        if arguments.stop and previous is not None:
            previous.stop()
            notebook.state.pop("shipping.server", None)
            return previous
        server = bls.serve(*arguments.names, start_timeout=arguments.start_timeout, container=arguments.container)
        notebook.state["shipping.server"] = server
        if previous is not None:
            previous.stop(graceful=False)
            notebook.say("the previous server was stopped", "info")
        return server


SERVE = Verb("serve", "serve a copy of the models with the real tritonserver", _serve, __file__, suggests=serves)
add_options(SERVE.parser, __file__, "loaded models")
add_container_option(SERVE.parser)

_GENERATED = 100  # generated requests, if the user gives none, as help.txt says


def _prove(notebook: Notebook, arguments: argparse.Namespace) -> Certificate:
    requests: list[Any] = [arguments.inputs] if arguments.inputs else []
    with reported(notebook):
        if arguments.requests:
            requests.append(bls.load(arguments.requests))
        if arguments.generate is None:
            arguments.generate = 0 if requests else _GENERATED
        return bls.prove(arguments.model, *requests, server=arguments.server, **prove_options(arguments))


PROVE = Verb(
    "prove", "compare a model's answers with those of the real tritonserver", _prove,
    __file__, suggests=serves, takes_inputs=True,
)  # fmt: skip
PROVE.parser.usage = "%(prog)s MODEL [INPUT=EXPRESSION ...] [options]"
add_options(PROVE.parser, __file__, "a model", "requests")
