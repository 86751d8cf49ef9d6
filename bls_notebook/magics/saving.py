"""``--save FILE`` of magics that record a cell: refused before the cell runs, written after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bls_notebook as bls

from .notebook import Notebook
from .parsing.arguments import Parser


def check_file(parser: Parser, file: str | None) -> None:
    """Refuse a file that could not be written afterwards."""
    try:
        known = not file or Path(file).expanduser().parent.is_dir()
    except RuntimeError:  # of a user who does not exist
        known = False
    if not known:
        parser.error(f"--save: got {file!r}, expected a file in a folder that exists")


def save(notebook: Notebook, magic: str, what: Any, file: str | None, readable: bool = False) -> None:
    """Write it to a file, and show what went wrong; `readable`: `bls.load` reads its JSON."""
    if not file:
        return
    try:
        path = what.save(Path(file).expanduser())
    except bls.BLSError as error:
        notebook.say(f"{magic}: --save: {file}: {error}", "error")
    else:
        other = path.name.endswith((".trace.json", ".pickle"))
        hint = f"bls.load({file!r}) reads it" if readable and not other else ""
        if path.suffix == ".pickle":
            hint = "drop it on pytorch.org/memory_viz"
        notebook.say(f"saved to {path.name}", hint=hint)
