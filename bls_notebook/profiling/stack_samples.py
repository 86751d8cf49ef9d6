"""`StackSamples`: counts of the stacks at which executions were seen. A worker runs this module, too.

`shorter_turns` lets a sampler get the GIL soon. With Python's 5 ms, it would see of Python code that takes 10 ms only
the second half, and of shorter code nothing.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Tuple  # noqa: UP035 - Python 3.8

from bls_notebook.profiling.own_code import awaited_tasks, awaiting_stack

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Iterator, Sequence

PAUSE = 0.02  # seconds between two samples, on average; the first ones, as in `gil_turns`, come four times as soon
SHARE = 50  # the pause is at least so many times as long as the sample before it took
_LONG, _SHORT = 0.005, 0.0005  # seconds until a thread asks for the GIL: Python's default, and while samplers run
_TASKS = 40  # awaiting tasks of one execution that are sampled
_MOST = 100_000  # different stacks of executions that are kept

Stack = Tuple[int, ...]  # noqa: UP006 - numbers of places, outermost first


_sampling: set[int] = set()
_measuring: set[int] = set()
_guard = threading.Lock()


def shorter_turns(sampler: object, are_wanted: bool) -> None:
    """Let threads take shorter turns with the GIL while any sampler runs, unless other code has set the interval."""
    _change(_sampling, sampler, are_wanted)


@contextmanager
def usual_turns() -> Iterator[None]:
    """Let samplers leave the turns as they are: for runs whose duration is the result."""
    block = object()
    _change(_measuring, block, True)
    try:
        yield
    finally:
        _change(_measuring, block, False)


def _change(members: set[int], member: object, is_one: bool) -> None:
    with _guard:
        before = bool(_sampling) and not _measuring
        (members.add if is_one else members.discard)(id(member))
        after = bool(_sampling) and not _measuring
        is_ours = abs(sys.getswitchinterval() - (_SHORT if before else _LONG)) < _SHORT / 100
        if after != before and is_ours:
            sys.setswitchinterval(_SHORT if after else _LONG)


class Sampled(NamedTuple):
    """An execution by its number, its stack, and whether its code waited."""

    number: int
    stack: Stack
    waits: bool


class StackSamples:
    """Counts samples of executions."""

    def __init__(self) -> None:
        self.places: list[tuple[Any, int]] = []  # code and offset; keeps the code alive, so that ids are not reused
        self.sampled: dict[Sampled, list[int]] = {}  # number of samples, and ns
        self.full = 0  # when there was no more room
        self._known: dict[tuple[int, int], int] = {}
        self._before: dict[int, tuple[int, list[Sampled]]] = {}  # time and places of the previous sample

    def note(self, number: int, started: int, now: int, stacks: Sequence[tuple[list[Any], bool]]) -> None:
        """Record a sample of an execution; half of the time since its previous sample is that one's."""
        places = [Sampled(number, tuple(self.numbers(stack)), waits) for stack, waits in stacks]
        begin, previous = self._before.get(number, (started, places))
        for each, count in (previous, 0), (places, 1):
            for key in each:
                counts = self.sampled.setdefault(key, [0, 0])
                counts[0] += count
                counts[1] += max(0, now - begin) // (2 * len(each))
        self._before[number] = now, places
        if len(self.sampled) >= _MOST:
            self.full = now

    def numbers(self, stack: list[Any]) -> Iterator[int]:
        """Yield the numbers of the places of a stack, outermost first."""
        for i in range(len(stack) - 2, -1, -2):
            code, offset = stack[i], stack[i + 1]
            key = id(code), offset
            number = self._known.get(key)
            if number is None:
                number = self._known[key] = len(self.places)
                self.places.append((code, offset))
            yield number

    def ended(self, number: int) -> None:
        """Forget the previous sample of an execution that has ended."""
        self._before.pop(number, None)


def stacks_of_task(task: asyncio.Task[Any], current: object, running: list[Any]) -> list[tuple[list[Any], bool]]:
    """Return the stacks of a task and whether each waits; the `current` task of its loop is `running`."""
    paths = []
    for path in awaited_tasks(task):
        paths.append((_stack_of(path, running if path[-1] is current else None), path[-1] is not current))
        if len(paths) == _TASKS:
            break
    return paths


def _stack_of(path: Iterable[asyncio.Task[Any]], running: list[Any] | None) -> list[Any]:
    """Return the stack through tasks that await each other; the last one may be `running`."""
    *outer, last = path
    stack = awaiting_stack(last) if running is None else running
    for task in reversed(outer):
        stack = stack + awaiting_stack(task)
    return stack
