"""``%blspuzzle`` shows a puzzle; ``%%blspuzzle`` checks a replacement of its model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import bls_notebook as bls
from bls_notebook.magics import MagicCall, fail_on, reported
from bls_notebook.operations import INTO, OperationSpec, new_file_with, option, whole_number
from bls_notebook.records import ModelRecord, write_file

from .puzzle_card import card_encoder
from .puzzle_text import puzzle_names


def next_puzzles(words: Sequence[str], models: Sequence[ModelRecord]) -> list[str]:
    """Return the completions of a puzzle's name."""
    return puzzle_names()


_PUZZLE = option("puzzle", "PUZZLE", "a puzzle, such as: gather")
_SEED = option("--seed", "N", "a variant of the puzzle: other names, values and sizes (default: 0)", whole_number(0))

SHOW = OperationSpec(
    """Show a puzzle: its story, its constraints, and the inputs and outputs of its models. %%blspuzzle checks a
    solution. More: docs/tutorials/index.md.""",
    lambda puzzle, seed=0: bls.puzzle(puzzle, seed),
    (_PUZZLE, _SEED),
    "%blspuzzle gather",
)


def _check(call: MagicCall, puzzle: str, seed: int = 0, card: str = "", into: str = "") -> None:
    """Check the model in the cell."""
    __tracebackhide__ = True
    notebook = call.notebook
    with reported(notebook):
        encode = card_encoder(card)  # an error before the check, which takes longer
        check = bls.puzzle(puzzle, seed).check(call.cell)
        notebook.assign(into, check)
        fail_on(notebook, [] if check else [f"puzzle {puzzle}: {check.hint}"], check)
        notebook.show(check)
        if check and card:
            path = write_file(Path(card).expanduser(), encode(check.card()), "card")
            notebook.say(f"card saved to {path.name}")


CHECK = OperationSpec(
    """Check the cell, the text of a model.py, as a replacement of a puzzle's naive model. It must give the same
    answers to generated requests, send requests to the same models, and satisfy the puzzle's constraints, which are
    claims as for %%blscheck. A violated constraint shows the timeline or the lifetimes of a request that violates it,
    next to the reference solution's. The model runs in another process. In scripts: assert
    bls.puzzle('gather').check(source). More: docs/tutorials/index.md.""",
    options=(
        _PUZZLE,
        _SEED,
        option("--card", "FILE", "if the puzzle is solved, write a picture to share", new_file_with(".svg", ".png")),
        INTO,
    ),
    examples="""
    %%blspuzzle gather
    import triton_python_backend_utils as pb_utils
    ...
    """,
    notebook=_check,
)
