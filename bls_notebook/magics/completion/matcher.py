"""Completion with Tab, as one of IPython's matchers: in lines of magics, in config.pbtxt, in Python code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from IPython.core import completer

import bls_notebook as bls
from bls_notebook.magics.notebook import Notebook

from .suggest import magic_line, suggest

_CONFIG = "%%tritonconfig"


class _Only(list[completer.SimpleCompletion]):
    """Completions that are the only ones, also where there is none: IPython asks others if there are none."""

    def __len__(self) -> int:
        return max(1, super().__len__())


def add_completion(notebook: Notebook) -> Callable[[], None]:
    """Add the matcher to a shell; what this returns takes it away."""

    # Before all other matchers, so that what it finds hides files and Python names.
    @completer.completion_matcher(identifier="bls_notebook", priority=1000.0, api_version=2)  # type: ignore[untyped-decorator]
    def matcher(context: completer.CompletionContext) -> completer.SimpleMatcherResult:
        found = _found(notebook, context)
        if found is None:
            return {"completions": [], "suppress": False}
        fragment, names = found
        return {
            "completions": _Only(completer.SimpleCompletion(text=name, type=_kind(name)) for name in names),
            "matched_fragment": fragment,
            "suppress": True,
        }

    known: Any = notebook.shell.Completer
    known.custom_matchers.append(matcher)

    def remove() -> None:
        if matcher in known.custom_matchers:
            known.custom_matchers.remove(matcher)

    return remove


def _found(notebook: Notebook, context: completer.CompletionContext) -> tuple[str, list[str]] | None:
    """Return what is to be replaced and by what; None where Python's names come as usual."""
    models = bls.current_repository().index()
    hidden = notebook.shell.user_ns_hidden
    variables = {k: v for k, v in list(notebook.shell.user_ns.items()) if k not in hidden}
    line = magic_line(context.text_until_cursor, context.cursor_line == 0)
    if line is not None:
        return suggest(line, models, variables)
    text = context.full_text
    cursor = sum(len(line) + 1 for line in text.split("\n")[: context.cursor_line]) + context.cursor_position
    if text.startswith(_CONFIG) and context.cursor_line:
        from .config_fields import in_config

        return in_config(text[text.index("\n") + 1 : cursor], [m.name for m in models])
    from .python_names import in_python
    from .triton_names import Code

    return in_python(Code(text, cursor, variables), models)


def _kind(name: str) -> str:
    """What a frontend writes beside a name."""
    for end, kind in (("=", "input"), ("/", "path")):
        if name.endswith(end):
            return kind
    if name.startswith("-"):
        return "option"
    value = getattr(bls.pb_utils, name, None)
    return "class" if isinstance(value, type) else "function" if callable(value) else "name"
