"""The second look: models that only seem to solve a puzzle, a case or an exercise are found out."""

from __future__ import annotations

import contextlib
import json
import mmap
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.course.exercise_look import FOLDER, exercise_names, look_at_exercise
from bls_notebook.course.puzzle_text import section_code, sections_of
from bls_notebook.course.second_look import ChangedCallee, growth, higher_peak, look, stored_bytes, watched_files
from bls_notebook.extending import Host
from bls_notebook.testing.claim_values import answer_of
from tests.course.exercises.exercise import NOTEBOOKS

# ruff: noqa: E501 - a table
TRICKS = {
    "gather": (("import asyncio", "import asyncio\nimport sys\n\nCHECKED = 'hypothesis' in sys.modules"), "wherever it runs"),
    "one_batch": (
        ("taxed = self.tax(prices.reshape(-1, 1)).ravel()",
         "self.tax(prices[:1].reshape(1, 1))\n        taxed = prices * np.float32(1.25) + (prices > 5)",
         "import triton", "import numpy as np\nimport triton"),
        "callees are used",
    ),
    "once": (("self.known.index(word)", "[b'apple', b'fig', b'pear', b'plum'].index(word)"), "callees are used"),
    "leak": (("self.count += 1", "self.count += 1\n        self.words = [*getattr(self, 'words', []), picture.tobytes().hex()]"), "nothing_left"),
    "free_early": (
        ("= self.frame(number)", "= self.saved(number)", "    def frame",
         "    def saved(self, number):\n        import tempfile\n        file = tempfile.mkstemp(dir='/dev/shm')[1]\n"
         "        self.frame(number).tofile(file)\n        return np.fromfile(file, np.float32)\n\n    def frame"),
        "memory in files",
    ),
    "pass_it_on": (("error=response.error()", "error=pb_utils.TritonError('item 99: ' + response.error().message())"), "99 is in no error"),
    "every_request": (("return await", "await asyncio.sleep(0.1)\n        return await"), "the reference solution"),
    "sequences": (("            del self.sums[key]", "            del self.sums[key]\n            self.__dict__.setdefault('ended', set()).add(key)"), "keeps something of each sequence"),
    "final_flag": (("send(flags=FINAL)", "send(pb_utils.InferenceResponse([]), flags=FINAL)"), "extra response without outputs"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", TRICKS)
def test_a_model_that_calls_for_show_or_hides_its_memory_solves_no_puzzle(name: str) -> None:
    pytest.importorskip("hypothesis")
    puzzle = bls.puzzle(name)
    changes, words = TRICKS[name]
    source = puzzle.solution
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in source, old
        source = source.replace(old, new, 1)
    check = puzzle.check(source)
    assert not check
    assert words in "\n".join(f"{j.claim}: {j.seen} {j.hint}" for j in check.judgements if not j)


def test_the_reference_of_each_exercise_is_the_solution_in_its_notebook() -> None:
    solutions = [
        "".join(cell["source"]).partition("\n")[2].split()
        for file in NOTEBOOKS.glob("*.ipynb")
        for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]
        if "solution" in cell["metadata"].get("tags", ())
    ]
    for name in sorted({*exercise_names()} - {"blank", "meter", "poster", "scale"}):  # solved without a new source
        reference = section_code(sections_of((FOLDER / f"{name}.md").read_text("utf-8"))["Solution"])
        assert "".join(reference.split()) in {"".join(words) for words in solutions}, name


COUNTDOWN = section_code(sections_of((FOLDER / "countdown.md").read_text("utf-8"))["Solution"])
CONFIG = """model_transaction_policy { decoupled: true }
input { name: "N" data_type: TYPE_INT32 dims: [ 1 ] } output { name: "LEFT" data_type: TYPE_INT32 dims: [ 1 ] }"""


def test_an_exercise_is_compared_with_its_reference_for_other_inputs() -> None:
    with bls.ModelRepository() as repository:
        repository.define("countdown", COUNTDOWN, CONFIG)
        assert look_at_exercise("countdown", repo=repository) is None
        repository.define("mine", COUNTDOWN.replace("range(n.item()", "range(min(3, n.item())"), CONFIG)
        found = look_at_exercise("countdown", "mine", repository)
        assert found is not None
        assert "for other inputs" in found.seen
        with pytest.raises(bls.BLSError, match="expected one of average"):
            look_at_exercise("nothing", repo=repository)


def test_growth_counts_what_each_request_leaves_in_memory_and_in_files(tmp_path: Path) -> None:
    leaky = COUNTDOWN.replace(
        "sender = request", "self.__dict__.setdefault('kept', []).append(bytes(5000))\n            sender = request"
    )
    with bls.ModelRepository() as repository:
        repository.define("countdown", COUNTDOWN, CONFIG)
        repository.define("leaky", leaky, CONFIG)

        def grown(name: str) -> int:
            def send() -> int:
                list(repository.stream(name, {"N": [2]}))
                return 1

            return growth(Host(repository), [name], send)

        assert grown("countdown") < 100 < 5000 <= grown("leaky")
    with watched_files():
        before = stored_bytes()
        (tmp_path / "kept").write_bytes(bytes(70_000))
        assert stored_bytes() - before == 70_000
        if sys.platform == "linux":
            with tempfile.TemporaryFile() as file, mmap.mmap(-1, 8192):
                file.write(bytes(70_000))
                file.flush()
                assert stored_bytes() - before == 148_192


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of resident memory is known on Linux only")
def test_a_peak_counts_the_memory_of_libraries() -> None:
    def connect() -> None:
        with contextlib.closing(sqlite3.connect(":memory:")) as database:
            database.execute("CREATE TABLE kept (data BLOB)")
            database.execute("INSERT INTO kept VALUES (zeroblob(50000000))")

    found = higher_peak(connect, lambda: None)
    assert found is not None
    assert found.claim == "peak"
    assert higher_peak(lambda: None, lambda: None) is None


def test_a_failure_for_one_caller_shows_that_another_hides_it() -> None:
    with bls.ModelRepository() as repository:
        for number in (1, 2):
            repository.define(f"countdown{number}", COUNTDOWN, CONFIG)
        callee = ChangedCallee("countdown1", fails=True, sender="other")
        seen = look(
            Host(repository),
            {"countdown1": callee},
            lambda: [list(map(answer_of, repository.stream("countdown1", {"N": [0]})))],
        )
        assert [answer.record.error for answer in seen.answers[0]] == [None]
        assert seen.calls == {"countdown1": 1}


def test_the_magic_looks_again_only_if_every_claim_holds(cells: Any) -> None:
    repository = bls.current_repository()
    repository.define("countdown", COUNTDOWN.replace("range(n.item()", "range(min(3, n.item())"), CONFIG)
    claim = "%%blscheck output LEFT INT32 == {} --exercise countdown\n%bls countdown N=[1] --stream -q"
    assert "the same for other requests" in cells(claim.format("1 then 0")).text
    assert "the same for other requests" not in cells(claim.format("5 then 0")).text


SENSOR = """import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        with open("FILE", "a") as file:
            file.write("." * len(requests))
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("CELSIUS", FACTOR * request.inputs()[0].as_numpy())])
            for request in requests
        ]
"""
SENSOR_CONFIG = """input { name: "ID" data_type: TYPE_INT32 dims: [ 1, 1 ] }
output { name: "CELSIUS" data_type: TYPE_INT32 dims: [ 1, 1 ] }"""
AVERAGE_CONFIG = """input { name: "IDS" data_type: TYPE_INT32 dims: [ -1 ] }
output { name: "MEAN" data_type: TYPE_FP32 dims: [ 1 ] }"""


def test_a_second_check_looks_at_the_reference_again_only_if_another_model_has_changed(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    solution = section_code(sections_of((FOLDER / "average.md").read_text("utf-8"))["Solution"])
    with bls.ModelRepository() as repository:

        def calls_of_a_check(factor: int = 0) -> int:
            if factor:
                source = SENSOR.replace("FILE", str(calls)).replace("FACTOR", str(factor))
                repository.define("sensor", source, SENSOR_CONFIG)
            calls.write_text("")
            assert look_at_exercise("average", repo=repository) is None
            return len(calls.read_text())

        repository.define("average", solution, AVERAGE_CONFIG)
        first = calls_of_a_check(factor=1)
        assert calls_of_a_check() == first / 2
        assert calls_of_a_check(factor=3) == first
