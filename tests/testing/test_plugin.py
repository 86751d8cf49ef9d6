"""The pytest plugin, as a user's project sees it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.testing.conftest import INI
from tests.waiting import LIMIT

pytestmark = pytest.mark.slow

START = """
import numpy as np
import pytest

X = {"X": np.arange(3, dtype=np.float32)}
"""


def test_models_load_with_what_they_call(project: pytest.Pytester) -> None:
    project.makepyfile(
        START
        + """
def test_first(triton_repository):
    assert triton_repository.infer("front", X)["Y"].as_numpy().tolist() == [0, 2, 4]
    assert triton_repository.ready("double")
    triton_repository.assert_called("double", 1, caller="front", inputs=X)
    triton_repository.assert_called_in_order("front", "double")
    triton_repository.assert_no_errors()
    triton_repository.assert_no_warnings()
    triton_repository.assert_that("requests == 2")

def test_each_is_new(triton_repository):
    assert not triton_repository.ready("front")
    triton_repository.assert_not_called("front")

def test_callees_that_are_stubbed_are_not_loaded(triton_repository):
    with triton_repository.stub("double", {"Y": [7]}) as double:
        assert triton_repository.infer("front", X)["Y"].as_numpy().tolist() == [7]
    assert len(double.calls) == 1
    triton_repository.assert_called("double", 1, inputs=X)
    assert not triton_repository.ready("double")

async def test_async(triton_repository):
    answer = await triton_repository.infer_async("front", X)
    assert answer.error is None
    triton_repository.assert_called("double")
"""
    )
    project.runpytest_inprocess().assert_outcomes(passed=4)


def test_failures_show_the_chain_with_its_lines_and_what_differs(project: pytest.Pytester) -> None:
    project.makepyfile(
        START
        + """
def test_error(triton_repository):
    assert triton_repository.infer("front", {"X": np.zeros(9, np.float32)}).error is None

def test_called(triton_repository):
    triton_repository.infer("front", X)
    triton_repository.assert_called("double", 1, inputs={"X": [0, 1, 3]})

def test_answer(triton_repository):
    triton_repository.assert_answer(triton_repository.infer("front", X), {"Y": [0, 2, 5]})

def test_left(triton_repository):
    with triton_repository.assert_nothing_left():
        kept = triton_repository.infer("double", X)

def test_errors(triton_repository):
    triton_repository.infer("front", {"X": np.zeros(9, np.float32)})
    triton_repository.assert_no_errors()

def test_stub(triton_repository):
    with triton_repository.stub("dubble", {"Y": [1]}):
        pass

def test_stub_asserts(triton_repository):
    def asked(request):
        assert request.inputs()[0].name() == "other"
    with triton_repository.stub("double", asked):
        triton_repository.infer("front", X)

@pytest.mark.triton_repository("models", nonsense=1)
def test_option(triton_repository):
    pass
"""
    )
    result = project.runpytest_inprocess()
    result.assert_outcomes(failed=7, errors=1)
    assert "bls_notebook/" not in result.stdout.str()  # where the package's own lines would be
    result.stdout.fnmatch_lines(
        [
            "triton_repository: got an unexpected keyword argument 'nonsense'",
            "*through front → double*",
            "*models*double*model.py*",
            '*→ * raise ValueError("too long")*',
            "*double: 0 matching requests, expected 1 request with the expected input X*",
            "*[[]2[]] 3.0 and 2.0*",
            "*→ double*",
            "*front: Y differ*",
            "*held by kept in test_left()*",
            "*2 requests failed*",
            "*stub of 'dubble': there is no such model*",
            "*assert 'X' == 'other'*",
        ]
    )


def test_marker_ini_and_scope(project: pytest.Pytester) -> None:
    project.path.joinpath("models").rename(project.path / "others")
    pbtxt = project.path / "others" / "double" / "config.pbtxt"
    pbtxt.write_text(pbtxt.read_text() + 'parameters { key: "k" value { string_value: "${k}" } }')
    project.makeini(
        INI.replace("triton_repository = models", "triton_repository_scope = session")
        + "triton_fill =\n    k = from the ini\n"
    )
    project.makepyfile(
        START
        + """
pytestmark = pytest.mark.triton_repository("others")

def filled(repo):
    return repo.config("double").parameters["k"].string_value

def test_one(triton_repository):
    triton_repository.infer("front", X)
    assert filled(triton_repository) == "from the ini"
    triton_repository.define("mine", "raise SystemExit" if 0 else SOURCE, "")
    triton_repository.load("double", config=OTHER)

def test_two(triton_repository):
    assert triton_repository.ready("front")
    assert not triton_repository.ready("mine")
    assert not triton_repository.ready("double")
    triton_repository.assert_not_called("front")

@pytest.mark.triton_repository("others", fill={"k": "from the marker"}, scope="function")
def test_three(triton_repository):
    assert not triton_repository.ready("front")
    triton_repository.infer("front", X)
    assert filled(triton_repository) == "from the marker"

@pytest.mark.triton_repository("nowhere")
def test_four(triton_repository):
    pass

SOURCE = '''
class TritonPythonModel:
    def execute(self, requests):
        return []
'''
OTHER = {"input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}], "backend": "python",
         "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]}]}
"""
    )
    result = project.runpytest_inprocess()
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*nowhere' is no folder*"])


def test_tests_without_the_fixture_are_untouched(project: pytest.Pytester) -> None:
    project.makeconftest(
        """
def pytest_addoption(parser):
    parser.addoption("--triton", default="theirs")
"""
    )
    project.makepyfile(
        test_plain="""
import sys

def test_their_option(pytestconfig):
    assert pytestconfig.getoption("--triton") == "theirs"

def test_plain():
    assert not [name for name in sys.modules if name == "bls_notebook" or name.startswith("bls_notebook.")]
    assert "numpy" not in sys.modules

def test_import():
    import triton_python_backend_utils as pb_utils
    assert pb_utils.Tensor.__module__.startswith("bls_notebook.")
    assert pb_utils.__spec__.name == "bls_notebook.pb_utils"
    import c_python_backend_utils
    assert c_python_backend_utils is pb_utils
"""
    )
    others = [f"-pno:{name}" for name in ("hypothesispytest", "nbval", "anyio", "rerunfailures")]
    result = project.runpytest_subprocess(*others)
    result.assert_outcomes(passed=3)


def test_unittest(project: pytest.Pytester) -> None:
    file = project.makepyfile(
        test_cases="""
import unittest
from bls_notebook.testing import TritonTestCase

class TestFront(TritonTestCase):
    triton_repository = "models"

    def test_front(self):
        self.assertEqual(self.repository.infer("front", {"X": [1, 2]})["Y"].as_numpy().tolist(), [2, 4])
        self.repository.assert_called("double", 1)
        self.repository.assert_same_answers("snapshots/a.json", self.repository.infer("front", {"X": [1, 2]}))

    def test_fails(self):
        self.assertIsNone(self.repository.infer("front", {"X": [0.0] * 9}).error)
"""
    )
    done = subprocess.run(
        [sys.executable, "-m", "unittest", "-q", file.stem],
        cwd=project.path, capture_output=True, text=True, check=False, env=None,
    )  # fmt: skip
    assert "Ran 2 tests" in done.stderr
    assert "FAILED (failures=1)" in done.stderr
    assert "through front → double" in done.stderr
    assert 'raise ValueError("too long")' in done.stderr
    assert (project.path / "snapshots" / "a.json").exists()


def test_a_breakpoint_in_a_model_stops_there(project: pytest.Pytester) -> None:
    model = project.path / "models" / "double" / "1" / "model.py"
    model.write_text(model.read_text().replace("if x.size > 5:", "breakpoint()\n            if x.size > 5:"))
    project.makepyfile(
        START
        + """
@pytest.mark.parametrize("model", ["double", "front", "double"])
def test_stops(triton_repository, model):
    assert triton_repository.infer(model, X).error is None
"""
    )
    asked = b"p x.shape\nc\nq\n"
    result = project.run(sys.executable, "-m", "pytest", "-pno:nbval", stdin=asked, timeout=LIMIT)
    result.assert_outcomes(passed=1, failed=1)  # to quit is to end all tests
    result.stdout.fnmatch_lines(["*models/double/1/model.py*", "*(3,)*", "*the debugger was quit*"])


def test_coverage_counts_models_under_their_own_paths(project: pytest.Pytester) -> None:
    project.makepyfile(
        START
        + """
@pytest.mark.parametrize("number", range(2))
def test_front(triton_repository, number):
    triton_repository.load_file("models/double/1/model.py", name="other")
    assert triton_repository.infer("other", X).error is None
    assert triton_repository.infer("front", X).error is None
"""
    )
    arguments = [sys.executable, "-m", "pytest", "-pno:nbval", "-n1", "--cov=models", "--cov-report=term-missing"]
    result = project.run(*arguments, timeout=120)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "models/double/1/helper.py * 75% * 4",
            "models/double/1/model.py * 11 * 1 * 91% * 11",
            "models/front/1/model.py * 10 * 1 * 90% * 12",
        ]
    )
