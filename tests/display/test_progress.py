from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import IPython
import pytest

from bls_notebook import progress as module
from bls_notebook.display import progress_bar as shown
from bls_notebook.engine.waiting.main_thread import as_main_thread
from bls_notebook.progress import Progress, progress, stepped
from tests.display.page import Page
from tests.display.samples import HOSTILE
from tests.waiting import LIMIT


class Seen:
    """A bar that remembers."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.parts: list[float | None] = []
        self.closed = 0
        self.some = threading.Event()

    def show(self, words: str, part: float | None) -> None:
        self.words.append(words)
        self.parts.append(part)
        self.some.set()

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def bar(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    seen = Seen()
    monkeypatch.setattr(module, "bars", [lambda: seen])
    monkeypatch.setattr(module, "_may_be_seen", lambda: True)
    monkeypatch.setattr(module, "FIRST_AFTER", 0.0)
    monkeypatch.setattr(module, "BETWEEN", 0.001)
    yield seen
    assert module._under_way == []


def test_progress_is_shown_while_code_is_busy_and_gone_afterwards(bar: Seen) -> None:
    with progress("loading a"):
        assert bar.some.wait(LIMIT)
        assert not bar.closed
    assert bar.closed
    assert bar.words[0].startswith("loading a, ")
    assert bar.parts[0] is None


def test_progress_is_gone_after_an_exception(bar: Seen) -> None:
    def broken() -> None:
        with progress("outer", 2, "run"):
            for _ in stepped([1, 2], "inner", 2):
                assert bar.some.wait(LIMIT)
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken()
    assert bar.closed
    assert bar.words[0].startswith("outer: run 1 of 2 · inner: 1 of 2")


def test_short_operations_show_no_progress(bar: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_AFTER", 3600.0)
    looked = threading.Event()

    def look(seconds: float) -> None:
        looked.set()

    monkeypatch.setattr(module, "sleep", look)
    with progress("quick"):
        assert looked.wait(LIMIT)
        looked.clear()
        assert looked.wait(LIMIT)  # it had a whole look meanwhile
    assert not bar.words


def test_other_threads_show_nothing(bar: Seen) -> None:
    def work() -> None:
        with progress("behind"):
            assert module._under_way == []

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not any("behind" in words for words in bar.words)


def test_threads_of_instances_show_their_own_operations(bar: Seen) -> None:
    inside, done = threading.Event(), threading.Event()

    def initialize() -> None:
        with as_main_thread("a_0_0"), progress("downloading"):
            inside.set()
            assert done.wait(LIMIT)
            assert [one.what for one in module._under_way] == ["downloading"]

    thread = threading.Thread(target=initialize)
    with progress("loading a"):
        thread.start()
        assert inside.wait(LIMIT)
        while not any("loading a · downloading, " in words for words in bar.words):
            bar.some.clear()
            assert bar.some.wait(LIMIT)
    done.set()
    thread.join()


def test_code_without_a_display_is_asked_once(bar: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    both = threading.Event()

    def nobody() -> None:
        asked.append(1)
        both.set()

    monkeypatch.setattr(module, "bars", [nobody])
    with progress("script"):
        assert both.wait(LIMIT)
    assert asked == [1]


def test_a_line_says_how_far_it_is_with_nested_steps_and_how_long_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(module, "monotonic", lambda: clock.now)
    one = Progress("a", 10, "run")
    one.step(2)
    clock.now = 7.0
    assert module._words([one]) == "a: run 3 of 10, 7 s so far"
    clock.now = 600.0
    assert module._words([one]) == "a: run 3 of 10, 10 min so far"
    outer, inner = Progress("models", 4), Progress("loading b", 2, "instance")
    levels = [outer, inner]
    outer.done, inner.done = 1, 1
    assert module._part(levels) == pytest.approx(1.5 / 4)
    assert module._part([Progress("x"), inner]) == pytest.approx(0.5)
    assert module._part([Progress("x")]) is None
    assert str(Progress("stream", unit="response")) == "stream"


class _Kernel:
    def __init__(self, asks: bool = True) -> None:
        self.published: list[dict[str, Any]] = []
        self.kernel = SimpleNamespace(_allow_stdin=asks)
        self.display_pub = SimpleNamespace(pub_socket=None, publish=self._publish)

    def _publish(self, **message: Any) -> None:
        self.published.append(message)


def test_a_cell_has_one_display_which_is_empty_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = _Kernel()
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    bar = shown.new_bar()
    assert bar is not None
    bar.close()
    assert not shell.published
    bar.show(HOSTILE, 0.25)
    bar.show("two", None)
    bar.close()
    first, second, last = shell.published
    page = Page(first["data"]["text/html"])
    assert not page.find("script")
    assert not page.find("img")
    assert "second $x^2$ line" in page.text
    assert "width:25.0%" in first["data"]["text/html"]
    assert (first["update"], second["update"], last["update"]) == (False, True, True)
    assert len({message["transient"]["display_id"] for message in shell.published}) == 1
    assert last["data"] == {}


def test_scripts_are_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown.new_bar() is None  # stderr is no terminal
    monkeypatch.setattr(IPython, "get_ipython", lambda: _Kernel(asks=False))
    assert shown.new_bar() is None  # a notebook that nbconvert, papermill or nbval runs


def test_a_terminal_has_a_line_that_is_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    bar = shown.new_bar()
    assert bar is not None
    bar.show("run 3 of 10\x1b[31m", 0.5)
    assert "run 3 of 10\\x1b[31m" in terminal.getvalue()
    bar.close()
    assert terminal.getvalue().rsplit("\r", 2)[-2].strip() == ""
    assert terminal.getvalue().endswith("\r")
