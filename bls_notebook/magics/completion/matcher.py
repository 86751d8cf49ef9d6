"""Joins the suggestions to IPython's completer, as one of its matchers."""

from __future__ import annotations

from IPython.core.completer import (
    CompletionContext,
    SimpleCompletion,
    SimpleMatcherResult,
    completion_matcher,
)

import bls_notebook as bls

from .lines import magic_line
from .suggest import suggest

__all__ = ["magic_matcher"]


# Before all other matchers, so that what it finds hides files and Python names.
@completion_matcher(identifier="bls_notebook", priority=1000.0, api_version=2)  # type: ignore[untyped-decorator]
def magic_matcher(context: CompletionContext) -> SimpleMatcherResult:
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
