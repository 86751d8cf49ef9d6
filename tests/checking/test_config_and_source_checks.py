"""What the code and the configuration of a model say of each other, and of other models."""

from __future__ import annotations

from pathlib import Path

import pytest

from bls_notebook.checking.python_source import later_python
from tests.checking.conftest import CONFIG, Check, codes, execute, model, write
from tests.engine.ensembles import ensemble
from tests.engine.sources import pbtxt

BATCHING = CONFIG + "max_batch_size: 8\n"
DECOUPLED = CONFIG + "model_transaction_policy { decoupled: true }\n"
SEQUENCE = CONFIG + "sequence_batching { }\n"
READ = 'x = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()\n'
OUT = '[pb_utils.Tensor("OUT", x)]'


def call(arguments: str, sent: str = "exec()", after: str = "") -> str:
    """Return a model that sends one request."""
    body = f"{READ}i = pb_utils.Tensor('IN', x)\nr = pb_utils.InferenceRequest({arguments}).{sent}\n{after}"
    return execute(body, OUT)


START = "pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START"
FITS = 'model_name="b", requested_output_names=["OUT"], inputs=[i]'
SENDS = (
    execute("x = self.send(NAME, request)", OUT)
    + """
    def send(self, model, request):
        i = self.of(request)
        return pb_utils.InferenceRequest(model_name=model, requested_output_names=["OUT"], inputs=i).exec()
"""
)
KEPT = (
    call(FITS.replace('"b"', "self.callee"))
    .replace("    def execute", "    def initialize(self, args): self.callee = 'bb'\n    def execute")
    .replace("request in requests:\n", "request in requests:\n", 1)
)
INITIALIZES = (
    execute(READ, OUT)
    .replace(
        "    def execute", "    def initialize(self, args):\n        self.m = load(device='cuda')\n\n    def execute"
    )
    .replace("load", "dict")
)
CHOOSES = INITIALIZES.replace("'cuda'", "'cuda' if args['model_instance_kind'] == 'GPU' else 'cpu'")
WARM = (
    CONFIG
    + """sequence_batching { control_input [ { name: "CONTROL" control [ { kind: CONTROL_SEQUENCE_START
  int32_false_true: [ 0, 1 ] } ] } ] }
model_warmup [ { name: "w" batch_size: 1 inputs [
  { key: "KEY" value { data_type: TYPE_INT32 dims: [ 1 ] zero_data: true } },
  { key: "IN" value { data_type: TYPE_FP32 dims: [ 1 ] zero_data: true } } ] } ]
"""
)
STATE = """sequence_batching { state [ { input_name: "S" output_name: "T" data_type: TYPE_%s dims: [ 1 ] %s } ] }
max_batch_size: 2
"""
ZERO = 'initial_state [ { name: "zero" data_type: TYPE_FP32 dims: [ 1 ] zero_data: true } ]'
CASES = [
    # -- states of sequences
    (CONFIG + STATE % ("FP32", ""), execute(READ, OUT), {"state-arbitrary": 4, "field-idle": 4}),
    (CONFIG + STATE % ("FP32", ZERO), execute(READ, OUT), {"field-idle": 4}),
    (CONFIG + STATE % ("STRING", ""), execute(READ, OUT), {"field-idle": 4}),
    # -- tensors
    (CONFIG, execute(READ, OUT.replace("OUT", "OTU")), {"output-undeclared": 9, "output-never-made": 3}),
    (CONFIG, execute(READ + 'o = pb_utils.Tensor("OUT", x)', "[o]"), {}),
    (
        CONFIG,
        execute(READ + 'o = []\no.append(pb_utils.Tensor("OTHER", x))', "o"),
        {"output-undeclared": 10, "output-never-made": 3},
    ),
    (CONFIG, execute(READ + 'n = "OUT"\no = [pb_utils.Tensor(n, x)]', "o"), {}),
    (CONFIG, execute(READ + "o = self.make(x)", "o"), {}),
    (CONFIG, execute(READ + 'o = pb_utils.Tensor("A", x)\nprint(o)\no = pb_utils.Tensor("OUT", x)',
    "[o]"), {}),
    (CONFIG, execute(READ.replace("IN", "INN"), OUT), {"input-undeclared": 8}),
    (CONFIG, execute(READ.replace("IN", "MORE").replace(".as_numpy()", "\nx = x and x.as_numpy()"), OUT), {}),
    *((BATCHING, execute(READ + line, OUT), {"input-rank": 9, "batch-no-batcher": 4})
      for line in ("assert x.shape == (4,)", "a, b, c = x.shape", "x.copy().transpose(2, 0, 1)", "assert x.ndim == 1",
                   "assert len(x.shape) == 3")),
    *((BATCHING, execute(READ + line, OUT), {"batch-no-batcher": 4})
      for line in ("if x: x = 1\nelse: x = 2", "if x.ndim == 3: a, b, c = x.shape", "a, *b = x.shape",
                   "assert x.shape == (4, 4)")),
    (BATCHING, execute(READ + "y = x[0]\nx = y", OUT), {"batch-no-batcher": 4}),
    (
        BATCHING,
        execute(READ.replace("as_numpy()", "as_numpy()[0]"), OUT),
        {"batch-first-row": 8, "batch-no-batcher": 4},
    ),
    # -- callees; there are b, d (decoupled) and s (of sequences)
    (CONFIG, call(FITS), {}),
    (CONFIG, call(FITS.replace('"b"', '"bb"')), {"callee-missing": 10}),
    (CONFIG, call(FITS.replace('"b"', "self.name")), {}),
    (CONFIG, SENDS.replace("NAME", '"bb"'), {"callee-missing": 8}),
    (CONFIG, SENDS.replace("NAME", '"a"'), {"callee-cycle": 8}),
    (CONFIG, SENDS.replace("NAME", "self.chosen"), {}),
    (CONFIG, KEPT, {"callee-missing": 11}),
    (CONFIG, KEPT.replace("self.callee = ", "self.callee = args or "), {}),
    (CONFIG, call(FITS + ", model_version=2"), {"callee-version": 10}),
    (CONFIG, call(FITS.replace('["OUT"]', '["NO"]')), {"callee-output": 10}),
    (CONFIG, call(FITS.replace("[i]", "[]")), {"callee-input-lacking": 10}),
    (CONFIG, call(FITS.replace("[i]", "[i, pb_utils.Tensor('NO', x)]")), {"callee-input": 10}),
    (CONFIG, call(FITS.replace("[i]", "self.of(x)")), {}),
    (CONFIG, call(FITS, after='pb_utils.get_output_tensor_by_name(r, "NO")'), {"callee-output": 11}),
    (CONFIG, call(FITS.replace('"b"', '"d"')), {"callee-decoupled": 10}),
    (CONFIG, call(FITS.replace('"b"', '"d"'), "exec(decoupled=True)"), {}),
    (CONFIG, call(FITS.replace('"b"', '"s"')), {"sequence-no-id": 10}),
    (CONFIG, call(FITS.replace('"b"', '"s"') + ", correlation_id=1"), {"sequence-no-start": 10}),
    (
        CONFIG,
        call(FITS.replace('"b"', '"s"') + f", correlation_id=1, flags={START}"),
        {"sequence-no-end": 10},
    ),
    (CONFIG, call(FITS.replace('"b"', '"s"') + ", correlation_id=1, flags=self.flags"), {}),
    (CONFIG, call(FITS.replace('"b"', '"a"')), {"callee-cycle": 10}),
    # -- data types, shapes, and tensors that keep their names
    (CONFIG, execute(READ, OUT.replace("x)", "x.astype('float64'))")), {"output-dtype": 9}),
    (CONFIG, execute(READ, OUT.replace("x)", "x.reshape(-1).astype('float32'))")), {}),
    (CONFIG, execute(READ, OUT.replace("x)", "x.astype(self.dtype))")), {}),
    (CONFIG, "import numpy as np\n" + execute(READ + "x = np.zeros(x)", "[pb_utils.Tensor('OUT', np.ones(4))]"),
     {"output-dtype": 11}),
    (CONFIG.replace("FP32", "INT16", 1), execute("y = 1\n" + READ, OUT), {"output-dtype": 10}),
    (CONFIG, call(FITS.replace("[i]", "[pb_utils.Tensor('IN', x.astype('i4'))]")), {}),
    (CONFIG, call(FITS.replace("[i]", "[pb_utils.Tensor('IN', x.astype('int32'))]")), {"callee-misfit": 10}),
    (CONFIG, call(FITS.replace("[i]", "[pb_utils.get_input_tensor_by_name(request, 'IN')]")), {}),
    (CONFIG, call(FITS.replace("[i]", "request.inputs()")), {}),
    (BATCHING + "dynamic_batching { }", call(FITS.replace("[i]", "request.inputs()")), {"callee-misfit": 10}),
    (CONFIG.replace("FP32", "INT32", 1),
     call(FITS.replace("[i]", "request.inputs()")).replace('"OUT", x', '"OUT", request'),
     {"callee-misfit": 10}),
    (CONFIG.replace('"IN"', '"X"'), call(FITS.replace("[i]", "[pb_utils.get_input_tensor_by_name(request, 'X')]"))
     .replace('request, "IN"', 'request, "X"'), {"callee-input": 10, "callee-input-lacking": 10}),
    # -- sources
    (CONFIG, "class TritonPythonModel:\n  def execute(self, requests)\n    return []", {"code-syntax": 2}),
    (CONFIG, "class Model:\n    def execute(self, requests):\n        return []", {"code-no-class": 1}),
    (CONFIG, execute("x = undefined", OUT), {"code-undefined": 8}),
    (CONFIG, execute("x = open('model.py', 'rb').read()", OUT), {"file-relative": 8}),
    (CONFIG, execute("x = open(self.file).read()", OUT), {"file-encoding": 8}),
    (CONFIG, execute("x = self.of(1)\nself.path.write_text(open(self.file, mode='w'))", OUT), {"file-encoding": 9}),
    (CONFIG, execute("x = self.path.read_text('utf-8') + open(self.file, encoding='utf-8').read()", OUT), {}),
    (CONFIG, execute("x = open(self.file, 'rb'), open(self.file, self.mode), self.zip.open('a')", OUT), {}),
    (CONFIG, "from codecs import open\n" + execute("x = open(self.file)", OUT), {}),
    (CONFIG, execute("x = open('/no/such/x.txt', 'rb'), open('/no/y', 'wb')", OUT), {"file-absent": 8}),
    (CONFIG, execute("import os\nx = open(os.path.join('/no', 'y'), 'rb') if os.path.exists('/no/y') else 1", OUT), {}),
    (CONFIG, "import rarely_used\n" + execute(READ, OUT), {"package-missing": 1}),
    (CONFIG, "try:\n    import rarely_used\nexcept ImportError:\n    pass\n" + execute(READ, OUT), {}),
    (DECOUPLED, execute(READ, OUT), {"decoupled-returns": 4}),
    (
        CONFIG + "instance_group [ { count: 2 } ]",
        execute(READ + "self.seen[request.correlation_id()] = x", OUT),
        {"sequence-no-batcher": 9},
    ),
    (CONFIG, execute("import os\nx = os.environ['MODEL_DIR']", OUT), {"environment-variable": 9}),
    (CONFIG, execute("import os\nos.environ['A'] = '1'\nx = os.environ['A']", OUT), {}),
    (CONFIG + "instance_group [ { kind: KIND_CPU } ]", INITIALIZES, {"device-unasked": 6}),
    (CONFIG + "instance_group [ { kind: KIND_CPU } ]", CHOOSES, {}),
    (
        CONFIG + "instance_group [ { kind: KIND_GPU gpus: [ 0, 1 ] } ]",
        INITIALIZES,
        {"device-fixed": 6, "device-missing": 4},
    ),
    # -- fields
    (CONFIG + "instance_group [ { passive: true } ]", execute(READ, OUT), {"instances-passive": 4}),
    (
        CONFIG + 'parameters [ { key: "EXECUTION_ENV_PATH" '
        'value { string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz" } } ]',
        execute(READ, OUT),
        {"environment-missing": 4, "field-idle": 4},
    ),
    (CONFIG + "dynamic_batching { }", execute(READ, OUT), {"batch-of-one": 4}),
    (CONFIG + "dynamic_batching { preserve_ordering: true }", execute(READ, OUT), {"release-needed": 4}),
    (
        BATCHING + "dynamic_batching { max_queue_delay_microseconds: 2000000 }",
        execute(READ, OUT),
        {"batch-long-delay": 5},
    ),
    (
        BATCHING + "dynamic_batching { default_queue_policy { allow_timeout_override: true } }",
        execute(READ, OUT),
        {"field-idle": 5},
    ),
    (
        BATCHING.replace("[ -1 ]", "[ -1, 3, 8, 8 ]", 1) + "dynamic_batching { }",
        execute(READ, OUT),
        {"batch-in-dims": 2},
    ),
    (CONFIG + "response_cache { enable: true }", execute(READ, OUT), {"field-cache": 4}),
    (CONFIG + "response_cache { enable: true }",
     execute(READ + "e = pb_utils.TritonError('no')", "[], error=e"), {"field-cache": 4, "cache-errors": 4}),
    (
        CONFIG + 'parameters [ { key: "EXECUTION_ENV" value { string_value: "x" } } ]',
        execute(READ, OUT),
        {"field-parameter": 4},
    ),
    (
        CONFIG + 'parameters [ { key: "force_cpu_only_input_tensors" value { string_value: "no" } } ]',
        execute(READ, OUT),
        {"field-parameter": 4},
    ),
    *((BATCHING, execute(READ + f"import numpy as np; y = {array}", OUT.replace(", x", ", y")),
       {"batch-no-batcher": 4} | problem)
      for arrays, problem in (
          (("np.array([1.5], np.float32)", "np.zeros((4,), np.float32)", "np.asarray([float(1)]).astype(np.float32)"),
           {"output-no-batch": 10}),
          (("np.array([[1.5]], np.float32)", "np.array([x], np.float32)", "np.zeros(x.shape, np.float32)",
            "np.zeros(4, np.float32).reshape(1, 4)"), {}),
      ) for array in arrays),
    (CONFIG.replace("input [", 'input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] },'), execute(READ, OUT),
     {"input-duplicate": 2}),
    (WARM.replace("KEY", "NOPE"), execute(READ, OUT), {"warmup-input": 7}),
    (WARM.replace("KEY", "CONTROL"), execute(READ, OUT), {}),
    (WARM.replace("batch_size: 1", "").replace("KEY", "NOPE"), execute(READ, OUT), {"warmup-skipped": 6}),
    (CONFIG + "instance_group [ { count: ${n} } ]", execute(READ, OUT), {"template-open": 4}),
]  # fmt: skip


NAMED = [
    ("pb_utils.Logger.log_warning('x')", "Did you mean `pb_utils.Logger.log_warn`?"),
    ("pb_utils.get_input_by_name(request, 'IN')", "Did you mean `pb_utils.get_input_tensor_by_name`?"),
    ("pb_utils.TritonError.INTERNL", "Did you mean `pb_utils.TritonError.INTERNAL`?"),
    ("from triton_python_backend_utils import Tensr", "Did you mean `triton_python_backend_utils.Tensor`?"),
    ("pb_utils.Logger.log_warn('x')", ""),
    ("try:\n    pb_utils.trace()\nexcept AttributeError:\n    pass", ""),
    ("if hasattr(pb_utils, 'trace'):\n    pb_utils.trace()", ""),
    ("pb_utils.Tensor('x', x).shape_of()", ""),  # what an object has is not looked at
    ("try:\n    from triton_python_backend_utils import Trace\nexcept ImportError:\n    pass", ""),
    ("x = None\nx.pb_utils.nothing()", ""),
]


@pytest.mark.parametrize(("line", "mend"), NAMED)
def test_names_that_pb_utils_lacks(check: Check, line: str, mend: str) -> None:
    found = check(model("a", CONFIG, execute(f"{READ}{line}", OUT)))
    assert [(each.code, each.line, each.mend) for each in found] == ([("code-no-such-name", 9, mend)] if mend else [])


@pytest.mark.parametrize(("config", "source", "expected"), CASES)
def test_config_and_source_rules_are_found(
    check: Check, monkeypatch: pytest.MonkeyPatch, config: str, source: str, expected: dict[str, int]
) -> None:
    sends = execute("request.get_response_sender()", "[]").replace("            responses.append", "            print")
    others = {**model("b"), **model("d", DECOUPLED, sends), **model("s", SEQUENCE)}
    monkeypatch.setattr("bls_notebook.checking.config_checks.cuda_gpu_count", lambda: 1)
    found = check({**model("a", config, source), **others}, "a")
    found = [finding for finding in found if finding.code != "attribute-unset"]  # the sources are fragments
    assert {finding.code: finding.line for finding in found} == expected
    for finding in found:
        assert finding.why
        assert finding.mend


def test_calls_that_come_back_by_an_ensemble(check: Check) -> None:
    ensemble = """platform: "ensemble"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { step [ { model_name: "a" model_version: -1
  input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" } } ] }
"""
    files = {**model("a", CONFIG, call(FITS.replace('"b"', '"e"'))), "e/config.pbtxt": ensemble, "e/1/.gitkeep": ""}
    (found,) = check(files)
    assert (found.code, found.severity, found.line) == ("callee-cycle", "error", 10)
    assert "a -> e -> a" in found.what
    (found,) = check({"a/config.pbtxt": CONFIG + "instance_group [ { count: 3 } ]"})
    assert (found.code, found.severity) == ("callee-cycle", "warning")


def test_steps_of_an_ensemble(check: Check) -> None:
    step = 'model_name: "a" model_version: -1 input_map { key: "X" value: "IN" }'
    ensemble = (
        'platform: "ensemble"\ninput [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
        'output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
        f'ensemble_scheduling {{ step [ {{ {step} output_map {{ key: "OUT" value: "OUT" }} }} ] }}'
    )
    files = {"e/config.pbtxt": ensemble, "e/1/.gitkeep": ""}
    assert codes(check({**files, **model("other")})) == ["callee-missing"]
    for outputs, mend in (("OUT", "Correct the name (did you mean 'A'?)."), ("A", "Put 'a' into the repository.")):
        assert check({**files, **model("A", CONFIG.replace('"OUT"', f'"{outputs}"'))}, "e")[0].mend == mend
    (found,) = check({**files, **model("a")}, "e")
    assert found.code == "ensemble-misfit"
    assert "non-existing input X" in found.what
    (found,) = check({"e/config.pbtxt": f"max_batch_size: 8\n{ensemble}".replace("X", "IN"),
                      **model("a", CONFIG + "max_batch_size: 4\ndynamic_batching { }")}, "e")  # fmt: skip
    assert "allows maximum batch size 8, but it contains model a which only allows" in found.what


def test_requests_for_some_outputs_that_an_ensemble_never_answers(check: Check) -> None:
    def files(name: str, config: str) -> dict[str, str]:
        return {f"{name}/config.pbtxt": config, f"{name}/1/.gitkeep": ""}

    first, second = ("m", {"X": "X"}, {"Y": "A"}), ("m", {"X": "A"}, {"Y": "B"})
    sends = call(FITS.replace('"b"', '"e"').replace("OUT", "B").replace("i]", "pb_utils.Tensor('X', x)]"))
    found = check({
        **model("m", pbtxt()), **files("e", ensemble(first, second, outputs="A B")), **model("caller", CONFIG, sends),
        **files("outer", ensemble(("e", {"X": "X"}, {"B": "Y"}))),
    })  # fmt: skip
    starving = {f.model: (f.severity, f.what) for f in found if f.code == "ensemble-starves"}
    assert starving == {
        "e": ("warning", "a request for A alone, or for B alone never gets an answer"),
        "outer": ("error", "its step 'e' is asked for B alone, and that ensemble never answers that"),
        "caller": ("error", "it requests B alone of the ensemble 'e', which never answers that"),
    }
    copy = ("two", {"X": "X"}, {"Y": "A", "Z": "t"}), ("m", {"X": "t"}, {"Y": "B"})
    found = check({**model("two", pbtxt(outputs="Y:INT32 Z:INT32")), **files("e", ensemble(*copy, outputs="A B"))})
    assert "ensemble-starves" not in codes(found)


def test_copies_and_mocks_of_the_api(check: Check) -> None:
    full = "def deserialize_bytes_tensor(x): ...\ndef serialize_byte_tensor(x): ...\nclass ModelConfig: ...\n"
    api = "triton_python_backend_utils"
    found = check({**model("a"), f"a/{api}.py": full, **model("b"), f"b/1/{api}/__init__.py": "Tensor = object"})
    assert [(f.code, f.severity, f.model) for f in found] == [
        ("file-shadows", "error", "b"), ("file-shadows", "warning", "a")
    ]  # fmt: skip
    assert "it lacks deserialize_bytes_tensor, serialize_byte_tensor, ModelConfig" in found[0].what


def test_packages_that_a_file_beside_the_models_brings(check: Check, tmp_path: Path) -> None:
    files = model("a", CONFIG, "import rarely_used, cv2\n" + execute(READ, OUT))
    assert "rarely_used, cv2" in check(files)[0].what
    found = check({**files, "Dockerfile": "RUN pip install rarely-used==1 opencv-python"})
    assert found == []
    (tmp_path / ".git").mkdir()
    write(tmp_path.parent, {"requirements.txt": "another_package"})
    assert codes(check(model("a", CONFIG, "import another_package\n" + execute(READ, OUT)))) == ["package-missing"]
    (tmp_path.parent / "requirements.txt").unlink()


@pytest.mark.parametrize(
    ("line", "version"), [("x = f'({len(", "3.12"), ("x = f'{a}", ""), ("x = f'' + '{len(", ""), ("x = '{len(", "")]
)
def test_an_f_string_over_several_lines_is_for_a_later_python(line: str, version: str) -> None:
    error = f"unterminated string literal (detected at line 1)\n{line}"
    assert (later_python(error, (3, 11)), later_python(error, (3, 12))) == (version, "")
    assert later_python("f-string expression part cannot include a backslash\nx", (3, 11)) == "3.12"


def test_syntax_of_a_later_python_is_no_error(check: Check) -> None:
    (found,) = check(model("a", CONFIG, "lazy import json\nclass TritonPythonModel: ..."))
    assert (found.severity, found.what.split(", so ")[1]) == ("note", "it was not checked")
    assert found.what.startswith("its code is for Python from 3.15, and this is Python ")


def test_packages_that_others_bring_are_not_missing(check: Check) -> None:
    files = model("a", CONFIG, "import huggingface_hub, torch\n" + execute(READ, OUT))
    assert "huggingface_hub, torch" in check({**files, "README.md": "It accelerates transformers."})[0].what
    assert check({**files, "Dockerfile": "RUN pip install Sentence_Transformers==5"}) == []
    (found,) = check({**files, "Dockerfile": "RUN pip install transformers"})
    assert "it imports torch, which" in found.what


def test_a_file_that_a_server_mounts_from_the_project_is_not_absent(check: Check, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    write(tmp_path, {"compose.yml": "volumes: [ './data:/data_x' ]", "data/words.txt": ""})
    opens = "x = open('/data_x/{}', 'rb')"
    assert codes(check(model("a", CONFIG, execute(READ + opens.format("other.txt"), OUT)), "a")) == ["file-absent"]
    assert check(model("a", CONFIG, execute(READ + opens.format("words.txt"), OUT)), "a") == []


def test_packages_that_a_file_elsewhere_in_the_project_brings(check: Check, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    write(tmp_path, {"docker/Dockerfile.server": "RUN pip install bs4 \\\n torch"})
    assert codes(check(model("a", CONFIG, "import bs4, torch\n" + execute(READ, OUT)))) == ["folder-no-model"]


def test_packages_that_helper_modules_import(check: Check) -> None:
    own = "import sys, os\nsys.path.append(os.path.dirname(__file__))\n"
    files = {
        **model("a", CONFIG, own + "from utils.decoder import Decoder\nfrom tools import x\n" + execute(READ, OUT)),
        "a/1/utils/__init__.py": "from . import words\n", "a/1/utils/decoder.py": "\nimport rarely_used, tools",
        "a/1/utils/words.py": "import fourth_package", "a/1/utils/unused.py": "import third_package",
        "a/tools.py": "import numpy, yet_another",
    }  # fmt: skip
    found = {finding.where.rpartition("/")[2]: finding.what for finding in check(files)}
    assert set(found) == {"decoder.py:2", "words.py:1", "tools.py:1"}
    assert "yet_another" in found["tools.py:1"]
    files["a/1/model.py"] = files["a/1/model.py"].replace("dirname(__file__)", "join(os.path.dirname(__file__), '..')")
    assert check(files) == []
