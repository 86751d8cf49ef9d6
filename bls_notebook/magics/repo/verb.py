"""What a verb of ``%tritonrepo`` is."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.parsing.arguments import Parser

if TYPE_CHECKING:
    from bls_notebook.records.repository import ModelRecord


@dataclass(frozen=True)
class Verb:
    """A verb of ``%tritonrepo``: its name, a line for the list of verbs, what does it and gives its value.

    ``details`` is what else its help says. Tab offers the models that it ``suggests``, and the words that it
    ``offers``. One that ``takes_inputs`` has INPUT=EXPRESSION pairs on its line, as ``%bls`` has; it finds
    their values in the arguments, as ``inputs``.
    """

    name: str
    summary: str
    run: Callable[[Notebook, argparse.Namespace], object]
    details: str = ""
    examples: str = ""
    suggests: Callable[[ModelRecord], bool] = lambda record: False
    offers: Callable[[], Iterable[str]] = tuple
    takes_inputs: bool = False

    @cached_property
    def parser(self) -> Parser:
        """The parser, to which its arguments are added."""
        description = f"{self.summary}. {self.details}" if self.details else self.summary
        return Parser(f"%tritonrepo {self.name}", description, self.examples)


def serves(record: ModelRecord) -> bool:
    """Whether a model serves."""
    return record.state == "READY"
