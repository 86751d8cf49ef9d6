"""Text of failed tests: errors, calls, and the differences between arrays and the expected ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bls_notebook.display import document_text, render
from bls_notebook.display.document import Document
from bls_notebook.inspection.differences_table import differences_table
from bls_notebook.inspection.records import TensorsCompared
from bls_notebook.inspection.tensor_differences import compared
from bls_notebook.pb_utils import Tensor
from bls_notebook.profiling.session import Session
from bls_notebook.records import ErrorRecord, first_line, ns

_WIDTH = 100


def error_text(error: ErrorRecord) -> str:
    """Return an error, the models that passed it on, and lines of their sources."""
    return render(error, width=_WIDTH).text


def calls_text(session: Session, loads: Mapping[str, int]) -> str:
    """Return the calls between models; `loads` (ns) of callees happened meanwhile."""
    if not session.spans:
        return "the test itself sent no requests"  # a drill or a proof may have
    text = "calls between models:\n" + render(session.graph(), width=_WIDTH).text
    loaded = ", ".join(f"{name} {ns(time)}" for name, time in loads.items())
    return f"{text}\nThe callers' own time includes loads of callees: {loaded}." if loaded else text


def differences_text(tensors: Sequence[TensorsCompared], sides: tuple[str, str]) -> str:
    """Return a table of how tensors of two sides differ."""
    return document_text(Document([differences_table(tensors, sides)]), _WIDTH)


_Array = np.ndarray[Any, Any]


def unlike(
    arrays: Mapping[str, _Array], expected: Mapping[str, Any], rtol: float = 0.0, atol: float = 0.0
) -> list[TensorsCompared]:
    """Compare the named arrays with the expected ones; return one entry per mismatch. NaN equals NaN.

    Expected lists and numbers take the data type of the array.
    """
    out = []
    for name, value in expected.items():
        array = arrays.get(name)
        wanted = as_array(value, array)
        if array is None:
            none = compared(Tensor(name, wanted), None, name)
            out.append(replace(none, reason=f"missing; the tensors are: {', '.join(arrays) or 'none'}"))
        elif wanted.dtype != array.dtype and not isinstance(value, np.ndarray):
            if not equal(wanted, array, rtol, atol):
                same = compared(Tensor(name, array), Tensor(name, array), name)
                reason = f"{_few(wanted)} is no {array.dtype}; got {_few(array)}"
                out.append(replace(same, reason=reason))
        elif wanted.dtype != array.dtype:
            both = compared(Tensor(name, wanted), Tensor(name, array), name)
            out.append(replace(both, reason=f"data types differ: {wanted.dtype} and {array.dtype}"))
        elif not equal(wanted, array, rtol, atol):
            out.append(compared(Tensor(name, wanted), Tensor(name, array), name))
    return out


def as_array(value: Any, like: _Array | None) -> _Array:
    """Return a value as an array: of the type of the array `like`, if that type can represent it; text as bytes."""
    if isinstance(value, np.ndarray):
        out = value
    elif like is not None and like.dtype.kind != "O":
        out = np.asarray(value)
        if out.dtype.kind in "biuf":
            with np.errstate(all="ignore"):
                cast = out.astype(like.dtype)
            # A number that the array's type cannot represent keeps its own type.
            out = cast if like.dtype.kind == "f" or bool((cast == out).all()) else out
    else:
        out = np.asarray(value, dtype=object if like is not None else None)
    if out.dtype.kind in "OUS":
        flat = [each.encode() if isinstance(each, str) else each for each in out.ravel().tolist()]
        texts = np.empty(len(flat), object)
        texts[:] = flat
        out = texts.reshape(out.shape)
    return out


def equal(wanted: _Array, array: _Array, rtol: float, atol: float) -> bool:
    """Return whether shapes and values are equal; the tolerances are for numbers, and NaN equals NaN."""
    if wanted.shape != array.shape:
        return False
    if wanted.dtype.kind not in ("iuf" if rtol or atol else "f"):
        return bool((wanted == array).all())
    if wanted.dtype.kind in "iu":  # differences of unsigned integers would wrap
        wanted, array = wanted.astype(np.float64), array.astype(np.float64)
    return bool(np.isclose(array, wanted, rtol=rtol, atol=atol, equal_nan=True).all())


def _few(array: _Array) -> str:
    return first_line(str(array.ravel()[:8].tolist()), 60)
