"""Joins the suggestions to IPython's completer, as one of its matchers."""

from __future__ import annotations

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult

import bls_notebook as bls

from .lines import magic_line
from .suggest import suggest

__all__ = ["MagicMatcher"]


class MagicMatcher:
    """A matcher of IPython's second kind: it is told of the whole line."""

    matcher_api_version = 2
    matcher_identifier = "bls_notebook"
    matcher_priority = 1000.0  # before all others, so that what it finds hides files and Python names

    def __call__(self, context: CompletionContext) -> SimpleMatcherResult:
        """Return what may stand at the cursor; where that is nothing, Python's names come as usual."""
        line = magic_line(context.text_until_cursor, context.cursor_line == 0)
        if line is None:
            return {"completions": [], "suppress": False}
        fragment, found = suggest(line, bls.current_repository().index())
        return {
            "completions": [SimpleCompletion(text=text, type="param") for text in found],
            "matched_fragment": fragment,
            "suppress": True,
        }
