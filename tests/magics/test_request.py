from __future__ import annotations

import json

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.magics import request as live
from bls_notebook.magics.result_lists import Responses
from tests.magics.conftest import Cells
from tests.repository.models import saying


def test_the_value_is_the_response_and_is_shown_in_both_forms(cells) -> None:
    cells.model()
    shown = cells("%bls times IN=[1, 2, 3]")
    assert isinstance(shown.value, bls.Response)
    assert shown.value["OUT"].as_numpy().tolist() == [2, 4, 6]
    assert shown.value.as_numpy()["COUNT"].tolist() == [3]
    assert set(shown.bundles[0]) == {"text/plain", "text/html"}
    for word in ("times", "OUT", "FP32", "[3]", "[2.0, 4.0, 6.0]"):
        assert word in shown.text


def test_assignment_and_underscore(cells) -> None:
    cells.model()
    assert not cells("answer = %bls times IN=[1]").bundles
    assert cells("answer['OUT'].as_numpy().tolist()").value == [2.0]
    assert cells("[answer]").text.startswith("[<Response of 'times'")
    cells("%bls times IN=[2]")
    assert cells("_['OUT'].as_numpy().tolist()").value == [4.0]


def test_expressions_see_the_notebook_and_the_function_around_them(cells) -> None:
    cells.model()
    cells("import numpy as np\na = np.ones(3, np.float32)\nname = 'times'")
    assert cells("%bls $name IN=a + a").value["OUT"].as_numpy().tolist() == [4, 4, 4]
    assert cells("%bls {name} IN=np.concatenate([a, a])").value["COUNT"].as_numpy().tolist() == [6]
    cells("def ask(n):\n    return get_ipython().run_line_magic('bls', 'times IN=[n for _ in range(2)]')")
    assert cells("ask(3)").value["OUT"].as_numpy().tolist() == [6, 6]


def test_options_of_one_request(cells) -> None:
    cells.model()
    assert list(cells("%bls times IN=[1] --outputs COUNT").value) == ["COUNT"]
    assert sorted(cells("%bls times IN=[1] --outputs COUNT, OUT").value) == ["COUNT", "OUT"]
    assert cells("%bls times IN=[1] --async").value["OUT"].as_numpy().tolist() == [2]
    assert cells("%bls times IN=[1] --version 1").value.error is None
    assert "version 9 is not found" in cells("%bls times IN=[1] --version 9").value.error.message()
    assert cells("%bls times IN=[1] --device cpu").value["OUT"].is_cpu()
    cells.shell.user_ns["array"] = np.arange(2, dtype=np.float32)
    assert cells("%bls times IN=array").value["OUT"].as_numpy().tolist() == [0, 2]


@pytest.mark.parametrize("ending", ["--quiet", "-q", ";"])
def test_nothing_is_shown_where_that_is_asked_for(cells, ending: str) -> None:
    cells.model()
    quiet = cells(f"%bls times IN=[1] {ending}")
    assert quiet.success
    assert not quiet.bundles


@pytest.mark.parametrize("how", ["", "--async"])
def test_many(cells, how: str) -> None:
    cells.model()
    shown = cells(f"%bls times IN=[1] -n 4 {how}")
    assert isinstance(shown.value, Responses)
    assert [r["OUT"].as_numpy().tolist() for r in shown.value] == [[2.0]] * 4
    assert [record.index for record in shown.value.records] == [0, 1, 2, 3]
    assert "4 requests" in shown.text
    assert "4 requests" in shown.html


def test_async_sends_all_at_once(cells) -> None:
    barrier = 'import sys, threading\nbarrier = sys.__dict__.setdefault("_meet", threading.Barrier(3))'
    cells("%%tritonmodel meet --output OUT STRING [1] --instances 3\n" + saying("barrier.wait(60)", barrier))
    answers = cells("%bls meet -n 3 --async").value
    assert [r.error for r in answers] == [None] * 3


@pytest.mark.parametrize("how", ["", "--async"])
def test_stream(cells, how: str) -> None:
    cells.stream()
    shown = cells(f"%bls counter N=[3] --stream {how}")
    assert [int(r["OUT"].as_numpy()[0]) for r in shown.value] == [0, 1, 2]
    assert "3 responses" in shown.text
    assert "no final flag" not in shown.text
    assert shown.value.records[-1].final
    assert cells("%bls counter N=[0] --stream").bundles


def test_stream_grows_while_responses_arrive(cells, monkeypatch: pytest.MonkeyPatch) -> None:
    cells.stream()
    monkeypatch.setattr(live, "FIRST_AFTER", 0.0)
    monkeypatch.setattr(live, "BETWEEN", 0.0)
    monkeypatch.setattr(cells.shell, "kernel", object(), raising=False)
    shown = cells("%bls counter N=[3] --stream")
    assert [o["update"] for o in shown.outputs] == [False, True, True, True]
    assert len({o["transient"]["display_id"] for o in shown.outputs}) == 1
    counts = [1, 2, 3, 3]
    for output, count in zip(shown.outputs, counts, strict=True):
        assert f"{count} response" in output["data"]["text/plain"]
        assert "warning" not in output["data"]["text/plain"]
    assert ["running" in o["data"]["text/plain"] for o in shown.outputs] == [True, True, True, False]
    assert len(cells("_").value) == 3  # in another cell it is shown as usual
    assert "3 responses" in cells("_").text


def test_a_stream_is_shown_once_in_a_terminal_and_not_at_all_if_quiet(cells, monkeypatch: pytest.MonkeyPatch) -> None:
    cells.stream()
    monkeypatch.setattr(live, "FIRST_AFTER", 0.0)
    assert len(cells("%bls counter N=[3] --stream").outputs) == 1
    monkeypatch.setattr(cells.shell, "kernel", object(), raising=False)
    assert cells("%bls counter N=[3] --stream -q").outputs == []


def test_request_options_reach_the_model(cells) -> None:
    told = "(r.timeout(), r.request_id(), r.correlation_id(), r.flags(), r.parameters())"
    cells("%%tritonmodel teller --output OUT STRING [1]\n" + saying(told, inside="r = requests[0]"))
    line = "%bls teller --timeout 5ms --request-id r7 --sequence seq:start --parameters a=1,b='x y'"
    told = eval(cells(line).value["OUT"].as_numpy()[0].decode())
    assert (*told[:4], json.loads(told[4])) == (5000, "r7", "seq", 1, {"a": 1, "b": "x y"})


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


def test_streams_without_text_are_not_joined(chat: Cells) -> None:
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
    shown = chat(f"""%bls chat PROMPT=["'abc'"] --stream -n 25 {how}""")
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
