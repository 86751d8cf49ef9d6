"""``%tritonrepo load``, ``reload``, ``unload``, ``use`` and ``clear``: which folders, and which models serve.

One model that fails does not keep the others from being loaded.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import bls_notebook as bls
from bls_notebook.magics.magic import Verb, serves
from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.output.results import Models
from bls_notebook.magics.parsing.arguments import key_and_value
from bls_notebook.magics.shell.cell_errors import CellInterrupted, display_of, reported
from bls_notebook.magics.shell.settings import use_repository
from bls_notebook.records.progress import stepped
from bls_notebook.repository.source.layout import shown_path

if TYPE_CHECKING:
    from bls_notebook.records.repository import ModelRecord


def _each_model(notebook: Notebook, names: Sequence[str], action: Callable[[str], ModelRecord]) -> ModelRecord | Models:
    """Return the records that the action gave, one by itself or several as a table.

    The last error is raised; those before have been shown, as has what went well.
    """
    done, failed = Models(), list[bls.BLSError]()
    wanted = list(dict.fromkeys(names))
    for name in stepped(wanted, "models", len(wanted)) if len(wanted) > 1 else wanted:
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


def _load(notebook: Notebook, arguments: argparse.Namespace) -> ModelRecord | Models:
    repository = bls.current_repository()
    names = arguments.names
    if bool(names) == arguments.all:
        LOAD.parser.error("expected names of models, or --all")
    if arguments.all:
        names = [record.name for record in repository.index()]
    return _each_model(notebook, names, repository.load)


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


def _use(notebook: Notebook, arguments: argparse.Namespace) -> None:
    with reported(notebook):
        fill = None if arguments.fill is None else dict(arguments.fill)
        lost = use_repository(*arguments.paths, backend_directory=arguments.backend_directory, fill=fill)
    repository = bls.current_repository()
    found = {record.name for record in repository.index()}
    where = ", ".join(shown_path(path) for path in repository.paths) or "memory only"
    notebook.say(
        f"model repository: {where}; {len(found)} model{'' if len(found) == 1 else 's'}",
        hint=f"the repository before is closed; models of cells that went with it: {lost}" if lost else "",
    )


def _clear(notebook: Notebook, arguments: argparse.Namespace) -> None:
    with reported(notebook):
        bls.current_repository().clear()
    notebook.say("every model is unloaded")


LOAD = Verb(
    "load", "load models; what is loaded and unchanged stays as it is", _load,
    examples="  %tritonrepo load add_sub bls_sync\n  %tritonrepo load --all\n",
    suggests=lambda record: record.state != "READY",
)  # fmt: skip
LOAD.parser.add_argument("names", nargs="*", metavar="NAME", help="names of models")
LOAD.parser.add_argument("--all", action="store_true", help="every model that is known")

RELOAD = Verb(
    "reload", "load models again, also where their files have not changed",
    lambda notebook, arguments: _each_model(notebook, arguments.names, bls.current_repository().reload),
    suggests=serves,
)  # fmt: skip
RELOAD.parser.add_argument("names", nargs="+", metavar="NAME", help="names of models")

UNLOAD = Verb("unload", "take models out of service; requests under way are finished first", _unload, suggests=serves)
UNLOAD.parser.add_argument("names", nargs="+", metavar="NAME", help="names of models")
UNLOAD.parser.add_argument("--dependents", action="store_true", help="unload what depends on them as well")

USE = Verb(
    "use", "work with the models of these folders from now on", _use,
    "The repository before is closed, and models that were defined by cells go with it; where its folders "
    "are the same, nothing happens. Nothing is loaded yet. Without a folder: models in memory only.",
    "  %tritonrepo use model_repository\n"
    "  %tritonrepo use all_models/inflight_batcher_llm --fill triton_max_batch_size=8\n",
)  # fmt: skip
USE.parser.add_argument("paths", nargs="*", metavar="FOLDER", help="a folder in Triton's layout")
USE.parser.add_argument(
    "--backend-directory", metavar="FOLDER",
    help="where Python-based backends are, in folders of their names; by default `backends`, beside the "
    "folders of the repository or in them",
)  # fmt: skip

USE.parser.add_argument(
    "--fill", metavar="KEY=VALUE", action="append", type=key_and_value,
    help="fill ${KEY}, or the parameter KEY, in each config.pbtxt (MODEL.KEY: in one); templates without a "
    "value are filled from the environment, or by a default that harms nothing",
)  # fmt: skip

CLEAR = Verb("clear", "unload every model and forget those defined by cells", _clear)
