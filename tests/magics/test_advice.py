"""What a newcomer gets wrong, and what the notebook says to do about it, in a real shell."""

from __future__ import annotations

import sys
from textwrap import dedent, indent

import pytest

from .conftest import Cells

ADD = """\
%%tritonmodel add --input A FP32 [3] --input B FP32 [3] --output SUM FP32 [3] -q
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        out = []
        for request in requests:
            a, b = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in "AB")
            out.append(pb_utils.InferenceResponse([pb_utils.Tensor("SUM", a + b)]))
        return out
"""
IMAGE = """\
%%tritonmodel image --input IMG UINT8 [4,4,3] --output MEAN FP32 [1] --max-batch-size 8 -q
class TritonPythonModel:
    def execute(self, requests):
        raise ValueError
"""
REPEAT = """\
%%tritonmodel repeat --input N INT32 [1] --output OUT INT32 [1] --decoupled -q
class TritonPythonModel:
    def execute(self, requests):
        return []
"""
CALL = 'pb_utils.InferenceRequest(model_name="{}", requested_output_names=["SUM"], inputs=[{}])'
N = 'pb_utils.Tensor("N", np.ones(1, np.int32))'
ASYNC = "async def execute(self, requests):"
A, B = (f'pb_utils.Tensor("{name}", np.ones(3, np.float32))' for name in "AB")
ADDED = CALL.format("add", f"{A}, {B}")


def model(body: str, options: str = "", head: str = "def execute(self, requests):") -> str:
    return (
        f"%%tritonmodel m --input X FP32 [2] --output Y FP32 [2] -q {options}\n"
        "import numpy as np\nimport triton_python_backend_utils as pb_utils\n"
        f"class TritonPythonModel:\n    {head}\n{indent(dedent(body), ' ' * 8)}"
    )


@pytest.fixture
def models(cells: Cells) -> Cells:
    for cell in ("import numpy as np", ADD, IMAGE, REPEAT):
        assert cells(cell).success
    return cells


def test_requests_that_are_refused(models: Cells) -> None:
    for line, advice in (
        ("add A=np.ones(3, np.float32) b=np.ones(3, np.float32)", "did you mean `B`?"),
        ("add A=np.ones(3, np.float32)", "also send `B` FP32 [3]"),
        ("add A=[1, 2, 3] B=[1, 2, 3] C=[1]", "leave out `C`"),
        ("add A=np.ones(3) B=[1, 2, 3]", "`np.ones(3).astype(np.float32)`"),
        ("add A=np.ones((1, 3), np.float32) B=[1, 2, 3]", "batch dimension: `np.ones((1, 3), np.float32)[0]`"),
        ("add A=np.ones(6, np.float32) B=[1, 2, 3]", "send `A` with shape [3]"),
        ("add A=[1, 2, 3] B=[1, 2, 3] --outputs sum", "did you mean `SUM`?"),
        ("add A=[1, 2, 3] B=[1, 2, 3] --version 7", "`add` has version 1 in service"),
        ("image IMG=np.zeros((4, 4, 3), np.uint8)", "so send [1, 4, 4, 3]: `np.zeros((4, 4, 3), np.uint8)[None]`"),
        ("image IMG=np.zeros((2, 3, 4, 4), np.uint8)", "4, 4), np.uint8).transpose(0, 2, 3, 1)`"),
        ("image IMG=np.zeros((2, 48), np.uint8)", "`np.zeros((2, 48), np.uint8).reshape(-1, 4, 4, 3)`"),
        ("image IMG=np.zeros((9, 4, 4, 3), np.uint8)", "`np.array_split(np.zeros((9, 4, 4, 3), np.uint8), 2)`"),
        ("ad A=[1]", "did you mean `add`?"),
        ("nosuch A=[1]", "`%tritonrepo load nosuch`"),
    ):
        outcome = models(f"%bls {line}")
        assert advice in outcome.text.replace("\n              ", " ").replace("\n  ", " "), (line, outcome.text)
        assert " failed" not in outcome.text
        assert "id_unknown" not in outcome.text + outcome.html


def test_remedies_of_python_calls_name_the_variables_that_exist(models: Cells) -> None:
    assert models(
        "import bls_notebook as bls\nrepo = bls.current_repository()\nscan = np.zeros((4, 4, 3), np.uint8)"
    ).success
    for code, advice in (
        ("r = repo.infer('image', {'IMG': scan}); r", "so send [1, 4, 4, 3]: `scan[None]`"),
        ("r = await repo.infer_async('image', {'IMG': scan}); r", "so send [1, 4, 4, 3]: `scan[None]`"),
        ("repo.infer('image', {'IMG': scan + 1})", "so send [1, 4, 4, 3]: `…[None]`"),
        ("def ask(x):\n    return repo.infer('image', {'IMG': x})\nask(scan)", "so send [1, 4, 4, 3]: `scan[None]`"),
        ("ask(scan + 1)", "so send [1, 4, 4, 3]: `…[None]`"),
    ):
        outcome = models(code)
        assert advice in " ".join(outcome.text.split()), outcome.text


def test_the_names_of_a_remedy_keep_no_local_variable_alive(models: Cells) -> None:
    assert models(
        "import bls_notebook as bls, weakref\n"
        "repo = bls.current_repository()\n"
        "def ask():\n"
        "    other = np.zeros(8)\n"
        "    gone = weakref.ref(other)\n"
        "    response = repo.infer('image', {'IMG': np.zeros((4, 4, 3), np.uint8)})\n"
        "    assert response.error\n"
        "    del other\n"
        "    assert gone() is None\n"
        "ask()"
    ).success


TO_REPEAT = CALL.format("repeat", N).replace("SUM", "OUT")
FAILING = [
    (model("pass"), "`return responses`"),
    (model("return pb_utils.InferenceResponse([])"), "`return [response]`"),
    (model("return []"), "execute got 1 request(s) and returned 0 response(s)"),
    (model('return [pb_utils.Tensor("Y", np.ones(2))]'), "`pb_utils.InferenceResponse([tensor])`"),
    (model('x = pb_utils.get_input_tensor_by_name(requests[0], "x").as_numpy()'),
     "no input `x`, only `X` FP32 [2]; did you mean `X`?"),
    (model('t = pb_utils.get_input_tensor_by_name(requests[0], "IN")\na = t.as_numpy()'),
     "no input `IN`, only `X` FP32 [2]"),
    (model(f"r = {CALL.format('ad', A)}.exec()\npb_utils.get_output_tensor_by_name(r, 'S').name()"),
     "did you mean `add`?"),
    (model(f"r = {CALL.format('add', A)}.exec()\nr.output_tensors()[0]"), "`if response.has_error(): raise"),
    (model(f"r = {ADDED}.async_exec()\nr.has_error()", head=ASYNC), "`response = await request.async_exec()`"),
    (model(f"r = {ADDED}.async_exec()"), "`async def execute(self, requests):`"),
    (model(f"return [{TO_REPEAT}.exec()]"), "`for response in request.exec(decoupled=True):`"),
    (model(f"async for each in await {TO_REPEAT}.async_exec(decoupled=True):\n    pass", head=ASYNC),
     "`for response in await request.async_exec(decoupled=True):`"),
    (model('pb_utils.Tensor("Y", [1.0])'), '`pb_utils.Tensor("Y", np.array(value, dtype=np.float32))`'),
    (model('pb_utils.Tensor(np.ones(1), "Y")'), '`pb_utils.Tensor("NAME", array)`'),
    (model('pb_utils.Tensor("Y", np.array(["a"]))'), "`array.astype(np.object_)`"),
    (model("pb_utils.InferenceResonse([])"), "did you mean `InferenceResponse`?"),
    (model("torch.ones(1)"), "`import torch`"),
    (model("return [pb_utils.InferenceResponse(error='no')]"), "`pb_utils.InferenceResponse(error=pb_utils"),
]  # fmt: skip


@pytest.mark.parametrize(("cell", "advice"), FAILING)
def test_models_that_fail(models: Cells, cell: str, advice: str) -> None:
    assert models(cell).success
    outcome = models("%bls m X=np.ones(2, np.float32)")
    shown = " ".join(outcome.text.split())
    assert f"how to fix: {advice}" in shown or advice in shown.partition("how to fix: ")[2], outcome.text
    assert "how to fix" in outcome.html


def test_models_that_cannot_be_loaded(models: Cells) -> None:
    for cell, advice in (
        (model("pass").replace("PythonModel", "Pythonmodel"), "rename the class `TritonPythonmodel`"),
        (model("pass").replace("TritonPythonModel", "Sum"), "rename the class `Sum`"),
        (model("await f()"), f"write `{ASYNC}`"),
        (
            model("self.n = args['model_config']['x']", head="def initialize(self, args):"),
            '`json.loads(args["model_con',
        ),
        (model("pass", head="def initialize(self):"), "`def initialize(self, args):`"),
    ):
        outcome = models(cell)
        assert not outcome.success
        assert advice in outcome.text, outcome.text


def test_a_class_whose_execute_cannot_be_called_is_told_at_definition(models: Cells) -> None:
    for cell, told in (
        (model("return []", head="def excute(self, requests):"), "has no execute (it has excute)"),
        (model("return []", head="def execute(requests):"), "must have two parameters, self and requests"),
        ("%%tritonmodel m\nclass TritonPythonModel:\n  pass\ndef execute(s, r):\n  pass", "indent it"),
    ):
        outcome = models(cell.replace(" -q", ""))
        assert outcome.success
        assert told in " ".join(outcome.text.split()), outcome.text
    for cell in (
        "class TritonPythonModel(Base):\n    pass",
        "class TritonPythonModel:\n    def run(self, requests):\n        pass\n    execute = run",
        "class TritonPythonModel:\n    def execute(self, *requests):\n        pass",
        "class TritonPythonModel:\n    @staticmethod\n    def execute(requests):\n        pass",
    ):
        assert "warning" not in models(f"%%tritonmodel m\nclass Base:\n    execute = print\n{cell}").text


def test_an_error_that_a_model_returns_shows_the_line_that_made_it(models: Cells) -> None:
    make = 'return [pb_utils.InferenceResponse(error=pb_utils.TritonError("too dark"))]'
    models(model(f"x = 1\n{make}"))
    outcome = models("%bls m X=[1, 2]")
    assert "m returned an error" in outcome.text
    assert f"→ 7          {make}" in outcome.text
    # What a model passes on comes from its callee, through it.
    x = 'pb_utils.Tensor("X", np.ones(2, np.float32))'
    relay = model(f"return [{CALL.format('m', x).replace('SUM', 'Y')}.exec()]")
    models(relay.replace("%%tritonmodel m", "%%tritonmodel relay"))
    assert "through relay → m" in models("%bls relay X=[1, 2]").text


def test_sent_inputs_and_the_debug_frame_stand_beside_a_traceback(models: Cells) -> None:
    models(model("raise ValueError('no')"))
    outcome = models("r = %bls m X=np.ones(2, np.float32)\nr")
    assert "sent to m: X FP32 [2]" in outcome.text
    assert outcome.text.endswith("%debug opens here")
    assert "%debug" not in models("%bls add A=[1]").text
    assert "%debug" in models("%bls m X=[1, 2] -n 3").text
    assert "%debug" not in models("r").text  # it opens at another one by now


@pytest.mark.skipif(sys.platform == "win32", reason="needs Linux or macOS")
def test_debug_does_not_open_in_a_process_and_the_error_says_what_does(models: Cells) -> None:
    models(model("raise ValueError('no')").replace("%%tritonmodel m", "%%tritonmodel m --process"))
    outcome = models("%bls m X=np.ones(2, np.float32)")
    assert outcome.text.endswith("%debug cannot open in a process of its own: first %tritonrepo load m --in-kernel")
    crash = (
        model("raise ValueError('no')")
        .replace("%%tritonmodel m", "%%tritonmodel m --process")
        .replace("    def execute", "    def initialize(self, args):\n        raise KeyError('k')\n\n    def execute")
    )
    assert "first %tritonrepo load m --in-kernel" in models(crash).text
    models("%tritonrepo load m --in-kernel")
    assert models("%bls m X=np.ones(2, np.float32)").text.endswith("%debug opens here")
