"""``--apply``: a new cell with a changed model, below; no cell and no file is written over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bls_notebook.magics.notebook import Notebook

if TYPE_CHECKING:
    from bls_notebook.profiling.records.overlap import Overlap


def make_cell(notebook: Notebook, overlap: Overlap, variable: str) -> None:
    """Make a cell with the change that was proven; say what there is to do where there is none."""
    code = overlap.code
    if code is None:
        why = "that was not proven" if overlap.problem else "there is nothing to gain"
        notebook.say(f"%blsprofile: --apply: no change is made, as {why}", "info")
        return
    if not code.source or not code.proven:
        return  # its display says why
    where = f"`{variable}.code.source`" if variable else "`code.source` of what this returns"
    if code.folder:
        notebook.say(
            f"%blsprofile: --apply: {overlap.model!r} lies in {code.folder}, which is not written to", "info",
            f"the changed model.py is {where.replace('`', '')}",
        )  # fmt: skip
        return
    line = notebook.definition_lines.get(overlap.model, overlap.model)
    shell: Any = notebook.shell
    shell.set_next_input(f"%%tritonmodel {line.strip()}\n{code.source.rstrip()}\n", replace=False)
    notebook.say(
        f"the changed {overlap.model!r} is in the cell below: run it to have it serve",
        hint="the cell that defines it now is as it was",
    )
