"""Leaks: unanswered requests, threads, open files and memory that a request leaves behind only with a fault."""

from __future__ import annotations

import gc
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, perf_counter_ns

from bls_notebook.engine import LoadedModel, Parker, Server
from bls_notebook.lifetimes.kept_memory import LEAST, MemorySnapshot
from bls_notebook.lifetimes.memory_recording import track_memory
from bls_notebook.lifetimes.records import KeptGrowth, Lifetimes
from bls_notebook.records import count

from .verdicts import Outcome

TIMES = 3  # requests in a row
COUNTED = TIMES - 1  # requests whose memory counts: a model may keep something of the last request until the next
_MANY = 10  # requests that confirm a leak: a model may keep the latest few
_REMOVE = "remove it after an error, too (`finally`)"
_TEXT = "keep an exception's text, not the exception: its traceback keeps variables"
_SETTLING = 0.5  # seconds to wait for the last responses
_SLICE = 0.005


@dataclass(frozen=True)
class Left:
    """Leftovers of requests: blocks of memory of the first `COUNTED`, threads and open files of all `TIMES`.

    Memory that is no tensor is of the last `COUNTED`: a model may allocate it once.
    """

    blocks: int = 0
    bytes: int = 0
    threads: int = 0
    files: int = 0
    kept: tuple[KeptGrowth, ...] = ()  # memory that is no tensor


@contextmanager
def quick_collections() -> Iterator[None]:
    """Limit garbage collections to objects made from now on, because a drill collects for each fault."""
    freezes = not gc.get_freeze_count()  # `unfreeze` would also undo an earlier freeze
    if freezes:
        gc.freeze()
    try:
        yield
    finally:
        if freezes:
            gc.unfreeze()


def left_by(
    server: Server, ask: Callable[[], Outcome], times: int = TIMES, holders: bool = False
) -> tuple[Left, Lifetimes, list[Outcome]]:
    """Send so many requests; return their leftovers, the lifetimes of their memory, and their outcomes."""
    before, files = _other_threads(), open_files()
    with track_memory(lines=False, holders=holders) as track:
        began = perf_counter_ns()
        outcomes = [ask()]
        kept_before = MemorySnapshot()
        outcomes += [ask() for _ in range(times - 2)]
        last = perf_counter_ns() - began
        outcomes.append(ask())
        server.last_failure = None  # its frames would keep the last request's memory alive
        # A model may answer with an error while its other calls run: their memory is not left behind.
        _wait_for([model for name in server.names() for model in server.serving(name).values()], times * _SETTLING)
        grown = tuple(each for each in kept_before.growth(track.owners()) if each.bytes >= COUNTED * LEAST)
    lives = track.record
    kept = [life for life in lives.left_behind() if life.born < last]
    threads = [thread for thread in _other_threads() - before if thread.is_alive()]
    opened = len(open_files() - files)
    return Left(len(kept), sum(life.bytes for life in kept), len(threads), opened, grown), lives, outcomes


def leaks(server: Server, ask: Callable[[], Outcome], usual: Left) -> tuple[str, ...]:
    """Return one line for each kind of leftover that a request has only with the fault."""
    left, _, _ = left_by(server, ask)
    more = left.threads >= usual.threads + TIMES or left.files >= usual.files + TIMES
    usual_bytes = {each.owner: each.bytes for each in usual.kept}
    kept = [each for each in left.kept if each.bytes >= usual_bytes.get(each.owner, 0) + COUNTED * LEAST]
    if not (more or kept or left.blocks >= usual.blocks + COUNTED):
        return ()
    again, _, _ = left_by(server, ask)  # memory that is allocated once, such as a pool, is no leak
    out: list[str] = []
    is_kept = {each.owner for each in kept} & {each.owner for each in again.kept}
    if is_kept or min(left.blocks, again.blocks) >= usual.blocks + COUNTED:
        found = _memory(server, ask, usual, [each for each in kept if each.owner in is_kept])
        out += [line for _, line in sorted(found, key=lambda pair: -pair[0])]
    if min(left.threads, again.threads) >= usual.threads + TIMES:
        out.append(f"each request leaves a thread behind: {again.threads} after {TIMES} requests")
    if min(left.files, again.files) >= usual.files + TIMES:
        out.append(f"each request leaves an open file behind: {again.files} after {TIMES} requests")
    return tuple(out)


def _memory(
    server: Server, ask: Callable[[], Outcome], usual: Left, kept: Sequence[KeptGrowth]
) -> Iterator[tuple[int, str]]:
    """Yield bytes and a line for memory that grows with each of `_MANY` requests; none if it is bounded."""
    left, lives, _ = left_by(server, ask, _MANY, holders=True)
    counted = _MANY - 1
    if left.blocks >= usual.blocks + counted - COUNTED:
        blocks = count(left.blocks // counted, "block")
        held = [holder for life in lives.left_behind() for holder in life.holders]
        names = [f"{holder.kind} {holder.name}" for holder in held]
        owner = next((holder.name for holder in held if holder.kind == "attribute"), "")
        by = f", held by {owner}" if owner else ""
        remedy = _TEXT if any(re.search("frame|traceback|exception", name) for name in names) else _REMOVE
        size = left.bytes // counted
        yield size, f"each request leaves memory behind: {blocks}, {size:,} bytes{by}: {remedy}"
    grown = {each.owner: each.bytes for each in left.kept}
    for each in kept:
        size = each.bytes // COUNTED
        if grown.get(each.owner, 0) >= size * (counted - 1):
            lines = ", ".join(f"{line.function}:{line.line}" for line in each.lines)
            added = f", added in {lines}" if lines else ""
            kind = "in its process" if each.instance else "that are no tensor"
            yield (size, f"each request leaves {size:,} bytes behind {kind}, in {each.owner}{added}: {_REMOVE}")


def open_files() -> set[str]:
    """Return the numbers of the open file descriptors; empty if the platform does not list them.

    An eventfd does not count: substitutes start threads on first use, which have one each.
    """
    try:
        return {number for number in os.listdir("/dev/fd") if not _is_eventfd(number)}
    except OSError:
        return set()


def _is_eventfd(number: str) -> bool:
    try:
        return "eventfd" in os.readlink(f"/dev/fd/{number}")
    except OSError:  # closed meanwhile, or no link as on macOS
        return False


def unanswered(server: Server, names: list[str]) -> tuple[str, ...]:
    """Return one line for each model that still has requests `_SETTLING` seconds after the response."""
    busy = _wait_for([model for name in names for model in server.serving(name).values()], _SETTLING)
    return tuple(f"a request to '{name}' is still under way" for name in busy)


def _wait_for(models: Sequence[LoadedModel], seconds: float) -> list[str]:
    """Wait until models have no request, or for so long; return the names of models that still have one."""
    until = monotonic() + seconds
    while (busy := [model.name for model in models if _is_busy(model)]) and monotonic() < until:
        Parker().park(_SLICE)
    return busy


def _is_busy(model: LoadedModel) -> bool:
    return bool(model.scheduler.pending) or any(i.holder is not None or i.serving for i in model.instances)


def _other_threads() -> set[threading.Thread]:
    """Return the threads that are not the engine's."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("bls-")}
