"""Joins the suggestions to IPython's completer, through its matchers."""

from __future__ import annotations

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher
from IPython.core.interactiveshell import InteractiveShell

import bls_notebook as bls

from .lines import magic_line
from .suggest import suggest

__all__ = ["Completion"]


class Completion:
    """A matcher of one shell.

    Parameters
    ----------
    shell : InteractiveShell
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self._completer = shell.Completer

        @context_matcher(identifier="bls_notebook", priority=60.0)
        def matcher(context: CompletionContext) -> SimpleMatcherResult:
            return _matches(context)

        self._matcher = matcher

    def add(self) -> None:
        """Begin to complete."""
        self._completer.custom_matchers.append(self._matcher)

    def remove(self) -> None:
        """Complete no more."""
        if self._matcher in self._completer.custom_matchers:
            self._completer.custom_matchers.remove(self._matcher)


def _matches(context: CompletionContext) -> SimpleMatcherResult:
    line = magic_line(context.text_until_cursor, context.cursor_line == 0)
    if line is None:
        return {"completions": [], "suppress": False}
    fragment, found = suggest(line, bls.current_repository().index())
    return {
        "completions": [SimpleCompletion(text=text, type="param") for text in found],
        "matched_fragment": fragment,
        # Files and Python names would only be in the way; where nothing is found, they come as usual.
        "suppress": True,
    }
