"""What becomes of repositories that nobody made for this."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.__main__ import main
from bls_notebook.display import render
from bls_notebook.profiling.analysis.call_graph import call_graph
from bls_notebook.profiling.session_report import call_graph_mermaid, call_graph_text
from bls_notebook.profiling.timeline.lanes import TimelineLayout
from tests.repository.models import HEAD
from tests.trying.conftest import DOUBLES, IN, IO, PYTHON, calling, ensemble, in_notebook, put

ONES = {"IN": np.ones(3, np.float32)}


def test_models_that_cannot_load_are_stubs_and_answers_say_so(trying: Any, tmp_path: Path) -> None:
    put(tmp_path, "pipeline", PYTHON, {"1/model.py": calling("resize")})
    put(tmp_path, "resize", f'platform: "tensorrt_plan" instance_group [{{ kind: KIND_GPU }}] {IO}', {"1/x": ""})
    put(tmp_path, "double", PYTHON, {"1/model.py": DOUBLES})
    told: list[str] = []
    repository, rows = trying(tell=told.append)
    assert {name: row.kind for name, row in rows.items() if name} == {
        "pipeline": "real", "resize": "stub", "double": "real",
    }  # fmt: skip
    assert "needs the tensorrt backend" in rows["resize"].why
    assert "1/model.plan is missing" in rows["resize"].why
    answer = repository.infer("pipeline", ONES)
    assert (answer["OUT"].as_numpy().tolist(), answer.stubs) == ([0, 0, 0], ("resize",))
    assert answer.warnings[0].startswith("went through a stub: resize")
    assert (answer.record.stubs, repository.infer("double", ONES).stubs) == (("resize",), ())
    assert rows[""].entries == ("pipeline", "double")
    assert rows[""].requests[0].startswith("%bls pipeline IN=")
    assert "Python code of 2 models" in told[0]
    assert "pipeline" in told[0]


def test_remedies_suit_a_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, "needs", PYTHON, {"1/model.py": "import os; os.environ['NO_SUCH_KEY']"})
    put(tmp_path, "slow", PYTHON, {"1/model.py": "import time; time.sleep(100)"})
    assert main(["try", str(tmp_path), "--load-timeout", "200ms", "--no-ask", "--in-kernel"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "`export NO_SUCH_KEY=VALUE`, then try again" in out
    assert "try again with `--load-timeout 60s`" in out
    assert f"%load_ext bls_notebook %tritonrepo try {tmp_path} %bls" in out
    assert "%tritonrepo reload" not in out
    assert main(["try", str(tmp_path / "slow")]) == 2
    wrong = capsys.readouterr().err
    assert wrong.startswith("python -m bls_notebook try: ")
    assert "try: try:" not in wrong
    assert f"give its folder: `python -m bls_notebook try {tmp_path}`" in wrong


def test_ensembles_keep_their_steps(trying: Any, tmp_path: Path) -> None:
    put(tmp_path, "both", ensemble(("double", "IN", "mid"), ("gone", "mid", "OUT")))  # without its folder 1
    put(tmp_path, "double", PYTHON, {"1/model.py": DOUBLES})
    put(tmp_path, "gone", f'backend: "onnxruntime" {IO}')
    repository, rows = trying()
    assert rows["both"].kind == "real"
    assert any("both/1" in note and "mkdir" in note for note in rows[""].notes)
    assert rows["gone"].why == "1/model.onnx is missing"
    with bls.profile() as session:
        answer = repository.infer("both", ONES)
    assert answer.stubs == ("gone",)
    spans = {span.model for span in session.record.spans}
    assert spans == {"both", "double", "gone"}
    assert [m.name for m in session.record.models if m.stub] == ["gone"]
    assert any("stub" in lane.label for lane in TimelineLayout(session.record).lanes if lane.model == "gone")
    graph = call_graph(session.record)
    assert [node.name for node in graph.nodes if node.stub] == ["gone"]
    assert "a stub" in call_graph_text(graph)
    assert "classDef stub" in call_graph_mermaid(graph)
    assert "a stub" in render(session.record).text


REASONS = [  # lines of model.py, why, and the remedy
    ("import no_such_thing_x", "the package no_such_thing_x is missing", "`no_such_thing_x`: the distribution is"),
    ("import numpy.no_such_part", "the installed numpy has no numpy.no_such_part", "install a version of numpy"),
    ("import os; os.environ['NO_SUCH_KEY']", "the environment variable NO_SUCH_KEY", "%env NO_SUCH_KEY="),
    (
        "import os, pathlib\npathlib.Path(os.environ.get('NO_SUCH_KEY'))",
        "probably needs the environment variable NO_SUCH_KEY, which its code reads: TypeError: ",
        "%env NO_SUCH_KEY=",
    ),
    ("import os\nos.getenv('NO_X').split(os.getenv('NO_Y'))", "of which its code reads NO_X, NO_Y: Attr", "set them"),
    (
        "import os\ntoken: str = os.getenv('NO_SUCH_KEY') or ''\nif not token:\n    raise ValueError('no token')",
        "probably needs the environment variable NO_SUCH_KEY, which its code reads: ValueError: no token",
        "%env NO_SUCH_KEY=",
    ),
    ("import os\nos.getenv('NO_SUCH_KEY')\nraise ValueError('other')", "ValueError: other", "fix it"),
    ("import os\nx = os.getenv('NO_SUCH_KEY')\nx.strip()", "probably needs the environment variable NO_SUCH", "%env"),
    ("import os\nos.getenv('NO_SUCH_KEY')\nNone.shape", "AttributeError: 'NoneType' object has no", "fix it"),
    ("open('/nowhere/at/all.bin')", "needs the file /nowhere/at/all.bin", "reload broken"),
    ("class E(Exception): __module__ = 'pynvml'\nraise E('no')", "a GPU (there is none here): E: no", "reload"),
    (
        "import socket\nraise OSError('no hub') from socket.gaierror(8, 'x')",
        "over the network failed: OSError: no",
        "reload",
    ),
    (
        "E = type('OfflineModeIsEnabled', (ConnectionError,), {'__module__': 'huggingface_hub.errors'})\nraise E",
        "probably needs files from a hub: ",
        "with access to the hub",
    ),
    (
        "exec('def f(repo_id): raise OSError(repo_id)', o := {'__name__': 'transformers.x'})\no['f']('/no/t5')",
        "needs files of a pretrained model in /no/t5, which is missing here and may exist on your server",
        "put them there, then",
    ),
    ("import tempfile\ntempfile.NO", "AttributeError: module 'tempfile' has no attribute 'NO'", "fix it"),
    ("raise ValueError('oops <b>')", "ValueError: oops <b>", "fix it"),
    ("raise RuntimeError('Found no NVIDIA driver at hf.co')", "RuntimeError: Found no NVIDIA", "fix it"),
    (
        "try:\n    1 / 0\nexcept Exception as e:\n    raise ImportError('CUDA') from e",
        "ImportError: CUDA (from ZeroDivisionError: division by zero)",
        "fix it",
    ),
    ("import socket\ntry:\n    raise socket.gaierror(8)\nexcept OSError:\n    int(None)", "TypeError: int()", "fix"),
    (
        "try:\n    import no_such_thing_x\nexcept ImportError as e:\n"
        "    exec('def f(e): raise ModuleNotFoundError(\"AutoModel?\") from e', o := {'__name__': 'transformers.x'})\n"
        "    o['f'](e)",
        "the package no_such_thing_x is missing: ModuleNotFoundError: AutoModel? (from ModuleNotFoundError: ",
        "`no_such_thing_x`: the distribution is",
    ),
    ("import helpers_of_mine", "of this name is in", "sys.path.insert(0, "),
    ("import parts_of_mine.part", "of this name is in", "sys.path.insert(0, "),
    ("import deep_down", "of this name is in", "sys.path.insert(0, "),
    ("import own.gone", "own.gone is missing in ", "add it"),
    ("import own_gaurdrails", "own_guardrails.py: ModuleNotFoundError: ", "correct one of the two names"),
    ("from numpy import no_such_name", "an import from the installed numpy fails: ImportError", "install a version"),
    ("from collections import Mapping", "`collections.Mapping` is for Python before 3.10", "run it"),
    ("import urllib2", "`urllib2` is for Python 2, and this is Python 3.", "run it with that version"),
    ("print 'hello'", "the syntax is for Python 2", "run it with that version"),
    ("lazy import json", "the syntax is for Python from 3.15", "run it with that version"),
    ("{}.iteritems()", "`dict.iteritems` is for Python 2", "run it with that version"),
    ("try:\n    1\nexcept ValueError, e:\n    2", "the syntax is for Python 2", "run it with"),
    ("import numpy; numpy.float", "the installed numpy has no numpy.float: AttributeError", "that has it, or"),
    ("raise RuntimeError('requires Python 3.8, got 3.11')", "its error names versions of Python", "run it with"),
    ("raise PermissionError(13, 'denied', '/models/cache')", "may not use /models/cache here", "allow it"),
    ("raise ValueError('GET http://x.y/a/b failed')", "ValueError: GET", "fix it"),
    ("f(", "SyntaxError: '(' was never closed", "fix it"),
    ("raise ValueError('`pip install no_such_x`')", "needs what its error names: ValueError", "install it"),
    ("import importlib.metadata as m; m.version('no_x')", "what its error names: PackageNotFound", "install it"),
    ("import ctypes; ctypes.CDLL('libnone.so.7')", "needs the shared library libnone.so.7", "install it"),
    ("import os, subprocess as s; s.run(['/opt/none'])", "needs the program /opt/none", "install it"),
    ("import subprocess as s; s.run('no-such', shell=True, check=True)", "a program that its", "install"),
    ("import subprocess as s; s.run('true', cwd='/no/folder')", "needs the file /no/folder, which is", "put it"),
    ("raise ValueError('/models/no/x.bin cannot be read')", "names the file /models/no/x.bin, which", "put"),
    (
        "import dataclasses, numpy as n\n@dataclasses.dataclass\nclass A:\n    x: n.ndarray = n.array([])",
        "a default value of the class numpy.ndarray is for Python before 3.11",
        "run it with that version",
    ),
    ("raise ValueError(f'cannot open {__file__}.jit')", "model.py.jit, which the project does not contain", "put"),
    ("raise ValueError('weights/a.bin does not exist')", "names the file weights/a.bin, which is missing", "put"),
    ("raise ValueError('No such file or directory (2)')", "needs a file that its error does not name", "put"),
]


OWN = {"1/own/__init__.py": "", "1/own_guardrails.py": ""}  # the modules of such a model


def project(root: Path) -> Path:
    """Write the modules of a project, and return the folder for its models."""
    (root / "src").mkdir(parents=True)
    (root / "src" / "helpers_of_mine.py").write_text("")
    (root / "parts_of_mine").mkdir()
    (root / "parts_of_mine" / "part.py").write_text("")
    (root / "tools" / "parts").mkdir(parents=True)
    (root / "tools" / "parts" / "deep_down.py").write_text("")
    return root / "models"


@pytest.mark.parametrize(("line", "why", "remedy"), REASONS)
def test_why_and_what_to_type(trying: Any, tmp_path: Path, line: str, why: str, remedy: str) -> None:
    models = project(tmp_path / "project")
    put(
        models,
        "broken",
        PYTHON,
        {"1/model.py": f"{line}\n{DOUBLES}", "1/own/__init__.py": "", "1/own_guardrails.py": ""},
    )
    repository, rows = trying(tmp_path / "project")
    assert rows["broken"].kind == "stub"
    assert why in rows["broken"].why
    assert remedy in in_notebook(rows["broken"].remedy)
    assert "%tritonrepo reload broken" in in_notebook(rows["broken"].remedy)
    assert "pip install" not in in_notebook(rows["broken"].remedy)
    assert repository.infer("broken", ONES).stubs == ("broken",)


def test_all_missing_packages_are_named_at_once_and_only_known_distributions_installed(
    trying: Any, tmp_path: Path
) -> None:
    lines = "import sys, os; sys.path.append(os.path.dirname(__file__))\nimport json, helper\n"
    files = {
        "1/model.py": lines + DOUBLES,
        "1/helper.py": "from parts import inner\nif 0:\n    import never\n    from . import sibling\n",
        "1/parts/__init__.py": "",
        "1/parts/inner.py": "import riva_x.client\nimport MeCab\nimport google_x",
        "1/unused.py": "import not_needed",
    }
    put(tmp_path, "m", PYTHON, files)
    put(tmp_path, "riva_x", f'backend: "x" {IO}', {"1/tools.py": ""})  # a model is no package
    _, rows = trying()
    assert rows["m"].why.startswith("the packages riva_x, never, MeCab, google_x are missing: ModuleNotFoundError: ")
    assert not rows["m"].broken
    assert in_notebook(rows["m"].remedy) == (
        "`%pip install mecab-python3`; `riva_x`: the distribution is unknown; `never`: the distribution is unknown; "
        "`google_x`: the distribution is unknown; then `%tritonrepo reload m`"
    )


def test_modules_in_a_folder_that_a_server_mounts_are_no_missing_packages(trying: Any, tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("services:\n  triton:\n    volumes: ['./assets:/assets_x']\n")
    (tmp_path / "assets" / "own" / "nets").mkdir(parents=True)
    (tmp_path / "assets" / "own" / "nets" / "big.py").write_text("")
    code = "import sys\nsys.path.append('/assets_x/own')\n"
    put(tmp_path / "models", "a", PYTHON, {"1/model.py": f"{code}import no_such_thing_x\nfrom nets import big"})
    put(tmp_path / "models", "b", PYTHON, {"1/model.py": f"{code}from nets import big"})
    _, rows = trying(tmp_path)
    assert rows["a"].why.startswith("the package no_such_thing_x is missing: ")
    assert rows["b"].why.startswith("needs the file /assets_x/own: a server has ")
    assert "/assets as /assets_x (compose.yaml): " in rows["b"].why
    assert "`!ln -s " in in_notebook(rows["b"].remedy)
    assert not rows["b"].broken


def test_a_file_of_the_project_is_no_fault_of_its_code(trying: Any, tmp_path: Path) -> None:
    (tmp_path / "compose.yml").write_text("volumes:\n  - ./run/models:/models:ro\n")
    reads = DOUBLES + "    def initialize(self, args):\n        open({!r})\n"
    models = tmp_path / "run" / "models"
    put(models, "mounted", PYTHON, {"1/model.py": reads.format("/models/mounted/a.txt"), "a.txt": ""})
    put(models, "started", PYTHON, {"1/model.py": reads.format("models/started/a.txt"), "a.txt": ""})
    put(models, "lacking", PYTHON, {"1/model.py": reads.format("/models/lacking/a.txt")})
    _, rows = trying()
    assert [(rows[n].broken, rows[n].unknown) for n in ("mounted", "started", "lacking")] == [
        (False, False), (False, False), (False, True),
    ]  # fmt: skip
    assert "run/models /models`, then" in in_notebook(rows["mounted"].remedy)
    assert "`%cd " in in_notebook(rows["started"].remedy)
    assert "which lacks it" in rows["lacking"].why


def test_an_old_copy_of_the_servers_module_is_named(trying: Any, tmp_path: Path) -> None:
    old = "class Tensor: pass\nclass InferenceRequest: pass\nclass InferenceResponse: pass\n"
    put(tmp_path, "m", PYTHON, {"1/model.py": DOUBLES, "1/triton_python_backend_utils.py": old})
    _, rows = trying(in_kernel=False)
    assert (rows["m"].kind, rows["m"].broken) == ("stub", True)
    assert "m/1/triton_python_backend_utils.py instead of its own module: AttributeError: " in rows["m"].why
    assert in_notebook(rows["m"].remedy) == "delete it, then `%tritonrepo reload m`"


BROKEN = {
    "syntax": ({"1/model.py": "x = ["}, True),
    "relative": ({"1/model.py": DOUBLES + "    def initialize(self, args):\n        open('no/labels.txt')\n"}, None),
    "beside": ({"1/model.py": DOUBLES + "    def initialize(self, args):\n        open(__file__ + '.txt')\n"}, False),
    "elsewhere": ({"1/model.py": DOUBLES + "    def initialize(self, args):\n        open('/no/labels.txt')\n"}, None),
    "file": ({"1/x": ""}, True),
    "package": ({"1/model.py": "import no_such_thing_x"}, False),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_repository_fails_and_what_is_missing_here_does_not(tmp_path: Path, capsys: Any, case: str) -> None:
    files, broken = BROKEN[case]
    put(tmp_path, "m", PYTHON, files)
    assert main(["try", str(tmp_path)]) == int(broken is not False)
    out = " ".join(capsys.readouterr().out.split())
    assert ("✓" in out, "broken, stub" in out) == (broken is False, broken is True)
    assert ("may exist on your server" in out) == (broken is None)


def test_the_reason_of_a_refused_ensemble_ends_with_what_to_change(trying: Any, tmp_path: Path) -> None:
    step = f"double_{'x' * 60}"
    put(tmp_path, "all", f"{ensemble((step, 'IN', 'OUT'))} max_batch_size: 8")
    put(tmp_path, step, f"{PYTHON} max_batch_size: 4", {"1/model.py": DOUBLES})
    _, rows = trying()
    assert rows["all"].why.endswith(f"lower the ensemble's max_batch_size, or raise that of '{step}'")


@pytest.mark.parametrize("batch", [0, 4])
def test_a_stub_has_the_tensors_that_an_ensemble_names(trying: Any, tmp_path: Path, batch: int) -> None:
    """A server asks the engine for them."""
    dims = "[-1]" if batch else "[-1, -1]"
    put(tmp_path, "all", ensemble(("first", "IN", "mid"), ("engine", "mid", "OUT")).replace("[-1]", "[-1, -1]"))
    put(tmp_path, "engine", f'platform: "tensorrt_plan" max_batch_size: {batch}', {"1/x": ""})
    config = f"{PYTHON.replace('[-1]', dims)} max_batch_size: {batch}"
    put(tmp_path, "first", config, {"1/model.py": DOUBLES})
    repository, rows = trying()
    assert (rows["engine"].kind, rows["all"].kind, rows["all"].problem) == ("stub", "real", "")
    assert rows["engine"].why.endswith("is missing; its stub has the tensors that its ensembles name")
    assert repository.infer("all", {"IN": np.ones((1, 3), np.float32)}).stubs == ("engine",)


def test_an_empty_file_in_the_place_of_weights_is_missing(trying: Any, tmp_path: Path) -> None:
    put(tmp_path, "net", f'backend: "onnxruntime" {IO}', {"1/model.onnx": ""})
    _, rows = trying()
    assert (rows["net"].kind, rows["net"].broken, rows["net"].why) == ("stub", False, "1/model.onnx is empty")


def test_a_server_may_know_the_outputs_that_a_configuration_omits(tmp_path: Path) -> None:
    put(tmp_path, "engine", 'platform: "tensorrt_plan"', {"1/x": ""})
    assert main(["try", str(tmp_path)]) == 0


def test_an_invalid_map_of_an_ensemble_is_broken(trying: Any, tmp_path: Path) -> None:
    on_gpu = ensemble(("double", "IN", "mid"), ("double", "middle", "OUT")) + " instance_group { kind: KIND_GPU }"
    put(tmp_path, "both", on_gpu)
    put(tmp_path, "double", PYTHON, {"1/model.py": DOUBLES})
    put(tmp_path, "free", ensemble(("unknown", "IN", "OUT")))
    put(tmp_path, "unknown", f'backend: "x" {IO[len(IN) :]}')  # its stub does not know its inputs
    _, rows = trying()
    assert [(rows[name].kind, rows[name].broken) for name in ("both", "free")] == [("stub", True), ("stub", False)]


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        ("${lexicon_dir}/words.txt", "`--fill lexicon_dir=VALUE`"),
        ("/nowhere/words.txt", "`--fill reader.lexicon=PATH`"),
    ],
)
def test_missing_paths_in_parameters_can_be_filled(trying: Any, tmp_path: Path, value: str, remedy: str) -> None:
    reading = """
    def initialize(self, args):
        import json
        open(json.loads(args["model_config"])["parameters"]["lexicon"]["string_value"]).close()
"""
    models = tmp_path / "models"
    config = f'{PYTHON} parameters {{ key: "lexicon" value {{ string_value: "{value}" }} }}'
    put(models, "reader", config, {"1/model.py": DOUBLES + reading})
    _, rows = trying(models)
    assert rows["reader"].kind == "stub"
    assert remedy in in_notebook(rows["reader"].remedy)
    words = tmp_path / "words.txt"
    words.write_text("")
    key = remedy.strip("`").split()[1].partition("=")[0]
    _, rows = trying(models, fill={key: words if "." in key else tmp_path})
    assert rows["reader"].kind == "real"
    assert "(given)" in rows[""].notes[0]


def test_once_mended_reload_makes_it_real(trying: Any, tmp_path: Path) -> None:
    folder = put(tmp_path, "broken", PYTHON, {"1/model.py": "import no_such_thing_x"})
    repository, _ = trying()
    with pytest.raises(bls.ModelLoadError):
        repository.reload("broken")
    assert repository.infer("broken", ONES).stubs == ("broken",), "the stub serves on"
    (folder / "1" / "model.py").write_text(DOUBLES)
    assert repository.reload("broken").stub == ""
    answer = repository.infer("broken", ONES)
    assert (answer.stubs, answer["OUT"].as_numpy().tolist()) == ((), [2, 2, 2])


def test_its_own_auto_complete_config_is_asked_where_initialize_fails(trying: Any, tmp_path: Path) -> None:
    source = f"""{HEAD}
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}})
        config.add_output({{"name": "OUT", "data_type": "TYPE_INT64", "dims": [-1, 2]}})
        config.set_max_batch_size(4)
        return config

    def initialize(self, args):
        raise RuntimeError("no weights here")
"""
    put(tmp_path, "completes", None, {"1/model.py": source})
    repository, rows = trying()
    assert (rows["completes"].kind, rows["completes"].why) == ("stub", "RuntimeError: no weights here")
    answer = repository.infer("completes", {"IN": np.ones((2, 3), np.float32)})
    assert answer["OUT"].as_numpy().shape == (2, 3, 2)


@pytest.mark.parametrize(("batch", "dims", "shape"), [(0, "[-1, 27]", (3, 27)), (2, "[27]", (1, 27))])
def test_a_stub_has_the_shape_that_the_next_step_declares(
    trying: Any, tmp_path: Path, batch: int, dims: str, shape: tuple[int, ...]
) -> None:
    put(tmp_path, "all", ensemble(("finds", "IN", "mid"), ("reads", "mid", "OUT")))
    put(tmp_path, "finds", f'backend: "x" {IN} output [{{ name: "OUT" data_type: TYPE_FP32 dims: [-1, -1] }}]')
    put(tmp_path, "reads", f'backend: "x" max_batch_size: {batch} {IO.replace("[-1]", dims, 1)}')
    repository, _ = trying()
    assert repository.infer("finds", ONES)["OUT"].as_numpy().shape == shape
    assert repository.infer("all", ONES).error is None


def test_real_says_whose_code_may_run(trying: Any, tmp_path: Path) -> None:
    bad = f"import builtins; builtins.was_imported = True\n{DOUBLES}"
    put(tmp_path, "bad", PYTHON, {"1/model.py": bad})
    put(tmp_path, "good", PYTHON, {"1/model.py": DOUBLES})
    told: list[str] = []
    repository, rows = trying(real=["good"], tell=told.append)
    import builtins

    assert not hasattr(builtins, "was_imported")
    assert (rows["bad"].kind, rows["bad"].why) == ("stub", "not among --real")
    assert repository.infer("good", ONES)["OUT"].as_numpy().tolist() == [2, 2, 2]
    assert "bad" not in told[0].split(":")[1]


def test_from_a_shell(tmp_path: Path, capsys: Any) -> None:
    put(tmp_path, "double", PYTHON, {"1/model.py": f"print('loaded')\n{DOUBLES}"})
    put(tmp_path, "gone", f'backend: "tensorrt" {IO}')
    assert main(["try", str(tmp_path), "--json", "--load-timeout", "20s"]) == 0
    out, err = capsys.readouterr()
    assert [(m["name"], m["kind"]) for m in json.loads(out)["models"]] == [("double", "real"), ("gone", "stub")]
    assert "loaded" in err
    assert "Python code of 1 model" in err
    (tmp_path / "gone" / "config.pbtxt").write_text("oops")
    assert main(["try", str(tmp_path), "--real", "none"]) == 1
    assert "not loaded" in capsys.readouterr().out
    assert main(["try", str(tmp_path / "nowhere")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_an_engine_leaves_its_outputs_on_its_gpu(trying: Any, tmp_path: Path) -> None:
    looking = calling("engine").replace(".as_numpy()", "").replace("pass", "out = np.array([out.is_cpu()])")
    put(tmp_path, "engine", f'platform: "tensorrt_plan" instance_group [{{ kind: KIND_GPU }}] {IO}')
    put(tmp_path, "caller", PYTHON, {"1/model.py": f"on = 'cuda:0'\n{looking}"})
    repository, rows = trying()
    assert "a GPU is simulated in host memory for caller" in rows[""].notes[0]
    assert repository.infer("caller", ONES)["OUT"].as_numpy().tolist() == [False]
    bls.simulate_gpus(0)
    put(tmp_path, "caller2", PYTHON, {"1/model.py": f"on = cuda if is_available() else cpu\n{looking}"})
    (tmp_path / "caller" / "1" / "model.py").write_text(looking)
    repository, rows = trying()
    assert (rows[""].notes, repository.infer("caller", ONES)["OUT"].as_numpy().tolist()) == ((), [True])


ASKS = (
    DOUBLES
    + """
    def initialize(self, args):
        import bls_notebook as bls
        bls.cupy()  # fails without a GPU, as PyTorch's `.to("cuda")` does
"""
)


def test_a_gpu_that_the_configuration_or_only_the_code_asks_for_is_simulated(trying: Any, tmp_path: Path) -> None:
    if bls.simulate_gpus(0) or bls.list_devices().devices[1:]:
        pytest.skip("there is a GPU")
    on_gpu = f"{PYTHON} instance_group [{{ kind: KIND_GPU gpus: [1] }}]"
    put(tmp_path / "first", "on_gpu", on_gpu, {"1/model.py": DOUBLES})
    repository, rows = trying(tmp_path / "first")
    assert rows["on_gpu"].kind == "real"
    assert "2 GPUs are simulated" in rows[""].notes[0]
    assert repository.infer("on_gpu", ONES)["OUT"].as_numpy().tolist() == [2, 2, 2]
    bls.simulate_gpus(0)
    tmp_path = tmp_path / "second"
    put(tmp_path, "asks", PYTHON, {"1/model.py": ASKS})
    fails = ASKS.replace("bls.cupy()", "raise RuntimeError('CUDA error')")
    put(tmp_path, "in_vain", PYTHON, {"1/model.py": fails})
    repository, rows = trying(tmp_path)
    assert (rows["asks"].kind, rows["in_vain"].kind) == ("real", "stub")
    assert any("a GPU is simulated in host memory for asks" in note for note in rows[""].notes)
    assert repository.infer("asks", ONES)["OUT"].as_numpy().tolist() == [2, 2, 2]


def test_the_repository_is_found_below_the_folder(trying: Any, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "double.pbtxt").write_text(PYTHON)
    (tmp_path / "example" / "1").mkdir(parents=True)
    (tmp_path / "example" / "1" / "client.py").write_text("")
    put(tmp_path / "deploy" / "triton" / "models", "double", PYTHON, {"1/model.py": DOUBLES})
    repository, _ = trying()
    assert repository.paths == ((tmp_path / "deploy" / "triton" / "models").resolve(),)
    assert repository.ready("double")
    assert main(["check", str(tmp_path)]) == 0
    assert "1 model checked" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("make", "given", "words"),
    [
        (lambda root: (root / "notes.txt").write_text(""), "", "is not a model repository and contains none"),
        (lambda root: None, "nowhere", "no such folder"),
        (
            lambda root: [put(root / each, "m", PYTHON, {"1/model.py": DOUBLES}) for each in ("one", "two")],
            "", "contains 2 model repositories",
        ),
        (  # folders like models beside repositories do not make the project a repository
            lambda root: [put(root / each, "m", PYTHON, {"1/model.py": DOUBLES}) for each in ("one", "two")]
            + [put(root, "config", PYTHON, {"1/x": ""})],
            "", "contains 2 model repositories",
        ),
        (  # of several, none is left out because Git stores no empty version folders
            lambda root: [put(root / each, "m", PYTHON, {"1/model.py": DOUBLES}) for each in ("one", "two")]
            + [put(root / "a_net", "m", f'backend: "onnxruntime" {IO}')],
            "", "contains 3 model repositories: .*one, .*two, .*a_net; name",
        ),
        (lambda root: put(root, "m", PYTHON, {"1/x": ""}), "m", "is a model, expected a model repository"),
    ],
)  # fmt: skip
def test_a_folder_that_is_no_repository_is_one_clear_line(
    trying: Any, tmp_path: Path, make: Any, given: str, words: str
) -> None:
    make(tmp_path)
    with pytest.raises(bls.BLSError, match=words) as raised:
        trying(tmp_path / given)
    assert "\n" not in str(raised.value)


def test_options_that_make_no_sense(trying: Any, tmp_path: Path) -> None:
    put(tmp_path, "double", PYTHON, {"1/model.py": DOUBLES})
    options: dict[str, tuple[str, Any]] = {
        "values: got 'ones', expected 'zeros' or 'random'": ("values", "ones"),
        "seed: got -1": ("seed", -1),
        "latency: there is no model 'nope'; the models are double": ("latency", {"nope": 1}),
        "latency of 'double': got -1": ("latency", {"double": -1}),
        "real: there is no model 'nope'": ("real", ["nope"]),
        "load_timeout: got 0": ("load_timeout", 0),
    }
    for words, (option, value) in options.items():
        with pytest.raises(bls.BLSError, match=words):
            trying(**{option: value})


ENDS = {
    "import os; os._exit(7)": "os._exit(7) would end this process",
    "import os; os.abort()": "os.abort() would end this process",
    "import os; os.kill(os.getpid(), 9)": "would end this process",
    "import os; os.killpg(0, 15)": "os.killpg(0, 15) would end this process",
    "import sys; sys.exit(3)": "SystemExit: 3",
    "import subprocess; subprocess.run(['no-such-program'])": "needs the program no-such-program",
}


@pytest.mark.parametrize("line", ENDS)
def test_code_that_would_end_the_process_when_it_is_imported(trying: Any, tmp_path: Path, line: str) -> None:
    put(tmp_path, "ends", PYTHON, {"1/model.py": f"{line}\n{DOUBLES}"})
    repository, rows = trying()
    assert rows["ends"].kind == "stub"
    assert ENDS[line] in rows["ends"].why
    assert repository.infer("ends", ONES).stubs == ("ends",)


def test_models_that_end_the_process_fail_their_request(trying: Any, tmp_path: Path) -> None:
    forks = "import os; child = os.fork(); child or os._exit(5); print(os.waitpid(child, 0)[1] >> 8)"
    put(tmp_path, "forks", PYTHON, {"1/model.py": f"{forks}\n{DOUBLES}"})
    put(tmp_path, "ends", PYTHON, {"1/model.py": DOUBLES.replace("arrays = ", "__import__('os')._exit(7); arrays = ")})
    repository, rows = trying()
    assert {rows["forks"].kind, rows["ends"].kind} == {"real"}
    assert "os._exit(7) would end this process" in repository.infer("ends", ONES).error.message()
    assert repository.infer("forks", ONES)["OUT"].as_numpy().tolist() == [2, 2, 2]
