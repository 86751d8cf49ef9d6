"""Describing an exception never fails, and the request that raised it is answered like any other."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import signal
import sys
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.display.html import Html
from bls_notebook.engine.exception_text import MAX_TEXT, ModelHome, describe, home_of
from tests.display.page import as_html, as_text
from tests.engine import odd
from tests.engine.harness import Caller, assert_all_idle, ints, message, value
from tests.engine.sources import model, pbtxt

STRIKE = "from tests.engine import odd\n"


def caught(name: str) -> BaseException:
    try:
        odd.strike(name)
    except BaseException as error:
        return error


def assert_plain(text: str) -> None:
    assert type(text) in (str, Html)
    text.encode()


@pytest.mark.parametrize("name", odd.NAMES)
def test_any_exception_is_described(name: str) -> None:
    told = describe(caught(name))
    for text in (told.kind, told.text, told.brief, told.message, str(told)):
        assert_plain(text)
    assert told.kind in {
        "Odd", "Renamed", "ValueError", "SyntaxError", "SystemExit", "KeyboardInterrupt",
        "UnicodeDecodeError", "OSError", "FileNotFoundError", "ExceptionGroup",
    }  # fmt: skip
    assert told.message.startswith(f"{told.kind}: ")
    assert len(told.message) < 2 * MAX_TEXT
    assert "\n" not in told.brief
    assert told.frames
    for frame in told.frames:
        json.dumps(frame.to_dict(), allow_nan=False).encode()
        assert_plain(frame.file)
    silent = ("__str__ raises", "__str__ without", "__str__ gives a number", "no text", "blank text")
    if not name.startswith((*silent, "a unicode", "an os", "an exit")):
        assert "its text" in told.text


def test_a_text_that_fails_says_why_as_triton_does() -> None:
    told = describe(caught("__str__ raises ValueError"))
    assert told.message.startswith("Odd: <MESSAGE UNAVAILABLE DUE TO ANOTHER EXCEPTION>\n\nAt:\n  ")
    assert "\n\nMESSAGE UNAVAILABLE DUE TO EXCEPTION: ValueError: x\n\nAt:\n  " in told.message
    assert told.message.rstrip().endswith(": asked")


def test_the_place_of_a_syntax_error_is_shown(tmp_path: Any) -> None:
    file = tmp_path / "page.py"
    file.write_text("one\ntwo words\nthree\n")
    told = describe(SyntaxError("its text", (str(file), 2, 5, "two words")), "m", 7)
    frame = told.frames[-1]
    assert (frame.model, frame.version, frame.file, frame.line) == ("m", 7, str(file), 2)
    assert frame.source == ((1, "one"), (2, "two words"), (3, "three"))
    assert told.brief == "its text"
    assert "page.py" in told.text


def test_only_a_home_is_a_home() -> None:
    home = ModelHome()
    assert home_of({"__bls_home__": home}) is home
    for other in (5, None, caught("no attributes"), caught("no class")):
        assert home_of({"__bls_home__": other}) is None


EXECUTES = {
    "sync": ("def", False, "odd.strike(odd.NAMES[number(requests[0])])"),
    "async": ("async def", False, "odd.strike(odd.NAMES[number(requests[0])])"),
    "after a response": (
        "def",
        True,
        "requests[0].get_response_sender().send(answer(1)); odd.strike(odd.NAMES[number(requests[0])])",
    ),
}


def source(kind: str, does: str) -> str:
    return STRIKE + model(f"{kind} execute(self, requests):\n    globals()['__bls_home__'] = 5\n    {does}")


def answers(repo: bls.ModelRepository, index: int, decoupled: bool) -> list[Any]:
    """By each way that a request has in."""

    async def later() -> Any:
        if not decoupled:
            return await repo.infer_async("odd", ints(index))
        return [r async for r in repo.stream_async("odd", ints(index))][-1]

    def now() -> Any:
        return list(repo.stream("odd", ints(index)))[-1] if decoupled else repo.infer("odd", ints(index))

    return [now(), Caller(now).result(), asyncio.run(later())]


@pytest.mark.parametrize("way", EXECUTES)
def test_any_exception_of_a_model_is_answered(repo: bls.ModelRepository, way: str) -> None:
    kind, decoupled, does = EXECUTES[way]
    repo.define("odd", source(kind, does), pbtxt(decoupled=decoupled))
    for index, name in enumerate(odd.NAMES):
        if name == "a keyboard interrupt of the model's":
            continue  # on the main thread it cannot be told from Ctrl-C
        for response in answers(repo, index, decoupled):
            text = message(response)
            assert "message: " in text, name
            assert_plain(text)
            assert_plain(repr(response))
            assert_plain(as_text(response.record))
            assert_plain(as_html(response.record))
            json.dumps(response.record.to_dict())
    assert_all_idle(repo)
    repo.unload("odd")


def test_through_bls_batches_and_profiles(repo: bls.ModelRepository, tmp_path: Any) -> None:
    config = pbtxt().replace("max_batch_size: 0", "max_batch_size: 2") + "\ndynamic_batching { }"
    repo.define("odd", source("def", "odd.strike(odd.NAMES[number(requests[0])])"), config)
    repo.define("a", model("""
async def execute(self, requests):
    request = pb.InferenceRequest(
        model_name="odd", requested_output_names=["Y"],
        inputs=[pb.Tensor("X", np.array([[number(requests[0])]], np.int32))])
    got = [request.exec(), await request.async_exec()]
    return [pb.InferenceResponse(error=got[0].error())] if all(r.has_error() for r in got) else [answer(0)]
"""), pbtxt())  # fmt: skip
    with bls.profile() as session:
        for index in range(len(odd.NAMES)):
            assert_plain(message(repo.infer("a", ints(index))))
    for ending in (".json", ".json.gz", ".trace.json"):
        session.save(tmp_path / f"it{ending}")
    assert len(bls.open_file(tmp_path / "it.json.gz").spans) == 3 * len(odd.NAMES)


WHERE = {
    "module": "odd.strike({name!r})\nclass TritonPythonModel:\n    def execute(self, requests): return []\n",
    "__init__": "class TritonPythonModel:\n    def __init__(self): odd.strike({name!r})\n",
    "initialize": "class TritonPythonModel:\n    def initialize(self, args): odd.strike({name!r})\n"
    "    def execute(self, requests): return []\n",
    "auto_complete_config": "class TritonPythonModel:\n    @staticmethod\n"
    "    def auto_complete_config(config): odd.strike({name!r})\n",
}


@pytest.mark.parametrize("where", WHERE)
def test_a_load_that_fails_is_one_error(repo: bls.ModelRepository, where: str) -> None:
    for name in odd.NAMES:
        if "keyboard interrupt of" in name:
            continue
        with pytest.raises(bls.ModelLoadError) as info:
            repo.define("odd", STRIKE + WHERE[where].format(name=name), pbtxt())
        assert_plain(str(info.value))
        assert_plain(info.value.reason)
        assert "\n" not in str(info.value)
        assert len(str(info.value)) < 3000
        assert info.value.record is not None
        json.dumps(info.value.record.to_dict())
    assert not repo.ready("odd")


def test_finalize_and_is_ready_may_raise_anything(repo: bls.ModelRepository, caplog: pytest.LogCaptureFixture) -> None:
    for name in odd.NAMES:
        repo.define("odd", STRIKE + model(f"""
def is_ready(self): odd.strike({name!r})
def finalize(self): odd.strike({name!r})
def execute(self, requests): return [answer(1) for r in requests]
"""), pbtxt())  # fmt: skip
        assert not repo.ready("odd"), name
        assert value(repo.infer("odd", ints(1))) == 1
        repo.unload("odd")
    said = [r.getMessage() for r in caplog.records]
    assert sum("finalize of odd_0_0 raised " in text for text in said) == len(odd.NAMES)
    assert sum("is_ready of odd_0_0 raised " in text for text in said) == len(odd.NAMES)


def test_exceptions_of_callbacks_and_threads_end_no_loop(
    repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    # asyncio tells of what was forgotten, in words that no report of a test can carry.
    monkeypatch.setattr(logging.getLogger("asyncio"), "disabled", True)
    repo.define("odd", STRIKE + model("""
async def execute(self, requests):
    strike = lambda: odd.strike(odd.NAMES[number(requests[0])])
    asyncio.get_running_loop().call_soon(strike)
    told = {"message": "as it is", "exception": odd.ODD[odd.NAMES[number(requests[0])]]()}
    asyncio.get_running_loop().call_exception_handler(told)
    forgotten = asyncio.ensure_future(asyncio.to_thread(strike))
    await asyncio.wait([forgotten])
    return [answer(number(requests[0]))]
"""), pbtxt())  # fmt: skip
    slow = ("many causes", "a forged traceback", "long text", "__str__ without end")  # for logging
    for index in [i for i, name in enumerate(odd.NAMES) if name not in slow]:
        for _ in range(2):
            assert value(Caller(repo.infer, "odd", ints(index)).result()) == index
    assert_all_idle(repo)
    gc.collect()


def test_ctrl_c_in_an_endless_text_comes_back(repo: bls.ModelRepository) -> None:
    repo.define("odd", model("""
def execute(self, requests):
    class Endless(Exception):
        def __str__(self):
            import signal
            signal.raise_signal(signal.SIGINT)
            while True: pass
    if number(requests[0]):
        raise Endless
    return [answer(1)]
"""), pbtxt())  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        repo.infer("odd", ints(1))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert value(repo.infer("odd", ints(0))) == 1


@pytest.mark.slow
def test_no_room_on_the_stack_is_said_too() -> None:
    error = caught("__str__ raises ValueError")
    seen = []

    def deeper() -> None:
        try:
            deeper()
        except RecursionError:
            pass
        try:
            seen.append(describe(error).message)
        except RecursionError:
            seen.append("")

    Caller(deeper).result()
    assert seen[-1].startswith("Odd: <MESSAGE UNAVAILABLE")
    assert sum(text == "" for text in seen) <= 2
    assert all(text.startswith("Odd: ") for text in seen if text), sys.version
