"""What advice may look at besides the error, and the words for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bls_notebook.records.errors import ErrorRecord, InputSeen
from bls_notebook.records.repository import ModelRecord, TensorSpecRecord

NUMPY = {
    "BOOL": "np.bool_", "UINT8": "np.uint8", "UINT16": "np.uint16", "UINT32": "np.uint32",
    "UINT64": "np.uint64", "INT8": "np.int8", "INT16": "np.int16", "INT32": "np.int32", "INT64": "np.int64",
    "FP16": "np.float16", "FP32": "np.float32", "FP64": "np.float64", "BYTES": "np.object_",
}  # fmt: skip
"""NumPy's names of Triton's data types; it has none for BF16."""

_MOST = 8  # names in a list


@dataclass(frozen=True)
class Known:
    """The models as they are now.

    ``find`` gives the newest version that serves, ``every`` all that is known of, ``names`` are the names of
    `pb_utils`.
    """

    find: Callable[[str], ModelRecord | None] = lambda _: None
    every: Callable[[], Sequence[ModelRecord]] = tuple
    names: Sequence[str] = ()


Answer = Callable[["re.Match[str]", ErrorRecord, Known], str]


def answers(message: str, table: Mapping[str, str | Answer], record: ErrorRecord, known: Known) -> Iterator[str]:
    """Yield what a table of patterns, in its order, has to say about a message; ``{name}`` is a group."""
    for pattern, answer in table.items():
        if found := re.search(pattern, message):
            yield (answer.format(**found.groupdict()) if isinstance(answer, str) else answer(found, record, known))


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the name that was probably meant, empty if none comes near."""
    names = list(dict.fromkeys(known))
    for name in names:
        if name.casefold() == word.casefold():
            return name
    import difflib  # first needed here

    found = difflib.get_close_matches(word, names, 1, 0.7)
    if not found:
        within = [n for n in names if len(word) > 2 and (n.startswith(word) or word.startswith(n))]
        found = within if len(within) == 1 else []
    return found[0] if found else ""


def meant(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean `NAME`? ``, empty if no name comes near."""
    name = nearest(word, known)
    return f"did you mean `{name}`? " if name else ""


def listed(names: Iterable[str], nothing: str = "none") -> str:
    """Spell names as a list, in which many become few."""
    found = [f"`{name}`" for name in names]
    more = f", and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return ", ".join(found[:_MOST]) + more or nothing


def signature(tensors: Sequence[TensorSpecRecord | InputSeen], batch: bool = False) -> str:
    """Spell tensors with their data types and shapes."""
    told = []
    for tensor in tensors[:_MOST]:
        dims = tensor.dims if isinstance(tensor, TensorSpecRecord) else tensor.shape
        shape = ", ".join(["batch"] * batch + [str(n) for n in dims])
        optional = " (optional)" if isinstance(tensor, TensorSpecRecord) and tensor.optional else ""
        told.append(f"`{tensor.name}` {tensor.datatype} [{shape}]{optional}")
    more = f", and {len(tensors) - _MOST} more" if len(tensors) > _MOST else ""
    return ", ".join(told) + more or "none"


def ask_for(name: str) -> str:
    """Say how a model that is in the repository's folder is loaded."""
    return f"load it first: `%tritonrepo load {name}` or `repo.load({name!r})`"


def missing_model(name: str, known: Known, version: int = -1) -> str:
    """Say what to do about a model that does not serve."""
    rows = known.every()
    ready = {row.name for row in rows if row.state == "READY"}
    own = [row for row in rows if row.name == name]
    if name in ready:
        versions = ", ".join(str(row.version) for row in own if row.state == "READY")
        return f"`{name}` serves version {versions}: ask for that, or leave the version out"
    failed = next((row.reason for row in own if row.reason not in ("", "not loaded", "unloaded")), "")
    if failed and any(row.state == "UNAVAILABLE" for row in own):
        return f"`{name}` could not be loaded: {failed.strip().partition(chr(10))[0][:300]}"
    if own:
        return ask_for(name)
    close = nearest(name, sorted(ready))
    if close:
        return f"did you mean `{close}`? Models that serve: {listed(sorted(ready))}"
    close = nearest(name, sorted({row.name for row in rows} - ready))
    if close:
        return f"did you mean `{close}`? If so, {ask_for(close)}"
    return (
        f"define it in a cell, `%%tritonmodel {name}`, or name the folder that it is in, "
        f"`%tritonrepo use FOLDER`, and `%tritonrepo load {name}`; models that serve: {listed(sorted(ready))}"
    )
