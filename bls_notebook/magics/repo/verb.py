"""What a verb of ``%tritonrepo`` is."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.parsing.arguments import Parser
from bls_notebook.observe.records.repository import ModelRecord

__all__ = ["Verb"]


def _nothing(record: ModelRecord) -> bool:
    return False


def _nobody() -> Iterable[str]:
    return ()


@dataclass(frozen=True)
class Verb:
    """A verb of ``%tritonrepo``.

    Attributes
    ----------
    name : str
    summary : str
        One line for the list of verbs.
    parser : callable
        Returns its parser.
    run : callable
        Does it; what it returns is the value of the magic.
    suggests : callable
        Whether Tab offers a model as an argument.
    offers : callable
        Other words that Tab offers.
    """

    name: str
    summary: str
    parser: Callable[[], Parser]
    run: Callable[[Notebook, argparse.Namespace], object]
    suggests: Callable[[ModelRecord], bool] = _nothing
    offers: Callable[[], Iterable[str]] = _nobody
