"""IPython's completer and tooltips: Tab and Shift-Tab in lines of magics, in config.pbtxt, and in code of models."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from IPython.core import completer

import bls_notebook as bls
from bls_notebook.extending import registry
from bls_notebook.magics import Notebook, UnfinishedError, input_name, parser_of, split_words

from .magic_lines import magic_line, suggest

_CONFIG = "%%tritonconfig"


class _Only(list[completer.SimpleCompletion]):
    """Completions that hide those of other matchers, even if empty: IPython asks others if the length is 0."""

    def __len__(self) -> int:
        return max(1, super().__len__())


def add_completion(notebook: Notebook) -> Callable[[], None]:
    """Add the matcher to a shell; return a function that removes it."""

    # The highest priority, so that its completions hide files and Python names.
    @completer.completion_matcher(identifier="bls_notebook", priority=1000.0, api_version=2)  # type: ignore[untyped-decorator]
    def matcher(context: completer.CompletionContext) -> completer.SimpleMatcherResult:
        result = _complete(notebook, context)
        if result is None:
            return {"completions": [], "suppress": False}
        fragment, names = result
        return {
            "completions": _Only(completer.SimpleCompletion(text=name, type=_kind(name)) for name in names),
            "matched_fragment": fragment,
            "suppress": True,
        }

    shell_completer: Any = notebook.shell.Completer
    shell_completer.custom_matchers.append(matcher)

    def remove() -> None:
        if matcher in shell_completer.custom_matchers:
            shell_completer.custom_matchers.remove(matcher)

    return remove


def _complete(notebook: Notebook, context: completer.CompletionContext) -> tuple[str, list[str]] | None:
    """Return the text to replace and its completions; None to leave completion to IPython."""
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
    from .python_code import Code, in_python

    return in_python(Code(text, cursor, variables), models)


def _kind(name: str) -> str:
    """Return the kind of a completion, which frontends display beside it."""
    for end, kind in (("=", "input"), ("/", "path")):
        if name.endswith(end):
            return kind
    if name.startswith("-"):
        return "option"
    value = getattr(bls.pb_utils, name, None)
    return "class" if isinstance(value, type) else "function" if callable(value) else "name"


_MAGIC = re.compile(r"^\s*(?:[\w.\[\]'\", ]+=\s*)?(?P<magic>%%?\w+)")


def add_tooltips(notebook: Notebook) -> Callable[[], None]:
    """Answer Shift-Tab in the shell's kernel, if it has one; return a function that stops it."""
    kernel: Any = getattr(notebook.shell, "kernel", None)
    before = getattr(kernel, "do_inspect", None)
    if before is None:
        return lambda: None

    def do_inspect(code: str, cursor_pos: int, *more: Any, **options: Any) -> Any:
        text = tooltip(notebook, code, cursor_pos)
        if text is None:
            return before(code, cursor_pos, *more, **options)
        return {"status": "ok", "found": True, "data": {"text/plain": text}, "metadata": {}}

    kernel.do_inspect = do_inspect

    def remove() -> None:
        if kernel.__dict__.get("do_inspect") is do_inspect:
            del kernel.do_inspect

    return remove


def tooltip(notebook: Notebook, code: str, cursor: int) -> str | None:
    """Return the tooltip at the cursor; None to leave it to IPython."""
    start = code.rfind("\n", 0, cursor) + 1
    line = code[start:].split("\n", 1)[0]
    match = _MAGIC.match(line)
    if match is not None and cursor - start >= match.start("magic"):
        magic = match["magic"]
        if magic in registry().keys("magics") and (not magic.startswith("%%") or start == 0):
            return _magic_tooltip(notebook, magic, line[match.end() :], cursor - start - match.end())
    from .python_code import Code

    return Code(code, cursor, notebook.shell.user_ns).help() or None


def _magic_tooltip(notebook: Notebook, magic: str, rest: str, at: int) -> str | None:
    """Return the tooltip in a magic's line: `rest` is the text after the magic's name, `at` the cursor in it."""
    try:
        words = split_words(rest)
    except UnfinishedError as error:
        words = split_words(rest[: error.start])
        if at > error.start:
            return None
    parser, _ = parser_of(magic, words[0].text if words and at >= words[0].start else "")
    word = next((w for w in words if w.start <= at <= w.end), None)
    if word is None:
        return parser.format_help()
    name = input_name(word.text)
    if name and at - word.start > len(name):
        return None  # in an expression
    records = {record.name: record for record in bls.current_repository().index()}
    named = (w.plain for w in words if w.plain in records) if name else iter([word.plain])
    record = records.get(next(named, ""))
    return notebook.draw(record).text if record is not None else parser.format_help()
