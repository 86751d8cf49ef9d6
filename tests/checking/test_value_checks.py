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
import numpy as np
from tools import wait
try:
    import triton_python_backend_utils as pb_utils
except ImportError:
    class pb_utils: pass

def read(request):
    return pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()

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
    for name, text in {"tools": "from time import sleep\ndef wait():\n    sleep(1)\n", **helpers}.items():
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
        ("wait()", "async-blocks"),
        ("await asyncio.to_thread(wait)", ""),
        ("found = asyncio.gather(*[]); first = found[0]", "wait-not-awaited"),
        ("found = asyncio.gather(*[]); found = await found; first = found[0]", ""),
        ("for word in read(request): ok = word in ('x', 'y')", "bytes-compared"),
        ("word = read(request)[0]; word = word.decode(); ok = word == 'x'", ""),
        ("kind = {'x': 1}[read(request)[0]]", "bytes-compared"),
        ("double = text * 2", "tensor-no-array"),
        ("total = np.sum(text)", "tensor-no-array"),
        ("pair = [text] * 2", ""),
        ("steps = int(config['parameters']['steps'])", "parameters-list"),
        ("first = config['parameters'][0]", "parameters-list"),
        ("parameters = config['parameters']; names = [parameters[key] for key in parameters]", ""),
        ("pb_utils.sync_execute(request)", "code-no-such-name"),
    ],
)
def test_a_misused_value_is_found(tmp_path: Path, line: str, code: str) -> None:
    rules = {"bytes-compared", "parameters-list", "tensor-no-array", "wait-not-awaited", "async-blocks"}
    found = [each for each in codes(tmp_path, line) if each in {*rules, "code-no-such-name"}]
    assert found == ([code] if code else [])


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ("np.linspace(0, 1, 3)", "FP64"),
        ("helper(x)", "FP64"),
        ("x / 2", ""),
        ("x * np.linspace(0, 1, 3)", "FP64"),
        ("np.mean(x, axis=0)", ""),
        ("np.array([1, 2]).mean(keepdims=True)", "FP64"),
        ("np.where(x > 0, x, 0.0)", ""),
        ("np.where(x > 0, 1.0, 0.0)", "FP64"),
        ("np.argmax(x, axis=1)", "INT64"),
        ("np.linspace(0, 1, 3).astype(np.float32)", ""),
    ],
)
def test_the_type_of_an_output_follows_numpys_rules_and_helpers(tmp_path: Path, value: str, dtype: str) -> None:
    line = f"x = read(request, 'X'); pb_utils.InferenceResponse([pb_utils.Tensor('OUT', {value})])"
    config = CONFIG.replace("TEXT", "X").replace("TYPE_STRING", "TYPE_FP32")
    source = (SOURCE % line).replace("read(request):", "read(request, name):")
    source = source.replace('request, "TEXT").as', "request, name).as")
    source = source.replace("class T", "def helper(x):\n    y = np.zeros(3)\n    y = y + 1\n    return y\n\nclass T", 1)
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.py").write_text(source)
    (tmp_path / "m" / "config.pbtxt").write_text(config)
    found = [f.what for f in bls.check(repo=bls.ModelRepository(tmp_path)).findings if f.code == "output-dtype"]
    assert found == ([f"output 'OUT' is TYPE_{dtype}, but config.pbtxt declares TYPE_FP32"] if dtype else [])


API = "import triton_python_backend_utils as pb_utils"
MOCKS = (
    f"import os\nif 'TEST' in os.environ:\n    pb_utils = object()\nelse:\n    {API}\n",
    f"pb_utils = object()\ntry:\n    {API}\nexcept ImportError:\n    pass\n",
    f"try:\n    {API}\nexcept ImportError:\n    pb_utils.sync_execute = print\n",
)


@pytest.mark.parametrize("mock", MOCKS)
def test_an_unknown_name_is_found_behind_a_mock(tmp_path: Path, mock: str) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    body = SOURCE.partition("\nclass")[2] % "pb_utils.sync_execute(request)"
    source = f"{SOURCE.partition('try:')[0]}{mock}\nclass{body}"
    (tmp_path / "m" / "1" / "model.py").write_text(source)
    (tmp_path / "m" / "config.pbtxt").write_text(CONFIG)
    findings = bls.check(repo=bls.ModelRepository(tmp_path)).findings
    assert [f.line > 5 for f in findings if f.code == "code-no-such-name"] == [True]


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
