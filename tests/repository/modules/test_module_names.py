"""What looks modules up by name finds those of the instance that it works for: libraries, threads, pickle."""

from __future__ import annotations

import gc
import importlib
import inspect
import multiprocessing.spawn
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import pytest

import bls_notebook as bls
from bls_notebook.extending import host_of
from bls_notebook.repository.modules.module_names import ModuleName
from tests.repository.models import HEAD, TEXT, said, saying, write

HELPER = """
import dataclasses
WHO = {0!r}
@dataclasses.dataclass
class Thing:
    who: str = dataclasses.field(default_factory=lambda: WHO)
    def __reduce__(self):
        return Thing, ()
class Dies:
    def __init__(self, call, found): self.call, self.found = call, found
    def __del__(self): self.found.append(self.call())
"""
# An installed package, which knows nothing of models.
LIBRARY = """
import asyncio, concurrent.futures, importlib, pickle, queue, sys, threading
import triton_python_backend_utils as pb_utils

POOL = concurrent.futures.ThreadPoolExecutor(1)
THING = b"chelper\\nThing\\n)R."

def who():
    import helper
    again = importlib.import_module("helper")
    assert helper is again is sys.modules["helper"] and helper.__name__ == "helper"
    first, second = pickle.loads(THING), pickle._loads(THING)
    assert type(first) is type(second) is helper.Thing and first.who == second.who == helper.WHO
    assert pickle.loads(pickle.dumps(helper.Thing)) is helper.Thing
    return helper.WHO

def plainly():
    return who()

def on_a_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(who()))
    thread.start()
    thread.join()
    return found[0]

def by_a_timer():
    found = queue.SimpleQueue()
    threading.Timer(0, lambda: found.put(who())).start()
    return found.get()

def on_a_thread_of_a_thread():
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(on_a_thread).result()

def in_everybodys_pool():
    return POOL.submit(who).result()

def by_a_callback():
    found = queue.SimpleQueue()
    POOL.submit(int).add_done_callback(lambda _: found.put(who()))
    return found.get()

async def _looped():
    loop = asyncio.get_running_loop()
    called = loop.create_future()
    loop.call_soon(lambda: called.set_result(who()))
    task = asyncio.create_task(_nested())
    found = {await called, await task, await asyncio.to_thread(who), await loop.run_in_executor(None, who)}
    assert len(found) == 1, found
    return found.pop()

async def _nested():
    return who()

def in_a_loop():
    return asyncio.run(_looped())

def in_a_loop_of_a_thread():
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(in_a_loop).result()

def in_a_destructor():
    import helper
    found = []
    dies = helper.Dies(who, found)
    del dies
    return found[0]

class TritonPythonModel:
    def initialize(self, args):
        self.initialized = who()
    def execute(self, requests):
        return [pb_utils.InferenceResponse([_tensor(f"{self.initialized} {who()}")]) for _ in requests]

def _tensor(text):
    import numpy as np
    return pb_utils.Tensor("OUT", np.array([text], object))

def ask(model):
    request = pb_utils.InferenceRequest(model_name=model, inputs=[], requested_output_names=["OUT"])
    return str(pb_utils.get_output_tensor_by_name(request.exec(), "OUT").as_numpy()[0].decode())
"""
WAYS = [
    *("plainly", "by_a_timer", "on_a_thread_of_a_thread", "in_everybodys_pool", "by_a_callback", "in_a_loop"),
    *("in_a_loop_of_a_thread", "in_a_destructor"),
]


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module that models and the notebook import; in its folder the notebook has a `helper` too."""
    folder = tmp_path / "notebook"
    folder.mkdir()
    (folder / "bls_test_library.py").write_text(LIBRARY)
    (folder / "helper.py").write_text(HELPER.format("notebook"))
    monkeypatch.syspath_prepend(str(folder))
    module = importlib.import_module("bls_test_library")
    yield module
    module.POOL.shutdown()
    for name in [n for n in list(sys.modules) if str(n) in ("bls_test_library", "helper")]:
        sys.modules.pop(name)


def loaded(disk: bls.ModelRepository, source: str, **files: str) -> str:
    """What model 'a' says once it is loaded."""
    write(disk.paths[0], "a", source, **files)
    disk.load("a")
    return said(disk, "a")


def who_says(repo: bls.ModelRepository, name: str, way: str) -> str:
    source = saying(f"lib.{way}()", "import bls_test_library as lib\n")
    write(repo.paths[0], name, source, helper=HELPER.format(name))
    repo.load(name)
    return said(repo, name)


@pytest.mark.parametrize("way", WAYS)
def test_each_finds_its_own(disk: bls.ModelRepository, library: ModuleType, way: str) -> None:
    ask = getattr(library, way)
    assert who_says(disk, "a", way) == "a"
    assert ask() == "notebook", "the notebook imports its own after the model did"
    theirs = sys.modules["helper"]
    assert (who_says(disk, "b", way), said(disk, "a"), said(disk, "b"), ask()) == ("b", "a", "b", "notebook")
    for _ in range(2):  # what a model of before leaves is no hole for the notebook's to fall into
        disk.reload("a")
        importlib.reload(theirs)
        assert (said(disk, "a"), ask(), said(disk, "b")) == ("a", "notebook", "b")
        assert sys.modules["helper"] is theirs
    assert theirs.__name__ == "helper"
    assert type(theirs.__name__) is type(theirs.Thing.__module__) is str


@pytest.mark.parametrize("way", ["plainly", "in_everybodys_pool"])
def test_the_notebooks_own_may_be_first(disk: bls.ModelRepository, library: ModuleType, way: str) -> None:
    theirs = importlib.import_module("helper")
    assert (who_says(disk, "a", way), library.who()) == ("a", "notebook")
    assert sys.modules["helper"] is theirs
    assert pickle.loads(pickle.dumps(theirs.Thing)) is theirs.Thing
    del sys.modules["helper"]
    assert importlib.import_module("helper") is not theirs
    assert (said(disk, "a"), library.who()) == ("a", "notebook")
    disk.define("c", saying("lib.who()", "import bls_test_library as lib\n"), TEXT)  # without a helper of its own
    assert (said(disk, "c"), said(disk, "a")) == ("notebook", "a")


def test_only_its_own_code_finds_a_models_module(disk: bls.ModelRepository) -> None:
    write(disk.paths[0], "a", saying("helper.WHO", "import helper\n"), helper=HELPER.format("a"))
    disk.load("a")
    assert "helper" not in sys.modules
    with pytest.raises(ModuleNotFoundError, match="No module named 'helper'"):
        importlib.import_module("helper")
    with pytest.raises(ModuleNotFoundError):
        pickle.loads(b"chelper\nThing\n.")
    disk.define("b", saying("helper.WHO", inside="import helper"), TEXT)
    assert "ModuleNotFoundError: No module named 'helper'" in said(disk, "b")


def test_the_library_may_have_the_models_class(disk: bls.ModelRepository, library: ModuleType) -> None:
    """No function of model.py is on the stack then, or that of the model that calls it."""
    write(disk.paths[0], "b", "from bls_test_library import TritonPythonModel\n", helper=HELPER.format("b"))
    source = saying("(lib.who(), lib.ask('b'), lib.who())", "import bls_test_library as lib\n")
    write(disk.paths[0], "a", source, helper=HELPER.format("a"))
    for name in "ab":
        disk.load(name)
    assert (said(disk, "b"), said(disk, "a")) == ("b b", "('a', 'b b', 'a')")


def test_instances_find_their_own(disk: bls.ModelRepository, library: ModuleType) -> None:
    source = f"""{HEAD}
import bls_test_library as lib, helper
class TritonPythonModel:
    def initialize(self, args):
        global NAME
        NAME = helper.WHO = self.name = args["model_instance_name"]
    def is_ready(self):
        return [NAME] + [getattr(lib, way)() for way in {WAYS!r}] == [self.name] * {len(WAYS) + 1}
    def execute(self, requests):
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""
    config = TEXT + " instance_group [{ count: 3 kind: KIND_CPU }]"
    write(disk.paths[0], "a", source, config, helper=HELPER.format("a"))
    disk.load("a")
    assert disk.ready("a")


def test_bls_in_a_thread_of_a_library(disk: bls.ModelRepository, library: ModuleType) -> None:
    disk.define("callee", saying("'answer'"), TEXT)
    inside = "found = lib.POOL.submit(lib.ask, 'callee').result(), lib.POOL.submit(lib.ask, 'callee').result()"
    disk.define("a", saying("found", "import bls_test_library as lib\n", inside), TEXT)
    assert said(disk, "a") == "('answer', 'answer')"
    with pytest.raises(bls.pb_utils.TritonModelException, match="only supported during"):
        library.POOL.submit(library.ask, "callee").result()


def test_a_relative_import_leaves_the_notebook_whole(disk: bls.ModelRepository) -> None:
    source = saying("(WHO, __package__)", "from .helper import WHO, Thing\nimport parts.piece\n")
    assert loaded(disk, source, helper=HELPER.format("a"), **{"parts/piece": ""}) == "('a', '1')"
    assert not list(disk.paths[0].rglob("__pycache__"))  # nothing is written beside the files
    inspect.stack()
    for module in list(sys.modules.values()):
        # PyTorch has modules that take any name for an attribute of theirs.
        if "/a/1" in str(getattr(module, "__dict__", {}).get("__path__", "")):
            assert (module.__file__, module.__name__ in ("1", "parts")) == (None, True)
    for name, module in list(sys.modules.items()):
        assert getattr(module, "__file__", None) != "", name


WITH_ITS_NAMES = """
import importlib, sys
def check():
    import helper
    helper.WHO = "changed"
    assert importlib.reload(helper) is helper is sys.modules["helper"] and helper.WHO == "a"
    assert helper.__spec__.name == "helper" and importlib.util.find_spec("helper").name == "helper"
    assert "helper" in sys.modules and "helper" in [str(name) for name in sys.modules]
    del sys.modules["helper"]
    assert "helper" not in sys.modules
    import helper as again
    assert again is not helper
    sys.modules["helper"] = helper
    assert importlib.import_module("helper") is helper
    import replaced
    assert replaced == importlib.import_module("replaced") == 3
    assert __name__ == "1.model" and sys.modules[__name__].check is check and Mine.__module__ == "1.model"
    return "fine"
class Mine: pass
"""


def test_changes_to_module_names_stay_with_the_model(disk: bls.ModelRepository, library: ModuleType) -> None:
    source = saying("check()", WITH_ITS_NAMES)
    replaced = "import sys\nsys.modules[__name__] = 3\n"
    assert loaded(disk, source, helper=HELPER.format("a"), replaced=replaced) == "fine"
    assert "replaced" not in sys.modules
    assert "1.model" not in sys.modules
    assert (library.who(), said(disk, "a")) == ("notebook", "fine")


def test_a_file_written_later_is_found(disk: bls.ModelRepository, library: ModuleType) -> None:
    (disk.paths[0].parent / "notebook" / "later.py").write_text("WHO = 'notebook'\n")
    theirs = importlib.import_module("later")
    source = saying("(later.WHO, importlib.import_module('later').WHO)", "import importlib\n", "import later")
    folder = write(disk.paths[0], "a", source)
    disk.load("a")
    (folder / "later.py").write_text("WHO = 'a'\n")
    importlib.invalidate_caches()
    assert said(disk, "a") == "('a', 'a')"
    assert sys.modules["later"] is theirs
    sys.modules.pop("later")


def test_relative_imports_by_hand_and_spawned_processes_look_where_the_model_does(
    disk: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    # IPython's %reset, which a test before this one may have run, deletes it.
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None, raising=False)
    inside = "data = multiprocessing.spawn.get_preparation_data('x')"
    source = saying(
        "[__import__('parts.piece', globals(), level=1).__name__, __import__('parts.piece').__name__, "
        "__import__('parts', fromlist=['piece']).piece.WHO, *data['sys_path'][-2:]]",
        "import multiprocessing.spawn\n", inside,
    )  # fmt: skip
    folder = disk.paths[0] / "a" / "1"
    expected = ["1.parts", "parts", 1, str(folder), str(folder.parent)]
    assert loaded(disk, source, **{"parts/piece": "WHO = 1\n"}) == str(expected)
    assert str(folder) not in multiprocessing.spawn.get_preparation_data("x")["sys_path"]


def modules_of_models() -> set[int]:
    """Names of modules that are some model's own, each an object."""
    return {id(name) for name in sys.modules if isinstance(name, ModuleName) and name.home is not None}


def test_an_unloaded_model_keeps_nothing(disk: bls.ModelRepository, library: ModuleType) -> None:
    before = modules_of_models()
    source = saying("lib.in_everybodys_pool()", "import bls_test_library as lib\n", "lib.late = lambda: lib.who()")
    assert loaded(disk, source, helper=HELPER.format("a")) == "a"
    home: Any = host_of(disk).ready("a").instances[0].modules.reference
    assert home() is not None
    disk.unload("a")
    with pytest.raises(ModuleNotFoundError, match="model 'a' has been unloaded"):
        library.late()
    del library.late
    gc.collect()
    assert home() is None
    assert library.in_everybodys_pool() == "notebook"
    assert modules_of_models() <= before


def test_models_import_without_waiting_for_each_other(disk: bls.ModelRepository) -> None:
    """Of the same name, in two models: one is not there yet, and needs the other."""
    slow = f"""{HEAD}
request = pb_utils.InferenceRequest(model_name="b", inputs=[], requested_output_names=["OUT"])
import threading
found = []
thread = threading.Thread(target=lambda: found.append(request.exec()))
thread.start()
thread.join(20)
WHO = pb_utils.get_output_tensor_by_name(found[0], "OUT").as_numpy()[0].decode()
"""
    inside = "import pkg.helper\nfrom pkg import other\nfrom pkg.sub.deep import DEEP"
    files = {"pkg/__init__": "", "pkg/other": "", "pkg/sub/deep": "DEEP = 1\n"}
    for name, helper in (("a", slow), ("b", HELPER.format("b"))):
        source = saying("pkg.helper.WHO", inside=inside)
        write(disk.paths[0], name, source, **files, **{"pkg/helper": helper})
        disk.load(name)
    assert said(disk, "a") == "b"


def test_code_without_names_of_its_own_is_the_models(disk: bls.ModelRepository, library: ModuleType) -> None:
    before = """
import threading
from concurrent.futures import ThreadPoolExecutor
import bls_test_library as lib
CODE = "import helper, bls_test_library as lib\\nfound.append((helper.WHO, lib.who()))"
"""
    inside = "found = []\nthread = threading.Thread(target=exec, args=(CODE, {'found': found}))\n"
    inside += "thread.start()\nthread.join()\nexec(CODE, {'found': found})"
    source = saying("found", before, inside)
    assert loaded(disk, source, helper=HELPER.format("a")) == "[('a', 'a'), ('a', 'a')]"


def test_callbacks_without_a_context_on_a_models_loop(disk: bls.ModelRepository, library: ModuleType) -> None:
    source = f"""{HEAD}
import asyncio, contextvars
import bls_test_library as lib
class TritonPythonModel:
    async def execute(self, requests):
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        loop.call_soon(lib.answer, done, context=contextvars.Context())
        text = np.array([await done], object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]) for _ in requests]
"""
    library.answer = lambda future: future.set_result(library.who())  # type: ignore[attr-defined]
    assert loaded(disk, source, helper=HELPER.format("a")) == "a"


def test_parts_of_the_models_folder_may_be_put_on_the_path(disk: bls.ModelRepository) -> None:
    path = sys.path.copy()
    before = "import os, sys\nsys.path.append(os.path.join(os.path.dirname(__file__), 'lib'))\n"
    late = "importlib.import_module('bls_test_late').WHO"
    source = saying(f"(bls_test_parts.WHO, {late}, json.WHO if hasattr(json, 'WHO') else 'installed')", before)
    source = source.replace("class Triton", "import bls_test_parts, importlib, json\nclass Triton", 1)
    for name in "ab":
        files = {
            "lib/bls_test_parts": f"WHO = {name!r}\n",
            "lib/json": "WHO = 'own'\n",
            "lib/bls_test_late": "WHO = 1\n",
        }
        write(disk.paths[0], name, source, **files)
        disk.load(name)
    assert [said(disk, name) for name in "ab"] == ["('a', 1, 'installed')", "('b', 1, 'installed')"]
    assert ("bls_test_parts" in sys.modules, sys.path) == (False, path)  # nobody else finds what they put there


def test_a_mock_of_another_test_is_not_in_the_way(disk: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", MagicMock())
    late = "def late():\n    from triton_python_backend_utils import Tensor\n    return Tensor.__name__\n"
    write(disk.paths[0], "m", saying("late()", late), TEXT)
    disk.load("m")
    assert said(disk, "m") == "Tensor"
