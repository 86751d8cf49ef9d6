"""`DeviceTime` measures the time of an `execute` on a GPU by two CUDA events in the current stream.

Work on that stream is measured without waiting for it; work on other streams is not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


class DeviceTime:
    """The time between two events of a stream; begins when it is made.

    `cuda`: ``cupy.cuda``. `index`: number of the GPU.
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
        """Put the second event into the same stream; what follows is not measured. It never raises."""
        if self._stream is None:
            return
        try:
            with self._cuda.Device(self._index):
                event = self._cuda.Event()
                event.record(self._stream)
            self._end = event
        except Exception:
            pass  # the GPU has failed, or the model has closed its stream: not measured
        self._stream = None

    def ns(self) -> int:
        """Return the time, once the GPU is done; -1 where it cannot be known."""
        if self._end is None:
            return -1
        try:
            self._end.synchronize()
            return int(self._cuda.get_elapsed_time(self._begin, self._end) * 1e6)
        except Exception:  # the GPU has failed since: what is recorded of the requests stays good
            return -1


def device_timer() -> Callable[[int], DeviceTime | None] | None:
    """Return what begins to measure on a GPU of a number, None where there is no CUDA GPU in use."""
    cupy = sys.modules.get("cupy")
    cuda = getattr(cupy, "cuda", None)
    try:
        if cuda is None or not cuda.runtime.getDeviceCount():
            return None
    except Exception:  # CuPy is there, and a driver is not
        return None

    def begin(index: int) -> DeviceTime | None:
        try:
            return DeviceTime(cuda, index)
        except Exception:
            return None

    return begin
