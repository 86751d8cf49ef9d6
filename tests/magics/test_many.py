"""``%bls`` with ``-n``, ``--stream`` and both; text that streams; timeouts without effect."""

from __future__ import annotations

import pytest

from .conftest import Cells

CHAT = """\
%%tritonmodel chat -q --input PROMPT STRING [1] --output TOKEN STRING [1] --decoupled
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for piece in eval(pb_utils.get_input_tensor_by_name(request, "PROMPT").as_numpy()[0]):
                token = pb_utils.Tensor("TOKEN", np.array([piece], np.object_))
                sender.send(pb_utils.InferenceResponse([token]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
BATCHING = """\
%%tritonconfig times
max_batch_size: 0
dynamic_batching {{ default_queue_policy {{ {} }} }}
"""


@pytest.fixture
def chat(cells: Cells) -> Cells:
    assert cells(CHAT).success
    return cells


def test_text_that_streams_is_joined(chat: Cells) -> None:
    chat.shell.user_ns["said"] = [r"[b'one ', b'\xc3', b'\xa9', b'']"]
    shown = chat("answers = %bls chat PROMPT=said --stream\nanswers")
    assert shown.value.texts == (("TOKEN", "one é"),)
    assert shown.value.text() == shown.value.text("TOKEN") == "one é"
    assert "  TOKEN:\n    one é\n" in shown.text
    assert "one é" in shown.html
    assert len(shown.value) == 4


def test_what_is_no_text_or_is_all_there_is_not_joined(chat: Cells) -> None:
    for pieces in (r"[b'\xff', b'\xfe']", "[b'short']", "[]"):
        chat.shell.user_ns["said"] = [pieces]
        shown = chat("%bls chat PROMPT=said --stream")
        assert shown.value.texts == ()
        assert "error" not in shown.text
    grown = chat("""%bls chat PROMPT=["['a', 'a b', 'a b c']"] --stream""")
    assert grown.value.text() == "a b c"  # each piece has all that came before
    with pytest.raises(KeyError):
        chat("""%bls chat PROMPT=["[b'short']"] --stream""").value.text()
    chat.stream()
    assert chat("%bls counter N=[3] --stream").value.texts == ()


@pytest.mark.parametrize("how", ["", "--async"])
def test_many_streams(chat: Cells, how: str) -> None:
    shown = chat(f"""%bls chat PROMPT=["'abc'"] --stream -n 25 {how} --into answers""")
    assert shown.value is chat.shell.user_ns["answers"]
    assert [len(stream) for stream in shown.value] == [3] * 25
    assert all(stream.complete and stream.text() == "abc" for stream in shown.value)
    assert "25 streams · 75 responses" in shown.text
    assert "first response: median" in shown.text
    assert "abc" in shown.text
    assert repr(shown.value) == "<Streams: 25>"


def test_many_streams_of_which_one_fails(chat: Cells) -> None:
    shown = chat("""%bls chat PROMPT=["[b'a', 1 / 0]"] --stream -n 2""")
    assert "2 errors" in shown.text
    assert "division by zero" in shown.text


def test_a_timeout_that_cannot_act_is_told(cells: Cells) -> None:
    cells.model()
    shown = " ".join(cells("%bls times IN=[1] --timeout 500us").text.split())
    assert "the timeout of 500 µs has no effect: without dynamic_batching" in shown
    assert "has no effect" not in cells("%bls times IN=[1]").text
    for policy, told in (
        ("default_timeout_microseconds: 1000", "does not have allow_timeout_override"),
        ("allow_timeout_override: true default_timeout_microseconds: 400", "must be less than the queue policy's"),
        ("allow_timeout_override: true default_timeout_microseconds: 1000000", ""),
    ):
        cells(BATCHING.format(policy))
        cells.model()
        shown = " ".join(cells("%bls times IN=[1] --timeout 500ms").text.split())
        assert (told in shown) if told else ("has no effect" not in shown), shown
