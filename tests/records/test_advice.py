from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bls_notebook.records import advice
from bls_notebook.records.advice import Known, about_loading, advised, missing_model, nearest
from bls_notebook.records.errors import ErrorRecord, FrameRecord, InputSeen
from bls_notebook.records.models import ModelRecord, TensorSpecRecord

MODEL = ModelRecord("m", inputs=(TensorSpecRecord("A", "FP32", (3,)),), outputs=(TensorSpecRecord("Y", "FP32"),))
KNOWN = Known({"m": MODEL}.get, lambda: [MODEL], ("Tensor",))
FRAME = FrameRecord("m", 1, "model.py", 2, "execute", ((1, "t = get_input_tensor_by_name(r, 'B')"), (2, "t.x")))
PATTERNS = [*advice._REQUEST_REMEDIES, *advice._CODE_REMEDIES]


@pytest.mark.parametrize("pattern", PATTERNS)
@settings(max_examples=20)
@given(data=st.data())
def test_advice_for_any_message(pattern: str, data: st.DataObject) -> None:
    message = data.draw(st.from_regex(re.compile(pattern), fullmatch=False))
    for record in (
        ErrorRecord(message),
        ErrorRecord(message, chain=("m",), kind="TypeError", frames=(FRAME,), unchecked=message),
        ErrorRecord(message, chain=("m", "n"), inputs=(InputSeen("B", "BYTES", (2, 3)),)),
    ):
        for known in (Known(), KNOWN):
            assert isinstance(str(advised(record, known).hint), str)
        about_loading(record)


def test_words_without_end_are_not_searched_to_their_end() -> None:
    for word in ("input '", "expected inputs ", "Expected [1,", "unexpected shape for input 'a' for model '"):
        advised(ErrorRecord(word * 1_000_000, chain=("m",)), KNOWN)


@pytest.mark.parametrize(
    ("shape", "hint"), [("[32]", "`MEL.reshape(-1, 16)`"), ("[0]", "send `MEL` with shape [-1, 16]")]
)
def test_only_a_tensor_with_elements_is_to_be_reshaped(shape: str, hint: str) -> None:
    note = "NOTE: Setting a non-zero max_batch_size"
    message = f"unexpected shape for input 'MEL' for model 'm'. Expected [-1,16], got {shape}. {note}"
    assert hint in advised(ErrorRecord(message, chain=("m",)), KNOWN).hint


def test_a_hint_that_is_known_stays() -> None:
    assert advised(ErrorRecord("Model 'x' is not ready", hint="wait"), KNOWN).hint == "wait"


def test_names_that_come_near() -> None:
    assert nearest("input0", ["INPUT0", "INPUT1"]) == "INPUT0"
    assert nearest("resiz", ["resize", "detect"]) == "resize"
    assert nearest("zzz", ["resize", "detect"]) == ""


@pytest.mark.parametrize(
    "message", ["Output tensor for inference response", "Input tensor for request with id '' and model name 'm'"]
)
def test_a_tensor_that_an_error_response_lacks_has_the_cause_of_that_error(message: str) -> None:
    empty = ErrorRecord(f"{message} should not be empty.", chain=("m",), kind="TritonModelException", frames=(FRAME,))
    assert "returns None for an error response" in str(advised(empty, KNOWN).hint)
    hint = str(advised(replace(empty, unchecked="no weights"), KNOWN).hint)
    assert hint.startswith("a request that the model sent failed before: no weights; check each response")


def test_models_that_do_not_serve() -> None:
    def say(*rows: ModelRecord) -> str:
        return str(missing_model("m", Known(every=lambda: rows)))

    assert "load it first" in say(ModelRecord("m", state="UNAVAILABLE", reason="not loaded"))
    assert "load it first" in say(ModelRecord("m", state="UNAVAILABLE", reason="unloaded"))
    assert "could not be loaded: no GPU" in say(ModelRecord("m", state="UNAVAILABLE", reason="no GPU\nAt:"))
    assert "define it" in say()
    assert "`m` has version 3 in service" in say(ModelRecord("m", 3))
