"""Progress of long operations: ``with progress("loading a")``.

Guarantees: an operation of less than a second shows nothing and costs microseconds. Scripts show nothing, nor do other
threads than the main thread and those of models' instances. The line disappears when the operation ends. The operation
reports its steps (`Progress.step`), and another thread shows them, even while a model's code runs. Nested operations
share one line and the outer operation's bar.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextvars import Context, copy_context
from time import monotonic, sleep
from types import TracebackType
from typing import Protocol, TypeVar

FIRST_AFTER = 1.0
BETWEEN = 0.25

_T = TypeVar("_T")


class Bar(Protocol):
    """A line on the screen; any thread may call both methods, in any order."""

    def show(self, words: str, part: float | None) -> None:
        """Replace the line; `part` is the finished fraction of the work, or None."""

    def close(self) -> None:
        """Remove the line."""


bars: list[Callable[[], Bar | None]] = []
"""Functions that create a bar, or return None if no person watches; the package adds that of `display`."""
threads: set[int] = set()
"""Idents of the threads that may show a line beside the main thread."""
_under_way: list[Progress] = []  # from the outermost to the innermost
_any = threading.Event()
_thread: threading.Thread | None = None
_starting = threading.Lock()  # guards it


class Progress:
    """One operation; see `progress`."""

    __slots__ = ("_bar", "_began", "_context", "_thread", "done", "total", "unit", "what")

    def __init__(self, what: str, total: int = 0, unit: str = "") -> None:
        self.what, self.total, self.unit = what, total, unit
        self.done = 0
        self._began = monotonic()
        self._bar: Bar | None = None
        self._context: Context | None = None
        self._thread = 0

    def step(self, count: int = 1) -> None:
        """Report that `count` more steps are done."""
        self.done += count

    def __enter__(self) -> Progress:
        self._thread = threading.get_ident()
        main = threading.current_thread() is threading.main_thread()
        if (main or self._thread in threads) and _may_be_seen():
            self._context = copy_context()  # identifies the cell for the kernel
            _under_way.append(self)
            _begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self in _under_way:  # an interrupt may have left inner operations of this thread behind
            inner = _under_way[_under_way.index(self) :]
            _under_way[:] = [one for one in _under_way if one not in inner or one._thread != self._thread]
            if self._bar is not None:
                self._bar.close()

    def __str__(self) -> str:
        if not self.total:
            return f"{self.what} ({self.done:,} {self.unit}s)" if self.unit and self.done else self.what
        at = f"{min(self.done + 1, self.total):,} of {self.total:,}"
        return f"{self.what}: {self.unit} {at}" if self.unit else f"{self.what}: {at}"


def progress(what: str, total: int = 0, unit: str = "") -> Progress:
    """Return the progress of an operation, such as ``"loading add_sub"``, to enter by ``with``.

    ``total`` is its number of steps (0 if unknown; it may be set later), ``unit`` the singular of a step: ``"run"``.
    """
    return Progress(what, total, unit)


def stepped(values: Iterable[_T], what: str, total: int = 0, unit: str = "") -> Iterator[_T]:
    """Iterate over values and report each as a step."""
    with Progress(what, total, unit) as steps:
        for value in values:
            yield value
            steps.step()


def _may_be_seen() -> bool:
    """Return whether a bar is possible; this check is cheap."""
    error = sys.stderr
    return bool(bars) and ("ipykernel" in sys.modules or (error is not None and error.isatty()))


def _begin() -> None:
    global _thread
    with _starting:
        if _thread is None or not _thread.is_alive():  # a forked child has no threads
            _thread = threading.Thread(target=_show_all, name="bls-progress", daemon=True)
            # A debugger would pause it while it has locks.
            _thread.pydev_do_not_trace = True  # type: ignore[attr-defined]
            _thread.start()
    _any.set()


def _show_all() -> None:
    while _any.wait():
        sleep(BETWEEN)
        now = list(_under_way)
        if not now:
            _any.clear()
            if _under_way:  # an operation began after the check
                _any.set()
            continue
        if monotonic() - now[0]._began >= FIRST_AFTER:
            context = now[0]._context
            try:
                context.run(_show, now) if context is not None else None
            except Exception:  # the frontend has disconnected, for example
                _under_way.clear()


def _show(levels: list[Progress]) -> None:
    outer = levels[0]
    if outer._bar is None:
        outer._bar = next(filter(None, (make() for make in bars)), None)
    if outer._bar is None:  # no person watches: ask again at the next operation
        outer._began = float("inf")
        return
    outer._bar.show(_words(levels), _part(levels))
    if outer not in _under_way:  # it ended in the meantime
        outer._bar.close()


def _words(levels: list[Progress]) -> str:
    """Return one line: the operations from the outermost to the innermost, and the elapsed time."""
    seconds = monotonic() - levels[0]._began
    took = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
    return f"{' · '.join(map(str, levels))}, {took} so far"


def _part(levels: list[Progress]) -> float | None:
    """Return the fraction that is done, including nested operations; None if none has a total."""
    part: float | None = None
    for level in reversed(levels):
        if level.total:
            part = min(1.0, (level.done + min(1.0, part or 0.0)) / level.total)
    return part
