"""Each instance has a world of modules of its own, as if it were a process."""

from __future__ import annotations

import gc
import importlib
import linecache
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

import bls_notebook as bls
from tests.repository.models import TEXT, said, saying, with_method, write

WHO = "WHO = {!r}\n"


def says(disk: bls.ModelRepository, source: str, config: str = TEXT, name: str = "m", **files: str) -> str:
    write(disk.paths[0], name, source, config, **files)
    disk.load(name)
    return said(disk, name)


def own_modules(name: str) -> list[str]:
    """Modules in sys.modules whose files are of a model of that name."""
    part = f"/{name}/1/"
    return [
        m
        for m, module in list(sys.modules.items())
        if part in (getattr(module, "__file__", "") or "").replace("\\", "/")
    ]


@pytest.mark.parametrize(
    "body",
    [
        "import helper; return helper.WHO",
        "import helper as h; return h.WHO",
        "from helper import WHO; return WHO",
        "from helper import WHO as w; return w",
        "from .helper import WHO; return WHO",
        "from . import helper; return helper.WHO",
        "return __import__('helper').WHO",
        "import importlib; return importlib.import_module('helper').WHO",
        "import importlib as i; return i.import_module('helper').WHO",
        "from importlib import import_module; return import_module('helper').WHO",
        "import importlib, importlib.util; return importlib.import_module('helper').WHO",
        "import importlib.util; return importlib.import_module('helper').WHO",
        "import importlib; return importlib.import_module('.helper', __package__).WHO",
        "d = {}; exec('import helper', globals(), d); return d['helper'].WHO",
        "return eval('__import__(\"helper\").WHO')",
        "import sys, helper; return sys.modules[helper.__name__].WHO",
        "import helper; return (lambda: helper)().WHO",
        "class A:\n        import helper\n    return A.helper.WHO",
        "import helper, numpy, json; return helper.WHO",
    ],
)
def test_ways_to_import_a_sibling(disk: bls.ModelRepository, body: str) -> None:
    source = saying("find()", f"def find():\n    {body}\n")
    assert says(disk, source, helper=WHO.format("sibling")) == "sibling"


def test_star_imports(disk: bls.ModelRepository) -> None:
    source = saying("(A, 'B' in globals(), C)", "from helper import *\nfrom other import *\n")
    assert says(disk, source, helper="__all__ = ['A']\nA = 1\nB = 2\n", other="C = 3\n") == "(1, False, 3)"


def test_packages(disk: bls.ModelRepository) -> None:
    source = saying(
        "(pkg.sub.WHO, deep.WHO, up, pkg.sub.__name__ == 'pkg.sub')",
        "import pkg.sub\nimport pkg.inner.deep as deep\nfrom pkg.inner import up\n",
    )
    files = {
        "pkg/__init__": "from .sub import WHO\n",
        "pkg/sub": "from . import other\nfrom .other import WHO\n",
        "pkg/other": WHO.format("other"),
        "pkg/inner/__init__": "from .. import WHO as up\n",
        "pkg/inner/deep": "from ..other import WHO\nfrom pkg.sub import WHO as again\nassert WHO == again\n",
    }
    assert says(disk, source, **files) == "('other', 'other', 'other', True)"


def test_packages_without_init(disk: bls.ModelRepository) -> None:
    assert says(disk, saying("a.b.WHO", "import a.b\n"), **{"a/b": WHO.format("ns")}) == "ns"
    nested = saying("(a.b.c.WHO, d.WHO)", "import a.b.c\nfrom a.b import d\n")
    files = {"a/b/c": WHO.format("deep"), "a/b/d": WHO.format("deeper")}
    assert says(disk, nested, name="nested", **files) == "('deep', 'deeper')"


def test_two_submodules_of_the_same_name(disk: bls.ModelRepository) -> None:
    source = saying(
        "[pickle.loads(pickle.dumps(m.util.T())).who for m in (a, b)]", "import pickle\nimport a.util\nimport b.util\n"
    )
    util = "class T:\n    who = {!r}\n"
    assert says(disk, source, **{"a/util": util.format("a"), "b/util": util.format("b")}) == "['a', 'b']"


def test_the_models_folder_is_searched_after_the_versions(disk: bls.ModelRepository) -> None:
    write(
        disk.paths[0], "m", saying("(helper.WHO, common.WHO)", "import helper, common\n"), helper=WHO.format("version")
    )
    (disk.paths[0] / "m" / "helper.py").write_text(WHO.format("model"))
    (disk.paths[0] / "m" / "common.py").write_text(WHO.format("common"))
    disk.load("m")
    assert said(disk, "m") == "('version', 'common')"


def test_versions_have_their_own_siblings(disk: bls.ModelRepository) -> None:
    for version in (1, 2):
        write(
            disk.paths[0],
            "m",
            saying("helper.WHO", "import helper\n"),
            TEXT + " version_policy: { all: {} }",
            version,
            helper=WHO.format(f"v{version}"),
        )
    disk.load("m")
    assert [said(disk, "m", v) for v in (1, 2)] == ["v1", "v2"]


def test_lazy_imports_on_other_threads(disk: bls.ModelRepository) -> None:
    before = """
import concurrent.futures, threading
def find(n):
    import helper
    return helper.WHO
"""
    inside = """
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    found = set(pool.map(find, range(8)))
thread = threading.Thread(target=lambda: found.add(find(0)))
thread.start()
thread.join()
"""
    assert says(disk, saying("found", before, inside), helper=WHO.format("sibling")) == "{'sibling'}"


def test_what_is_installed_wins(disk: bls.ModelRepository) -> None:
    source = saying("[hasattr(m, 'WHO') for m in (numpy, json, hypothesis)]", "import numpy, json, hypothesis\n")
    files = {n: WHO.format("mine") for n in ("numpy", "json", "hypothesis")}
    assert says(disk, source, **files) == "[False, False, False]"


def test_a_sibling_wins_over_the_notebooks_folder(
    disk: bls.ModelRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cwd").mkdir()
    (tmp_path / "cwd" / "sibling_of_model.py").write_text(WHO.format("notebook"))
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.syspath_prepend(str(tmp_path / "cwd"))
    source = saying("sibling_of_model.WHO", "import sibling_of_model\n")
    assert says(disk, source, sibling_of_model=WHO.format("model")) == "model"
    loaded = importlib.import_module("sibling_of_model")
    try:
        assert loaded.WHO == "notebook"
        disk.reload("m")
        assert said(disk, "m") == "model"
        assert sys.modules["sibling_of_model"] is loaded
    finally:
        del sys.modules["sibling_of_model"]


@pytest.mark.parametrize("body", ["import nowhere_at_all", "from nowhere_at_all import x", "from .nowhere import x"])
def test_a_module_that_is_not_there(disk: bls.ModelRepository, body: str) -> None:
    answer = says(disk, saying("find()", f"def find():\n    {body}\n"))
    assert "ModuleNotFoundError: No module named " in answer
    assert "nowhere" in answer


def test_a_name_that_is_not_there(disk: bls.ModelRepository) -> None:
    source = saying("find()", "def find():\n    from helper import nothing\n")
    assert "ImportError: cannot import name 'nothing' from " in says(disk, source, helper=WHO.format("x"))


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


def test_a_circle_of_imports(disk: bls.ModelRepository) -> None:
    source = saying("a.both()", "import a\n")
    answer = says(disk, source, a="import b\nA = 1\ndef both():\n    return A + b.B\n", b="import a\nB = 2\n")
    assert answer == "3"


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


def test_every_load_is_fresh(disk: bls.ModelRepository) -> None:
    source = saying("helper.N", "import helper\n", "helper.N += 1")
    assert says(disk, source, helper="N = 0\n") == "1"
    assert said(disk, "m") == "2"
    disk.reload("m")
    assert said(disk, "m") == "1"
    (disk.paths[0] / "m" / "1" / "helper.py").write_text("N = 100\n")
    disk.load("m")
    assert said(disk, "m") == "101"


def test_instances_share_no_globals(disk: bls.ModelRepository) -> None:
    source = """
import threading
import helper
import numpy as np
import triton_python_backend_utils as pb_utils
COUNT = 0
class TritonPythonModel:
    def initialize(self, args):
        global COUNT
        COUNT += 1
        helper.COUNT += 1
        self.text = f"{COUNT} {helper.COUNT}"
    def is_ready(self):
        return self.text == "1 1"
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([self.text], object))])]
"""
    config = TEXT + " instance_group [{ count: 3 kind: KIND_CPU }]"
    assert says(disk, source, config, helper="COUNT = 0\n") == "1 1"
    assert disk.ready("m"), "each of the three says so"


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


def test_unloading_leaves_no_module(disk: bls.ModelRepository) -> None:
    says(
        disk,
        saying("pkg.sub.WHO", "import helper, pkg.sub\n"),
        **{"helper": WHO.format("x"), "pkg/sub": WHO.format("y")},
    )
    count = len(own_modules("m"))
    assert count >= 3
    disk.reload("m")
    assert len(own_modules("m")) == count
    disk.unload("m")
    assert own_modules("m") == []


def test_a_load_that_fails_leaves_no_module(disk: bls.ModelRepository) -> None:
    for source in (
        "import helper\n1 / 0\n",
        saying("1", "import helper\n").replace("class TritonPythonModel", "class Other"),
    ):
        write(disk.paths[0], "m", source, helper=WHO.format("x"))
        with pytest.raises(bls.ModelLoadError):
            disk.load("m")
        assert own_modules("m") == []


def test_an_unloaded_model_is_freed(disk: bls.ModelRepository) -> None:
    source = saying("note()", "import helper\nclass Big: pass\nBIG = Big()\ndef note():\n    helper.refs.append(BIG)\n")
    says(disk, source, helper="refs = []\n")
    module = next(sys.modules[m] for m in own_modules("m") if hasattr(sys.modules[m], "BIG"))
    alive = weakref.ref(module.BIG)
    del module
    disk.unload("m")
    gc.collect()
    assert alive() is None


def test_what_a_module_says_of_itself(disk: bls.ModelRepository) -> None:
    source = saying(
        "[os.path.basename(__file__), os.path.basename(helper.__file__), __doc__]", '"""Doc."""\nimport os, helper\n'
    )
    assert says(disk, source, helper="") == "['model.py', 'helper.py', 'Doc.']"


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
    """A lazy `import numpy` in execute must not search the disk each time."""
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


def test_tracebacks_of_a_cells_model_show_its_lines(repo: bls.ModelRepository) -> None:
    repo.define("m", saying("1 / 0"), TEXT)
    assert frames(repo, "m")[-1][2] == ["text = np.array([str(1 / 0)], object)"]


def test_a_version_that_still_runs_keeps_its_lines(repo: bls.ModelRepository) -> None:
    started, go = threading.Event(), threading.Event()
    sys.modules["bls_test_events"] = events = type(sys)("bls_test_events")
    events.started, events.go = started, go  # type: ignore[attr-defined]
    try:
        old = saying("1 / 0", inside="import bls_test_events as e\ne.started.set()\nassert e.go.wait(20)")
        repo.define("m", old, TEXT)
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(frames(repo, "m")))
        thread.start()
        assert started.wait(20)
        repo.define("m", "# another\n" * 30 + saying("'new'"), TEXT)
        assert said(repo, "m") == "new"
        go.set()
        thread.join(20)
        assert answers[0][-1][2] == ["text = np.array([str(1 / 0)], object)"]
    finally:
        del sys.modules["bls_test_events"]


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


def test_a_load_that_fails_names_them_too(disk: bls.ModelRepository) -> None:
    write(disk.paths[0], "m", "from helper import nothing\n", TEXT, helper="")
    with pytest.raises(bls.ModelLoadError, match="cannot import name 'nothing' from 'helper'"):
        disk.load("m")
