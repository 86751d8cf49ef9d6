"""One model version, and the list of them."""

from __future__ import annotations

from bls_notebook.records.models import Change, TensorSpecRecord
from bls_notebook.records.remedy_words import on_surface
from tests.display.page import Page, as_html, as_text
from tests.display.samples import model


def test_text_of_a_model() -> None:
    assert as_text(model(warnings=("np is a notebook global",))).split("\n") == [
        "digit_classifier  version 1  READY  loaded in 3.20 ms",
        "  python backend · 2 instances on CPU · batches of up to 32 · from a cell",
        "  inputs   IMAGE  FP32   [batch, 64]",
        "           SCALE  FP32   [batch, -1]  optional",
        "  outputs  DIGIT  INT64  [batch, 1]",
        "  warning: np is a notebook global",
    ]


def test_changes_are_summed_up_and_folded_away() -> None:
    lines = ((" ", "def execute"), ("-", "    x = 1"), ("+", "    x = 2"), ("…", ""))
    record = model(changes=(Change("model.py", 1, 1, lines), Change("config.pbtxt", 1, 0, (("+", "dims: 1"),))))
    assert as_text(record).split("\n")[5:] == [
        "  changed since the last definition: model.py +1 −1, config.pbtxt +1 −0",
        "      def execute",
        "    -     x = 1",
        "    +     x = 2",
        "    …",
        "    + dims: 1",
    ]
    page = Page(as_html(record))
    assert page.find("details") == [{}]  # closed
    assert len(page.find("span", "bls-changes-went")) == 1
    assert as_text(model()) == as_text(model(changes=()))


def test_text_of_a_model_that_failed() -> None:
    record = model(
        state="UNAVAILABLE", reason="no weights", load_seconds=None, max_batch_size=0, decoupled=True,
        inputs=(), outputs=(), instances=1, instance_kind="KIND_AUTO", source="digits",
    )  # fmt: skip
    assert as_text(record).split("\n") == [
        "digit_classifier  version 1  UNAVAILABLE",
        "  reason: no weights",
        "  python backend · 1 instance · no batching · decoupled: any number of responses · from digits",
    ]


def test_shapes_name_the_batch_only_where_there_is_one() -> None:
    assert "[64]" in as_text(model(max_batch_size=0))
    assert "batch," not in as_text(model(max_batch_size=0))
    assert "[batch]" in as_text(model(inputs=(TensorSpecRecord("A", "FP32", ()),)))


def test_list() -> None:
    records = [
        model(),
        model(version=2, state="UNAVAILABLE", reason="unloaded", inputs=(), outputs=(), load_seconds=None),
        model(name="b", state="LOADING", load_seconds=None),
    ]
    assert as_text(records).split("\n") == [
        "model             version  state        load time  source  inputs → outputs",
        "digit_classifier        1  READY          3.20 ms  cell    IMAGE, SCALE → DIGIT",
        "digit_classifier        2  UNAVAILABLE             cell    unloaded",
        "b                       1  LOADING                 cell    IMAGE, SCALE → DIGIT",
        "",
        "2 models in 3 versions, 1 ready",
    ]
    page = Page(as_html(records))
    assert len(page.find("tr")) == 4
    assert page.find("span", "bls-loading")
    assert not page.find("span", "bls-unavailable")  # unloaded on purpose: not in red
    assert "2 models in 3 versions, 1 ready" in page.text


def test_a_long_reason_is_wrapped_and_never_cut() -> None:
    reason = " ".join(f"word{i}" for i in range(60))
    failed = model(state="UNAVAILABLE", reason=reason, inputs=(), outputs=())
    text = as_text([failed], width=80)
    assert " ".join(text.split()).count(" ".join(reason.split()[-3:])) == 1
    assert all(f"word{i}" in text for i in range(60))
    assert max(map(len, text.split("\n"))) <= 80
    assert Page(as_html([failed])).find("span", "bls-unavailable")


def test_a_signature_is_cut_and_stays_beside_a_reason() -> None:
    failed = [model(state="UNAVAILABLE", reason="why")]
    for shown in (as_text(failed), Page(as_html(failed)).text):
        assert "IMAGE, SCALE → DIGIT" in shown
        assert "why" in shown
    specs = tuple(TensorSpecRecord(f"T{i}", "FP32") for i in range(9))
    assert "T0, T1, T2, +6 → nothing" in as_text([model(inputs=specs, outputs=())])


def test_an_empty_list_says_what_to_do() -> None:
    assert (
        as_text([]) == "no models: define one with `repo.define('NAME', source)`, or load one with `repo.load('NAME')`"
    )
    with on_surface("notebook"):
        shown = Page(as_html([])).text
    assert shown == "no models: define one with %%tritonmodel NAME, or load one with %tritonrepo load NAME"
