"""Python expressions and names of the notebook inside a magic's line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from IPython.core.error import UsageError

from bls_notebook.engine.description import describe, traceback_of

Variables = dict[str, Any]


def evaluate(expression: str, variables: Variables, where: str) -> Any:
    """Return the value of an expression; `where` says what it is for, to begin the message of a UsageError
    with.

    What functions of the notebook raise inside it comes through as it is, with its traceback.
    """
    expression = expression.strip()
    try:
        code = compile(expression, f"<{where}>", "eval", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise UsageError(f"{where}: got {expression!r}, expected a Python expression: {reason}.") from None
    try:
        return eval(code, variables)
    except Exception as error:
        ours = traceback_of(error)
        if ours is not None and ours.tb_next is not None and ours.tb_next.tb_next is not None:
            raise
        raise UsageError(f"{where}: {expression}: {describe(error)}") from None


def expanded(word: str, variables: Mapping[str, Any]) -> str:
    """Return a word with ``$name`` and ``{expression}`` replaced by their values, as in other magics."""
    if "$" not in word and "{" not in word:
        return word
    from IPython.utils.text import DollarFormatter

    try:
        return DollarFormatter().vformat(word, args=[], kwargs=variables)
    except Exception:
        return word  # what is no expression was meant as it stands
