"""``%blsinspect``: inspect a response, a tensor or a model, or compare two; ``%tritonrepo watch``: a live
panel.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import bls_notebook as bls
from bls_notebook.commands import add_options, whole_number
from bls_notebook.magics import Magic, Notebook, Parser, Variables, Verb, evaluate, help_text, identifier, reported

if TYPE_CHECKING:
    from .inspection import Inspection
    from .repository_watch import Watch


PARSER = Parser("%blsinspect", *help_text(__file__, "%blsinspect"))
PARSER.usage = "%(prog)s [VALUE [OTHER]] [options]"
add_options(PARSER, __file__, "%blsinspect", identifier=identifier, rate=whole_number(100))


def blsinspect(notebook: Notebook, line: str, cell: str, variables: Variables) -> Inspection:
    """Inspect a response, a tensor or a model, or compare two values."""
    arguments = PARSER.parse([word.text for word in PARSER.words_of(line)])
    words = arguments.values
    if len(words) > 2:
        PARSER.refuse(words[2])
    values = [_value(word, variables) for word in words] or [_latest(notebook)]
    with reported(notebook):
        inspection = bls.inspect(*values, at=arguments.at, rate=arguments.rate)
    if len(words) == 1 and not inspection.name and words[0].isidentifier():
        inspection.name = words[0]
        inspection = inspection.asked()
    notebook.assign(arguments.into, inspection)
    return inspection


def _value(word: str, variables: Variables) -> Any:
    """Return the value of an expression; a model's name needs no quotes."""
    known = {record.name for record in bls.current_repository().index()}
    return word if word in known and word not in variables else evaluate(word, variables, "%blsinspect")


def _latest(notebook: Notebook) -> Any:
    response = None if notebook.latest is None else notebook.latest()
    if response is None:
        PARSER.error("nothing to inspect: there was no response yet, or it was freed; expected a VALUE")
    return response


MAGIC = Magic(PARSER, blsinspect)


def _watch(notebook: Notebook, arguments: argparse.Namespace) -> Watch:
    with reported(notebook):
        return bls.watch(arguments.interval)


WATCH = Verb(
    "watch", "a live panel: the state of each model, its queue, rate and latency, and the memory", _watch, __file__
)
