"""Streams and events of PyTorch on simulated GPUs. Work is done at once, so waiting is nothing."""

from __future__ import annotations

import itertools
import threading
from time import perf_counter_ns
from typing import Any

from bls_notebook.simulation import machine

from .places import chosen, named

_numbers = itertools.count(1)


class Event:
    cuda_event = 0

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self._timed = enable_timing
        self.ns = 0

    def record(self, stream: Stream | None = None) -> None:
        self.ns = perf_counter_ns()

    def elapsed_time(self, end_event: Event) -> float:
        """Return the milliseconds to a later event."""
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if not (self.ns and end_event.ns):
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event.ns - self.ns) / 1e6

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def wait(self, stream: Stream | None = None) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        return True

    def __repr__(self) -> str:
        return "<torch.cuda.Event (simulated)>"


class Stream:
    """A queue of work that is done at once."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.device = named(chosen(device))
        self.device_index = self.device.index
        self.priority = priority
        self.cuda_stream = self.stream_id = next(_numbers)

    def is_capturing(self) -> bool:
        return False

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def wait_stream(self, stream: Stream) -> None:
        """Nothing to wait for."""

    def wait_event(self, event: Event) -> None:
        """Nothing to wait for."""

    def record_event(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        self._before = [*getattr(self, "_before", []), _set(self)]
        return self

    def __exit__(self, *problem: object) -> None:
        _restore(self._before.pop())

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x} (simulated)>"


class ExternalStream(Stream):
    def __init__(self, stream_ptr: int, device: Any = None, **_: Any) -> None:
        super().__init__(device)
        self.cuda_stream = self.stream_id = stream_ptr


class StreamContext:
    """Makes a stream the current one, and its GPU."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self._before: list[tuple[int, Stream | None]] = []

    def __enter__(self) -> None:
        if self.stream is not None:
            self._before.append(_set(self.stream))

    def __exit__(self, *problem: object) -> None:
        if self._before:
            _restore(self._before.pop())


class _Streams(threading.local):
    def __init__(self) -> None:
        self.current: dict[int, Stream] = {}


_here = _Streams()
_default: dict[int, Stream] = {}


def default_stream(device: Any = None) -> Stream:
    """Return the stream that work of a GPU is put on where nobody says otherwise."""
    index = chosen(device)
    if index not in _default:
        stream = Stream(index)
        stream.cuda_stream = stream.stream_id = 0
        _default[index] = stream
    return _default[index]


def current_stream(device: Any = None) -> Stream:
    """Return the stream that this thread puts work of a GPU on."""
    index = chosen(device)
    return _here.current.get(index) or default_stream(index)


def set_stream(stream: Stream | None) -> None:
    """Make a stream the current one of this thread, and its GPU."""
    if stream is not None:
        _set(stream)


def _set(stream: Stream) -> tuple[int, Stream | None]:
    index = stream.device_index
    before = machine.set_current(index), _here.current.get(index)
    _here.current[index] = stream
    return before


def _restore(before: tuple[int, Stream | None]) -> None:
    gpu, stream = before
    index = machine.set_current(gpu)
    if stream is None:
        _here.current.pop(index, None)
    else:
        _here.current[index] = stream
