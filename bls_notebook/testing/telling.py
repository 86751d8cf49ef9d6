"""What a failed test says, as text for terminals and logs; pure functions of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bls_notebook.display.as_text import document_text
from bls_notebook.display.bundle import render
from bls_notebook.display.document import Document
from bls_notebook.display.records.differences import differences_table
from bls_notebook.profiling.records.session import Session
from bls_notebook.records.errors import ErrorRecord
from bls_notebook.records.repository import TensorsCompared

_WIDTH = 100


def error_text(error: ErrorRecord) -> str:
    """Return an error with the models that it came through, and the lines of their sources."""
    return render(error, width=_WIDTH).text


def calls_text(session: Session) -> str:
    """Return who called whom; empty where there were no requests."""
    if not session.spans:
        return "no requests were sent"
    return "who called whom:\n" + render(session.graph(), width=_WIDTH).text


def differences_text(tensors: Sequence[TensorsCompared], sides: tuple[str, str]) -> str:
    """Return a table of how tensors of two sides differ."""
    return document_text(Document([differences_table(tensors, sides)]), _WIDTH)


def input_text(inputs: Mapping[str, Any]) -> str:
    """Name inputs: ``input X``, ``inputs X and Y``."""
    return f"input{'s' * (len(inputs) > 1)} {' and '.join(inputs)}"
