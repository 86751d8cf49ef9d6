"""Show the differences between two definitions of a model: a short diff of each file, and changed tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.records.models import Change, ModelRecord, TensorSpecRecord
from bls_notebook.records.regular_file import MAX_CODE, source_text
from bls_notebook.records.units import shape
from bls_notebook.repository.config import to_pbtxt

_NEIGHBOURS = 1  # unchanged lines around each change
_MOST = 40  # lines of a diff
_LONGEST = 4000  # lines of a text that is compared: the time grows with the square


def texts_of(model: LoadedModel | None) -> dict[str, str]:
    """Return the texts of a cell's model: model.py and config.pbtxt, by name; empty for None."""
    if model is None:
        return {}
    code = source_text(Path(model.directory, "model.py"), MAX_CODE)  # an ensemble has none
    return {"model.py": code, "config.pbtxt": to_pbtxt(model.spec.config)}


def changed_tensors(old: ModelRecord, new: ModelRecord) -> list[str]:
    """Return a phrase for each input and output that differs, such as ``input 'X' was FP32 [4], is INT32 [4]``."""
    both = (("input", old.inputs, new.inputs), ("output", old.outputs, new.outputs))
    return [phrase for kind, before, after in both for phrase in _changed(kind, before, after)]


def _changed(kind: str, before: Iterable[TensorSpecRecord], after: Iterable[TensorSpecRecord]) -> Iterator[str]:
    was, now = ({spec.name: _type_of(spec) for spec in specs} for specs in (before, after))
    for name in dict.fromkeys((*was, *now)):
        if name not in now:
            yield f"{kind} {name!r} is gone"
        elif name not in was:
            yield f"{kind} {name!r} is new ({now[name]})"
        elif was[name] != now[name]:
            yield f"{kind} {name!r} was {was[name]}, is {now[name]}"


def _type_of(spec: TensorSpecRecord) -> str:
    return f"{spec.datatype} {shape(spec.dims)}{', optional' if spec.optional else ''}"


def changes(before: dict[str, str], after: dict[str, str]) -> tuple[Change, ...]:
    """Return the differences between two definitions, a `Change` for each file that differs."""
    return tuple(
        _change(name, before[name].splitlines(), text.splitlines())
        for name, text in after.items()
        if name in before and before[name] != text
    )


def numbered_change(before: str, after: str, first: int) -> Change:
    """Return the differences of two texts with line numbers; `first` is the number of the first line."""
    return _change("", before.splitlines(), after.splitlines(), first)


def _change(name: str, before: list[str], after: list[str], first: int | None = None) -> Change:
    if max(len(before), len(after)) > _LONGEST:
        return Change(name, len(after), len(before), (("…", "too long to compare"),))
    lines = list(_lines(before, after))
    signs = [sign for sign, _, _ in lines]
    omitted = len(lines) - _MOST
    kept = [*lines[:_MOST], ("…", f"{omitted} more lines", -1)] if omitted > 1 else lines
    numbers = () if first is None else tuple(first + at if at >= 0 else 0 for _, _, at in kept)
    return Change(name, signs.count("+"), signs.count("-"), tuple((s, text) for s, text, _ in kept), numbers)


def _lines(before: list[str], after: list[str]) -> Iterator[tuple[str, str, int]]:
    from difflib import SequenceMatcher

    for number, group in enumerate(SequenceMatcher(None, before, after).get_grouped_opcodes(_NEIGHBOURS)):
        if number:
            yield "…", "", -1
        for kind, a, b, c, d in group:
            if kind == "equal":
                yield from ((" ", before[at], at) for at in range(a, b))
            else:
                yield from (("-", before[at], at) for at in range(a, b))
                yield from (("+", line, -1) for line in after[c:d])


def lost_tensors(old: ModelRecord, new: ModelRecord) -> tuple[str, ...]:
    """Return a warning for the inputs, and one for the outputs, that a new configuration no longer has."""
    lines = []
    for kind, before, after in (("input", old.inputs, new.inputs), ("output", old.outputs, new.outputs)):
        if lost := [repr(spec.name) for spec in before if spec.name not in {kept.name for kept in after}]:
            what = f"{kind}{'s' if len(lost) > 1 else ''} {', '.join(lost)}"
            lines.append(f"the model no longer has {what}: this configuration replaces the earlier one as a whole")
    return tuple(lines)
