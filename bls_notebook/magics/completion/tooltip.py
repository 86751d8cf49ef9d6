"""Shift-Tab: the help of the magic that the cursor is in, the signature of a model, Triton's names.

A kernel asks by the name at the cursor alone, and so `%bls` would be whatever the variable `bls` is. What it
is asked is looked at first, with the cell around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import bls_notebook as bls
from bls_notebook.capabilities import registry
from bls_notebook.magics.magic import magic_named, verb_named
from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.parsing.request_line import input_name
from bls_notebook.magics.parsing.words import UnfinishedError, Word, split_words

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
    from .triton_names import Code

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
    signature = _signature(notebook, _model(words) if name else word.plain)
    return signature or parser.format_help()


def _model(words: list[Word]) -> str:
    """The first word that names a model."""
    known = {record.name for record in bls.current_repository().index()}
    return next((word.plain for word in words if word.plain in known), "")


def _signature(notebook: Notebook, model: str) -> str:
    records = [record for record in bls.current_repository().index() if record.name == model]
    return notebook.draw(records[-1]).text if records else ""
