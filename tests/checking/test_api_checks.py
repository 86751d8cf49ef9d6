"""Calls of Triton's API that raise an exception, as users write them by mistake."""

from __future__ import annotations

import pytest

from tests.checking.conftest import CONFIG, Check, codes, execute, model

READ = 'x = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()\n'
OUT = '[pb_utils.Tensor("OUT", x)]'
CALL = (
    'r = pb_utils.InferenceRequest(model_name="b", requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", x)])'
)
CHECKED = f"{READ}{CALL}\na = r.exec()\nif a.has_error():\n    print(a.error().message())\n"
PLAIN = execute(CHECKED, OUT)
LINES = [
    (OUT, OUT[1:-1], "call-refused"),
    ('"OUT", x)]', '"OUT", x.tolist())]', "call-refused"),
    ('"OUT", x)]', '"OUT", x.as_numpy)]', "call-refused"),
    ('"OUT", x)]', '"OUT", np.array(["label", str(x)]))]', "call-refused"),
    ('"OUT", x)]', '"OUT", torch.from_numpy(x))]', "call-refused"),
    ('"OUT", x)]', 'x, "OUT")]', "call-refused"),
    ("output_tensors=", "outputs=", "call-refused"),
    (f"pb_utils.InferenceResponse(output_tensors={OUT})", 'pb_utils.Tensor("OUT", x)', "call-refused"),
    (f"pb_utils.InferenceResponse(output_tensors={OUT})", 'pb_utils.TritonError("no")', "call-refused"),
    ('(request, "IN")', '("IN", request)', "call-refused"),
    ('pb_utils.get_input_tensor_by_name(request, "IN")', 'request.inputs()["IN"]', "call-refused"),
    ('requested_output_names=["OUT"]', 'requested_output_names="OUT"', "call-refused"),
    ('requested_output_names=["OUT"], ', "", "call-refused"),
    ('inputs=[pb_utils.Tensor("IN", x)]', "inputs=[x]", "call-refused"),
    ('inputs=[pb_utils.Tensor("IN", x)]', 'inputs=pb_utils.Tensor("IN", x)', "call-refused"),
    ('model_name="b"', 'model_name="b", model_version="1"', "call-refused"),
    ("print(a.error().message())", 'pb_utils.InferenceResponse(error=a.error)', "call-refused"),
    ("print(a.error().message())", 'a.as_numpy("OUT")', "call-refused"),
    ("print(a.error().message())", "raise pb_utils.TritonModelException(a.error())", "error-as-text"),
    ("print(a.error().message())", "failed = a.error()\n                print(f'no: {failed}')", "error-as-text"),
    ("a.has_error()", "a.has_error", "method-not-called"),
    ("            responses.append", "            responses = responses.append", "append-assigned"),
    ("    def execute", "    def initialize(self): pass\n    def execute", "method-parameters"),
    ("    def execute", "    def __init__(self, args): pass\n    def execute", "method-parameters"),
    ("print(a.error().message())", "print(self.scales, a.error())", "attribute-unset"),
    ("    def ", "    def initialize(self, args): args['model_config']['x']\n    def ", "config-not-parsed"),
    ("print(a", "config['parameters']['size']['string_value']\n                print(a", ""),  # guarded
    ("a = r", "config['parameters']['size']['string_value']\n            a = r", "parameter-missing"),
    ("a = r", "config['parameters']['known']['string_value']\n            a = r", ""),
    ("a = r", "x[pb_utils.Tensor('x', x).name()]\n            a = r", ""),
    ("    def execute", "    def initialize(self, args, more=1): self.a = args\n    def execute", ""),
    ("print(a.error().message())", "return [pb_utils.InferenceResponse([], a.error()) for _ in requests]", ""),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "expected"), LINES)
def test_mistakes_in_calls(check: Check, before: str, after: str, expected: str) -> None:
    assert before in PLAIN
    config = CONFIG + 'parameters { key: "known" value: { string_value: "4" } }'
    files = {**model("a", config, PLAIN.replace(before, after, 1)), **model("b")}
    found = [finding for finding in check(files, "a") if finding.code not in ("code-undefined", "output-never-made")]
    assert set(codes(found)) == ({expected} if expected else set())
    assert all(finding.line for finding in found)


@pytest.mark.parametrize("files", ["{'file:1/model.py': b''}", "{'file:1/model.py': b'', 'file:1/b.py': b''}"])
def test_files_of_load_model(check: Check, files: str) -> None:
    source = execute(f"files = {files}\npb_utils.load_model('b', '{{}}', files)\npb_utils.unload_model('b')", OUT)
    assert ("load-files" in codes(check({**model("a", CONFIG, source), **model("b")}, "a"))) == ("b.py" in files)


STARTS = {
    "load_model": ("pb_utils.load_model('b')", 1),
    "is_model_ready": ("print(pb_utils.is_model_ready('b'))", 1),
    "caught": ("try:\n    pb_utils.load_model('b')\nexcept pb_utils.TritonModelException:\n    pass", 0),
    "of another package": ("keras.models.load_model('b')", 0),
    "in a method": ("self.prepare()", 1),
    "in a helper module": ("loading.prepare()", 1),
    "in two": ("self.prepare()\nloading.prepare()", 2),
    "in a method, caught": ("try:\n    self.prepare()\nfinally:\n    pass", 0),
}
PREPARE = "def prepare(*names):\n    pb_utils.load_model('b')\n"


@pytest.mark.parametrize("way", STARTS)
def test_model_control_in_initialize(check: Check, way: str) -> None:
    body, found = STARTS[way]
    prepare = "".join(f"    {line}\n" for line in PREPARE.splitlines())
    method = "\n    def initialize(self, args):\n" + "".join(f"        {line}\n" for line in body.split("\n")) + prepare
    files = {"a/1/loading.py": f"import triton_python_backend_utils as pb_utils\n{PREPARE}", **model("b")}
    for source, expected in ((execute("", OUT) + method, found), (execute(body, OUT) + prepare, 0)):
        of_a = codes(check({**model("a", CONFIG, "import keras\nimport loading\n" + source), **files}, "a"))
        assert of_a.count("start-refused") == expected


def test_requests_in_initialize(check: Check) -> None:
    helper = "import triton_python_backend_utils as pb_utils\ndef warm(x):\n    " + CALL + "\n    return r.exec()\n"
    calls = execute("", OUT) + "\n    def initialize(self, args):\n        helper.warm(np.zeros(1, np.float32))\n"
    for source, number in ((calls, 1), (calls.replace("def initialize", "def other"), 0)):
        files = {**model("a", CONFIG, "import helper\n" + source), "a/1/helper.py": helper, **model("b")}
        assert codes(check(files, "a")).count("call-refused") == number


@pytest.mark.parametrize("size", [0, 1])
def test_requests_in_a_warm_up(check: Check, size: int) -> None:
    warm = f'model_warmup [ {{ name: "w" batch_size: {size} inputs [ {{ key: "IN" value {{ data_type: TYPE_FP32 '
    warm += "dims: [ 1 ] zero_data: true } } ] } ]"
    found = codes(check({**model("a", CONFIG + warm, PLAIN), **model("b", CONFIG + warm)}, "a", "b"))
    assert found.count("start-refused") == size


def test_mistakes_in_loops_and_files(check: Check) -> None:
    batches = model(
        "a", CONFIG + "max_batch_size: 8\ndynamic_batching { }", PLAIN.replace("(request,", "(requests[0],")
    )
    assert "response-missing" in codes(check({**batches, **model("b")}, "a"))
    runs = PLAIN.replace("r.exec()", "asyncio.run(r.async_exec())").replace("    def", "    async def")
    assert codes(check({**model("a", CONFIG, "import asyncio\n" + runs), **model("b")}, "a")) == ["run-in-loop"]
    yields = PLAIN.replace("responses.append(", "yield (").replace("        return responses\n", "")
    assert codes(check({**model("a", CONFIG, yields), **model("b")}, "a")) == ["response-not-list"]
    optional = CONFIG.replace("[ -1 ] }", "[ -1 ] optional: true }", 1)
    assert codes(check({**model("a", optional, PLAIN), **model("b")}, "a")) == ["input-optional"]
    assert codes(check(model("a", CONFIG.replace('"python"', '"pyton"')), "a")) == ["backend-unknown"]
    source = model("c")["c/1/model.py"]
    assert codes(check({"c/config.pbtxt.txt": CONFIG, "c/1/model.py": source}, "c")) == ["config-unread"]


def test_inputs_by_their_place(check: Check) -> None:
    source = execute("x = request.inputs()[0].as_numpy()", OUT)
    assert codes(check(model("a", CONFIG, source), "a")) == []
    more = CONFIG + 'input [ { name: "MORE" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
    sequence = """sequence_batching { control_input [
        { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] } ] }"""
    for config, severity in ((more, "note"), (CONFIG + "max_batch_size: 2\n" + sequence, "warning")):
        found = [finding for finding in check(model("a", config, source), "a") if finding.code == "input-by-place"]
        assert [(finding.severity, "'IN'" in finding.mend) for finding in found] == [(severity, True)]
