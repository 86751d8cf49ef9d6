"""What releases of Triton lack for models, and known bugs that models would meet, by `check --for`."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook.checking.records import Findings
from bls_notebook.checking.releases import changes, known_release, newest, release_of, versions
from tests.checking.conftest import CONFIG, MODEL, codes, execute, model, write

Run = Callable[[dict[str, str], str], list[str]]
READ = 'x = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()\n'
CALL = (
    f'{READ}r = pb_utils.InferenceRequest(model_name="b", requested_output_names=["OUT"], '
    'inputs=[pb_utils.Tensor("IN", x)])\n'
)
OUT = '[pb_utils.Tensor("OUT", x)]'
STREAM = CONFIG + "model_transaction_policy { decoupled: true }"
SENDS = execute(f"{READ}s = request.get_response_sender()\ns.send(pb_utils.InferenceResponse({OUT}))").replace(
    "return responses", "return None"
)
ERROR = 's.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("no")), flags=1)'
FAILS = SENDS.replace("s.send(", f"{ERROR}\n            s.send(")


def calls(body: str, callee: dict[str, str] | None = None) -> dict[str, str]:
    """Return model `a`, whose request `r` to `b` such lines send, and `b`."""
    asynchronous = execute(CALL + body, OUT)
    if "await" in body:
        asynchronous = "import asyncio\n" + asynchronous.replace("    def execute", "    async def execute")
    return {**model("a", source=asynchronous), **(callee or model("b"))}


def streams(body: str, callee: str = SENDS) -> dict[str, str]:
    return calls(body, model("b", STREAM, callee))


def configured(more: str, source: str = MODEL) -> dict[str, str]:
    return model("a", CONFIG + more, source)


def in_execute(line: str, head: str = "") -> dict[str, str]:
    return model("a", source=head + execute(READ + line, OUT))


ENSEMBLE = """platform: "ensemble"
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { %s step [ { model_name: "b" model_version: -1
  input_map { key: "IN" value: "X" } output_map { key: "OUT" value: "Y" } } ] }
"""
CORRELATION = """max_batch_size: 2
sequence_batching { control_input [ { name: "ID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: %s } ] } ] }
"""
ON_GPU = """instance_group [ { kind: KIND_GPU } ]
parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value: { string_value: "no" } }
"""
SIDE = """step [ { model_name: "s" model_version: -1
  input_map { key: "IN" value: "%s" } output_map { key: "OUT" value: "Z" } } ]"""
SEQUENCE = {"s/config.pbtxt": CONFIG + "max_batch_size: 2\nsequence_batching { }", "s/1/model.py": MODEL}
LIMITED = "dynamic_batching { default_queue_policy { max_queue_size: 4 } }\nmax_batch_size: 4"
IS_READY = MODEL + "\n    def is_ready(self%s):\n        return True\n"
ASKS = "pb_utils.is_model_ready('b')\n"

CASES: dict[str, tuple[dict[str, str], str, str, str]] = {
    # what: (files, a release in which they fail, one in which they work, the rule)
    "response parameters": (
        model("a", source=execute(READ, f"{OUT}, parameters={{'k': 1}}")), "25.01", "25.02", "too-old:parameters"),
    "parameters of a callee": (
        calls("a = r.exec()\nif not a.has_error():\n    print(a.parameters())"), "25.01", "25.02",
        "too-old:read-parameters"),
    "cancel in a loop": (
        streams("i = r.exec(decoupled=True)\nfor a in i:\n    a.has_error()\n    i.cancel()"), "25.03", "25.04",
        "too-old:cancel"),
    "cancel of gathered iterators": (
        streams("some = await asyncio.gather(*[r.async_exec(decoupled=True)])\nfor one in some:\n    one.cancel()"),
        "25.03", "26.11", "too-old:cancel"),
    "cancel of a kept iterator": (
        streams("self.open = {}\nself.open['k'] = r.exec(decoupled=True)\nself.open.pop('k').cancel()"),
        "24.10", "25.04", "too-old:cancel"),
    "cancel by a callback": (
        streams("t = asyncio.create_task(r.async_exec(decoupled=True))\ni = await t\nasyncio.Timer(5, i.cancel)"),
        "24.12", "25.04", "too-old:cancel"),
    "a callee's code": (
        calls("a = r.exec()\nif a.has_error():\n    e = a.error()\n    if e.code() == pb_utils.TritonError.NOT_FOUND:\n"
              "        print(e.message())"), "25.03", "25.04", "too-old:error-code"),
    "is_ready": (model("a", source=IS_READY % ""), "26.02", "26.03", "too-old:is-ready"),
    "is_ready with a parameter": (model("a", source=IS_READY % ", name"), "26.03", "26.02", "too-new:is-ready"),
    "model_metrics": (
        configured('model_metrics { metric_control: [ { metric_identifier: { family: "nv_x" } } ] }'), "24.10",
        "24.11", "too-old:metrics"),
    "max_inflight_requests": (
        {"e/config.pbtxt": ENSEMBLE % "max_inflight_requests: 4", "e/1/.keep": "", **model("b")}, "25.10", "25.11",
        "too-old:inflight"),
    "torch_aoti": ({"a/config.pbtxt": CONFIG.replace('backend: "python"', 'platform: "torch_aoti"'),
                    "a/1/model.pt2": ""}, "26.02", "26.03", "too-old:aoti"),
    "tensorflow": ({"a/config.pbtxt": CONFIG.replace('backend: "python"', 'platform: "tensorflow_savedmodel"'),
                    "a/1/model.savedmodel/x": ""}, "25.03", "25.02", "too-new:tensorflow"),
    "NumPy 2": (in_execute("x = np.concat([x, x])", "import numpy as np\n"), "24.10", "24.11", "too-old:numpy"),
    "NumPy 1": (in_execute("x = x.astype(np.float_)", "import numpy as np\n"), "24.11", "24.10", "too-new:numpy"),
    "printed text": (in_execute("word = 'caf\u00e9'\nprint(f'{x} {word}')"), "24.10", "24.11", "too-old:ascii"),
    "a text file": (
        {**in_execute("path = folder / 'labels.txt'\nprint(open(path).read())", "folder = Path(__file__).parent\n"),
         "a/1/labels.txt": "caf\u00e9"}, "24.10", "24.11", "too-old:ascii"),
    "Python 3.11": (in_execute("asyncio.TaskGroup()", "import asyncio\n"), "24.10", "24.11", "too-old:python"),
    "Python 3.10": (in_execute("imp.reload(x)", "import imp\n"), "24.11", "24.10", "too-new:python"),
    "a name with a space": (
        {name.replace("a/", "a b/", 1): text for name, text in model("a").items()}, "25.07", "25.08", "too-old:name"),
    "a name with a hash": (
        {name.replace("a/", "a#1/", 1): text for name, text in model("a").items()}, "25.08", "25.07", "too-new:name"),
    "an unknown model's readiness": (calls(f"if not {ASKS.strip()}:\n    pb_utils.load_model('b')"), "26.07", "26.06",
                                     "too-new:ready"),
    "words of errors": (calls("a = r.exec()\nif a.has_error() and 'is not ready' in a.error().message():\n    pass"),
                        "26.07", "26.06", "too-new:words"),
    "a repeated output": (calls("a = r.exec()\na.has_error()"), "26.05", "26.04", "too-new:outputs"),
    "a reserved parameter": (
        in_execute("p = json.loads(request.parameters())\nprint(p.get('priority'))", "import json\n"), "26.05",
        "26.04", "too-new:reserved"),
    "a text for a numeric ID": (
        calls("r.exec().has_error()", model("b", CONFIG + CORRELATION % "TYPE_UINT64")), "25.01", "24.12",
        "too-new:correlation"),
    "preserve_ordering": (
        configured("max_batch_size: 4\ndynamic_batching { preserve_ordering: true }"), "25.09", "26.09",
        "bug:ordering"),
    "preserve_ordering before": (
        configured("max_batch_size: 4\ndynamic_batching { preserve_ordering: true }"), "26.08", "25.08",
        "bug:ordering"),
    "a cache that leaks": (
        configured("max_batch_size: 4\ndynamic_batching { }\nresponse_cache { enable: true }"), "25.08", "25.09",
        "bug:cache"),
    "a sequence beside another step": (
        {"e/config.pbtxt": ENSEMBLE % SIDE % "X", "e/1/.keep": "", **model("b"), **SEQUENCE}, "26.04", "26.05",
        "bug:beside"),
    "a full queue of a step": (
        {"e/config.pbtxt": ENSEMBLE % "", "e/1/.keep": "", **model("b", CONFIG + LIMITED)}, "26.01", "26.02",
        "bug:queue"),
    "load_model": (calls("pb_utils.load_model('b')\nr.exec().has_error()"), "25.10", "25.11", "bug:load"),
    "errors in streams": (streams("for a in r.exec(decoupled=True):\n    a.has_error()", FAILS), "25.03", "25.04",
                          "bug:stream-error"),
    "text correlation IDs": (configured(CORRELATION % "TYPE_STRING"), "24.12", "25.01", "bug:text-control"),
    "streams on a GPU": (
        {**streams("for a in r.exec(decoupled=True):\n    a.has_error()"),
         "a/config.pbtxt": CONFIG + ON_GPU},
        "26.06", "26.07", "bug:gpu"),
    "custom metrics": (in_execute("pb_utils.MetricFamily(name='n', description='d', kind=0)"), "26.08", "26.09",
                       "bug:custom-metrics"),
}  # fmt: skip
for _name, _old, _new in (
    ("a repeated output", '["OUT"]', '["OUT", "OUT"]'),
    ("a text for a numeric ID", 'model_name="b"', 'model_name="b", correlation_id="blue"'),
):
    _source = CASES[_name][0]["a/1/model.py"]
    assert _old in _source
    CASES[_name][0]["a/1/model.py"] = _source.replace(_old, _new, 1)


@pytest.fixture
def rules_for(findings_for: Callable[[dict[str, str], str], Findings]) -> Run:
    """Return the codes of the findings about a release."""
    return lambda files, release: [
        each for each in codes(list(findings_for(files, release).findings)) if each.startswith("release-")
    ]


@pytest.fixture
def findings_for(tmp_path: Path) -> Callable[[dict[str, str], str], Findings]:
    def run(files: dict[str, str], release: str) -> Findings:
        with bls.ModelRepository(write(tmp_path, files)) as repository:
            return bls.check(release=release, repo=repository)

    return run


@pytest.mark.parametrize(("files", "wrong", "right", "rule"), CASES.values(), ids=list(CASES))
def test_a_model_that_needs_another_release(
    rules_for: Run, files: dict[str, str], wrong: str, right: str, rule: str
) -> None:
    change = changes()[f"release-{rule}"]
    assert change.affects(wrong)
    assert not change.affects(right)
    assert rules_for(files, wrong) == [f"release-{rule.partition(':')[0]}"]
    assert f"release-{rule.partition(':')[0]}" not in rules_for(files, right)


def test_every_change_of_a_release_has_a_case() -> None:
    tested = {f"release-{rule}" for *_, rule in CASES.values()}
    assert changes().keys() - tested == {
        "release-too-old:numpy-packed", "release-too-new:hooks", "release-too-new:inflight"
    }  # fmt: skip


HARMLESS = {
    "text files with an encoding, or of ASCII": {
        **in_execute("print(open(path, encoding='utf-8').read(), open(path, 'rb').read(), open(other).read())",
                     "path, other = 'labels.txt', 'ascii.txt'\n"),
        "a/1/labels.txt": "caf\u00e9", "a/1/ascii.txt": "cafe"},
    "a task": calls("t = asyncio.create_task(r.async_exec())\nt.cancel()\nawait asyncio.sleep(0)"),
    "a task of a stream": streams("t = asyncio.ensure_future(r.async_exec(decoupled=True))\nt.cancel()\nawait t"),
    "pending tasks": streams(
        "done, late = await asyncio.wait([asyncio.create_task(r.async_exec(decoupled=True))])\n"
        "for one in late:\n    one.cancel()"
    ),
    "tasks beside an iterator": streams(
        "i = r.exec(decoupled=True)\ntasks = [asyncio.create_task(self.read(i))]\nfor t in tasks:\n    t.cancel()\n"
        "await asyncio.sleep(0)"
    ),
    "a tested method": streams("i = r.exec(decoupled=True)\nif hasattr(i, 'cancel'):\n    i.cancel()"),
    "parameters of a request": in_execute("print(request.parameters())"),
    "a code that is passed on": calls(
        "a = r.exec()\nif a.has_error():\n    print(pb_utils.TritonError('x', a.error().code()))"
    ),
    "no parameters": model("a", source=execute(READ, f"{OUT}, parameters=None")),
    "a guarded import": in_execute(
        "print(x)", "try:\n    import tomllib\nexcept ImportError:\n    import tomli as tomllib\n"
    ),
    "a tested version": in_execute(
        "x = np.bool if np.__version__ > '2' else np.bool_", "import numpy as np\n"
    ),
    "an own name": in_execute("x = product(x)", "import numpy as np\ndef product(x): return x\n"),
    "another parameter": in_execute("print(json.loads(request.parameters())['size'])", "import json\n"),
    "a caught readiness": calls(
        f"try:\n    {ASKS}except pb_utils.TritonModelException:\n    pass\nr.exec().has_error()"
    ),
}  # fmt: skip


@pytest.mark.parametrize("files", HARMLESS.values(), ids=list(HARMLESS))
def test_models_that_run_on_every_release(findings_for: Callable[..., Findings], files: dict[str, str]) -> None:
    for release in (*("24.10", "25.03", "26.06", newest()), ""):
        found = [each for each in findings_for(files, release).findings if each.code.startswith("release-")]
        assert [each for each in found if "load_model" not in each.what] == []


def test_a_note_says_which_release_a_model_needs(findings_for: Callable[..., Findings]) -> None:
    files = {**CASES["response parameters"][0], **{f"x{name}": text for name, text in CASES["NumPy 2"][0].items()}}
    files["a/1/model.py"] += "\n    def is_ready(self):\n        return True\n"
    found = {each.model: each for each in findings_for(files, "").findings if each.code == "release-needed"}
    assert found["a"].severity == "note"
    assert found["a"].what == "it needs release 26.03 or newer"
    assert "(model.py:" in found["a"].why
    assert "25.02" in found["a"].why
    assert found["xa"].what == "it needs release 24.11 or newer"


def test_problems_of_the_newest_release_are_warnings_without_a_release(findings_for: Callable[..., Findings]) -> None:
    (found,) = [f for f in findings_for(CASES["tensorflow"][0], "").findings if f.code == "release-too-new"]
    assert found.severity == "warning"


def test_a_helper_module_needs_a_release(rules_for: Run) -> None:
    helper = "import triton_python_backend_utils as pb_utils\ndef answer(x):\n"
    helper += '    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x)], parameters={"a": 1})\n'
    files = {**model("a", source="import answers\n" + MODEL), "a/1/answers.py": helper}
    assert rules_for(files, "24.10") == ["release-too-old"]
    assert rules_for(files, "25.02") == []


def test_a_packed_environment_needs_a_release(tmp_path: Path, rules_for: Run) -> None:
    (tmp_path / "empty").write_text("")
    config = 'parameters { key: "EXECUTION_ENV_PATH" value: { string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz" } }'
    (tmp_path / "a").mkdir()
    with tarfile.open(tmp_path / "a" / "env.tar.gz", "w:gz") as archive:
        for name in ("etc/conda/activate.d/cuda.sh", "lib/python3.12/site-packages/numpy-2.1.0.dist-info/METADATA"):
            archive.add(tmp_path / "empty", name)
    files = configured(config)
    assert rules_for(files, "25.08") == ["release-too-new"]
    assert rules_for(files, "24.11") == []
    assert rules_for(files, "24.10") == ["release-too-old"]


def test_the_releases_and_their_servers() -> None:
    assert list(versions()) == sorted(versions())
    assert (release_of("2.51.0"), release_of("2.59.1"), release_of("2.59.0"), release_of("2.72")) == (
        "24.10", "25.07", "25.06", "26.08"
    )  # fmt: skip
    assert release_of("3.0.0") == ""
    for change in changes().values():
        assert {change.since, change.until} <= {*versions(), ""}
        assert change.source
    with pytest.raises(bls.BLSError, match=r"release '25\.13' is not known"):
        known_release("25.13")


def test_a_sequence_step_after_another_step(rules_for: Run) -> None:
    files = {"e/config.pbtxt": ENSEMBLE % SIDE % "Y", "e/1/.keep": "", **model("b"), **SEQUENCE}
    assert rules_for(files, "24.10") == []
