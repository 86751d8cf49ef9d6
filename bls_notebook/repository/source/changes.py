"""What a new definition of a model changes: in its code, and in its completed configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.repository.config import to_pbtxt

if TYPE_CHECKING:
    from bls_notebook.observe.records.changes import Change

_NEIGHBOURS = 1
_MOST = 40  # lines that are kept
_LONGEST = 4000  # lines of a text that is compared: the time grows with their square


def texts_of(model: LoadedModel | None) -> dict[str, str]:
    """Return the files that a cell gave a model; none where there is no model."""
    if model is None:
        return {}
    try:
        code = Path(model.directory, "model.py").read_text(encoding="utf-8")
    except (OSError, ValueError):  # an ensemble has none
        code = ""
    return {"model.py": code, "config.pbtxt": to_pbtxt(model.spec.config)}


def changes(before: dict[str, str], after: dict[str, str]) -> tuple[Change, ...]:
    """Return the files that differ; none where there was no definition before."""
    return tuple(
        _change(name, before[name].splitlines(), text.splitlines())
        for name, text in after.items()
        if name in before and before[name] != text
    )


def _change(name: str, before: list[str], after: list[str]) -> Change:
    from bls_notebook.observe.records.changes import Change  # first needed here

    if max(len(before), len(after)) > _LONGEST:
        return Change(name, len(after), len(before), (("…", "too long to be compared"),))
    lines = list(_lines(before, after))
    signs = [sign for sign, _ in lines]
    more = len(lines) - _MOST
    kept = [*lines[:_MOST], ("…", f"{more} more lines")] if more > 1 else lines
    return Change(name, signs.count("+"), signs.count("-"), tuple(kept))


def _lines(before: list[str], after: list[str]) -> Iterator[tuple[str, str]]:
    from difflib import SequenceMatcher

    for number, group in enumerate(SequenceMatcher(None, before, after).get_grouped_opcodes(_NEIGHBOURS)):
        if number:
            yield "…", ""
        for kind, a, b, c, d in group:
            if kind == "equal":
                yield from ((" ", line) for line in before[a:b])
            else:
                yield from (("-", line) for line in before[a:b])
                yield from (("+", line) for line in after[c:d])
