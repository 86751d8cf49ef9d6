"""Tensors as they want to be seen: at a glance, under a response, or whole, in the inspector."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bls_notebook.devices.moves import device_of
from bls_notebook.pb_utils.bfloat16 import from_bits
from bls_notebook.pb_utils.dtypes import DATATYPE_OF_DTYPE
from bls_notebook.pb_utils.gpu_text import TextOnGPU
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.records.inspection import TensorView
from bls_notebook.records.preview import WHOLE, tensor_record

from .figures import figures
from .files import media_of, texts
from .images import layout_of, pictures
from .placed import sampled, to_host, working_on
from .rows import line_of, sound_of
from .slices import sliced

GLANCE = 1 << 20  # elements that are looked at: about a millisecond
LOOK = 1 << 26  # in the inspector: a third of a second
LOOK_ON_GPU = 1 << 30
_FEW, _SMALL = 4, 64  # pictures at a glance, and pixels of their sides
_LIGHT = 100_000  # bytes of a picture that is a file
_PICTURES, _PIXELS = 16, 384  # in the inspector: pictures, and pixels of the side of one alone
_CORNER = 8  # rows and columns


def at_a_glance(tensor: Tensor) -> dict[str, Any]:
    """Return figures and small pictures of a tensor, as fields of its record.

    Nothing is looked at on a GPU, where a glance could take seconds, nor what is shown whole in any case.
    """
    array: Any = tensor._array
    if not tensor.is_cpu():
        return {}
    array = array.view(np.ndarray)
    if tensor._datatype == "BYTES":
        few = array.reshape(-1)[:_FEW].tolist()
        found = (media_of(element, _LIGHT) for element in few)
        shown = (each for each in found if each is not None and each.data)
        return {"pictures": tuple(each for each in shown if each.kind.startswith("image"))}
    if array.size <= WHOLE:
        return {}
    array, every = numbers(array, tensor._datatype, GLANCE)
    seen = figures(array, GLANCE)
    if seen is not None and every > 1:
        seen = replace(seen, every=every)
    return {"figures": seen, "pictures": pictures(array, seen, _FEW, _SMALL) if every == 1 else ()}


def numbers(array: Any, datatype: str, most: int) -> tuple[Any, int]:
    """Return what can be computed with, and of how many elements one is in it: BF16 has to be copied."""
    if datatype != "BF16" or array.dtype.name == "bfloat16":
        return array, 1
    few, every = sampled(array, most)
    with working_on(few):
        return from_bits(few), every


def tensor_view(tensor: Tensor, at: str = "", rate: int | None = None) -> TensorView:
    """Return a tensor, or a slice of it, as it wants to be seen; rate: samples a second of a sound."""
    array: Any = tensor._array
    if isinstance(array, TextOnGPU):
        array = array.on_cpu()
    view = array_view(tensor._name, tensor._datatype, array, at, rate)
    return replace(view, tensor=replace(view.tensor, device=tensor._device().label))


def array_view(name: str, datatype: str, array: Any, at: str = "", rate: int | None = None) -> TensorView:
    """Return an array, wherever it lies, as `tensor_view` does a tensor."""
    if isinstance(array, np.ndarray):
        array = array.view(np.ndarray)  # a subclass may index in ways of its own
        if array.dtype.kind == "U":
            array = array.astype(object)
    datatype = datatype or datatype_of(array)
    whole = tuple(int(n) for n in array.shape)
    part, index = sliced(array, at)
    label = device_of(part).label
    record = tensor_record(name, datatype, part, label, shape=tuple(part.shape))
    of = {"whole": whole, "index": index}
    if part.dtype.kind in "OS":
        return TensorView(record, texts=texts(part.astype(object, copy=False)), **of)  # type: ignore[arg-type]
    if part.dtype.kind not in "biuf" and part.dtype.name != "bfloat16":
        return TensorView(record, notes=(f"NumPy {part.dtype.name}: no figures",), **of)  # type: ignore[arg-type]
    part, every = numbers(part, datatype, GLANCE)
    seen = figures(part, LOOK if label == "cpu" else LOOK_ON_GPU, histogram=part.size > 1)
    if seen is not None and every > 1:
        seen = replace(seen, every=every)
    way = layout_of(part.shape)
    count = min(part.shape[way.batch], _PICTURES) if way is not None and way.batch >= 0 else 1
    pixels = int(_PIXELS / max(1, count) ** 0.5)
    shown = pictures(part, seen, _PICTURES, pixels) if every == 1 else ()
    values, note = _values(part)
    if label != "cpu" and values:
        record = replace(record, preview="")
    return TensorView(
        replace(record, figures=seen, pictures=shown),
        whole,
        index,
        sound_of(part, seen, rate),
        line_of(part),
        values=values,
        notes=(note,) if note else (),
    )


def datatype_of(array: Any) -> str:
    """Return Triton's name of an array's data type; of one that Triton lacks, NumPy's."""
    if array.dtype.kind in "OSU":
        return "BYTES"
    return DATATYPE_OF_DTYPE.get(array.dtype) or f"NumPy {array.dtype.name}"


def _values(array: Any) -> tuple[str, str]:
    """The numbers of a corner, and which they are."""
    if not array.size:
        return "", ""
    corner: tuple[Any, ...] = (0,) * (array.ndim - 2) + (slice(_CORNER),) * min(array.ndim, 2)
    with working_on(array):
        part = to_host(array[(*corner, Ellipsis)])
    said = np.array2string(part, precision=5, threshold=1000, max_line_width=100)
    inside = ", ".join("0" if each == 0 else f":{_CORNER}" for each in corner)
    return said, f"values of [{inside}]" if part.size < array.size else ""
