"""A judged claim as one line, with the hint on a line of its own."""

from __future__ import annotations

from bls_notebook.display.document import Document
from bls_notebook.display.records.errors import message_document
from bls_notebook.records.repository import MessageRecord
from bls_notebook.testing.judging import Judgement


def judgement_document(judgement: Judgement) -> Document:
    """Show whether a claim holds, and what was seen."""
    kind = "done" if judgement.holds else "error"
    return message_document(MessageRecord(f"{judgement.claim}: {judgement.seen}", kind, judgement.hint))
