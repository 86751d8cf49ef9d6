"""``%tritonrepo load``, ``reload`` and ``unload``; one model that fails does not keep the others from it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import bls_notebook as bls
from bls_notebook.magics.failing import CellInterrupted, display_of, reported
from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.output.results import Models
from bls_notebook.magics.parsing.arguments import Parser
from bls_notebook.observe.records.repository import ModelRecord

from .verb import Verb

__all__ = ["LOAD", "RELOAD", "UNLOAD"]


def _each_model(
    notebook: Notebook, names: Sequence[str], action: Callable[[str], ModelRecord]
) -> ModelRecord | Models:
    """Return the records that the action gave, one by itself or several as a table.

    Raises
    ------
    BLSError
        The last that failed; those before have been shown, as has what went well.
    """
    done, failed = Models(), list[bls.BLSError]()
    for name in dict.fromkeys(names):
        try:
            with reported(notebook, name):
                done.append(action(name))
        except CellInterrupted:
            raise
        except bls.BLSError as error:
            failed.append(error)
    if not failed:
        return done[0] if len(done) == 1 else done
    if done:
        notebook.show(done)
    for earlier in failed[:-1]:
        notebook.show(display_of(earlier))
    raise failed[-1]


def _load_arguments(parser: Parser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="names of models")
    parser.add_argument("--all", action="store_true", help="every model that is known")


def _load(notebook: Notebook, arguments: argparse.Namespace) -> ModelRecord | Models:
    repository = bls.current_repository()
    names = arguments.names
    if bool(names) == arguments.all:
        LOAD.parser.error("expected names of models, or --all")
    if arguments.all:
        names = [record.name for record in repository.index()]
    return _each_model(notebook, names, repository.load)


def _names(parser: Parser) -> None:
    parser.add_argument("names", nargs="+", metavar="NAME", help="names of models")


def _reload(notebook: Notebook, arguments: argparse.Namespace) -> ModelRecord | Models:
    return _each_model(notebook, arguments.names, bls.current_repository().reload)


def _unload_arguments(parser: Parser) -> None:
    _names(parser)
    parser.add_argument("--dependents", action="store_true", help="unload what depends on them as well")


def _unload(notebook: Notebook, arguments: argparse.Namespace) -> None:
    repository = bls.current_repository()
    for name in arguments.names:
        with reported(notebook):
            served = repository.ready(name)
            repository.unload(name, arguments.dependents)
        if served:
            notebook.say(f"{name!r} is unloaded")
        else:
            notebook.say(f"{name!r} was not loaded", "info")


LOAD = Verb(
    "load",
    "load models; what is loaded and unchanged stays as it is",
    _load,
    _load_arguments,
    examples="  %tritonrepo load add_sub bls_sync\n  %tritonrepo load --all\n",
    suggests=lambda record: record.state != "READY",
)
RELOAD = Verb(
    "reload",
    "load models again, also where their files have not changed",
    _reload,
    _names,
    suggests=lambda record: record.state == "READY",
)
UNLOAD = Verb(
    "unload",
    "take models out of service; requests under way are finished first",
    _unload,
    _unload_arguments,
    suggests=lambda record: record.state == "READY",
)
