"""``%blscheck`` and ``%%blsguess`` in a real shell."""

from __future__ import annotations

from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.course.check_magic import next_words
from bls_notebook.course.guess_magic import shown
from bls_notebook.testing.claim_checks import FORMS


@pytest.fixture
def sender(cells: Any) -> Any:
    cells.model()
    return cells


def test_a_check_is_of_what_was_recorded_last(sender: Any) -> None:
    sender("%%blsprofile -q\n%bls times IN=[1] -q")
    shown = sender("%blscheck called times 1\n%blscheck called other")
    assert shown.success
    assert shown.value is None
    assert shown.text.splitlines() == [
        "✓ called times 1: 1 request to times",
        "✗ called other: 0 requests to other; others: times 1",
        "  No request to other was recorded.",
    ]
    sender("%%blsprofile -q\n%bls times IN=[1] -n 2 -q")
    assert sender("%blscheck called times 2").text.startswith("✓")
    sender("%%blsmemory -q\nkept = %bls times IN=[1]")
    assert "held by kept" in sender("%blscheck nothing_left").text
    sender("%bls times IN=[3.0]")
    assert sender("%blscheck output COUNT == 1\n%blscheck device == cpu").text.count("✓") == 2
    sender("%blsprofile times IN=[1.0] -n 2 --repeat 1 -q")
    judged = [sender(f"%blscheck verdict {operator} helped").text for operator in ("==", "!=")]
    assert sorted(text[0] for text in judged) == ["✓", "✗"]  # which is which depends on the machine


def test_another_record_can_be_named(sender: Any) -> None:
    sender("import bls_notebook as bls\nwith bls.profile() as mine:\n    %bls times IN=[1] -q")
    assert sender("%blscheck called times --of mine").text.startswith("✓")
    judged = sender("bls.judge(mine, 'called times')")
    assert judged.value
    assert judged.text == "✓ called times: 1 request to times"
    with pytest.raises(AssertionError, match="at most 1 request at work"):
        assert bls.judge(sender.shell.user_ns["mine"], "overlapped 2")


def test_wrong_blscheck_lines_are_one_line(cells: Any) -> None:
    shown = cells("%blscheck overlapped 2")
    assert not shown.success
    assert "got nothing yet, expected a record of %%blsprofile: run a cell with it" in shown.text
    assert "did you mean overlapped N" in cells("%blscheck overlaped 2").text
    assert "missing: a claim" in cells("%blscheck").stderr
    assert "nosuch" in cells("%blscheck nothing_left --of nosuch").stderr


def test_a_claim_that_does_not_hold_fails_its_cell_where_errors_are_raised(sender: Any) -> None:
    cell = "%%blscheck called nosuch\n%bls times IN=[1] -q"
    assert sender(cell).success
    sender("%config BLSNotebook.raise_errors = True")
    failed = sender(cell)
    assert isinstance(failed.error, bls.BLSError)
    assert "✗ called nosuch: 0 requests to nosuch" in failed.text
    assert sender(cell.replace("nosuch", "times")).success


def test_a_guess_folds_away_what_the_cell_shows(sender: Any) -> None:
    shown = sender('%%blsguess "as <b>one</b>" twice --into guess\nprint("seen")\n%bls times IN=[2]')
    assert shown.success
    [bundle] = shown.bundles
    before, fold = bundle["text/html"].split("<details>")
    assert "as &lt;b&gt;one&lt;/b&gt;" in before
    assert "twice" in before
    assert "<pre>seen</pre>" in fold
    assert "[4.0]" in fold
    assert "[4.0]" not in before
    assert "data-bls-place" not in before  # no kernel, no widget
    text = bundle["text/plain"].splitlines()
    assert text[0] == "Your guess? as <b>one</b> · twice"
    assert text[1:3] == ["seen", text[2]]
    assert "times" in text[2]
    assert sender("guess").value == ""


def test_guesses_of_other_cell_magics_and_replaced_outputs(sender: Any) -> None:
    shown = sender("%%blsguess\n%%blsprofile --into found\n%bls times IN=[2] -q")
    assert "wall" in shown.html
    assert sender("len(found.record.spans)").value == 1
    cell = (
        "%%blsguess\nfrom IPython.display import SVG, display\n"
        "handle = display('first', display_id=True)\nhandle.update('second')\nimport asyncio\n"
        "await asyncio.sleep(0)\nSVG('<svg xmlns=\"http://www.w3.org/2000/svg\"></svg>')"
    )
    shown = sender(cell)
    assert "second" in shown.html
    assert "first" not in shown.html
    assert "data:image/svg+xml;base64," in shown.html


def test_a_cell_that_fails_shows_what_it_showed(cells: Any) -> None:
    shown = cells("%%blsguess\nprint('so far')\n1 / 0")
    assert isinstance(shown.error, ZeroDivisionError)
    assert "so far" in shown.stdout
    assert shown.html == ""


def test_a_guess_is_taken_kept_and_shown(sender: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("anywidget")
    monkeypatch.setattr(sender.shell, "kernel", object(), raising=False)
    made = []
    monkeypatch.setattr("bls_notebook.course.guess_magic.live", lambda make: made.append(make()) or made[-1])
    cell = "%%blsguess one two --into guess\n%bls times IN=[2]"
    shown = sender(cell)
    assert f'data-bls-place="{made[0].place}"' in shown.html
    assert "<details>" in shown.html
    sender.shell.display_pub.outputs.clear()
    made[0].guess = "  two \n of <them>" + "x" * 500
    [update] = sender.shell.display_pub.outputs
    assert update["update"]
    assert "two of &lt;them&gt;" in update["data"]["text/html"]
    assert "<details open>" in update["data"]["text/html"]
    assert len(sender("guess").value) == 200
    assert "expected the code of a choice: 7692c3 for 'one'" in sender("%%blsguess one two --right x\n1").stderr
    sender("%%blsguess one two --right 7692c3\n2")
    made.pop().guess = "two"
    assert sender.shell.display_pub.outputs[-1]["data"]["text/plain"].startswith("Your guess: ✓ one · [two]")
    again = sender(cell)
    assert "<details open>" in again.html
    assert made[1].guess == made[0].guess
    assert sender("%%blsguess one two\n1").html.count("<details open>") == 0  # another cell, another guess


def test_a_cell_is_recorded_as_its_claims_need_it(sender: Any) -> None:
    shown = sender("%%blscheck called times 2 and nothing_left\nkept = %bls times IN=[1] -n 2")
    assert shown.success
    assert "✓ called times 2" in shown.text
    assert "held by kept" in shown.text
    shown = sender("%%blscheck output COUNT == 2 and errors == 0\n%bls times IN=[1.0, 2.0]")
    assert shown.text.count("✓ ") >= 2
    assert shown.value["COUNT"].as_numpy() == [2]
    sender("import numpy as np\nimport bls_notebook as bls\nimages = np.ones(1000, np.float32)")
    infer = "bls.current_repository().infer('times', {'IN': images})"
    for value in (infer, f"[{infer}]"):  # of more values than a record keeps
        assert sender(f"%%blscheck output OUT FP32 == images * 2\n{value}").text.startswith("✓ output OUT")
    assert "No response was seen: send with %bls" in sender(f"%%blscheck output OUT == 2\nkept = {infer}").text
    failed = sender("%%blscheck called times\n1 / 0")
    assert isinstance(failed.error, ZeroDivisionError)
    assert "did you mean called" in sender("%%blscheck caled times\n1").text
    for line in ("", "and", "called times and"):
        assert "missing: a claim" in sender(f"%%blscheck {line}\n1").stderr


def test_colors_of_a_terminal_are_left_out_of_a_guess() -> None:
    (output,) = shown("\x1b[31m\x1b[1mred\x1b[0m\x1b[38;5;28m green\x1b[39m", ())
    assert output.text == "red green"


def test_a_claim_begins_with_one_of_its_forms() -> None:
    assert next_words([], []) == list(FORMS)
    assert next_words(["speedup", ">", "2", "and"], []) == list(FORMS)


def test_nothing_follows_a_word_that_begins_no_claim() -> None:
    assert next_words(["nonsense"], []) == []


def test_a_comparison_or_a_second_claim_follows() -> None:
    assert next_words(["speedup"], []) == ["==", "!=", "<", "<=", ">", ">="]
    assert next_words(["speedup", ">", "2"], []) == ["and"]
