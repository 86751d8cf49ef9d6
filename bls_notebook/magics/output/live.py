"""A stream's table that grows while the responses arrive, where the frontend can replace displays."""

from __future__ import annotations

import uuid
from time import monotonic

from bls_notebook import Response
from bls_notebook.magics.notebook import Notebook

from .results import Responses

# A stream that is over sooner is shown once, at its end.
FIRST_AFTER = 0.25
BETWEEN = 0.1


class LiveTable:
    """Shows responses while they arrive, unless that is to be quiet."""

    def __init__(self, notebook: Notebook, responses: Responses, quiet: bool = False) -> None:
        self._notebook = notebook
        self._responses = responses
        self._shows = notebook.has_kernel and not quiet
        self._id = ""
        self._next = monotonic() + FIRST_AFTER

    def take(self, response: Response) -> None:
        """Add a response and show it, unless the last update was a moment ago."""
        self._responses.append(response)
        if self._shows and monotonic() >= self._next:
            self._update()
            self._next = monotonic() + BETWEEN

    def finish(self) -> None:
        """Show the whole of it, if it has been shown in part; the cell need not show it again then."""
        if self._id:
            self._update()
            self._responses.shown_in = self._notebook.cell_number

    def _update(self) -> None:
        known = bool(self._id)
        self._id = self._id or uuid.uuid4().hex
        self._notebook.publish(self._notebook.draw(self._responses), self._id, update=known)
