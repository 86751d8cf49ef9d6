"""`watch`: warn if a model changes an array between `async_exec` and its next await.

On a server `async_exec` reads its inputs later, in another thread, so that such a change may reach the callee. Here
each call gets a copy at once. Only arrays that were copied are watched: a moved one cannot be reached any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np

from bls_notebook.engine.core.execution import Execution
from bls_notebook.pb_utils.tensor import SAMPLE, Tensor, sample_of

_WHOLE = 1 << 20  # bytes that are summed up


def watch(
    loop: asyncio.AbstractEventLoop, sender: Execution, callee: str, inputs: Sequence[Tensor], passed: Sequence[Tensor]
) -> None:
    """Compare the sent arrays with their present content when the sender awaits; `passed` is what the callee gets."""
    for tensor, copy in zip(inputs, passed, strict=True):
        if tensor is not copy and tensor._array.__class__ is np.ndarray:
            loop.call_soon(_compare, sender, callee, tensor, _content(tensor._array))


def _content(array: np.ndarray[Any, Any]) -> object:
    """Return a digest of an array; a change of its content nearly always changes it."""
    if not array.flags.c_contiguous:
        array = array.copy() if array.nbytes <= _WHOLE else array[:1].copy()
    if array.dtype.hasobject or array.nbytes <= SAMPLE:
        return sample_of(array)
    data = array.reshape(-1).view(np.uint8)
    return int(data[: min(_WHOLE, data.size & ~7)].view(np.uint64).sum()), sample_of(array)


def _compare(sender: Execution, callee: str, tensor: Tensor, content: object) -> None:
    if _content(tensor._array) != content:
        sender.note_warnings(
            [
                f"model '{sender.model_name}': the array of input '{tensor._name}' was changed after async_exec of "
                f"'{callee}', before an await. A server reads it later, in another thread, so '{callee}' may get the "
                "new content there: send a new array with each call, such as `array.copy()`"
            ]
        )
