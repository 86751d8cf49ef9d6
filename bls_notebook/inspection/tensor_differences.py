"""Compare two tensors: number and size of the differences, their place, and pictures; computed on their device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bls_notebook.devices import backend_of, device_of, to_cpu, to_gpu
from bls_notebook.inspection.records import TensorsCompared
from bls_notebook.pb_utils.tensor import Tensor, TextOnGPU
from bls_notebook.records import Media, TensorRecord, tensor_record
from bls_notebook.repository import CHUNK, GLANCE, figures, layout_of, numbers, pictures, sampled, to_host, working_on

LOOK = 1 << 26  # most elements that are compared
_PIXELS = 200
_BITS: dict[int, Any] = {2: np.int16, 4: np.int32, 8: np.int64}


def compared(first: Tensor | None, second: Tensor | None, name: str = "", bits: bool = False) -> TensorsCompared:
    """Return the differences of two tensors; None stands for a missing tensor.

    ``bits``: zeros of different signs and NaN of different bits differ, too.
    """
    names = name or (first or second)._name  # type: ignore[union-attr]
    out = TensorsCompared(names, _record(first), _record(second))
    if first is None or second is None:
        return replace(out, reason="only in the first" if second is None else "only in the second")
    arrays = [_array(first), _array(second)]
    if arrays[0].shape != arrays[1].shape:
        return replace(out, reason=f"shapes differ: {list(arrays[0].shape)} and {list(arrays[1].shape)}")
    texts = [array.dtype.kind in "OSU" for array in arrays]
    if any(texts):
        return _texts(out, *arrays) if all(texts) else replace(out, reason="text and numbers")
    if any(array.dtype.kind not in "biuf" for array in arrays):
        return replace(out, reason="the values are not comparable numbers")
    return _numbers(out, *_beside(*arrays), bits) if arrays[0].size else out


def _record(tensor: Tensor | None) -> TensorRecord | None:
    if tensor is None:
        return None
    return tensor_record(tensor._name, tensor._datatype, tensor._array, tensor._device().label)


def _array(tensor: Tensor) -> Any:
    array: Any = tensor._array
    if isinstance(array, TextOnGPU):
        return array.on_cpu()
    array = array.view(np.ndarray) if isinstance(array, np.ndarray) else array
    return numbers(array, tensor._datatype, LOOK)[0]


def _beside(first: Any, second: Any) -> tuple[Any, Any]:
    if device_of(first) == device_of(second):
        return first, second
    if backend_of(first) is None:
        return first, to_cpu(second)
    return first, to_gpu(second, device_of(first).index)


def _numbers(out: TensorsCompared, first: Any, second: Any, bits: bool) -> TensorsCompared:
    first, every = sampled(first, LOOK)
    second, _ = sampled(second, LOOK)
    shape = first.shape
    differing, at, ulps = 0, 0, None
    greatest = relative = 0.0
    exact = first.dtype == second.dtype and first.dtype.kind == "f" and first.dtype.itemsize in _BITS
    with working_on(first) as xp, np.errstate(all="ignore"):
        flat = [xp.ascontiguousarray(each).reshape(-1) for each in (first, second)]
        for start in range(0, flat[0].size, CHUNK):
            a, b = (each[start : start + CHUNK] for each in flat)
            no_numbers = (a != a) & (b != b)
            unlike = ~((a == b) | no_numbers)
            if bits and exact:
                unlike = a.view(_BITS[a.dtype.itemsize]) != b.view(_BITS[b.dtype.itemsize])
            count = int(unlike.sum())
            if not count:
                continue
            differing += count
            wide = a.astype(np.float64), b.astype(np.float64)
            gaps = xp.where(unlike & ~no_numbers, xp.abs(wide[0] - wide[1]), 0.0)
            gaps = xp.where(xp.isnan(gaps), np.inf, gaps)  # NaN in one tensor only
            place = int(gaps.argmax())
            gap = float(gaps[place])
            if gap > greatest or not greatest:
                greatest, at = max(gap, greatest), start + (place if gap else int(unlike.argmax()))
            sizes = xp.maximum(xp.abs(wide[0]), xp.abs(wide[1]))
            parts = xp.where(unlike, gaps / xp.where(sizes > 0, sizes, 1.0), 0.0)
            relative = max(relative, float(xp.where(xp.isnan(parts), np.inf, parts).max()))
            if exact:
                both = xp.isfinite(a) & xp.isfinite(b)
                steps = xp.where(both, xp.abs(_ordered(xp, a) - _ordered(xp, b)), 0.0)
                ulps = max(ulps or 0.0, float(steps.max()))
        where = tuple(int(i) for i in np.unravel_index(at, shape)) if differing else ()
        elements = [to_host(each[at : at + 1])[0] for each in flat] if differing else []
        values = [str(element) for element in elements] or ["", ""]
        if elements and values[0] == values[1]:
            values = [f"{element!s} (0x{element.tobytes()[::-1].hex()})" for element in elements]
        shown = _pictures(xp, first, second, where) if differing else ()
    return replace(
        out, elements=flat[0].size, differing=differing, absolute=greatest, relative=relative, ulps=ulps,
        where=where if every == 1 else (), values=(values[0], values[1]), pictures=shown, every=every,
    )  # fmt: skip


def _ordered(xp: Any, values: Any) -> Any:
    """Map floats to their index in the order of all floats, so that adjacent floats differ by one."""
    bits = values.view(_BITS[values.dtype.itemsize]).astype(np.float64)
    lowest = float(np.iinfo(_BITS[values.dtype.itemsize]).min)
    return xp.where(bits < 0, lowest - bits, bits)


def _pictures(xp: Any, first: Any, second: Any, where: tuple[int, ...]) -> tuple[Media, ...]:
    """Return pictures of both tensors and of their absolute difference; of a batch, the item with the largest one."""
    layout = layout_of(first.shape)
    if layout is None or first.size > GLANCE * 16:
        return ()
    if layout.batch >= 0:
        first, second = first[where[layout.batch]], second[where[layout.batch]]
    wide = first.astype(np.float64), second.astype(np.float64)
    gap = xp.where((wide[0] == wide[1]) | (xp.isnan(wide[0]) & xp.isnan(wide[1])), 0.0, xp.abs(wide[0] - wide[1]))
    drawn = [pictures(array, figures(array, GLANCE), 1, _PIXELS) for array in (first, second)]
    drawn.append(pictures(gap, figures(gap, GLANCE), 1, _PIXELS, stretched=True))
    return tuple(images[0] for images in drawn if images)


def _texts(out: TensorsCompared, first: Any, second: Any) -> TensorsCompared:
    pairs = list(zip(first.reshape(-1).tolist(), second.reshape(-1).tolist(), strict=True))
    kinds = (bytes, str)
    unlike = [i for i, (a, b) in enumerate(pairs) if not (type(a) in kinds and type(a) is type(b) and a == b)]
    if not unlike:
        return replace(out, elements=len(pairs))
    at = unlike[0]
    where = tuple(int(i) for i in np.unravel_index(at, first.shape))
    values = [tensor_record("", "BYTES", np.array(each, object)).preview for each in pairs[at]]
    return replace(out, elements=len(pairs), differing=len(unlike), where=where, values=(values[0], values[1]))
