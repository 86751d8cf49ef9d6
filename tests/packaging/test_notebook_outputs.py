"""`make check-notebooks` compares the outputs of a cell as a notebook shows them in the end."""

from __future__ import annotations

import pytest

from tests.notebooks.twice import ROOT

CELL = """\
from IPython.display import HTML, display
progress, table = display("half", display_id=True), display(HTML("one row"), display_id=True)
get_ipython().display_pub.publish({}, transient={"display_id": progress.display_id}, update=True)
table.update(HTML("two rows"))
"""


@pytest.mark.slow
def test_updates_of_displays_are_applied_before_outputs_are_compared(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nbval")
    from nbformat import v4, write

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name, shown in (("same", "two rows"), ("other", "one row")):
        data = {"text/plain": "<IPython.core.display.HTML object>", "text/html": shown}
        output = v4.new_output("display_data", data)  # type: ignore[no-untyped-call]
        cell = v4.new_code_cell(CELL, execution_count=1, outputs=[output])  # type: ignore[no-untyped-call]
        write(v4.new_notebook(cells=[cell]), f"{name}.ipynb")  # type: ignore[no-untyped-call]
    plugin = "-p", "tests.packaging.notebook_outputs"
    result = pytester.runpytest_subprocess(*plugin, "-W", "default", "--nbval", "--nbval-current-env")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["FAILED other.ipynb::Cell 0*"])
