"""Magics and verbs of ``%tritonrepo``; their modules are imported on first use."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, cast

from bls_notebook.capabilities import registry
from bls_notebook.magics.notebook import Notebook

from .arguments import Parser, Variables, add_options, help_text

if TYPE_CHECKING:
    from bls_notebook.records.models import ModelRecord


@dataclass(frozen=True)
class Magic:
    """A magic: its parser, with its name and help, and the function that runs it.

    If `takes_inputs` is true, its line has the form of a request: MODEL INPUT=EXPRESSION.
    """

    parser: Parser
    run: Callable[[Notebook, str, str, Variables], object]
    takes_inputs: bool = False


@dataclass(frozen=True)
class Verb:
    """A verb of ``%tritonrepo``: its name, a line for the list of verbs, and the function that returns its value.

    The help.txt beside the file `module` has the rest of its help, and its arguments. Tab offers the models for which
    `suggests` is true, and the words of `offers`. If `takes_inputs` is true, its line may have INPUT=EXPRESSION pairs,
    as in ``%bls``; `run` gets their values as ``arguments.inputs``.
    """

    name: str
    summary: str
    run: Callable[[Notebook, argparse.Namespace], object]
    module: str = ""
    suggests: Callable[[ModelRecord], bool] = lambda record: False
    offers: Callable[[], Iterable[str]] = tuple
    takes_inputs: bool = False

    @cached_property
    def parser(self) -> Parser:
        """The parser; the verb's module may add arguments."""
        details, examples = help_text(self.module, self.name) if self.module else ("", "")
        summary = f"{self.summary[:1].upper()}{self.summary[1:]}. {details}".rstrip()
        parser = Parser(f"%tritonrepo {self.name}", summary, examples)
        if self.module:
            add_options(parser, self.module, self.name)
        return parser


def serves(record: ModelRecord) -> bool:
    return record.state == "READY"


def magic_named(name: str) -> Magic:
    """Return a magic by its name with percent signs; raises as `Registry.load` does."""
    return cast(Magic, registry().load("magics", name))


def verb_named(name: str) -> Verb | None:
    """Return a verb by its name; None if no installed capability has it."""
    return cast(Verb, registry().load("verbs", name)) if name in registry().keys("verbs") else None
