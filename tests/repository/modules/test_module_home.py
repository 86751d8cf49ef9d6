"""Each instance has a world of modules of its own, as if it were a process."""

from __future__ import annotations

import importlib
import linecache
import re
import sys
from pathlib import Path

import pytest

import bls_notebook as bls
from tests.engine import gates
from tests.engine.harness import Caller, until
from tests.repository.models import TEXT, said, saying, with_method, write

WHO = "WHO = {!r}\n"


def says(disk: bls.ModelRepository, source: str, config: str = TEXT, name: str = "m", **files: str) -> str:
    write(disk.paths[0], name, source, config, **files)
    disk.load(name)
    return said(disk, name)


def own_modules(name: str) -> list[str]:
    """Modules in sys.modules whose files are of a model of that name."""
    part = f"/{name}/1/"
    files = {m: getattr(module, "__file__", "") or "" for m, module in list(sys.modules.items())}
    return [m for m, file in files.items() if part in file.replace("\\", "/")]


WAYS_TO_IMPORT = [
    "import helper; return helper.WHO", "import helper as h; return h.WHO", "from helper import WHO; return WHO",
    "from .helper import WHO; return WHO", "from . import helper; return helper.WHO",
    "return __import__('helper').WHO", "return eval('__import__(\"helper\").WHO')",
    "import importlib; return importlib.import_module('helper').WHO",
    "import importlib as i; return i.import_module('helper').WHO",
    "from importlib import import_module; return import_module('helper').WHO",
    "import importlib.util; return importlib.import_module('helper').WHO",
    "import importlib; return importlib.import_module('.helper', __package__).WHO",
    "d = {}; exec('import helper', globals(), d); return d['helper'].WHO",
    "import sys, helper; return sys.modules[helper.__name__].WHO",
    "class A:\n        import helper\n    return A.helper.WHO",
]  # fmt: skip


def test_ways_to_import_a_sibling(disk: bls.ModelRepository) -> None:
    ways = "".join(f"def way{number}():\n    {body}\n" for number, body in enumerate(WAYS_TO_IMPORT))
    calls = ", ".join(f"way{number}()" for number in range(len(WAYS_TO_IMPORT)))
    answer = says(disk, saying(f"[{calls}]", ways), helper=WHO.format("sibling"))
    assert answer == str(["sibling"] * len(WAYS_TO_IMPORT))


def test_each_version_has_its_siblings_and_the_models_folder_is_searched_after_it(disk: bls.ModelRepository) -> None:
    source, config = (
        saying("(helper.WHO, common.WHO)", "import helper, common\n"),
        TEXT + " version_policy: { all: {} }",
    )
    for version in (1, 2):
        write(disk.paths[0], "m", source, config, version, helper=WHO.format(f"v{version}"))
    (disk.paths[0] / "m" / "helper.py").write_text(WHO.format("model"))
    (disk.paths[0] / "m" / "common.py").write_text(WHO.format("common"))
    disk.load("m")
    assert [said(disk, "m", v) for v in (1, 2)] == ["('v1', 'common')", "('v2', 'common')"]


API = "triton_python_backend_utils"
FULL = "def deserialize_bytes_tensor(x): ...\ndef serialize_byte_tensor(x): ...\nclass ModelConfig: ...\nMINE = 1\n"
MOCKED = f"import sys\nfrom unittest.mock import MagicMock\nsys.modules[{API!r}] = MagicMock()\n"


def test_an_own_copy_of_the_api_is_imported_as_on_a_server(disk: bls.ModelRepository) -> None:
    report = f"(pb_utils.MINE, pb_utils.__file__[-{len(API) + 7}:], hasattr(pb_utils, 'get_input_tensor_by_name'))"
    answer = says(disk, saying(report, "import helper\n"), helper=f"import {API}\n", **{API: FULL})
    assert answer == f"(1, 'm/1/{API}.py', False)"
    assert "a server, too, imports instead of its own" in disk.model("m").warnings[0]
    assert importlib.import_module(API) is sys.modules[API] is bls.pb_utils


@pytest.mark.parametrize(
    ("copy", "words"),
    [
        (FULL.replace("def serialize", "def other"), f"module '{API}' has no attribute 'serialize_byte_tensor'"),
        (FULL.replace("ModelConfig", "MyConfig"), f"module '{API}' has no attribute 'ModelConfig'"),
        (MOCKED, "Cannot overload existing non-function object"),
        ("raise ValueError('broken')", "ValueError: broken"),
    ],
)
def test_a_mock_of_the_api_fails_the_load(disk: bls.ModelRepository, copy: str, words: str) -> None:
    with pytest.raises(bls.ModelLoadError) as caught:
        says(disk, saying("1"), **{API: copy})
    assert words in caught.value.reason
    assert importlib.import_module(API) is sys.modules[API] is bls.pb_utils
    assert caught.value.record is not None
    assert ("remove triton_python_backend_utils.py" in str(caught.value.record.hint)) == ("broken" not in words)


@pytest.mark.parametrize("body", ["import nowhere_at_all", "from nowhere_at_all import x", "from .nowhere import x"])
def test_a_module_that_is_not_there(disk: bls.ModelRepository, body: str) -> None:
    answer = says(disk, saying("find()", f"def find():\n    {body}\n"))
    assert re.search("ModuleNotFoundError: No module named .*nowhere", answer)


@pytest.mark.parametrize("body", ["from .. import helper", "from ..helper import WHO", "from ... import x"])
def test_relative_imports_do_not_leave_the_version(disk: bls.ModelRepository, body: str) -> None:
    answer = says(disk, saying("find()", f"def find():\n    {body}\n"), helper=WHO.format("x"))
    assert "ImportError: attempted relative import beyond top-level package" in answer


def test_a_failed_import_leaves_nothing(disk: bls.ModelRepository) -> None:
    source = saying("find()", "def find():\n    import broken\n    return broken.WHO\n")
    answer = says(disk, source, broken="WHO = 1\nhalf = True\n1 / 0\n")
    assert "ZeroDivisionError" in answer
    assert "ZeroDivisionError" in said(disk, "m"), "it is tried again, not taken half done"
    assert not [m for m in own_modules("m") if "broken" in m]
    (disk.paths[0] / "m" / "1" / "broken.py").write_text(WHO.format("mended"))
    importlib.invalidate_caches()
    assert said(disk, "m") == "mended"


def test_threads_that_import_the_same_module_run_it_once(disk: bls.ModelRepository) -> None:
    before = """
import threading
def find(out, gate):
    gate.wait()
    import slow
    out.append(slow.TIMES)
"""
    inside = """
out, gate = [], threading.Barrier(6)
threads = [threading.Thread(target=find, args=(out, gate)) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
import slow
"""
    slow = "import counter\ncounter.N += 1\nfor _ in range(2000):\n    pass\nTIMES = counter.N\n"
    answer = says(disk, saying("(out, slow.TIMES)", before, inside), slow=slow, counter="N = 0\n")
    assert answer == "([1, 1, 1, 1, 1, 1], 1)"


USES_ITS_OWN_CLASSES = """
from __future__ import annotations
import copy, dataclasses, enum, inspect, pickle, typing
import helper

@dataclasses.dataclass
class Point:
    x: int
    other: typing.ClassVar[Color]
    color: Color = None
    helper: helper.Helper = None

class Color(enum.Enum):
    RED = 1

class Pair(typing.NamedTuple):
    a: int

def check():
    point = pickle.loads(pickle.dumps(Point(3, Color.RED, helper.Helper())))
    assert point.x == 3 and point.color is Color.RED and type(point.helper) is helper.Helper
    assert type(pickle._loads(pickle._dumps(Color.RED))) is Color
    assert [f.name for f in dataclasses.fields(Point)] == ["x", "color", "helper"]
    assert typing.get_type_hints(Point)["color"] is Color
    assert typing.get_type_hints(helper.Helper)["x"] is helper.Inner
    assert pickle.loads(pickle.dumps(Pair(1))) == Pair(1)
    assert pickle.loads(pickle.dumps(check)) is check
    copied = copy.deepcopy(point)
    assert type(copied) is Point and copied == dataclasses.replace(point, helper=copied.helper)
    assert "class Point" in inspect.getsource(Point)
    assert "def check" in inspect.getsource(check)
    return "fine"
"""
HELPER = "from __future__ import annotations\nclass Inner: pass\nclass Helper:\n    x: Inner\n"


@pytest.mark.parametrize("count", [1, 2])
def test_models_may_use_what_looks_modules_up_by_name(disk: bls.ModelRepository, count: int) -> None:
    """pickle, dataclasses, typing and inspect go by a module's name; each instance must find its own."""
    config = TEXT + f" instance_group [{{ count: {count} kind: KIND_CPU }}]"
    source = with_method(saying("check()", USES_ITS_OWN_CLASSES), "is_ready(self)", "return check() == 'fine'")
    assert says(disk, source, config, helper=HELPER) == "fine"
    assert disk.ready("m")
    write(disk.paths[0], "m", source + "\n1 / 0\n", config, helper=HELPER)
    with pytest.raises(bls.ModelLoadError):
        disk.load("m")
    assert said(disk, "m") == "fine"
    assert disk.ready("m")


def test_unloading_and_a_load_that_fails_leave_no_module(disk: bls.ModelRepository) -> None:
    folder = f"{disk.paths[0]}/m"[1:]  # of this repository: others may still be closing
    files = {"helper": WHO.format("x"), "pkg/sub": WHO.format("y")}
    says(disk, saying("pkg.sub.WHO", "import helper, pkg.sub\n"), **files)
    count = len(own_modules(folder))
    assert count >= 3
    disk.reload("m")
    assert len(own_modules(folder)) == count
    disk.unload("m")
    until(lambda: own_modules(folder) == [], "modules are dropped")
    no_class = saying("1", "import helper\n").replace("class TritonPythonModel", "class Other")
    for source, words in (
        ("import helper\n1 / 0\n", "division"), (no_class, "TritonPythonModel"),
        ("from helper import nothing\n", "cannot import name 'nothing' from 'helper'"),
    ):  # fmt: skip
        write(disk.paths[0], "m", source, **files)
        with pytest.raises(bls.ModelLoadError, match=words):
            disk.load("m")
        until(lambda: own_modules(folder) == [], "modules are dropped")


PACKAGE = {
    "pkg/__init__": "from .sub import WHO\n",
    "pkg/sub": "from . import other\nfrom .other import WHO\n",
    "pkg/other": WHO.format("other"),
    "pkg/inner/__init__": "from .. import WHO as up\n",
    "pkg/inner/deep": "from ..other import WHO\nfrom pkg.sub import WHO as again\nassert WHO == again\n",
}
INSTALLED = "numpy, json, hypothesis"


@pytest.mark.parametrize(
    ("imports", "expression", "files", "expected"),
    [
        (
            "from helper import *\nfrom other import *",
            "(A, 'B' in globals(), C)",
            {"helper": "__all__ = ['A']\nA = 1\nB = 2\n", "other": "C = 3\n"},
            "(1, False, 3)",
        ),
        (
            "import pkg.sub\nimport pkg.inner.deep as deep\nfrom pkg.inner import up",
            "(pkg.sub.WHO, deep.WHO, up, pkg.sub.__name__)",
            PACKAGE,
            "('other', 'other', 'other', 'pkg.sub')",
        ),
        ("import a.b", "a.b.WHO", {"a/b": WHO.format("ns")}, "ns"),  # packages without __init__.py
        (
            "import a.b.c\nfrom a.b import d",
            "(a.b.c.WHO, d.WHO)",
            {"a/b/c": WHO.format("deep"), "a/b/d": WHO.format("deeper")},
            "('deep', 'deeper')",
        ),
        (
            "import pickle\nimport a.util\nimport b.util",
            "[pickle.loads(pickle.dumps(m.util.T())).who for m in (a, b)]",
            {f"{name}/util": f"class T:\n    who = {name!r}\n" for name in "ab"},
            "['a', 'b']",
        ),
        (
            "import a",
            "a.both()",
            {"a": "import b\nA = 1\ndef both():\n    return A + b.B\n", "b": "import a\nB = 2\n"},
            "3",
        ),
        (
            f"import {INSTALLED}",
            f"[hasattr(m, 'WHO') for m in ({INSTALLED})]",
            {name: WHO.format("mine") for name in INSTALLED.split(", ")},
            "[False, False, False]",
        ),
        (
            '"""Doc."""\nimport os, helper',
            "[os.path.basename(__file__), os.path.basename(helper.__file__), __doc__]",
            {"helper": ""},
            "['model.py', 'helper.py', 'Doc.']",
        ),
    ],
    ids=["star", "package", "no init", "nested", "same names", "circle", "installed", "attributes"],
)
def test_modules_beside_a_model(
    disk: bls.ModelRepository, imports: str, expression: str, files: dict[str, str], expected: str
) -> None:
    assert says(disk, saying(expression, f"{imports}\n"), **files) == expected


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + saying("'\u00e9'").encode(),
        b"# -*- coding: latin-1 -*-\n" + saying("'\u00e9'").encode("latin-1"),
        saying("'\u00e9'").replace("\n", "\r\n").encode(),
    ],
    ids=["byte order mark", "coding cookie", "Windows line ends"],
)
def test_source_files_are_read_as_python_reads_them(disk: bls.ModelRepository, content: bytes) -> None:
    folder = write(disk.paths[0], "m", "")
    (folder / "model.py").write_bytes(content)
    disk.load("m")
    assert said(disk, "m") == "\u00e9"


def test_importing_an_installed_module_again_costs_little(disk: bls.ModelRepository) -> None:
    inside = """
import importlib.machinery as machinery
import numpy
calls, find = [], machinery.PathFinder.find_spec
machinery.PathFinder.find_spec = lambda *a: calls.append(a) or find(*a)
try:
    for _ in range(10):
        import numpy, helper
finally:
    machinery.PathFinder.find_spec = find
"""
    assert says(disk, saying("len(calls)", "import helper\n", inside), helper="") == "0"


def frames(repo: bls.ModelRepository, name: str) -> list[tuple[str, int, list[str]]]:
    error = repo.infer(name, {}).record.error
    assert error is not None
    return [(f.function, f.line, [text.strip() for number, text in f.source if number == f.line]) for f in error.frames]


def test_tracebacks_show_the_source_also_after_the_file_has_changed(disk: bls.ModelRepository) -> None:
    source = saying("helper.fail()", "import helper\n")
    write(disk.paths[0], "m", source, helper="def fail():\n    return 1 / 0  # here\n")
    disk.load("m")
    for text in ("", "\n" * 40, None):
        for name in ("model.py", "helper.py"):
            file = disk.paths[0] / "m" / "1" / name
            if text is None:
                file.unlink()
            else:
                file.write_text(text)
        linecache.checkcache()
        got = frames(disk, "m")
        assert got[-1] == ("fail", 2, ["return 1 / 0  # here"])
        assert got[-2][2] == ["text = np.array([str(helper.fail())], object)"]


def test_a_version_that_still_runs_keeps_its_lines(repo: bls.ModelRepository) -> None:
    wait = "from tests.engine import gates\ngates.open_gate('started')\ngates.pass_gate('go')"
    repo.define("m", saying("1 / 0", inside=wait), TEXT)
    asked = Caller(frames, repo, "m")
    gates.pass_gate("started")
    repo.define("m", "# another\n" * 30 + saying("'new'"), TEXT)
    assert said(repo, "m") == "new"
    gates.open_gate("go")
    assert asked.result()[-1][2] == ["text = np.array([str(1 / 0)], object)"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("helper.nothing", "AttributeError: module 'helper' has no attribute 'nothing'"),
        ("helper.Own().nothing", "AttributeError: 'Own' object has no attribute 'nothing'"),
        ("raise ValueError(str(helper.Own))", "ValueError: <class 'helper.Own'>"),
        ("raise ValueError(str(Mine))", "ValueError: <class '1.model.Mine'>"),
        ("raise ValueError(f'{parts.inner!r}')", "ValueError: <module 'parts.inner' from"),
        ("return helper.Own()", "found type '<class 'helper.Own'>'"),
        ("return [helper.Own()]", "found type '<class 'helper.Own'>'"),
        ("raise ValueError('a@1#0 b@x')", "ValueError: a@1#0 b@x"),
    ],
)
def test_errors_name_modules_as_the_server_does(disk: bls.ModelRepository, body: str, words: str) -> None:
    source = saying("1", "import helper, parts.inner\nclass Mine: pass\n", body)
    files = {"helper": "class Own: pass\n", "parts/__init__": "", "parts/inner": ""}
    message = says(disk, source, name="a.b", **files)
    assert words in message
    assert "#" not in message.replace("a@1#0", "")


def test_modules_that_a_model_finds_only_because_of_another_ones_path(
    disk: bls.ModelRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())
    warnings = {}
    for name in ("first", "second", "third", "guarded"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "bls_test_shared.py").write_text(WHO.format(name))
        adds = "" if name == "third" else f"import sys\nsys.path.insert(0, {str(tmp_path / name)!r})\n"
        if name == "guarded":  # its folder is there already: a server's process adds it
            adds = adds.replace(name, "first").replace("sys.path.insert", "'x' in sys.path or sys.path.insert")
        source = saying("bls_test_shared.WHO", f"{adds}import bls_test_shared\n")
        assert says(disk, source, name=name) == "first"
        warnings[name] = "".join(next(record.warnings for record in disk.index() if record.name == name))
    del sys.modules["bls_test_shared"]
    assert warnings["first"] == warnings["guarded"] == ""
    assert f"imports {tmp_path / 'second' / 'bls_test_shared.py'}" in warnings["second"]
    assert "does not find it" in warnings["third"]
