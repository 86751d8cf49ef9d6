"""A magic, a verb of ``%tritonrepo``, and how both are found: the module of each is imported on first use."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, cast

from bls_notebook.capabilities import registry
from bls_notebook.magics.notebook import Notebook

from .arguments import Parser, Variables

if TYPE_CHECKING:
    from bls_notebook.records.repository import ModelRecord


@dataclass(frozen=True)
class Magic:
    """A magic: its parser, which has its name and its help, and what it does.

    With ``takes_inputs`` its line is that of a request: MODEL INPUT=EXPRESSION.
    """

    parser: Parser
    run: Callable[[Notebook, str, str, Variables], object]
    takes_inputs: bool = False


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


def magic_named(name: str) -> Magic:
    """Return a magic by its name with percent signs; raises as `Registry.load` does."""
    return cast(Magic, registry().load("magics", name))


def verb_named(name: str) -> Verb | None:
    """Return a verb; None if no installed capability has one of that name."""
    return cast(Verb, registry().load("verbs", name)) if name in registry().keys("verbs") else None
