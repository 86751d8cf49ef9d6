"""``%blspuzzle`` shows a puzzle; ``%%blspuzzle`` checks a replacement of its model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import bls_notebook as bls
from bls_notebook.magics import (
    Magic,
    Notebook,
    Parser,
    Variables,
    add_options,
    fail_on,
    help_text,
    identifier,
    reported,
)
from bls_notebook.records import ModelRecord, write_file

from .puzzle_card import card_encoder
from .puzzle_text import puzzle_names

LINE_PARSER = Parser("%blspuzzle", *help_text(__file__, "%blspuzzle"))
add_options(LINE_PARSER, __file__, "puzzles")
CELL_PARSER = Parser("%%blspuzzle", *help_text(__file__, "%%blspuzzle"))
add_options(CELL_PARSER, __file__, "puzzles", "%%blspuzzle", identifier=identifier)


def next_puzzles(words: Sequence[str], models: Sequence[ModelRecord]) -> list[str]:
    """Return the completions of a puzzle's name."""
    return puzzle_names()


def show_puzzle(notebook: Notebook, line: str, cell: str, variables: Variables) -> None:
    """Show a puzzle."""
    arguments = LINE_PARSER.parse_line(line, variables)
    with reported(notebook):
        notebook.show(bls.puzzle(arguments.puzzle, arguments.seed))


def check_cell(notebook: Notebook, line: str, cell: str, variables: Variables) -> None:
    """Check the model in the cell."""
    __tracebackhide__ = True
    arguments = CELL_PARSER.parse_line(line, variables)
    with reported(notebook):
        encode = card_encoder(arguments.card or "")  # an error before the check, which takes longer
        check = bls.puzzle(arguments.puzzle, arguments.seed).check(cell)
        notebook.assign(arguments.into, check)
        fail_on(notebook, [] if check else [f"puzzle {arguments.puzzle}: {check.hint}"], check)
        notebook.show(check)
        if check and arguments.card:
            path = write_file(Path(arguments.card).expanduser(), encode(check.card()), "card")
            notebook.say(f"card saved to {path.name}")


LINE_MAGIC = Magic(LINE_PARSER, show_puzzle)
CELL_MAGIC = Magic(CELL_PARSER, check_cell)
