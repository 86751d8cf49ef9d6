"""``%tritonrepo use`` and ``clear``: which folders the current repository is over, and an empty one."""

from __future__ import annotations

import argparse

import bls_notebook as bls
from bls_notebook.magics.failing import reported
from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.parsing.arguments import Parser
from bls_notebook.magics.settings import use_repository
from bls_notebook.repository.source.layout import shown_path

from .verb import Verb

__all__ = ["CLEAR", "USE"]


def _use_arguments(parser: Parser) -> None:
    parser.add_argument("paths", nargs="*", metavar="FOLDER", help="a folder in Triton's layout")
    parser.add_argument(
        "--backend-directory",
        metavar="FOLDER",
        help="where Python-based backends are, in folders of their names; by default `backends`, beside the "
        "folders of the repository or in them",
    )


def _use(notebook: Notebook, arguments: argparse.Namespace) -> None:
    with reported(notebook):
        lost = use_repository(*arguments.paths, backend_directory=arguments.backend_directory)
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


USE = Verb(
    "use",
    "work with the models of these folders from now on",
    _use,
    _use_arguments,
    "The repository before is closed, and models that were defined by cells go with it; where its folders "
    "are the same, nothing happens. Nothing is loaded yet. Without a folder: models in memory only.",
    "  %tritonrepo use model_repository\n",
)
CLEAR = Verb("clear", "unload every model and forget those defined by cells", _clear)
