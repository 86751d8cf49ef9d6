"""Tensors as they want to be seen: at a glance, under a response, or whole, in the inspector."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bls_notebook.observe.preview import WHOLE
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.repository.requests.bfloat16 import from_bits

from .figures import figures
from .files import media_of
from .images import pictures
from .placed import sampled

__all__ = ["at_a_glance", "numbers"]

GLANCE = 1 << 20  # elements that are looked at: about a millisecond
_FEW, _SMALL = 4, 64  # pictures, and pixels of their sides
_LIGHT = 100_000  # bytes of a picture that is a file


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
    return from_bits(few), every
