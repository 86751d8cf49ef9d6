"""docs/guides/testing.md is true: its examples run as written, and the fixture has the types that it promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

api = pytest.importorskip("mypy.api")
ROOT = Path(__file__).resolve().parents[2]
BLOCKS = dict.fromkeys(
    re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / "docs/guides/testing.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)
)
HEAD = "import numpy as np\nimport triton_python_backend_utils as pb_utils\n\n\nclass TritonPythonModel:\n"
RESIZE = (
    HEAD
    + """    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(r, "IN").as_numpy()[::5, ::4] for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", a.astype(np.float32))]) for a in arrays]
"""
)
PAGE = (
    HEAD
    + """    def execute(self, requests):
        responses = []
        for request in requests:
            image = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy()
            resize = pb_utils.InferenceRequest(
                model_name="resize", requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", image)]
            )
            small = resize.exec()
            if small.has_error():
                raise pb_utils.TritonModelException(small.error().message())
            digit = np.array([7 + small.output_tensors()[0].as_numpy().any()], np.int32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("DIGIT", digit)]))
        return responses
"""
)
CONFIG = (
    'backend: "python"\ninput {{ name: "{}" data_type: TYPE_UINT8 dims: [ -1, -1 ] }}\noutput {{ name: "{}" {} }}\n'
)
CONFIGS = {
    "resize": (RESIZE, CONFIG.format("IN", "OUT", "data_type: TYPE_FP32 dims: [ 8, 8 ]")),
    "page": (PAGE, CONFIG.format("IMAGE", "DIGIT", "data_type: TYPE_INT32 dims: [ 1 ]")),
}
WRONG = """
from bls_notebook.testing import RepositoryUnderTest


def test_a(triton_repository: RepositoryUnderTest) -> None:
    with triton_repository.stub("a", {"OUT": [1]}) as stub:
        answer = triton_repository.infer("a", {"IN": [1.0]}, timeout=3)
    assert answer["OUT"].as_numpy().tolist() == [1] and len(stub.calls) == 1
    triton_repository.assert_called("a", 1)
    triton_repository.infer("a", nonsense=3)
    triton_repository.stub("a", nonsense=3)
    triton_repository.nonsense()
"""

pytestmark = pytest.mark.slow


def test_the_examples_run_as_written(tmp_path: Path) -> None:
    for name, (source, config) in CONFIGS.items():
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        (tmp_path / "models" / name / "1" / "model.py").write_text(source)
        (tmp_path / "models" / name / "config.pbtxt").write_text(config)
    names: list[str] = []
    for number, (language, text) in enumerate(BLOCKS):
        kind = "pyproject.toml" if language == "toml" else "test_page.py" if "def test_" in text else "script.py"
        names.append(kind if language in ("toml", "python") else f"{number}.{language}")
        (tmp_path / names[-1]).write_text(text)
    assert names == ["pyproject.toml", "test_page.py", "script.py"]
    for command in (["-m", "pytest", "-q", "-p", "pytest_bls_notebook", "test_page.py"], ["script.py"]):
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.extra
def test_type_checkers_know_the_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_a.py").write_text(WRONG)
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    # With other options, neither this nor the next `make lint` would find what the other one has checked.
    options = [f"--config-file={ROOT / 'pyproject.toml'}", f"--cache-dir={ROOT / '.mypy_cache'}"]
    limit = sys.getrecursionlimit()  # which mypy raises
    out, _, _ = api.run([*options, str(tmp_path / "test_a.py")])
    sys.setrecursionlimit(limit)
    found = [line.partition(".py:")[2] for line in out.splitlines() if ": error: " in line]
    assert [line.partition(":")[0] for line in found] == ["10", "11", "12"], out
