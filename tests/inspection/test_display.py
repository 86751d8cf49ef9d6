from __future__ import annotations

from bls_notebook.inspection.records import Compared, ResponseView
from tests.display.page import Page, as_html, as_text
from tests.display.samples import compared, error, model_view, response, tensor, tensor_view


def test_text_of_a_tensor() -> None:
    assert (
        as_text(tensor_view())
        == """\
OUT  FP32  [40]  gpu:0 (simulated)  4 B  slice [0] of [2, 40]
  min -2 · max 9.5 · mean 0.25 · NaN 3 · Inf 1 · sampled 1 in 16
  2 pictures of 16×8: 0 to 255 as they are
  -2 ▕▂ █▄▏ 9.5  histogram, up to 5 elements a bin
  a sound at 16,000 samples a second
  [0] · JSON · 9 B
    {
      "a": 1
    }
  [1] · PNG · 9 B
  and 38 more elements
  values of [:8]"""
        + 4 * "\n  [1. 2.]"
    )


def test_html_of_a_tensor() -> None:
    page = Page(as_html(tensor_view()))
    assert [a["alt"] for a in page.find("img")] == [*["OUT: 8×16, 0 to 255 as they are"] * 2, "PNG"]
    (sound,) = page.find("audio")
    assert sound["src"] == "data:audio/wav;base64,UklGRg=="
    assert [a.get("title") for a in page.find("span") if a.get("style", "")] == [
        "-2 to 0.875: 1", "0.875 to 3.75: 0", "3.75 to 6.625: 5", "6.625 to 9.5: 2",
    ]  # fmt: skip


def test_a_response_is_its_outputs() -> None:
    whole = response(tensors=tuple(tensor(name=name) for name in "ABC"))
    shown = as_text(ResponseView(whole, (tensor_view(), tensor_view())))
    assert shown.count("min -2") == 2
    assert shown.endswith("and 1 more output: C")
    assert "no weights" in as_text(ResponseView(response(tensors=(), error=error())))


def test_two_side_by_side() -> None:
    first, *rest = as_text(compared(), width=120).split("\n")
    assert first == "first: a  ≠  second: b  3 of 4 tensors differ"
    assert [line.split() for line in rest[1:]] == [
        ["X", "INT32", "[1]", "INT32", "[1]", "2", "(20%)", "0.5", "0.25", "3", "[1,", "2]", "1.0", "and", "1.5"],
        ["T", "INT32", "[1]", "INT32", "[1]", "1", "(10%)", "[3]", '"a"', "and", '"b"'],
        ["S", "INT32", "[1]", "INT32", "[1]", "equal,", "all", "10", "elements"],
        ["N", "INT32", "[1]", "—", "only", "in", "the", "first"],
    ]


def test_equal_tensors_are_said_to_be_equal() -> None:
    assert as_text(Compared("first", "second")) == "first  =  second  equal"
    html = as_html(compared())
    assert (len(Page(html).find("img")), html.count("only in the first")) == (3, 1)


def test_text_of_a_model_and_its_source_in_colours() -> None:
    shown = as_text(model_view())
    for line in (
        "  called by a, b · calls callee", "now: 1 of 3 instances busy, 2 requests in the queue",
        "  m_0       cpu                busy     a request of notebook, for 500 ms, waits for callee",
        "memory: the model keeps 2 KiB", "  m.weights  1 KiB  float32 [256]  gpu:0", "  and 1 KiB under other names",
        "configuration: 1 field written, 2 completed", "  max_batch_size  8      written by the author",
        "  input[IN].dims  [1]    set by auto_complete_config", "  and 1 default", "model.py: 5 lines",
        '      return "a", 1, None  # why',
    ):  # fmt: skip
        assert line in shown.split("\n"), (line, shown)
    assert "last error" in shown
    assert "no weights" in shown
    page = Page(as_html(model_view()))
    assert 'import os\n\n@wraps\ndef f():\n    return "a", 1, None  # why' in page.text
    assert all(page.find("span", f"bls-config-{kind}") for kind in ("com", "str", "key"))
    plain = as_text(model_view(held=(), error=None, source="", statistics=None, calls=(), callers=()))
    assert "memory: the model keeps no array" in plain
    assert "called by" not in plain
