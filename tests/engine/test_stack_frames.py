"""Stacks of other threads are read while no garbage is collected: CPython 3.11 would read what is gone."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from bls_notebook.engine.waiting import stack_frames


@pytest.fixture
def collected() -> Iterator[list[str]]:
    """Collections that began while a stack was read; they begin all the time."""
    found: list[str] = []

    def begins(phase: str, info: Any) -> None:
        # `no_collection` itself may collect when it releases the lock, after the stack was read.
        caller = sys._getframe().f_back  # None if a thread without Python frames collects
        released = caller and caller.f_code is stack_frames.no_collection.__wrapped__.__code__  # type: ignore[attr-defined]
        if stack_frames._lock._is_owned() and not released:  # type: ignore[attr-defined]
            found.append(phase)

    before = gc.get_threshold()
    gc.callbacks.append(begins)
    gc.set_threshold(1, 1, 1)
    yield found
    gc.set_threshold(*before)
    gc.callbacks.remove(begins)
    assert gc.isenabled()


@pytest.fixture
def sleeper() -> Iterator[threading.Thread]:
    """A thread that waits at the bottom of some calls."""
    there, over = threading.Event(), threading.Event()

    def down(left: int, kept: str = "here") -> None:
        if left:
            down(left - 1)
            return
        there.set()
        over.wait()

    thread = threading.Thread(target=down, args=(20,))
    thread.start()
    there.wait()
    yield thread
    over.set()
    thread.join()


def test_a_stack(collected: list[str], sleeper: threading.Thread) -> None:
    for _ in range(50):
        frames = stack_frames.stacks()[sleeper.ident or 0]
        names = [frame.f_code.co_name for frame in frames]
        assert (names.count("down"), names[-1]) == (21, "_bootstrap")
        assert stack_frames.stack_of(sleeper.ident or 0)[-1] is frames[-1]
        (innermost, *_) = (frame for frame in frames if frame.f_code.co_name == "down")
        assert stack_frames.variables_of(innermost)["kept"] == "here"
    assert not collected


def test_a_coroutine(collected: list[str]) -> None:
    async def waits() -> None:
        await asyncio.sleep(1)

    coroutine = waits()
    frame = stack_frames.frame_of(coroutine)
    assert frame.f_code is waits.__code__
    assert stack_frames.frame_of(frame) is None
    coroutine.close()
    assert not collected


def test_an_unknown_thread_and_this_one() -> None:
    assert stack_frames.stack_of(-1) == []
    assert threading.get_ident() in stack_frames.stacks()


def test_collection_is_as_before_afterwards() -> None:
    with stack_frames.no_collection():
        stack_frames.stacks()
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        stack_frames.stacks()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_check_would_notice(collected: list[str]) -> None:
    with stack_frames._lock:
        kept: list[list[int]] = []
        for _ in range(3000):
            kept.append([])
    assert collected
