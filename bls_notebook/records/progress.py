"""Shows what takes long, and how far it is: ``with progress("loading a")``.

Guarantees: what is over within a second is never shown, and costs microseconds; nothing is shown in a script, nor for
what another thread than the main one does; what was shown is gone when it is over. The code that works reports its
steps (`Progress.step`); a thread of its own shows them, also while a model's code runs, or waits.

Where one begins inside another, both are one line, and the outer one has the bar.
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
    """Where a line is shown until it is closed; both are called from any thread, in any order."""

    def show(self, words: str, part: float | None) -> None:
        """Show a line instead of the one before; `part` of the work is done, where that is known."""

    def close(self) -> None:
        """Leave nothing behind."""


bars: list[Callable[[], Bar | None]] = []
"""What makes one where somebody is there to see it: `display` adds it."""
_under_way: list[Progress] = []  # from the outermost to the innermost
_any = threading.Event()
_thread: threading.Thread | None = None


class Progress:
    """One piece of work; see `progress`."""

    __slots__ = ("_bar", "_began", "_context", "done", "total", "unit", "what")

    def __init__(self, what: str, total: int = 0, unit: str = "") -> None:
        self.what, self.total, self.unit = what, total, unit
        self.done = 0
        self._began = monotonic()
        self._bar: Bar | None = None
        self._context: Context | None = None

    def step(self, count: int = 1) -> None:
        """Say that so many more of the total are done."""
        self.done += count

    def __enter__(self) -> Progress:
        if threading.current_thread() is threading.main_thread() and _may_be_seen():
            self._context = copy_context()  # by which a kernel knows the cell
            _under_way.append(self)
            _begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self in _under_way:
            del _under_way[_under_way.index(self) :]
            if self._bar is not None:
                self._bar.close()

    def __str__(self) -> str:
        if not self.total:
            return f"{self.what} ({self.done:,} {self.unit}s)" if self.unit and self.done else self.what
        at = f"{min(self.done + 1, self.total):,} of {self.total:,}"
        return f"{self.what}: {self.unit} {at}" if self.unit else f"{self.what}: {at}"


def progress(what: str, total: int = 0, unit: str = "") -> Progress:
    """Return what tells how far a piece of work (``"loading add_sub"``) is, while it is entered by ``with``.

    ``total`` is how many steps it has, 0 where nobody knows (it may be set later), and ``unit`` what a step
    is, in the singular: ``"run"``.
    """
    return Progress(what, total, unit)


def stepped(values: Iterable[_T], what: str, total: int = 0, unit: str = "") -> Iterator[_T]:
    """Walk values, each of them a step."""
    with Progress(what, total, unit) as told:
        for value in values:
            yield value
            told.step()


def _may_be_seen() -> bool:
    """Whether it is worth asking for a bar: a look that costs nothing."""
    error = sys.stderr
    return bool(bars) and ("ipykernel" in sys.modules or (error is not None and error.isatty()))


def _begin() -> None:
    global _thread
    if _thread is None or not _thread.is_alive():  # it is not alive either in a forked child
        _thread = threading.Thread(target=_show_all, name="bls-progress", daemon=True)
        _thread.pydev_do_not_trace = True  # type: ignore[attr-defined]  # a debugger would hold it, locks and all
        _thread.start()
    _any.set()


def _show_all() -> None:
    while _any.wait():
        sleep(BETWEEN)
        now = list(_under_way)
        if not now:
            _any.clear()
            if _under_way:  # it began just then
                _any.set()
            continue
        if monotonic() - now[0]._began >= FIRST_AFTER:
            context = now[0]._context
            try:
                context.run(_show, now) if context is not None else None
            except Exception:  # a frontend that is gone is no reason to fail
                _under_way.clear()


def _show(levels: list[Progress]) -> None:
    outer = levels[0]
    if outer._bar is None:
        outer._bar = next(filter(None, (make() for make in bars)), None)
    if outer._bar is None:  # nobody is there: until the next one begins
        outer._began = float("inf")
        return
    outer._bar.show(_words(levels), _part(levels))
    if outer not in _under_way:  # it ended meanwhile
        outer._bar.close()


def _words(levels: list[Progress]) -> str:
    """Return one line: what is done, from the outermost to the innermost, and how long it has taken."""
    seconds = monotonic() - levels[0]._began
    took = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
    return f"{' · '.join(map(str, levels))}, {took} so far"


def _part(levels: list[Progress]) -> float | None:
    """What part of the work is done, that of the inner ones included; None where none has a total."""
    part: float | None = None
    for level in reversed(levels):
        if level.total:
            part = min(1.0, (level.done + min(1.0, part or 0.0)) / level.total)
    return part
