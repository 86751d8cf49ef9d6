"""``%blsinspect``: inspect a response, a tensor or a model, or compare two; ``%tritonrepo watch``: a live
panel.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import bls_notebook as bls
from bls_notebook.magics.arguments import Parser, Variables, evaluate, identifier, seconds, whole_number
from bls_notebook.magics.cell_errors import reported
from bls_notebook.magics.magic import Magic, Verb
from bls_notebook.magics.notebook import Notebook

if TYPE_CHECKING:
    from .inspection import Inspection
    from .repository_watch import Watch


PARSER = Parser(
    "%blsinspect",
    "Looks into a response, a tensor or an array, wherever it lies: image-shaped ones are pictures, rows of "
    "numbers a line and a sound, BYTES are text, JSON or files; with min, max, mean, NaN and a histogram, "
    "worked out on the tensor's own device. Of a model: its source, its configuration beside the defaults, "
    "what its instances do now, its queue, its memory, its last error and who calls whom. Two values are put "
    "side by side with their difference. Without a value: the last response of %bls.",
    """\
  %blsinspect answer
  %blsinspect answer["OUT"] --at [0,:,:,1]
  %blsinspect before after
  %blsinspect add_sub
""",
)
PARSER.usage = "%(prog)s [VALUE [OTHER]] [options]"
_add = PARSER.add_argument
_add("values", nargs="*", metavar="VALUE", help="an expression for a response or a tensor, or a model's name")
_add("--at", default="", metavar="SLICE", help="a slice of the tensor, such as [0,:,:,1]")
_add("--rate", type=whole_number(100), metavar="N", help="samples a second of a tensor that is a sound")
_add("--into", type=identifier, metavar="NAME", help="a variable for what was found out")


def blsinspect(notebook: Notebook, line: str, cell: str, variables: Variables) -> Inspection:
    """Look into a response, a tensor or a model."""
    arguments = PARSER.parse([word.text for word in PARSER.words_of(line)])
    words = arguments.values
    if len(words) > 2:
        PARSER.refuse(words[2])
    values = [_value(word, variables) for word in words] or [_latest(notebook)]
    with reported(notebook):
        found = bls.inspect(*values, at=arguments.at, rate=arguments.rate)
    if len(words) == 1 and not found.name and words[0].isidentifier():
        found.name = words[0]
        found = found.asked()
    notebook.assign(arguments.into, found)
    return found


def _value(word: str, variables: Variables) -> Any:
    """The value of an expression; a model's name needs no quotes."""
    known = {record.name for record in bls.current_repository().index()}
    return word if word in known and word not in variables else evaluate(word, variables, "%blsinspect")


def _latest(notebook: Notebook) -> Any:
    found = None if notebook.latest is None else notebook.latest()
    if found is None:
        PARSER.error("nothing to look into: there was no response yet, or nobody has it any more")
    return found


MAGIC = Magic(PARSER, blsinspect)


def _watch(notebook: Notebook, arguments: argparse.Namespace) -> Watch:
    with reported(notebook):
        return bls.watch(arguments.interval)


WATCH = Verb(
    "watch", "a live panel: what each model does now, its queue, rate and latency, and the memory", _watch,
    "It goes on while cells run, and ends when its output is cleared. A right click on it, then Create New "
    "View for Cell Output, docks it beside the notebook. Its buttons load, unload and reload models. In a "
    "terminal, or without anywidget, it is a table of this moment. In scripts: bls.watch().",
    "  %tritonrepo watch\n",
)  # fmt: skip
WATCH.parser.add_argument(
    "--interval", type=seconds, default=0.5, metavar="TIME", help="time between looks (default: 500ms)"
)
