"""Errors: the message, the way it came, the lines that failed, the remedy."""

from __future__ import annotations

import pytest

from bls_notebook.records.errors import ErrorRecord, FrameRecord, InputSeen
from bls_notebook.records.remedy_words import on_surface
from tests.display.page import Page, as_html, as_text
from tests.display.samples import error


def test_text_of_an_error() -> None:
    assert as_text(error(message="no weights")).startswith("✗ callee failed · ValueError · INTERNAL\n")
    assert as_text(error()).split("\n") == [
        "✗ callee failed · INTERNAL",
        "  ValueError: no weights",
        "  how to fix: train it first",
        "  through caller → callee",
        "",
        "  callee  version 2 · cell callee, line 9 · in execute",
        "     8      def execute(self, requests):",
        "  →  9          raise ValueError('no weights')",
        "    10",
        "",
        "  numpy/core.py, line 153 · in matmul",
        "  → 153      return implement(a, b)",
    ]


def test_html_of_an_error() -> None:
    page = Page(as_html(error()))
    assert "callee failed INTERNAL" in page.text
    assert "through caller → callee" in page.text
    assert "how to fix train it first" in page.text
    # The model's own frames are open, the whole traceback is folded.
    assert ["open" in a for a in page.find("details")] == [True, False]
    own, full = page.text.split("traceback")[1:3]
    assert "no weights" in own
    assert "implement(a, b)" not in own
    assert "implement(a, b)" in full


def test_an_error_with_nothing_but_its_message() -> None:
    assert as_text(ErrorRecord("boom")) == "✗ error\n  boom"
    page = Page(as_html(ErrorRecord("boom")))
    assert page.text == "errorboom"
    assert not page.find("details")
    assert "no message" in as_text(ErrorRecord("  \n"))
    assert "no message" in Page(as_html(ErrorRecord(""))).text


def test_tritons_own_traceback_is_told_apart_from_the_message() -> None:
    message = "Failed to process: no weights\n\nAt:\n  model.py(56): execute\n"
    page = Page(as_html(ErrorRecord(message)))
    assert ["open" in a for a in page.find("details")] == [True]
    assert page.text.endswith("no weightstracebackAt:\n  model.py(56): execute")
    assert "  model.py(56): execute" in as_text(ErrorRecord(message))


def test_frames_replace_tritons_own_traceback() -> None:
    at = "\n\nAt:\n  model.py(56): execute\n  model.py(9): <listcomp>\n"
    record = error(message=f"Failed to process: no weights{at}")
    page = Page(as_html(record))
    for shown in as_text(record), page.text:
        assert "Failed to process: no weights" in shown
        assert "model.py(" not in shown
        assert "At:" not in shown
    assert page.find("summary") == Page(as_html(error())).find("summary")
    assert ["open" in a for a in page.find("details")] == [True, False]
    # What a model wrote around the message of another stays.
    around = error(message=f"asked: no weights{at}\n\nAt:\n  caller.py(3): ask, in vain")
    assert as_text(around).split("\n")[1:4:2] == ["  asked: no weights", "  through caller → callee"]
    more = error(message=f"asked: no weights{at} (and no bias)\n\nAt:\nthe door")
    for shown in as_text(more), Page(as_html(more)).text:
        assert "asked: no weights (and no bias)" in shown
        assert "the door" in shown
    # A message that is nothing else is not lost without a word.
    assert "no message" in as_text(error(message=at))


def test_a_long_message_is_folded_in_html_and_whole_in_text() -> None:
    message = "\n".join(f"line {i}" for i in range(50))
    page = Page(as_html(ErrorRecord(message)))
    assert ["open" in a for a in page.find("details")] == [False]
    assert page.text.index("line 7…") < page.text.index("whole message")
    assert page.text.endswith("line 49")
    assert as_text(ErrorRecord(message)).endswith("line 49")
    one_line = Page(as_html(ErrorRecord("x" * 5000)))
    assert one_line.text.count("x") == 5800 + "error".count("x")
    # The last line of a Python traceback is shown at once.
    lines = ["PyTorch failed:", "Traceback (most recent call last):", *map(str, range(20)), "RuntimeError: no"]
    page = Page(as_html(ErrorRecord("\n".join(lines))))
    assert page.text.index("5…") < page.text.index("RuntimeError: no") < page.text.index("whole message")
    for shown in (as_text(ErrorRecord("x" * 10_000_000)), as_html(ErrorRecord("x" * 10_000_000))):
        assert "9,950,000 more characters" in shown
        assert len(shown) < 200_000


@pytest.mark.parametrize(
    ("stage", "title"),
    [
        ("", "callee failed"), ("refused", "request to callee refused"),
        ("returned", "callee returned an error"), ("cancelled", "request to callee cancelled"),
    ],
)  # fmt: skip
def test_a_title_says_how_far_the_request_came(stage: str, title: str) -> None:
    record = error(stage=stage)
    assert as_text(record).startswith(f"✗ {title} · INTERNAL\n")
    assert title in Page(as_html(record)).text


def test_an_exception_upon_a_returned_error_names_the_model_that_raised() -> None:
    frames = tuple(FrameRecord(name, 1, "model.py", 9, "execute") for name in ("caller", "callee"))
    shown = as_text(error(message="no weights", stage="returned", frames=frames))
    assert shown.startswith("✗ callee returned an error · caller raised ValueError · INTERNAL\n")


def test_an_error_shows_sent_inputs_and_where_the_debugger_opens() -> None:
    inputs = (InputSeen("A", "INT32", (2, 3)), InputSeen("B<i>", "INT32", (1,), "gpu:0"))
    for shown in as_text(error(inputs=inputs)), Page(as_html(error(inputs=inputs))).text:
        assert "sent to callee" in shown
        assert "A INT32 [2, 3], B<i> INT32 [1] on gpu:0" in shown
        assert "%debug" not in shown
    opens = error(debug=True, chain=("callee",))
    assert as_text(opens).endswith("\n\n  %debug opens here")
    assert Page(as_html(opens)).text.endswith("%debug opens here")
    # What a callee did is told too, but it is the caller that raised.
    raised = FrameRecord("caller", 1, "Cell In[2]", 27, "ask")
    through = error(debug=True, frames=(raised, *error().frames))
    assert as_text(through).endswith("\n\n  %debug opens in caller, Cell In[2] line 27")
    # A caller that passed the callee's error on raised nothing.
    assert as_text(error(debug=True)).endswith("\n\n  %debug opens here")
    assert "%debug" not in as_text(error(debug=True, frames=()))
    with on_surface("notebook"):
        assert as_text(error(debug=True, process=True, frames=(raised,))).endswith(
            "%debug cannot open in a process of its own: first %tritonrepo load caller --in-kernel"
        )


def test_a_request_that_nobody_named_has_no_number() -> None:
    record = error(message="Model m - Error: [request id: <id_unknown>] wrong shape")
    for shown in as_text(record), Page(as_html(record)).text:
        assert "Model m - Error: wrong shape" in shown
    named = error(message="[request id: 7] wrong shape")
    assert "[request id: 7]" in as_text(named)


def test_tabs_and_missing_facts_in_frames_and_chains() -> None:
    assert "through" not in as_text(error(chain=("callee",)))
    assert "through" not in Page(as_html(error(chain=("callee",)))).text
    frame = FrameRecord("m", line=2, source=((2, "\tx = 1"),))
    assert "  m  ?, line 2\n  → 2      x = 1" in as_text(error(frames=(frame,)))
    assert "→ 2      x = 1" in Page(as_html(error(frames=(frame,)))).text
    bare = FrameRecord("m", 1, "model.py", 2, "f")
    assert Page(as_html(error(frames=(bare,)))).find("pre", "bls-error-code") == []
