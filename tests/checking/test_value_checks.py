"""Values that are not what they seem, in model.py and in modules beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

import bls_notebook as bls

CONFIG = """
backend: "python"
input { name: "TEXT" data_type: TYPE_STRING dims: 1 }
output { name: "OUT" data_type: TYPE_FP32 dims: 2 }
parameters { key: "steps" value { string_value: "4" } }
"""
SOURCE = """\
import asyncio, json, requests, time
try:
    import triton_python_backend_utils as pb_utils
except ImportError:
    class pb_utils: pass

class TritonPythonModel:
    async def execute(self, requests_):
        config = json.loads("{}")
        for request in requests_:
            text = pb_utils.get_input_tensor_by_name(request, "TEXT")
            %s
        return None
"""


def codes(folder: Path, line: str, **helpers: str) -> list[str]:
    version = folder / "step" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(SOURCE % line)
    (folder / "step" / "config.pbtxt").write_text(CONFIG)
    for name, text in helpers.items():
        (version / f"{name}.py").write_text(text)
    return [found.code for found in bls.check(repo=bls.ModelRepository(folder)).findings]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("ok = text.as_numpy().item() == ''", "bytes-compared"),
        ("value = text.as_numpy()[0]; ok = value != 'x'", "bytes-compared"),
        ("ok = text.as_numpy()[0].decode() == 'x'", ""),
        ("ok = text.as_numpy()[0] == b'x'", ""),
        ("steps = {p['key']: p['value'] for p in config.get('parameters', [])}", "parameters-list"),
        ("steps = {key: p['string_value'] for key, p in config['parameters'].items()}", ""),
        ("first = text[0]", "tensor-no-array"),
        ("size = text.shape[0]", "tensor-no-array"),
        ("size = text.as_numpy().shape[0]", ""),
        ("asyncio.gather(*[])", "wait-not-awaited"),
        ("await asyncio.gather(*[])", ""),
        ("time.sleep(1)", "async-blocks"),
        ("requests.get('http://x')", "async-blocks"),
        ("pb_utils.sync_execute(request)", "code-no-such-name"),
    ],
)
def test_a_misused_value_is_found(tmp_path: Path, line: str, code: str) -> None:
    rules = {"bytes-compared", "parameters-list", "tensor-no-array", "wait-not-awaited", "async-blocks"}
    found = [each for each in codes(tmp_path, line) if each in {*rules, "code-no-such-name"}]
    assert found == ([code] if code else [])


def test_calls_in_a_module_beside_the_model_are_checked(tmp_path: Path) -> None:
    helper = """
import triton_python_backend_utils as pb_utils
def ask(tensor):
    request = pb_utils.InferenceRequest(model_name="nowhere", requested_output_names=["OUT"], inputs=[tensor])
    response = request.exec()
    return pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()
"""
    found = codes(tmp_path, "from helper import ask; ask(text)", helper=helper)
    assert {"callee-missing", "error-unchecked"} <= set(found)


def test_backends_of_other_images_and_an_empty_configuration_are_no_mistakes(tmp_path: Path) -> None:
    for name, text in {"llm": 'backend: "tensorrtllm"', "net": ""}.items():
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "model.onnx").write_bytes(b"x")
        (tmp_path / name / "config.pbtxt").write_text(text)
    found = {each.code for each in bls.check(repo=bls.ModelRepository(tmp_path)).findings}
    assert not found & {"backend-unknown", "config-unread"}


def test_try_fails_on_a_name_that_a_server_refuses(tmp_path: Path) -> None:
    codes(tmp_path, "pass")
    model = tmp_path / "step" / "1" / "model.py"
    model.write_text(model.read_text().replace(" requests,", ""))  # a package that may be missing
    (tmp_path / "step" / "config.pbtxt").write_text('name: "other"\n' + CONFIG)
    repository, report = bls.try_repository(tmp_path)
    repository.close()
    assert [(model.kind, model.broken) for model in report.models] == [("real", True)]
