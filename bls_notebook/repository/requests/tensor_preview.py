"""What a response shows of a tensor: its statistics and small pictures, at a bounded cost."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from typing import Any

import numpy as np

from bls_notebook.pb_utils.dtypes import from_bits
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.records.preview import WHOLE
from bls_notebook.records.tensors import Media

from .tensor_images import pictures
from .tensor_statistics import figures, sampled, working_on

GLANCE = 1 << 20  # elements that are read: about a millisecond
LARGEST = 600_000  # bytes of a file that is shown
_FEW, _SMALL = 4, 64  # pictures, and pixels of their sides
_LIGHT = 100_000  # bytes of a picture that is a file
_KINDS = {
    b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}  # fmt: skip


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


def media_of(element: object, largest: int = LARGEST) -> Media | None:
    """Return an element that is an encoded picture or a sound as such, None for any other."""
    if not isinstance(element, bytes):
        return None
    kind = next((kind for start, kind in _KINDS.items() if element.startswith(start)), "")
    if element[:4] == b"RIFF":
        kind = {b"WAVE": "audio/wav", b"WEBP": "image/webp"}.get(element[8:12], "")
    if not kind:
        return None
    width = height = 0
    if kind == "image/png" and len(element) >= 24:
        width, height = int.from_bytes(element[16:20], "big"), int.from_bytes(element[20:24], "big")
    if len(element) > largest:
        return Media(kind, "", width, height, f"larger than the {largest:,} bytes that are shown")
    return Media(kind, b64encode(element).decode(), width, height)
