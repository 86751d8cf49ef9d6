"""Where in the notebook the text below a magic is, as debuggers know it.

A frontend names the file of a breakpoint by the whole text of the cell, the magic's line included, and the
shell compiles the cell under that name. Code that has the same name, and its lines where they are in the
cell, stops there.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from bls_notebook.engine.exception_text import labels
from bls_notebook.magics.notebook import Notebook
from bls_notebook.repository.source.model_source import SourcePlace


def place_of(notebook: Notebook, body: str) -> SourcePlace | None:
    """Return where the cell that runs has the text below its magic; None where that is no cell's text."""
    shell: Any = notebook.shell
    found = None
    file = ""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:  # outwards: where cells run cells, the outermost is the one on the screen
        if frame.f_globals is shell.user_global_ns:
            file = frame.f_code.co_filename
        elif frame.f_code.co_name == "run_cell_async":
            above = _lines_above(frame.f_locals.get("raw_cell"), body)
            if above and file:
                found = SourcePlace(file, f"Cell In[{notebook.cell_number}]", above + 1)
            file = ""
        frame = frame.f_back
    if found is not None:
        labels[found.file] = found.label
    return found


def _lines_above(cell: object, body: str) -> int:
    """How many lines a cell has above the text that it ends with; 0 where it does not."""
    if not isinstance(cell, str):
        return 0
    whole, last = _lines(cell), _lines(body)
    above = len(whole) - len(last)
    magic = next(filter(None, whole), "")
    return above if above > 0 and magic.startswith("%%") and whole[above:] == last else 0


def _lines(text: str) -> list[str]:
    """Lines without their indentation, which the shell takes away where all have it."""
    return [line.strip() for line in text.rstrip("\n").split("\n")]
