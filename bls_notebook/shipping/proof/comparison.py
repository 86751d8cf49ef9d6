"""Comparison of the answers of two models: outputs, errors, versions and parameters."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from bls_notebook.inspection.records import TensorsCompared
from bls_notebook.inspection.tensor_differences import compared
from bls_notebook.pb_utils import Tensor
from bls_notebook.pb_utils.dtypes import Array
from bls_notebook.records import first_line
from bls_notebook.repository import Response
from bls_notebook.shipping.proof.proof_script import normal


@dataclass(frozen=True)
class Output:
    """An output: its Triton data type and its values (BF16 as float32)."""

    datatype: str
    values: Array


@dataclass(frozen=True)
class ProofAnswer:
    """One response: outputs by name, or an error.

    ``status`` is the gRPC status of an error (empty if unknown), ``lost`` whether there was no answer at all.
    """

    outputs: Mapping[str, Output] = field(default_factory=dict)
    error: str | None = None
    status: str = ""
    version: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)
    lost: bool = False

    @classmethod
    def of(cls, response: Response) -> ProofAnswer:
        """Return the outputs and parameters of a response, or its error."""
        if response.error is not None:
            return cls(error=response.error.message())
        arrays = response.as_numpy()
        outputs = {t.name(): Output(t._datatype, arrays[t.name()]) for t in response.output_tensors()}
        return cls(outputs, parameters=response.parameters())


@dataclass(frozen=True)
class Allowed:
    """Allowed difference of floats: ``|here - there| <= tolerance * (1 + |there|)``, or up to ``ulps`` ULP."""

    tolerance: float = 0.0
    ulps: int = 0


EXACT = Allowed()
Sides = tuple[str, str]
PLACES: Sides = ("here", "on the server")
_ROUNDED = {"FP16": 1e-2, "BF16": 5e-2, "FP32": 2e-5, "FP64": 4e-14}
"""The largest tolerance that accepts mere rounding: some hundred times the precision of the data type."""


class Differences(NamedTuple):
    """Differences of answers: lines, and the outputs that differ.

    `rounding` is the smallest tolerance that accepts all of them, if they are no more than rounding; else None.
    """

    lines: tuple[str, ...] = ()
    tensors: tuple[TensorsCompared, ...] = ()
    rounding: float | None = None


def differences(
    here: Sequence[ProofAnswer], there: Sequence[ProofAnswer], allowed: Allowed = EXACT, sides: Sides = PLACES
) -> Differences:
    """Return the differences between the responses to one request, as lines and by tensor; empty if equal.

    Exact comparison is of bits: zeros of different signs differ, and so do NaN of different bits. `sides` names the
    two sides in the lines.
    """
    lines: list[str] = []
    tensors: list[TensorsCompared] = []
    rounding: list[float | None] = []
    if any(answer.lost for answer in (*here, *there)):
        lost = (f"no answer from the server: {a.error}" for a in there if a.lost)
        return Differences((*(str(a.error) for a in here if a.lost), *lost))
    if len(here) != len(there):
        lines.append(f"{len(here)} responses {sides[0]}, {len(there)} {sides[1]}")
        rounding.append(None)
    for number, (first, second) in enumerate(zip(here, there, strict=False)):
        found = _pair(first, second, allowed, sides)
        prefix = f"response {number}: " if len(here) > 1 or len(there) > 1 else ""
        lines += [prefix + line for line in found.lines]
        tensors += found.tensors
        rounding += [found.rounding] if found.lines else []
    return Differences(tuple(lines), tuple(tensors), most(rounding))


def most(rounding: Sequence[float | None]) -> float | None:
    """Return the tolerance that accepts several differences; None without any, or if one is more than rounding."""
    known = [each for each in rounding if each is not None]
    return max(known) if known and len(known) == len(rounding) else None


def _pair(here: ProofAnswer, there: ProofAnswer, allowed: Allowed, sides: Sides) -> Differences:
    if here.error is not None or there.error is not None:
        return Differences(tuple(_errors(here, there, sides)))
    lines, tensors = [], []
    rounding: list[float | None] = []
    one, other = sides
    if here.version != there.version:
        lines.append(f"answered by version {here.version} {one}, {there.version} {other}")
    if dict(here.parameters) != dict(there.parameters):
        lines.append(f"parameters: {dict(here.parameters)} {one}, {dict(there.parameters)} {other}")
    for name in dict.fromkeys([*here.outputs, *there.outputs]):
        first, second = here.outputs.get(name), there.outputs.get(name)
        if first is None or second is None:
            lines.append(f"output {name!r} is only {other if first is None else one}")
        elif difference := _outputs(first, second, allowed, sides):
            lines.append(f"output {name!r}: {difference}")
            pair = compared(Tensor(name, first.values), Tensor(name, second.values), bits=True)
            tensors += [pair] if pair.differing or pair.reason else []
            rounding.append(_rounding(first, second))
    rounding += [None] * (len(lines) - len(rounding))
    return Differences(tuple(lines), tuple(tensors), most(rounding))


def _rounding(here: Output, there: Output) -> float | None:
    """Return the smallest tolerance that accepts the difference of two outputs; None if it is more than rounding."""
    first, second = here.values, there.values
    if here.datatype != there.datatype or first.shape != second.shape or here.datatype not in _ROUNDED:
        return None
    with np.errstate(all="ignore"):
        wide = [values.astype(np.float64) for values in (first, second)]
        gaps = np.where((wide[0] == wide[1]) | (np.isnan(wide[0]) & np.isnan(wide[1])), 0.0, np.abs(wide[0] - wide[1]))
        needed = float(np.max(gaps / (1 + np.abs(wide[1])), initial=0.0))
    return needed if 0 < needed <= _ROUNDED[here.datatype] else None


def _errors(here: ProofAnswer, there: ProofAnswer, sides: Sides) -> list[str]:
    one, other = sides
    if here.error is None or there.error is None:
        side, answer = (one, here) if here.error is not None else (other, there)
        message = answer.error or ""
        return [f"an error only {side}: {first_line(message.partition(', message: ')[2] or message)}"]
    lines = []
    if normal(here.error) != normal(there.error):
        first, second = _around_difference(here.error, there.error)
        lines.append(f"errors: {first!r} {one}, {second!r} {other}")
    if here.status and there.status and here.status != there.status:
        lines.append(f"error code: gRPC status {here.status} {one}, {there.status} {other}")
    return lines


def _around_difference(first: str, second: str) -> tuple[str, str]:
    """Return the first lines of two error messages that differ, long ones from shortly before the difference."""
    lines = first_line(first, sys.maxsize), first_line(second, sys.maxsize)
    if normal(lines[0]) == normal(lines[1]):
        pairs = zip_longest(normal(first).splitlines(), normal(second).splitlines(), fillvalue="")
        lines = next((pair for pair in pairs if pair[0] != pair[1]), lines)
    same = next((i for i, (a, b) in enumerate(zip(*lines, strict=False)) if a != b), min(map(len, lines)))
    start = same - 60 if same > 120 else 0
    one, other = (f"{'…' if start else ''}{first_line(line[start:])}" for line in lines)
    return one, other


def _outputs(here: Output, there: Output, allowed: Allowed, sides: Sides) -> str:
    """Describe the difference of two outputs; empty if they are equal."""
    if here.datatype != there.datatype:
        return f"{here.datatype} {sides[0]}, {there.datatype} {sides[1]}"
    first, second = here.values, there.values
    if first.shape != second.shape:
        return f"shape {list(first.shape)} {sides[0]}, {list(second.shape)} {sides[1]}"
    if first.dtype.kind == "O":
        differing = sum(a != b for a, b in zip(first.ravel().tolist(), second.ravel().tolist(), strict=True))
        return f"{differing:,} of {first.size:,} elements differ" if differing else ""
    differ = np.not_equal(*(values.copy().view(f"u{values.itemsize}") for values in (first, second)))
    if not differ.any() or _close(first, second, allowed):
        return ""
    kinds = {
        " (zeros of different signs)": (first == 0) & (second == 0),
        " (NaN of different bits)": (first != first) & (second != second),
    }
    kind = next((kind for kind, places in kinds.items() if not (differ & ~places).any()), "")
    return f"{int(differ.sum()):,} of {first.size:,} elements differ{kind}"


def _close(here: Array, there: Array, allowed: Allowed) -> bool:
    if here.dtype.kind != "f" or allowed == EXACT:
        return False
    far = ~np.isclose(here, there, rtol=allowed.tolerance, atol=allowed.tolerance, equal_nan=True)
    if not far.any():
        return True
    if not allowed.ulps:
        return False
    difference = compared(Tensor("here", here), Tensor("there", there))
    return difference.ulps is not None and isfinite(difference.absolute) and difference.ulps <= allowed.ulps
