"""Ctrl-C at every line of what is switched on and off: tracks, profiles, and which models serve."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from asyncio import events
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import Any, cast

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.devices import allocation_log
from bls_notebook.engine.model_code import as_model
from bls_notebook.engine.recording import log as recording
from bls_notebook.engine.waiting.interrupts import CtrlC
from bls_notebook.pb_utils._runtime import caller_var
from tests.engine.harness import DOUBLE, infer, no_more_ctrl_c, pbtxt

HOME = str(Path(bls.__file__).parent)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    before, tracing = signal.signal(signal.SIGINT, signal.default_int_handler), sys.gettrace()
    try:
        yield
    finally:
        sys.settrace(tracing)
        signal.signal(signal.SIGINT, before)
        no_more_ctrl_c()


def pressed_at(number: int, action: Callable[[], object]) -> bool:
    """Run it, and press Ctrl-C at the line of this number of ours; whether there are so many."""
    left = [number]

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(HOME):
            return None
        left[0] -= 1
        if left[0] == 0:
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)
        return trace

    try:
        sys.settrace(trace)
        action()
        sys.settrace(None)
    except KeyboardInterrupt:
        sys.settrace(None)
        return True
    assert left[0] > 0, f"Ctrl-C at line {number} was swallowed"
    return False


def at_every_line(action: Callable[[], object], check: Callable[[], object], step: int = 1) -> int:
    number = 1
    while pressed_at(number, action):
        check()
        number += step
    return number


@pytest.mark.slow
@pytest.mark.parametrize("switch", [bls.profile, bls.track_memory])
def test_nothing_stays_on(
    ctrl_c: None, monkeypatch: pytest.MonkeyPatch, switch: Callable[[], AbstractContextManager[Any]]
) -> None:
    monkeypatch.setattr(gc, "collect", int)  # takes long, and 300 times

    def on_and_off() -> None:
        with switch():
            pass

    def nothing_is_on() -> None:
        assert recording.active is None
        assert allocation_log.recording is None
        assert allocation_log.recording is None

    assert at_every_line(on_and_off, nothing_is_on) > 30


def test_who_calls_and_the_running_loop_are_what_they_were(ctrl_c: None) -> None:
    """Else all that the notebook sends from then on would be sent by a model that initializes."""
    before, loop, other = caller_var.get(), asyncio.new_event_loop(), cast(Any, object())

    def nothing_has_changed() -> None:
        assert caller_var.get() is before
        assert events._get_running_loop() is loop

    events._set_running_loop(loop)
    try:
        assert at_every_line(lambda: as_model(other, int), nothing_has_changed) > 10
    finally:
        events._set_running_loop(None)
        loop.close()


def test_it_is_not_lost_where_python_drops_exceptions(ctrl_c: None) -> None:
    """A block of memory dies: what the callback of its weak reference raises would be printed, no more."""

    def dies(frame: FrameType, event: str, _: object) -> None:
        if frame.f_code is allocation_log.death_code:
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)

    with bls.track_memory():
        block = np.zeros(3)
        watch = allocation_log.recording._watch(block)  # type: ignore[union-attr]
        with pytest.raises(KeyboardInterrupt), CtrlC():  # noqa: PT012 - both lines are what is interrupted
            sys.settrace(dies)
            del block
    assert watch() is None


def test_what_somebody_still_has_is_taken_back_by_the_next_track() -> None:
    """Interrupted in the midst of being switched off, where even that could not be kept out."""
    track = bls.track_memory().__enter__()
    track._switching = True
    with bls.track_memory() as other:
        assert allocation_log.recording is other._recording
    track.__exit__(None, None, None)
    assert allocation_log.recording is None


def test_a_track_and_a_profile_that_nobody_has_end() -> None:
    bls.track_memory().__enter__()
    bls.profile().__enter__()
    gc.collect()
    assert allocation_log.recording is None
    assert recording.active is None


VERBS: dict[str, Callable[[bls.ModelRepository], object]] = {
    "define": lambda repo: repo.define("a", DOUBLE, pbtxt()),
    "reload": lambda repo: repo.reload("a"),
    "unload": lambda repo: repo.unload("a"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_the_repository_stays_consistent(ctrl_c: None, repo: bls.ModelRepository, verb: str) -> None:
    repo.define("a", DOUBLE, pbtxt())

    def check() -> None:
        if not repo.ready("a"):
            assert verb == "unload"
            repo.define("a", DOUBLE, pbtxt())
        assert infer(repo, "a", 4) == 8
        assert [row.state for row in repo.index()] == ["READY"]
        assert len(list(repo._catalog.service.folder._root.iterdir())) == 1  # type: ignore[union-attr]
        assert not repo._catalog.service.lock_of("a")._owner

    lines = at_every_line(lambda: VERBS[verb](repo), check, 101 if verb == "unload" else 397)
    assert lines > (30 if verb == "unload" else 400)
