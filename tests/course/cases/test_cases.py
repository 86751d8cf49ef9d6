"""Each case rejects its pipeline and wrong fixes with a hint that names the mistake, and accepts right fixes."""

from __future__ import annotations

import gc
import re
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.course import case_entry, case_text
from bls_notebook.course.case_display import CaseScore
from bls_notebook.course.case_text import CaseModel, case_folders
from bls_notebook.course.score_file import read_scores, save_score, score_file
from bls_notebook.display.svg import model_inks
from bls_notebook.lifetimes.memory_recording import await_release
from tests.course.cases.fixes import FIXED, FIXES, Fix
from tests.waiting import LIMIT

CASES = [(number, seed) for number in FIXES for seed in (0, 4 if number == 8 else 5)]  # with all models

NAMES = ("config.pbtxt", "1/model.py")


@pytest.fixture
def repository() -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository() as repository:
        yield repository
    gc.collect()


class Variant:
    """A case with a seed, and its fixes in the words of that seed."""

    def __init__(self, number: int, seed: int) -> None:
        self.case = bls.case(number, seed)
        folder = case_folders()[number]
        items = case_text._section((folder / "case.md").read_text("utf-8"), "Variants")
        self._words = case_text._variant(items, f"{folder.name} {seed}")[0] if seed else {}

    def said(self, text: str) -> str:
        """Return a text in the words of the seed."""
        return case_text.replace_words(text, self._words)

    def models(self, fix: Fix) -> list[CaseModel]:
        """Return the models of the case with a fix."""
        is_fixed = fix[:1] == (FIXED,)
        models = self.case.fixed if is_fixed else self.case.models
        files = {
            f"{m.name}/{name}": text for m in models for name, text in zip(NAMES, (m.config, m.source), strict=True)
        }
        words = list(map(self.said, fix[is_fixed:]))
        file = ""
        while words:
            file = words.pop(0) if words[0] in files else file
            old, new, *words = words
            assert old in files[file], (file, old)
            files[file] = files[file].replace(old, new)
        return [CaseModel(model.name, *(files[f"{model.name}/{name}"] for name in NAMES)) for model in models]

    def judged(self, repository: bls.ModelRepository, fix: Fix) -> tuple[bool, str]:
        """Return whether the check accepts a fix, and its hints."""
        self.case.load(repository)
        for model in self.models(fix):
            repository.define(model.name, model.source, model.config)
        check = self.case.check(repository)
        return bool(check), "\n".join(f"{j.claim}: {j.seen}. {j.hint}" for j in check.judgements if not j)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # coroutines that a wrong fix leaves behind
@pytest.mark.parametrize(("number", "seed"), CASES)
def test_a_case_accepts_fixes_and_rejects_the_rest_with_a_hint(
    repository: bls.ModelRepository, number: int, seed: int
) -> None:
    variant, fixes = Variant(number, seed), FIXES[number]
    assert len(fixes.right) >= 1
    assert len(fixes.wrong) >= 3
    problems = []
    for fix, words in [((), fixes.naive), ((FIXED,), ""), *((fix, "") for fix in fixes.right), *fixes.wrong]:
        holds, hints = variant.judged(repository, fix)
        if holds == bool(words) or variant.said(words) not in hints:
            problems.append(f"{fix}: expected {variant.said(words) or 'no mistake'!r}\n{hints}")
    if problems:
        pytest.fail("\n\n".join(problems), pytrace=False)


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        (
            "        taxes =",
            "        __import__('time').sleep(2)\n        taxes =",
            "it is at invoice, line 12, in answer",
        ),
        (
            "def execute(self, requests):",
            "async def execute(self, requests):\n        await __import__('asyncio').sleep(2)",
            "No code of a model is running",
        ),
    ],
)
def test_the_hint_without_a_response_names_the_running_line(
    repository: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch, old: str, new: str, hint: str
) -> None:
    variant = Variant(5, 0)
    case_entry._expected(5, 0, 0)
    monkeypatch.setattr(case_entry, "LIMIT", 1.0)
    holds, hints = variant.judged(repository, ("invoice/1/model.py", old, new))
    assert not holds
    assert hint in hints


@pytest.mark.parametrize(("number", "seed"), CASES)
def test_each_cause_but_one_is_contradicted(number: int, seed: int) -> None:
    case = bls.case(number, seed)
    answers = {cause.name: case.answer(cause.name) for cause in case.causes}
    assert [name for name, answer in answers.items() if answer] == [case.cause]
    assert all(answer.hint for name, answer in answers.items() if name != case.cause)
    assert len(answers) >= 4


def test_a_seed_changes_names_and_the_guilty_model() -> None:
    variants = [bls.case(6, seed) for seed in range(6)]
    guilty = {m.name for case in variants for m in case.models if "self.seen[" in m.source}
    assert len(guilty) > 1
    assert bls.case(6, 3) == bls.case(6, 3)
    assert len({case.story for case in variants}) > 1


def test_a_seed_changes_the_number_of_models_of_some_cases() -> None:
    for number in (1, 6, 8):
        variants = [bls.case(number, seed) for seed in range(8)]
        assert {len(variant.models) for variant in variants} == {3, 4}
        for variant in variants:
            others = [model.name for model in variant.models[1:]]
            assert all(f'"{name}"' in variant.models[0].source for name in others)


def test_the_hint_names_the_model_that_the_variant_calls_for_each_item() -> None:
    for seed in range(4):
        case = bls.case(5, seed)
        [each] = re.findall(r'self.ask\("(\w+)", "IN", prices\[i', case.models[0].source)
        assert f"The lane of `{each}` is a comb" in case.answer("little").seen


def test_an_unknown_case_or_cause_is_refused_with_the_known_ones() -> None:
    with pytest.raises(bls.BLSError, match="got 99, expected a number from 1 to"):
        bls.case(99)
    with pytest.raises(bls.BLSError, match="got 'magic', expected one of sync_exec, queue"):
        bls.case(1).answer("magic")


def test_no_model_of_a_later_case_is_hatched_like_a_queue(cells: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bls_notebook.display.svg._slots", {})
    for number in case_folders():
        cells(f"%blscase {number}")
        inks = model_inks(model.name for model in bls.case(number).models)
        assert [name for name, ink in inks.items() if ink.hatch] == []


def test_the_magic_leads_from_the_story_to_the_score(cells: Any) -> None:
    assert "%blscase 1" in cells("%blscase").stderr
    assert "parcel" in cells("%blscase 1").text
    assert cells("print(len(case.send()))").stdout == "1\n"
    pictured = "%%blsprofile\ncase.send();"
    assert "the one instance of `label`" not in (shown := cells(pictured)).text
    assert "the verdict" in shown.html
    assert "✗" in cells("%blscase --cause chain").text
    assert "one instance" in cells("%blscase --cause queue").text
    assert "`label`" in cells(pictured).text
    assert "waited in a queue" in cells("%blscase --check").text
    config = next(model.config for model in bls.case(1).fixed if model.name == "label")
    cells(f"%%tritonconfig label\n{config}")
    assert "solved" in cells("%blscase --check").text
    assert "3 of " in cells("%blscase --score").text
    assert "at try 2" in cells("%blscase --score").text
    assert "count: 4" in cells("%blscase 1\n%blscase --fix\n%blscase --check").text
    assert "3 of " in cells("%blscase --score").text  # the reader's own fix still counts
    cells("%blscase 2\n%blscase --cause sync_exec\n%blscase --fix\n%blscase --check")  # as "Run all" does
    assert "3 of " in (scored := cells("%blscase --score").text)
    assert "given" in scored
    assert [row.points for row in read_scores().values()] == [3]  # case 2 was shown in the cell of its cause
    cells("%blscase 1")
    assert "expected one of depot, label" in cells("%blscase --code nothing").stderr
    cells("%blscase 8")
    assert "warning" not in (sent := cells("case.send()")).text
    assert "warning" in sent.html
    cells("%blscase 8\n%blscase --cause swallowed")
    assert "warning" in cells("case.send()").text


def test_a_score_survives_the_kernel_and_a_damaged_file_costs_nothing() -> None:
    rows = [CaseScore(1, "One", tries=2, named=True), CaseScore(1, "One", seed=3, fixed=True)]
    for row in rows:
        save_score(row)
    assert list(read_scores().values()) == rows
    file = score_file()
    file.write_text('[{"number": 2, "title": "<b>"}, {"number": "x"}, 7, {"odd": 1}]', "utf-8")
    assert list(read_scores()) == [(2, 0)]
    for damaged in ("", "{", "[" * 100_000, "{}", "7"):
        file.write_text(damaged, "utf-8")
        assert read_scores() == {}
    file.unlink()
    file.mkdir()
    save_score(rows[0])  # cannot be written
    assert read_scores() == {}


def test_memory_that_a_thread_still_releases_is_not_left_behind(
    repository: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine, the thread that sent a response may end after the client has it."""
    busy, module = threading.Event(), ModuleType("slow_thread")
    threads: list[threading.Thread] = []

    def hold(tensor: object) -> None:
        if busy.is_set():
            return
        threads.append(threading.Thread(target=lambda _: busy.wait(LIMIT), args=(tensor,)))
        threads[-1].start()

    def release(memory: Any) -> None:
        busy.set()
        while threads:
            threads.pop().join()
        await_release(memory)

    vars(module)["hold"] = hold
    monkeypatch.setitem(sys.modules, "slow_thread", module)
    monkeypatch.setattr(case_entry, "await_release", release)
    case = bls.case(6)
    case.fix(repository)
    sharpen = next(model for model in case.fixed if model.name == "sharpen")
    source = sharpen.source.replace("import time\n", "import time\n\nimport slow_thread\n", 1)
    repository.define(
        "sharpen", source.replace("        value = ", "        slow_thread.hold(picture)\n        value = ", 1)
    )
    check = case.check(repository)
    busy.set()
    assert check, check.hint
