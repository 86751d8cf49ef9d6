"""Comparison of the answers of two models: outputs, errors, versions and parameters."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from bls_notebook.pb_utils import Tensor
from bls_notebook.records.repository import TensorsCompared
from bls_notebook.records.visible_text import first_line
from bls_notebook.repository.requests.tensor_differences import compared
from bls_notebook.shipping.exports.proof_script import normal

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Output:
    """An output: Triton's name of its data type, and its values (BF16 as float32)."""

    datatype: str
    values: Array


@dataclass(frozen=True)
class ProofAnswer:
    """One response: outputs by name, or an error.

    ``status`` is the HTTP status of an error (0 if unknown), ``lost`` whether there was no answer at all.
    """

    outputs: Mapping[str, Output] = field(default_factory=dict)
    error: str | None = None
    status: int = 0
    version: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)
    lost: bool = False


@dataclass(frozen=True)
class Allowed:
    """How far floats may be apart: ``|here - there| <= tolerance * (1 + |there|)``, or so many ULP."""

    tolerance: float = 0.0
    ulps: int = 0


EXACT = Allowed()
Sides = tuple[str, str]
PLACES: Sides = ("here", "on the server")
Differences = tuple[tuple[str, ...], tuple[TensorsCompared, ...]]


def differences(
    here: Sequence[ProofAnswer], there: Sequence[ProofAnswer], allowed: Allowed = EXACT, sides: Sides = PLACES
) -> Differences:
    """Return the differences between the responses to one request, in words and by tensor; empty if equal.

    Any NaN equals any other; zeros of different signs differ. `sides` are the names of the two.
    """
    said: list[str] = []
    tensors: list[TensorsCompared] = []
    if any(answer.lost for answer in there):
        return (*(f"no answer of the server: {a.error}" for a in there if a.lost),), ()
    if len(here) != len(there):
        said.append(f"{len(here)} responses {sides[0]}, {len(there)} {sides[1]}")
    for number, (first, second) in enumerate(zip(here, there, strict=False)):
        words, unlike = _pair(first, second, allowed, sides)
        at = f"response {number}: " if len(here) > 1 or len(there) > 1 else ""
        said += [at + each for each in words]
        tensors += unlike
    return tuple(said), tuple(tensors)


def _pair(
    here: ProofAnswer, there: ProofAnswer, allowed: Allowed, sides: Sides
) -> tuple[list[str], list[TensorsCompared]]:
    if here.error is not None or there.error is not None:
        return _errors(here, there, sides), []
    said, tensors = [], []
    one, other = sides
    if here.version != there.version:
        said.append(f"version {here.version} answered {one}, {there.version} {other}")
    if dict(here.parameters) != dict(there.parameters):
        said.append(f"parameters: {dict(here.parameters)} {one}, {dict(there.parameters)} {other}")
    for name in dict.fromkeys([*here.outputs, *there.outputs]):
        first, second = here.outputs.get(name), there.outputs.get(name)
        if first is None or second is None:
            said.append(f"output {name!r} is only {other if first is None else one}")
        elif words := _outputs(first, second, allowed, sides):
            said.append(f"output {name!r}: {words}")
            tensors.append(compared(Tensor(name, first.values), Tensor(name, second.values)))
    return said, tensors


def _errors(here: ProofAnswer, there: ProofAnswer, sides: Sides) -> list[str]:
    one, other = sides
    if here.error is None or there.error is None:
        where, answer = (one, here) if here.error is not None else (other, there)
        said = answer.error or ""
        return [f"only {where} an error: {first_line(said.partition(', message: ')[2] or said)}"]
    differ = []
    if normal(here.error) != normal(there.error):
        first, second = _from_where_they_differ(here.error, there.error)
        differ.append(f"errors: {first!r} {one}, {second!r} {other}")
    if here.status and there.status and here.status != there.status:
        differ.append(f"error code: HTTP status {here.status} {one}, {there.status} {other}")
    return differ


def _from_where_they_differ(first: str, second: str) -> tuple[str, str]:
    """Return the first lines of two error messages; long ones are cut around their first difference."""
    lines = first_line(first, sys.maxsize), first_line(second, sys.maxsize)
    same = next((i for i, (a, b) in enumerate(zip(*lines, strict=False)) if a != b), min(map(len, lines)))
    begin = same - 60 if same > 120 else 0
    one, other = (f"{'…' * bool(begin)}{first_line(line[begin:])}" for line in lines)
    return one, other


def _outputs(here: Output, there: Output, allowed: Allowed, sides: Sides) -> str:
    """Return how two outputs differ; empty if they are equal."""
    if here.datatype != there.datatype:
        return f"{here.datatype} {sides[0]}, {there.datatype} {sides[1]}"
    first, second = here.values, there.values
    if first.shape != second.shape:
        return f"shape {list(first.shape)} {sides[0]}, {list(second.shape)} {sides[1]}"
    if first.dtype.kind == "O":
        unlike = sum(a != b for a, b in zip(first.ravel().tolist(), second.ravel().tolist(), strict=True))
        return f"{unlike:,} of {first.size:,} elements differ" if unlike else ""
    differ = first != second
    if first.dtype.kind == "f":
        nan = np.isnan(first) & np.isnan(second)
        differ = (differ | (np.signbit(first) != np.signbit(second))) & ~nan
    if not differ.any() or _close(first, second, allowed):
        return ""
    zeros = " (zeros of different signs)" if not (differ & (first != second)).any() else ""
    return f"{int(differ.sum()):,} of {first.size:,} elements differ{zeros}"


def _close(here: Array, there: Array, allowed: Allowed) -> bool:
    if here.dtype.kind != "f":
        return False
    far = ~np.isclose(here, there, rtol=allowed.tolerance, atol=allowed.tolerance, equal_nan=True)
    if allowed.tolerance and not far.any():
        return True
    if not allowed.ulps:
        return False
    found = compared(Tensor("here", here), Tensor("there", there))
    return found.ulps is not None and isfinite(found.absolute) and found.ulps <= allowed.ulps
