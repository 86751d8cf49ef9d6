"""Puzzles: each accepts right solutions, and rejects others with a hint that names the mistake."""

from __future__ import annotations

import contextlib
import importlib
import json
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.__main__ import main
from bls_notebook.course.class_grades import grade_class
from bls_notebook.course.puzzle_answers import error_line
from bls_notebook.course.puzzle_card import card_encoder, card_svg
from bls_notebook.course.puzzle_check import PuzzleCheck
from bls_notebook.course.puzzle_requests import Side
from bls_notebook.course.puzzle_text import case_of, puzzle_names, read_puzzle
from bls_notebook.course.puzzle_worker import _Worker
from bls_notebook.display import render
from bls_notebook.profiling.records.spans import Span
from bls_notebook.profiling.session import Session
from bls_notebook.records.errors import ErrorRecord
from bls_notebook.records.responses import ResponseRecord
from bls_notebook.testing.claim_values import GivenAnswer
from tests.course.exercises.exercise import NOTEBOOKS, Changes, ch
from tests.course.puzzles.attempts import Attempts
from tests.waiting import LIMIT

pytest.importorskip("hypothesis")
TABLES = sorted(file.stem for file in Path(__file__).with_name("puzzles").glob("*.py") if file.stem != "attempts")
ATTEMPTS: dict[str, Attempts] = {}
for table in TABLES:
    ATTEMPTS |= importlib.import_module(f"tests.course.puzzles.{table}").ATTEMPTS


def attempt(puzzle: bls.Puzzle, changes: Changes) -> str:
    text = puzzle.solution
    for old, new in changes:
        if old == "NAIVE":
            text = puzzle.naive.source
            continue
        assert old in text, old
        text = text.replace(old, new)
    return text


def told(check: bls.PuzzleCheck) -> str:
    """Return the observations, hints and steps of the claims that do not hold."""
    return "\n".join(f"{j.claim}: {j.seen}\n{j.hint}\n{j.steps}" for j in check.judgements if not j)


@pytest.mark.slow
@pytest.mark.parametrize("name", puzzle_names())
def test_wrong_solutions_are_rejected_with_a_hint_that_names_the_mistake(name: str) -> None:
    puzzle, attempts = bls.puzzle(name), ATTEMPTS[name]
    assert len(attempts.wrong) >= 3
    cases = [(puzzle.solution, ""), (puzzle.naive.source, attempts.naive)]
    cases += [(attempt(puzzle, changes), "") for changes in (attempts.right, *attempts.rights)]
    cases += [(attempt(puzzle, changes), words) for changes, words in attempts.wrong]
    problems = []
    for source, words in cases:
        check = puzzle.check(source)
        text = told(check)
        if bool(check) == bool(words) or words not in text:
            problems.append(f"expected {words or 'no mistake'!r}, got:\n{text}\n{source if not words else ''}")
    if problems:
        pytest.fail("\n\n".join(problems), pytrace=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes", "absent"),
    [
        ("in_place", ch("shifted = data - data.min()", "shifted = data.copy()"), "The callee gets changed data"),
        ("batch_dim", ch(".astype(np.float32)", ""), "The first dimension is the batch"),
        ("batch_dim", ch(".astype(np.float32)", ".astype(np.float32) // 1"), "The first dimension is the batch"),
        ("deadline", ch("if response.has_error()", "if question[0] < 3"), "The answer to a question"),
        ("gather", ch('"STAMPS", image)', '"DOTS", image)'), "waits"),
    ],
)
def test_a_hint_is_about_the_observation(name: str, changes: Changes, absent: str) -> None:
    puzzle = bls.puzzle(name)
    check = puzzle.check(attempt(puzzle, changes))
    assert not check
    assert absent not in told(check)


def test_requests_that_are_not_together_are_sent_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model with a state gives other answers to requests in another order."""
    data = read_puzzle("leak", 0)
    sent: list[Any] = []
    with Side(data, data.solution) as side:
        send = side.host.send

        def in_turn(*arguments: Any, **options: Any) -> Any:
            assert all(future.done() for future in sent)
            sent.append(send(*arguments, **options))
            return sent[-1]

        monkeypatch.setattr(side.host, "send", in_turn)
        side.answers(case_of(data.measured[0]))
    assert len(sent) == 3


HOSTILE = {
    "import ctypes\nctypes.string_at(0)": "the model ended its process",
    "import os\nos._exit(3)": "os._exit(3) would end this process",
    "def broken(": "was never closed",
    "class TritonPythonModel: pass": "execute",
    "input()": "EOF when reading a line",
}


@pytest.mark.slow
def test_nothing_that_a_replacement_does_stops_the_caller() -> None:
    puzzle = bls.puzzle("gather")
    for source, words in HOSTILE.items():
        check = puzzle.check(source)
        assert not check
        assert words in told(check)
    with pytest.raises(bls.BLSError, match="got no source"):
        puzzle.check("")
    endless = puzzle.solution.replace("image =", "while True:\n            pass\n        image =")
    assert "`execute` has not returned: it is at page, line 1" in told(puzzle.check(endless))
    assert puzzle.check(puzzle.solution)


@pytest.mark.slow
def test_no_file_of_a_replacement_remains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    worker = _Worker()
    writes = "\nopen('left', 'w').close()\nimport tempfile\ntempfile.mkdtemp(prefix='left')\n"
    reply = worker.ask({"name": "gather", "seed": 0, "source": bls.puzzle("gather").solution + writes})
    assert PuzzleCheck.from_dict(reply["check"])
    assert len(list(tmp_path.glob("*/left*"))) > 1
    worker.close()
    assert not list(tmp_path.iterdir())


def test_a_worker_whose_parent_was_killed_removes_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "worker"
    folder.mkdir()
    (folder / "of a model").touch()
    command = [sys.executable, "-m", "bls_notebook.course.puzzle_worker", str(folder)]
    subprocess.run(command, stdin=subprocess.DEVNULL, check=True, timeout=LIMIT)
    assert not folder.exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", puzzle_names())
def test_a_variant_has_other_names_accepts_its_own_solution_and_rejects_its_naive_model(name: str) -> None:
    puzzle = bls.puzzle(name, seed=5)
    assert puzzle.naive.name != bls.puzzle(name).naive.name
    check = puzzle.check(read_puzzle(name, 5).solution)
    assert check, told(check)
    assert "variant 5" in check.card()
    assert not puzzle.solution
    assert not puzzle.check(puzzle.naive.source)


def test_a_grader_judges_the_text_of_a_cell_in_a_process_of_its_own() -> None:
    command = [sys.executable, "-m", "bls_notebook", "grade", "gather", "--seed", "7"]
    data = read_puzzle("gather", 7)
    for source, status in ((data.solution, 0), (data.naive.source, 1)):
        cell = f"%%blspuzzle gather --seed 7 --into check\n{source}"
        done = subprocess.run(command, input=cell, text=True, capture_output=True, timeout=LIMIT)
        assert done.returncode == status, done.stdout + done.stderr
    assert "waits" in done.stdout + done.stderr


def test_a_class_is_graded_with_points_per_constraint_in_one_table(tmp_path: Path) -> None:
    pytest.importorskip("hypothesis")
    data = read_puzzle("one_batch", 3)
    folder = tmp_path / "class"
    folder.mkdir()
    fake = data.solution.replace(".ravel()", ".ravel() * 0 + prices")
    cells = {"=ada": data.solution, "ben": data.naive.source, "cy": fake, "dan": "", "eva": "1 / 0"}
    for learner, source in cells.items():
        cell = {"source": [f"%%blspuzzle one_batch --seed 3\n{source}"] if source else ["x = 1"]}
        (folder / f"{learner}.ipynb").write_text(json.dumps({"cells": [cell]}), "utf-8")
    grades = grade_class("one_batch", 3, [str(folder)])
    assert not grades
    assert {row.learner: row.points for row in grades.rows} == {"=ada": 3, "ben": 1, "cy": 0, "dan": 0, "eva": 0}
    lines = grades.csv().splitlines()
    assert lines[0].startswith("learner,points,of,same answers,requests == 1 of")
    assert lines[1].startswith("'=ada,3,3,1,1,1,")
    assert "no cell with" in lines[4]
    assert "There should be fewer requests" in grades.page()
    with pytest.raises(bls.BLSError, match=r"no \.ipynb or \.py file"):
        grade_class("one_batch", 0, [])


def test_an_unknown_puzzle_is_an_error_with_the_names() -> None:
    with pytest.raises(bls.BLSError, match="got 'gathr', expected one of gather"):
        bls.puzzle("gathr")


def test_variants_differ_in_the_number_of_callees() -> None:
    for name, numbers in (("gather", {2, 3, 4}), ("requested", {2, 3})):
        variants = [read_puzzle(name, seed) for seed in range(1, 16)]
        assert {len(variant.callees) for variant in variants} == numbers
        for variant in variants:
            for callee in variant.callees:
                assert variant.naive.source.count(f'"{callee.name}"') == variant.solution.count(f'"{callee.name}"') == 1


@pytest.mark.parametrize("name", puzzle_names())
@pytest.mark.parametrize("seed", [1, 2])
def test_variants_replace_whole_words_of_valid_models(name: str, seed: int) -> None:
    puzzle = read_puzzle(name, seed)
    for model in (puzzle.naive, *puzzle.callees):
        compile(model.source, model.name, "exec")
        assert model.name.isidentifier()
    compile(puzzle.solution, "solution", "exec")
    names = [model.name for model in (puzzle.naive, *puzzle.callees)]
    assert len(set(names)) == len(names)
    assert puzzle.naive.source != puzzle.solution


def test_the_picture_marks_the_violation_and_the_card_escapes_text() -> None:
    spans = (Span(1, "page", ended=50, instance="page_0"), Span(2, "<b>", parent=1, ended=20, instance="b"),
             Span(3, "<b>", parent=1, sent=25, ended=45, instance="b"))  # fmt: skip
    session = Session(spans, wall=50, name="your page")
    check = PuzzleCheck("gather", "Three <i>", 0, (), (session, session))
    with pytest.raises(bls.BLSError, match="is not solved"):
        check.card()
    check = replace(check, judgements=(bls.judge(session, "waits <= 2"),), waits=2)
    card = check.card()
    assert "<b>" not in card
    assert "Three &lt;i&gt;" in card
    assert "2 waits, 2 calls" in card
    wrong = bls.judge(session, "waits <= 1 of page")
    assert not wrong
    assert "2 waits: <b>, then <b>" in wrong.seen
    shown = render(replace(check, judgements=(wrong,), violated=wrong.claim, request="{<b>}", got="1", expected="2"))
    assert "{&lt;b&gt;}" in shown.html
    assert "then <b>" not in shown.html
    assert "expected" in shown.text


def test_the_magic_shows_a_puzzle_and_checks_a_cell(cells: Any, tmp_path: Path) -> None:
    shown = cells("%blspuzzle gather")
    assert "waits <= 1 of page" in shown.text
    card = tmp_path / "card.svg"
    solution = bls.puzzle("gather").solution
    shown = cells(f"%%blspuzzle gather --card {card} --into check\n{solution}")
    assert "solved with 1 wait, 3 calls" in shown.text
    assert card.read_text(encoding="utf-8").startswith("<svg")
    assert cells.shell.user_ns["check"]
    assert "expected one of gather" in str(cells("%%blspuzzle gathr\nx").stdout) + cells("%%blspuzzle gathr\nx").text


def test_a_card_is_a_png_if_the_name_of_its_file_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session((Span(1, "page", ended=50, instance="page_0"),), wall=50)
    card = card_svg("BLS Puzzles", "Three readers", "1 wait", session)
    assert card_encoder("card.svg")(card) == card.encode()
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "resvg_py", None)
        with pytest.raises(bls.BLSError, match=r'^--card: a.png: .* pip install "bls_notebook\[png\]"; or'):
            card_encoder("sub/a.png")
    pytest.importorskip("resvg_py")
    png = card_encoder("card.PNG")(card)
    assert png.startswith(b"\x89PNG\r\n")
    assert struct.unpack(">I", png[16:20]) == (1520,)  # pixels of its width, twice the card's


def test_learn_checks_the_file_saved_last_and_says_what_is_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "puzzles"
    assert main(["learn", str(folder), "--once"]) == 1
    total = len(puzzle_names())
    out = capsys.readouterr().out
    assert f"0 of {total} puzzles solved" in out
    assert "Next: edit 01_gather/model.py" in out
    model = folder / "01_gather" / "model.py"
    puzzle = bls.puzzle("gather")
    model.write_text(puzzle.solution.replace("await request.async_exec()", "request.exec()"), encoding="utf-8")
    assert main(["learn", str(folder), "--once"]) == 1
    assert "3 waits" in capsys.readouterr().out
    model.write_text(puzzle.solution, encoding="utf-8")
    assert main(["learn", str(folder), "--once"]) == 0
    out = capsys.readouterr().out
    assert f"1 of {total} puzzles solved" in out
    assert "Next: edit 02_in_order/model.py" in out
    assert model.read_text(encoding="utf-8") == puzzle.solution


def test_the_notebook_has_the_naive_model_and_the_solution_of_each_puzzle() -> None:
    cells = json.loads((NOTEBOOKS / "16_puzzles.ipynb").read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells]
    models = [text for text in sources if text.startswith("%%blspuzzle")]
    expected = []
    for name in puzzle_names():
        puzzle = bls.puzzle(name)
        expected += [f"%%blspuzzle {name}\n{text.rstrip()}" for text in (puzzle.naive.source, puzzle.solution)]
        assert any(f"## {puzzle.number}. {puzzle.title}" in text and puzzle.constraints[0] in text for text in sources)
    assert models == expected


_WRAPPED = "Failed to process the request(s) for model 'page_0', message: "


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("sizes: 3 and 4", "sizes: 3 and 4"),
        ("no message: none", "no message: none"),
        (_WRAPPED + "TritonModelException: sizes: 3 and 4\n\nAt:\n  model.py(3): execute", "sizes: 3 and 4"),
        (_WRAPPED + "TritonModelException: " + _WRAPPED.replace("page", "box") + "KeyError: 'x'", "'x'"),
        (_WRAPPED + "Expected a list, got None", "Expected a list, got None"),
        (_WRAPPED + "one of these:\n    1. Tensor(name) \n    2. Tensor()", "one of these: 1. Tensor(name)"),
    ],
)
def test_the_models_own_words_lack_the_type_of_an_exception_and_nothing_else(message: str, words: str) -> None:
    answer = GivenAnswer(ResponseRecord("page", error=ErrorRecord(message)))
    assert error_line(answer) == words
    assert error_line(answer, True) == ("KeyError: 'x'" if "KeyError" in message else words)


def test_without_hypothesis_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(bls.BLSError, match=r'^puzzles need hypothesis, .*: pip install "bls_notebook\[prove\]"$'):
        bls.puzzle("gather").check("x = 1")


def test_learn_lists_hints_and_resets_puzzles_and_shows_the_line_of_a_syntax_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "puzzles")
    assert main(["learn", place, "--list"]) == 0
    assert "0 of 20 puzzles solved" in capsys.readouterr().out
    assert main(["learn", place, "--hint", "final_flag"]) == 0
    assert "The solution changes the naive model at 1 place: line 14" in capsys.readouterr().out
    model = tmp_path / "puzzles/01_gather/model.py"
    model.write_text("class TritonPythonModel:\n    def execute(self:\n", "utf-8")
    with contextlib.suppress(SystemExit):
        main(["learn", place, "--once"])
    assert "Line 2: `def execute(self:`" in capsys.readouterr().out
    assert main(["learn", place, "--reset", "gather"]) == 0
    assert model.read_text("utf-8") == bls.puzzle("gather").naive.source
    assert "self:" in model.with_name("model_1.py").read_text("utf-8")
