from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook.completion.completer import tooltip
from bls_notebook.completion.magic_lines import magic_line
from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.settings import BLSNotebook

Complete = Callable[..., list[str]]


def _up_to_word(code: str) -> str:
    return re.sub(r"[\w-]*$", "", code)


@pytest.fixture(params=[True, False], ids=["jedi", "no jedi"])
def models(request: pytest.FixtureRequest, cells, folder: Path) -> None:
    if request.param:
        pytest.importorskip("jedi")
    cells.shell.Completer.use_jedi = request.param
    cells(f"%tritonrepo use {folder}")
    cells.model("times")
    cells.model("tidy")
    cells.shell.user_ns["image_of_mine"] = [1]


_SUGGESTIONS = [
    ("%bls ", ["tidy", "times"]),
    ("%bls tim", ["times"]),
    ("answer = %bls tim", ["times"]),
    ("for n in x:\n    %bls tim", ["times"]),
    ("%bls times ", ["IN="]),
    ("%bls times I", ["IN="]),
    ("%bls --async times I", ["IN="]),
    ("%bls times --o", ["--outputs"]),
    ("%bls times --outputs ", ["COUNT", "OUT"]),
    ("%bls times --outputs C", ["COUNT"]),
    ("%bls times --outputs COUNT,O", ["OUT"]),
    ("%bls times --device ", ["cpu", "gpu:0"]),
    ("%bls times --device g", ["gpu:0"]),
    ("%tritonrepo l", ["list", "load"]),
    ("%tritonrepo load ", ["broken", "disk"]),
    ("%tritonrepo load d", ["disk"]),
    ("%tritonrepo load disk b", ["broken"]),
    ("%tritonrepo unload t", ["tidy", "times"]),
    ("%tritonrepo stats t", ["tidy", "times"]),
    ("%tritonrepo metrics nv_inference_count", ["nv_inference_count"]),
    ("%tritonrepo metrics --r", ["--raw"]),
    ("%tritonrepo unload --", ["--dependents", "--help"]),
    ("%%tritonmodel d", ["disk"]),
    ("%%tritonmodel times --ins", ["--instances"]),
    ("%%tritonconfig tim", ["times"]),
    ("%%bls --in", ["--into"]),
    ("%%tritonmodel a --kind ", ["auto", "cpu", "gpu"]),
    ("%%tritonmodel a --input A FP", ["FP16", "FP32", "FP64"]),
    ("%%tritonmodel a --input A FP32 [1] --output B TYPE_FP", ["TYPE_FP16", "TYPE_FP32", "TYPE_FP64"]),
    ("%%tritonmodel a --input ", []),
    ("%bls nosuchmodel", []),
    ("%blsinspect ti", ["tidy", "times"]),
    ("%blsinspect answ", ["answer"]),
    ("%blscheck over", ["overlapped"]),
    ("%blscheck overlapped 4 ", ["and", "of"]),
    ("%blscheck queued < 5 ms of ti", ["tidy", "times"]),
    ("%%blscheck called times 2 and verdict == hel", ["helped"]),
]


@pytest.mark.usefixtures("models")
def test_suggestions(cells, complete: Complete) -> None:
    cells("answer = %bls times IN=[1]")
    for line, expected in _SUGGESTIONS:
        whole = _up_to_word(line)
        assert complete(line) == [whole + word for word in expected]


@pytest.mark.slow
@pytest.mark.usefixtures("models")
def test_pythons_names_and_those_of_magics_come_from_ipython(complete: Complete) -> None:
    for start in ("%bls times IN=", "%blsinspect ", "%%bls\n", "%bls times IN=[", ""):
        assert complete(f"{start}image_of_m") == [f"{start}image_of_mine"]
    for line in ("%tritonrep", "%%tritonm", "%%tritonc"):
        assert len(complete(line)) == 1
    assert "%bls times IN=[1] --async" in complete("%bls times IN=[1] ")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, with some beside it."""
    home = tmp_path / "home"
    for name in ("here/models/image_one", "here/more of them", "here/.hidden", "modest"):
        (home / name).mkdir(parents=True)
    (home / "here" / "my.json").touch()
    monkeypatch.chdir(home / "here")
    return home


_PATHS = [
    ("%tritonrepo use ", ["models/", '"more of them/"']),
    ("%tritonrepo use ..", ["../"]),
    ("%tritonrepo use ../", ["../here/", "../modest/"]),
    ("%tritonrepo use ../mo", ["../modest/"]),
    ("%tritonrepo use models/", ["models/image_one/"]),
    ("%tritonrepo use ./mod", ["./models/"]),
    ("%tritonrepo use models/image_o", ["models/image_one/"]),
    ("%tritonrepo use models mo", ["models/", '"more of them/"']),
    ('%tritonrepo use "mo', ['"models/', '"more of them/']),
    ("%tritonrepo use .h", [".hidden/"]),
    ("%tritonrepo use ../image_of_m", []),  # no folder: nothing else fits either
    ("%%tritonmodel a --config m", ["models/", '"more of them/"', "my.json", "my_config"]),
    ("%tritonrepo use --h", ["--help"]),
    ("%blsprofile times --save m", ["models/", '"more of them/"', "my.json"]),
    ("%%blsmemory --save my", ["my.json"]),
]


@pytest.mark.usefixtures("models")
def test_paths(cells, complete: Complete, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells.shell.user_ns["my_config"] = {}
    for line, expected in _PATHS:
        whole = line[: line.rindex(" ") + 1]
        assert sorted(complete(line)) == sorted(whole + path for path in expected)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    assert complete("%tritonrepo use ~/mod") == ["%tritonrepo use ~/modest/"]
    root = home.as_posix()
    assert complete(f"%tritonrepo use {root}/mod") == [f"%tritonrepo use {root}/modest/"]


CELL = """\
%%tritonmodel own --input "IMAGE UINT8 [-1, -1]" --output LABEL INT32 [1]
import triton_python_backend_utils as pbu

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            """


_NAMES_IN_A_CELL = [
    ("pbu.InferenceRes", ["InferenceResponse", "InferenceResponseSender"]),
    ("pb_utils.MetricK", ["MetricKind"]),  # nobody has imported it under that name yet
    ("pbu.MemoryType.", ["TRITONSERVER_MEMORY_CPU", "TRITONSERVER_MEMORY_GPU"]),
    ("x = request.get_", ["get_response_sender"]),
    ('r = pbu.get_input_tensor_by_name(request, "IMAGE")\n            r.to_', ["to_dlpack"]),
    ('r = pbu.InferenceRequest(model_name="tim', ["times"]),
    ('r = pbu.InferenceRequest(model_name="times", requested_output_names=["', ["COUNT", "OUT"]),
    ('r = pbu.InferenceRequest(\n  requested_output_names=["OUT", "|"],\n  model_name="times")', ["COUNT", "OUT"]),
    ('r = pbu.InferenceRequest(inputs=[pbu.Tensor("|", x)], model_name="times")', ["IN"]),
    ('x = pbu.get_input_tensor_by_name(request, "', ["IMAGE"]),
    ('y = pbu.InferenceResponse([pbu.Tensor("', ["LABEL"]),
    ('r = pbu.InferenceRequest(model_name="times").exec()\n  pbu.get_output_tensor_by_name(r, "C|")\n', ["COUNT"]),
    ('pbu.is_model_ready("ti', ["tidy", "times"]),
    ('config.add_input({"name": "A", "data_type": "TYPE_FP', ["TYPE_FP16", "TYPE_FP32", "TYPE_FP64"]),
]


@pytest.mark.slow
@pytest.mark.usefixtures("models")
def test_names_of_triton_in_a_cell_that_was_never_run(complete: Complete) -> None:
    for code, expected in _NAMES_IN_A_CELL:
        whole, _, after = (CELL + code).partition("|")
        assert sorted(complete(whole, after)) == [_up_to_word(whole) + name for name in expected]
    names = sorted(bls.pb_utils.__all__)
    assert sorted(complete(CELL + "pbu.")) == [f"{CELL}pbu.{name}" for name in names]


_NAMES_IN_ORDINARY_CODE = [
    ('repo.infer("', ["tidy", "times"]),
    ('x = await repo.infer_async("tim', ["times"]),
    ('repo = bls.ModelRepository()\nfor r in repo.stream("tim', ["times"]),
    ('bls.current_repository().infer("times", {"', ["IN"]),
    ('repo.infer("times", {"IN": [1]}, outputs=["', ["COUNT", "OUT"]),
    ('repo.infer(mine, {"IN": [1]}, ["', ["COUNT", "OUT"]),
    ('repo.load("d', ["disk"]),
    ('import bls_notebook as bls\nbls.compare("tim', ["times"]),
    ('answer["', ["COUNT", "OUT"]),
    ('f(model_name="tim', ["times"]),
    ('import bls_notebook as bls\nbls.inspect("tim', ["times"]),
]


@pytest.mark.slow
@pytest.mark.usefixtures("models")
def test_names_in_ordinary_code(cells, complete: Complete) -> None:
    cells.shell.user_ns["mine"] = "times"
    cells("answer = %bls times IN=[1]")
    for code, expected in _NAMES_IN_ORDINARY_CODE:
        whole = _up_to_word(code)
        assert sorted(complete(code)) == [whole + name for name in expected]
    for code in ('np.load("', 'json.loads("tim', '"""\ntim', '# repo.infer("tim'):
        assert not any("times" in line or "tidy" in line for line in complete(code))


_CONFIG = [
    ("max_ba", ["max_batch_size"]),
    ("input [ { na", ["name"]),
    ('input [ { name: "A" data_type: TYPE_BO', ["TYPE_BOOL"]),
    ('input [ { name: "A" # na\n  na', []),
    ('input [ { name: "A" }, { na', ["name"]),
    ("output { na", ["name"]),
    ("instance_group [ { count: 2 kind: KIND_", ["KIND_AUTO", "KIND_CPU", "KIND_GPU", "KIND_MODEL"]),
    ("instance_group [ { count: 2 kind: KIND_CPU } ]\ndynamic_batching { max_q", ["max_queue_delay_microseconds"]),
    ("response_cache { enable: ", ["false", "true"]),
    ("dynamic_batching { }\nseq", []),  # a model has one scheduler
    ("parameters { key", ["key"]),
    ('ensemble_scheduling { step [ { model_name: "ti', ["tidy", "times"]),
    ("nosuch { na", []),
    ("max_batch_size: ", []),
]


@pytest.mark.usefixtures("models")
def test_config(complete: Complete) -> None:
    for body, expected in _CONFIG:
        code = f"%%tritonconfig a\n{body}"
        whole = _up_to_word(code)
        assert sorted(complete(code, "\n}\nversion_policy { }")) == [whole + name for name in expected]


_SHIFT_TAB = [
    ("%b|ls times", "usage: %bls MODEL"),
    ("%bls |", "usage: %bls MODEL"),
    ("x = 1\nanswer = %bls ti|mes IN=x", "times  version 1"),
    ("%bls times I|N=x", "times  version 1"),
    ("%bls times --dev|ice cpu", "usage: %bls MODEL"),
    ("%%bls|\nx", "usage: %%bls"),
    ("%%tritonmodel ti|mes\nx", "times  version 1"),
    ("%tritonrepo lo|ad disk", "usage: %tritonrepo load"),
    ("%tritonrepo| load disk", "usage: %tritonrepo [VERB]"),
    (CELL + "pbu.Ten|sor", "Tensor("),
    (CELL + 'pbu.get_input_tensor_by_name(request, "I|', "get_input_tensor_by_name("),
    ("%bls times IN=image|_of_mine", None),
    ("image|_of_mine", None),
    ("x = 1\n%%bls|", None),
]


@pytest.mark.usefixtures("models")
def test_shift_tab(cells) -> None:
    cells("import bls_notebook as bls")  # whose name is not what is meant by %bls
    for code, expected in _SHIFT_TAB:
        before, _, after = code.partition("|")
        text = tooltip(Notebook(cells.shell, BLSNotebook()), before + after, len(before))
        assert (text is None) if expected is None else str(text).startswith(expected)


@pytest.mark.filterwarnings("ignore:.Completer.complete. is pending:PendingDeprecationWarning")
def test_the_old_way_to_ask(cells) -> None:
    cells.model()
    assert cells.shell.complete("", "%bls times I", 12) == ("I", ["IN="])


def test_only_where_the_cursor_is_in_one_of_the_magics() -> None:
    assert magic_line("%%tritonmodel a", first_line=False) is None
    assert magic_line("x = 100 % bls ", first_line=True) is None
    assert magic_line("%blsnothing m", first_line=True) is None
    assert magic_line("%bls m A='x", first_line=True) is None


def test_unloading_ends_it(cells, complete: Complete) -> None:
    cells.model()
    cells("%unload_ext bls_notebook")
    assert "%bls times" not in complete("%bls ti")
