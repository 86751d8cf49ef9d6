"""Defining models in memory: define, redefine, and everything that must not get lost when it fails."""

from __future__ import annotations

import gc
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.repository.source.definition_changes import changes
from tests.engine.harness import Caller, until
from tests.repository.models import ECHO, ECHOES, TEXT, said, saying, with_method
from tests.waiting import LIMIT

NO_CLASS = r"has no attribute 'TritonPythonModel'"
SOURCES: dict[str, tuple[str, str]] = {
    "a syntax error": ("class TritonPythonModel:\n    def execute(self, x\n", r"SyntaxError: .*\(model.py line 2\)"),
    "no class": ("import json\n", NO_CLASS),
    "nothing": ("", NO_CLASS),
    "a failing import": ("import nowhere_at_all\n", r"ModuleNotFoundError: No module named 'nowhere_at_all'"),
    "a failing line": ("1 / 0\n", r"ZeroDivisionError: division by zero"),
    "an exit": ("import sys\nsys.exit(3)\n", r"SystemExit: 3"),
    "os._exit's cousin": ("raise BaseException('no')\n", r"BaseException: no"),
    "a null character": ("x = 1\0\n", r"null byte"),
    "no text": ("x = '\ud800'\n", r"'m'"),
}
METHODS = {
    "initialize(self, args)": ("raise KeyError('w')", r"KeyError: 'w'"),
    "__init__(self)": ("1 / 0", r"ZeroDivisionError"),
    "initialize(self)": ("pass", r"TypeError: .*initialize\(\)"),
    "auto_complete_config(config)": ("raise ValueError('no config')", r"ValueError: no config"),
    "auto_complete_config(c)": (
        "pb_utils.is_model_ready('m')",
        r"the server cannot be asked in `auto_complete_config`",
    ),
}
CONFIGS: dict[str, tuple[Any, str]] = {
    "does not parse": ("output [{ name: ", r"config"),
    "an unknown field": ("nonsense: 3", r"nonsense"),
    "an unknown data type": ('output [{ name: "O" data_type: TYPE_X dims: [1] }]', r"TYPE_X"),
    "another model": ('name: "other"', r"other"),
    "a wrong type": (5, r"int"),
    "a bad field": ({"output": [{"name": "O", "data_type": "TYPE_FP32", "dims": "x"}]}, r"dims"),
}
BROKEN: dict[str, tuple[str, Any, str]] = {
    **{name: (source, TEXT, words) for name, (source, words) in SOURCES.items()},
    **{name: (with_method(saying("1"), name, body), TEXT, words) for name, (body, words) in METHODS.items()},
    **{f"a config: {name}": (saying("1"), config, words) for name, (config, words) in CONFIGS.items()},
}


def test_a_model_of_a_cell(repo: bls.ModelRepository) -> None:
    assert repr(repo) == "<ModelRepository memory: 0 loaded>"
    record = repo.define("m", ECHOES, ECHO)
    assert (record.name, record.version, record.state, record.source, record.reason) == ("m", 1, "READY", "cell", "")
    assert [(t.name, t.datatype, t.dims) for t in record.inputs] == [("IN", "FP32", (-1,))]
    assert record.load_seconds is not None
    assert (record, repo.index(), repo.ready("m")) == (repo.model("m"), [record], True)
    assert repo.infer("m", {"IN": [1, 2]})["OUT"].as_numpy().tolist() == [1, 2]
    assert repr(repo) == "<ModelRepository memory: 1 loaded>"
    assert repo.define("m", saying("'seven'"), TEXT, version=7).version == 7
    assert (repo.ready("m", 7), said(repo, "m", 7)) == (True, "seven")


@pytest.mark.parametrize("way", BROKEN)
def test_a_broken_definition_is_one_clear_message_and_the_old_version_serves(
    repo: bls.ModelRepository, way: str
) -> None:
    source, config, message = BROKEN[way]
    for before in ([], [("m", 1, "READY")]):
        if before:
            repo.define("m", saying("'old'"), TEXT)
        with pytest.raises(bls.BLSError, match=message) as info:
            repo.define("m", source, config)
        assert str(info.value).startswith("model 'm'")
        assert len(str(info.value).splitlines()) == 1
        rows = [(r.name, r.version, r.state) for r in repo.index()]
        if before:
            assert (rows, said(repo, "m")) == (before, "old")
            repo.reload("m")
            assert said(repo, "m") == "old", "the definition is the old one too"
        else:
            assert rows in ([("m", 1, "UNAVAILABLE")], [])
            assert all(str(info.value) == r.reason for r in repo.index())
            assert not repo.ready("m")
    assert (repo.define("m", saying("'mended'"), TEXT).reason, said(repo, "m")) == ("", "mended")


@pytest.mark.parametrize("source", [None, 5, b"class TritonPythonModel: pass", ["x"]])
def test_a_source_is_text(repo: bls.ModelRepository, source: Any) -> None:
    with pytest.raises(bls.BLSError, match=r"^model 'm': source: got \w+, expected the text of model.py$"):
        repo.define("m", source)


def test_ctrl_c_while_loading_changes_nothing(repo: bls.ModelRepository) -> None:
    repo.define("m", saying("'old'"), TEXT)
    with pytest.raises(KeyboardInterrupt):
        repo.define("m", "import signal\nsignal.raise_signal(signal.SIGINT)\n", TEXT)
    assert said(repo, "m") == "old"
    repo.define("m", saying("'new'"), TEXT)
    assert said(repo, "m") == "new"


def test_the_error_has_the_frames_and_the_cause(repo: bls.ModelRepository) -> None:
    source = with_method(saying("1"), "initialize(self, args)", "fail()")
    with pytest.raises(bls.ModelLoadError) as info:
        repo.define("m", source + "\ndef fail():\n    return 1 / 0  # here\n", TEXT)
    assert (type(info.value.__cause__), info.value.model) == (ZeroDivisionError, "m")
    record: Any = info.value.record
    assert (record.kind, [f.function for f in record.frames]) == ("ZeroDivisionError", ["initialize", "fail"])
    assert any("# here" in text for _, text in record.frames[-1].source)
    assert info.value.reason.startswith("load failed for model 'm': version 1 is at UNAVAILABLE state: Internal: Zero")
    with pytest.raises(bls.ModelLoadError) as info:
        repo.define("m", "x = 1\ny = (\nz = 2\n", TEXT)
    record = info.value.record
    assert (type(info.value.__cause__), record.frames[-1].line) == (SyntaxError, 2)
    assert (2, "y = (") in record.frames[-1].source


def noting(note: Path) -> str:
    """Source of a model whose finalize writes an x to a file."""
    return saying("1") + f"\n    def finalize(self):\n        with open({str(note)!r}, 'a') as f: f.write('x')\n"


def test_set_config(repo: bls.ModelRepository) -> None:
    assert (repo.set_config("m", ECHO), repo.index()) == (None, [])
    repo.define("m", ECHOES)
    assert repo.config("m").input[0].name == "IN"
    repo.config("m").max_batch_size = 9  # a copy
    assert repo.config("m").max_batch_size == 0
    record = repo.set_config("m", ECHO + "max_batch_size: 2")
    assert record is not None
    assert record.max_batch_size == 2
    for bad in ("output [{", "nonsense: 1", 5, 'backend: "python" max_batch_size: -3'):
        with pytest.raises(bls.BLSError):
            repo.set_config("m", bad)  # type: ignore[arg-type]
        assert repo.config("m").max_batch_size == 2
        assert repo.infer("m", {"IN": np.ones((1, 2), np.float32)}).error is None
    repo.define("m", ECHOES)
    assert repo.config("m").max_batch_size == 2
    repo.define("m", ECHOES, ECHO)  # one that is given with the definition wins
    assert repo.config("m").max_batch_size == 0


def folder_of(repo: bls.ModelRepository) -> Path:
    root = repo._service.folder._root
    assert root is not None
    return root


def test_the_folders_of_cells_go_away_when_the_repository_is_forgotten() -> None:
    repo = bls.ModelRepository()
    repo.define("m", saying("1"), TEXT)
    folder = folder_of(repo)
    repo.unload("m")
    del repo
    until(lambda: (gc.collect(), not folder.exists())[1], "the end of the folder")


def test_a_context_manager_closes(tmp_path: Path) -> None:
    note = tmp_path / "note"
    with bls.ModelRepository() as repo:
        for name in ("a", "b"):
            repo.define(name, noting(note), TEXT)
        folder = folder_of(repo)
    assert (folder.exists(), note.read_text(), repo.ready("a")) == (False, "xx", False)
    with pytest.raises(bls.RepositoryClosedError, match="the repository is closed; make a new one"):
        repo.define("m", saying("1"), TEXT)
    with pytest.raises(bls.RepositoryClosedError):
        repo.load("a")
    for name, problem in ("a", "has no available versions"), ("never there", "is not found"):
        assert said(repo, name).endswith(f"{problem} Why: the repository is closed")
    with pytest.raises(bls.RepositoryClosedError):
        repo.config("a")
    assert {row.reason for row in repo.index()} == {"the repository is closed"}


def test_loading_while_a_cell_redefines(repo: bls.ModelRepository) -> None:
    """The folder of the older source goes away between the look at it and the load."""
    repo.define("m", saying("1"), TEXT)
    prepare, looked = repo._load_members, threading.Event()
    main = threading.get_ident()

    def told(*arguments: Any) -> None:
        prepare(*arguments)
        if threading.get_ident() != main:
            looked.set()

    repo._load_members = told  # type: ignore[method-assign]
    for verb in (repo.load, repo.reload):
        looked.clear()
        with repo._service.lock_of("m"):
            other = Caller(verb, "m")
            assert looked.wait(LIMIT)
            repo.define("m", saying("2"), TEXT)
        other.result()
    assert said(repo, "m") == "2"


def test_redefining_leaves_nothing_behind(repo: bls.ModelRepository) -> None:
    repo.define("m", saying("1"), TEXT)
    folder = folder_of(repo)
    finders = len(sys.path_importer_cache)
    for number in range(5):
        repo.define("m", saying(str(number)), TEXT)
        with pytest.raises(bls.BLSError):
            repo.define("m", "1 / 0", TEXT)
    assert len(list(folder.iterdir())) == 1
    assert len(sys.path_importer_cache) <= finders
    repo.clear()
    assert (list(folder.iterdir()), repo.index()) == ([], [])
    with pytest.raises(bls.ModelNotFoundError):
        repo.load("m")


def test_changes_have_what_came_and_what_went() -> None:
    (change,) = changes({"model.py": "a\nb\nc\nd\ne\nf\ng\n"}, {"model.py": "a\nB\nc\nd\ne\nf\ng\nh\n"})
    assert (change.file, change.added, change.removed) == ("model.py", 2, 1)
    assert change.lines == (
        (" ", "a"), ("-", "b"), ("+", "B"), (" ", "c"), ("…", ""), (" ", "g"), ("+", "h"),
    )  # fmt: skip


def test_long_changes_stay_short_and_the_longest_are_not_compared() -> None:
    (change,) = changes({"a": ""}, {"a": "x\n" * 100})
    assert (change.added, len(change.lines), change.lines[-1]) == (100, 41, ("…", "60 more lines"))
    (change,) = changes({"a": "x\n" * 5000}, {"a": "y\n" * 5000})
    assert change.lines == (("…", "too long to compare"),)
    assert (changes({}, {"model.py": "a"}), changes({"model.py": "a"}, {"model.py": "a"})) == ((), ())


def test_the_record_of_a_new_definition_has_the_changes_of_code_and_configuration(repo: bls.ModelRepository) -> None:
    source = saying("1")
    config = 'output [{ name: "OUT" data_type: TYPE_STRING dims: [-1] }]'
    assert (repo.define("a", source, config).changes, repo.define("a", source, config).changes) == ((), ())
    record = repo.define("a", source.replace("str(1)", "str(2)"), f"max_batch_size: 4 {config}")
    assert [change.file for change in record.changes] == ["model.py", "config.pbtxt"]
    assert ("+", "max_batch_size: 4") in record.changes[1].lines
    assert repo.model("a").changes == ()  # it is about the definition, not the model
    record = repo.set_config("a", config)
    assert record is not None
    assert [(c.file, c.added, c.removed) for c in record.changes] == [("config.pbtxt", 0, 1)]
    with pytest.raises(bls.ModelLoadError):
        repo.define("a", "x = = 1", config)  # one that failed is no definition
    assert [c.file for c in repo.define("a", source.replace("str(1)", "str(2)"), config).changes] == []
