"""`DeviceTime` measures the time of an `execute` on a GPU by two CUDA events in the current stream.

Work on that stream is measured without waiting for it; work on other streams is not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


class DeviceTime:
    """The time between two CUDA events of a stream; creating it records the first.

    `cuda` is ``cupy.cuda``, `index` the number of the GPU.
    """

    __slots__ = ("_begin", "_cuda", "_end", "_index", "_stream")

    def __init__(self, cuda: Any, index: int) -> None:
        self._cuda = cuda
        self._index = index
        self._end: Any = None
        with cuda.Device(index):
            self._stream: Any = cuda.get_current_stream()
            self._begin = cuda.Event()
            self._begin.record(self._stream)

    def end(self) -> None:
        """Record the second event in the same stream. It never raises."""
        if self._stream is None:
            return
        try:
            with self._cuda.Device(self._index):
                event = self._cuda.Event()
                event.record(self._stream)
            self._end = event
        except Exception:
            pass  # the GPU failed, or the model closed its stream: no measurement
        self._stream = None

    def ns(self) -> int:
        """Wait for the GPU and return the time in ns; -1 if unknown."""
        if self._end is None:
            return -1
        try:
            self._end.synchronize()
            return int(self._cuda.get_elapsed_time(self._begin, self._end) * 1e6)
        except Exception:  # the GPU failed since; the other figures of the request remain valid
            return -1


def device_timer() -> Callable[[int], DeviceTime | None] | None:
    """Return a function that starts a measurement on the GPU of a number; None if no CUDA GPU is in use."""
    cuda = getattr(sys.modules.get("cupy"), "cuda", None)
    try:
        if cuda is None or not cuda.runtime.getDeviceCount():
            return None
    except Exception:  # CuPy without a driver
        return None

    def begin(index: int) -> DeviceTime | None:
        try:
            return DeviceTime(cuda, index)
        except Exception:
            return None

    return begin
