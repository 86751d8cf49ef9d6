"""A pipeline that is slow, wrong or leaks for one reason: its models, causes and claims, read from ``cases/``.

A folder has ``models/`` (a model repository), fix.txt (the name of the changed file, and a diff) and case.md
with the sections Requests, Hidden, Causes, Claims and Variants. ``*`` marks the cause of the case.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bls_notebook.pb_utils.dtypes import triton_string_to_numpy
from bls_notebook.records import BLSError, Record

from .puzzle_text import patched, replace_words

FOLDER = Path(__file__).with_name("cases")
_TENSOR = re.compile(r"(\w+) (\w+) \[([\d, ]+)\] (\S[^;]*)")


@dataclass(frozen=True, slots=True, repr=False)
class CaseModel(Record):
    """A model of a case: its configuration (pbtxt) and the text of its model.py."""

    name: str
    config: str
    source: str


@dataclass(frozen=True, slots=True, repr=False)
class CaseCause(Record):
    """A possible cause: its ``meaning``, and the ``words`` that say why the picture shows or contradicts it."""

    name: str
    meaning: str
    words: str


def arrays(spec: str, draw: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    """Return the inputs of a request, such as ``depot PARCELS INT32 [6] 1..90``."""
    return {name: _array(draw, *rest) for name, *rest in _TENSOR.findall(spec)}


def _array(draw: np.random.Generator, datatype: str, dims: str, values: str) -> np.ndarray[Any, Any]:
    shape = [int(size) for size in dims.split(",")]
    if datatype == "BYTES":
        return np.array([word.encode() for word in values.split()], object).reshape(shape)
    kind = triton_string_to_numpy(f"TYPE_{datatype}")
    low, dots, high = values.strip().partition("..")
    if not dots:
        return np.asarray([int(value) for value in values.split()], kind).reshape(shape)
    return draw.integers(int(low), int(high) + 1, shape).astype(kind)


def case_folders() -> dict[int, Path]:
    """Return the folders of all cases by number."""
    return {int(file.parent.name[:2]): file.parent for file in sorted(FOLDER.glob("*/case.md"))}


def cause_meanings() -> dict[str, str]:
    """Return the meaning of each cause that a case may have."""
    return dict(line.split(" | ") for line in (FOLDER / "causes.txt").read_text("utf-8").splitlines())


def read_case(number: int, seed: int) -> dict[str, Any]:
    """Return the fields of a case; seeds other than 0 choose other names, numbers and positions."""
    folders = case_folders()
    if number not in folders:
        raise BLSError(f"case: got {number!r}, expected a number from 1 to {max(folders)}")
    folder = folders[number]
    text = (folder / "case.md").read_text("utf-8")
    words, orders, left_out = _variant(_section(text, "Variants"), f"{folder.name} {seed}") if seed else ({}, {}, "")
    text = replace_words(text, words)
    title, _, story = text.partition("\n## ")[0].lstrip("# ").partition("\n")
    meanings = cause_meanings()
    causes = [item.partition(": ") for item in _section(text, "Causes")]
    rounds = tuple(tuple(_section(text, name)) for name in ("Requests", "Hidden"))
    root = rounds[0][0].split()[0]
    file, _, diff = (folder / "fix.txt").read_text("utf-8").partition("\n")
    models, fixed = (
        sorted(
            _models(folder / "models", words, orders, left_out, *fix),
            key=lambda model: (model.name != root, model.name),
        )
        for fix in ((), (file, diff))
    )
    named = [CaseCause(name.rstrip("*"), meanings[name.rstrip("*")], words) for name, _, words in causes]
    return {
        "number": number, "title": title, "story": " ".join(story.split()),
        "model": root, "models": tuple(models), "fixed": tuple(fixed),
        "causes": tuple(named), "cause": next(name.rstrip("*") for name, *_ in causes if name.endswith("*")),
        "claims": tuple(_section(text, "Claims")), "rounds": rounds,
        "together": "\n## Requests, sent together\n" in text, "seed": seed,
    }  # fmt: skip


def _section(text: str, name: str) -> list[str]:
    """Return the items of the list in a section."""
    section = re.split(rf"\n## {name}.*\n", text)[1].partition("\n## ")[0]
    return [" ".join(item.split()) for item in section.split("\n- ")[1:]]


def _variant(items: list[str], seed: str) -> tuple[dict[str, str], dict[str, dict[str, str]], str]:
    """Return other words for names and numbers, the names to exchange in a model's code, and a model to leave out."""
    choose = random.Random(seed)
    words: dict[str, str] = {}
    orders: dict[str, dict[str, str]] = {}
    left_out = ""
    for item in items:
        first, _, rest = item.partition(": ")
        others = rest.split(", ")
        if first.startswith("order of "):
            orders[first.removeprefix("order of ")] = dict(zip(others, choose.sample(others, len(others)), strict=True))
        elif first == "sometimes without":
            left_out = random.Random(f"without {seed}").choice([*others, ""])
        else:
            words |= zip(first.split(), choose.sample(others, len(first.split())), strict=True)
    return words, orders, left_out


def _models(
    folder: Path,
    words: dict[str, str],
    orders: dict[str, dict[str, str]],
    left_out: str,
    fixed: str = "",
    diff: str = "",
) -> Iterator[CaseModel]:
    """Read the models of a folder, with the changes of `diff` to the file `fixed`.

    A model.py is kept as model.txt: it is data with a fault, and no module of this package.
    """
    for model in folder.iterdir():
        if model.name == left_out:
            continue
        config, source = (
            patched(file.read_text("utf-8"), diff if file == folder / fixed else "")
            for file in (model / "config.pbtxt", model / "model.txt")
        )
        source = replace_words(source, orders.get(model.name, {}))
        source = re.sub(rf'"{left_out}", |, "{left_out}"', "", source) if left_out else source
        yield CaseModel(*(replace_words(text, words) for text in (model.name, config, source)))
