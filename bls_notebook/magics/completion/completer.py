"""Answers to Tab and Shift-Tab: in lines of magics, in config.pbtxt, in Python code of models."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from IPython.core import completer

import bls_notebook as bls
from bls_notebook.capabilities import registry
from bls_notebook.magics.arguments import UnfinishedError, input_name, split_words
from bls_notebook.magics.magic import magic_named, verb_named
from bls_notebook.magics.notebook import Notebook

from .magic_lines import magic_line, suggest

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
    from .python_code import Code, in_python

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


_MAGIC = re.compile(r"^\s*(?:[\w.\[\]'\", ]+=\s*)?(?P<magic>%%?\w+)")


def add_tooltips(notebook: Notebook) -> Callable[[], None]:
    """Answer for the shell's kernel, if it has one; what this returns ends it."""
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

    def give_back() -> None:
        if kernel.__dict__.get("do_inspect") is do_inspect:
            del kernel.do_inspect

    return give_back


def tooltip(notebook: Notebook, code: str, cursor: int) -> str | None:
    """Return what there is to say at a place of a cell; None where that is Python's to say."""
    start = code.rfind("\n", 0, cursor) + 1
    line = code[start:].split("\n", 1)[0]
    found = _MAGIC.match(line)
    if found is not None and cursor - start >= found.start("magic"):
        magic = found["magic"]
        if magic in registry().keys("magics") and (not magic.startswith("%%") or start == 0):
            return _of_magic(notebook, magic, line[found.end() :], cursor - start - found.end())
    from .python_code import Code

    return Code(code, cursor, notebook.shell.user_ns).help() or None


def _of_magic(notebook: Notebook, magic: str, rest: str, at: int) -> str | None:
    """About a word of a magic's line: the cursor is ``at`` a place of ``rest``, what follows its name."""
    parser = magic_named(magic).parser
    try:
        words = split_words(rest)
    except UnfinishedError as error:
        words = split_words(rest[: error.start])
        if at > error.start:
            return None
    verb = verb_named(words[0].text) if words and magic == "%tritonrepo" else None
    if verb is not None and at >= words[0].start:
        parser = verb.parser
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
