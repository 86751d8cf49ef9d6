"""Views of tensors for the inspector: statistics, pictures, sound, text and values of a corner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bls_notebook.devices.transfers import device_of
from bls_notebook.pb_utils.dtypes import DATATYPE_OF_DTYPE
from bls_notebook.pb_utils.tensor import Tensor, TextOnGPU
from bls_notebook.records.preview import tensor_record
from bls_notebook.repository.requests.tensor_images import layout_of, pictures
from bls_notebook.repository.requests.tensor_preview import GLANCE, numbers
from bls_notebook.repository.requests.tensor_statistics import figures, to_host, working_on

from .records import TensorView
from .rows import line_of, sound_of
from .slices import sliced
from .texts import texts

LOOK = 1 << 26  # in the inspector: a third of a second
LOOK_ON_GPU = 1 << 30
_PICTURES, _PIXELS = 16, 384  # in the inspector: pictures, and pixels of the side of one alone
_CORNER = 8  # rows and columns


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
