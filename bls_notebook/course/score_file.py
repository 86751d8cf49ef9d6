"""The score of the cases in a file of Jupyter's data folder, so that it survives the kernel.

A file that is missing, damaged or cannot be written costs nothing: the score is then the kernel's own.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from bls_notebook.records import replace_file

from .case_display import CaseScore

Scores = dict[tuple[int, int], CaseScore]
"""The progress with each case, by number and seed."""


def score_file() -> Path:
    """Return the path of the file; without Jupyter, it is in IPython's folder."""
    try:
        from jupyter_core.paths import jupyter_data_dir as folder
    except ImportError:
        from IPython.paths import get_ipython_dir as folder
    return Path(folder()) / "bls_notebook" / "case_scores.json"


def read_scores() -> Scores:
    """Return the saved rows that are scores."""
    try:
        rows = json.loads(score_file().read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    scores: Scores = {}
    for row in rows if isinstance(rows, list) else ():
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            score = CaseScore.from_dict(row)
            scores[score.number, score.seed] = score
    return scores


def save_score(score: CaseScore) -> None:
    """Add or replace a row of the file, or remove one that the notebook gave: "Run all" earns and costs nothing."""
    scores = {**read_scores(), (score.number, score.seed): score}
    rows = [row.to_dict() for row in scores.values() if not row.given]
    file = score_file()
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, f"{json.dumps(rows)}\n".encode())
