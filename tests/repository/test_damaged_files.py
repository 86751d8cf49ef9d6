"""Files that are not what they should be: one clear error each, nothing left behind, other models served."""

from __future__ import annotations

import ast
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.repository.config.completion import MOST_INSTANCES
from bls_notebook.repository.source import code_analysis, model_folders
from bls_notebook.repository.source.code_analysis import undefined_names
from bls_notebook.repository.source.model_source import SourceFolder
from tests.engine.harness import Caller
from tests.repository.models import TEXT, said, saying, write

GOOD = saying("'good'")


def as_bytes(data: bytes) -> Callable[[Path], Any]:
    return lambda file: file.write_bytes(data)


def as_holes(file: Path) -> None:
    with file.open("wb") as opened:
        opened.truncate(model_folders.MAX_CONFIG + 1)


CONFIGS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "latin-1": (
        as_bytes(b'name: "bad"\nversion: "caf\xe9"\n'),
        r'config.pbtxt: line 2 is not UTF-8: version: "caf\\xe9"; save',
    ),
    "utf-16": (as_bytes('name: "bad"'.encode("utf-16")), "line 1 is not UTF-8"),
    "half a character": (as_bytes(b'name: "bad#" "\xed\xa0\x80"'), "line 1 is not UTF-8"),
    "a byte order mark": (as_bytes(b"\xef\xbb\xbf"), r"config.pbtxt:1:1: Expected .* got \\ufeff"),
    "no text": (as_bytes(b"\x00\x01\x02"), "config.pbtxt:1:1"),
    "a folder": (Path.mkdir, "config.pbtxt: it cannot be read: it is not a file"),
    "a link to itself": (lambda file: file.symlink_to(file), "config.pbtxt: it cannot be read: Too many levels"),
    "a pipe": (os.mkfifo, "config.pbtxt: it cannot be read: it is not a file"),
    "a device": (lambda file: file.symlink_to("/dev/zero"), "config.pbtxt: it cannot be read: it is not a file"),
    "too large": (as_holes, "config.pbtxt: it cannot be read: it has 4,194,305 bytes, expected at most"),
    "deep": (as_bytes(b"input { " * 100_000), "config.pbtxt:1:9"),
}


@pytest.mark.skipif(os.name != "posix", reason="links, pipes and devices of POSIX")
@pytest.mark.parametrize("case", CONFIGS)
def test_a_config_that_cannot_be_read(tmp_path: Path, case: str, caplog: pytest.LogCaptureFixture) -> None:
    make, words = CONFIGS[case]
    write(tmp_path, "good", GOOD)
    write(tmp_path, "bad", GOOD)
    (tmp_path / "bad" / "config.pbtxt").unlink()
    make(tmp_path / "bad" / "config.pbtxt")
    with bls.ModelRepository(tmp_path) as repo:
        with pytest.raises(bls.ConfigError, match=words) as info:
            repo.load("bad")
        assert "\n" not in str(info.value)
        assert str(info.value).startswith("model 'bad': ")
        repo.load("good")
        assert said(repo, "good") == "good"
        assert [(r.name, r.state) for r in repo.index()] == [("bad", "UNAVAILABLE"), ("good", "READY")]
        assert repo.index()[0].reason == str(info.value)
    for mode in ("none", "poll"):
        with bls.ModelRepository(tmp_path, control_mode=mode, poll_seconds=None) as repo:
            assert said(repo, "good") == "good"
            assert not repo.ready("bad")
            assert str(info.value) in caplog.messages
        caplog.clear()


def test_odd_folders_are_no_models_and_no_versions_and_comments_have_any_encoding(disk: bls.ModelRepository) -> None:
    root = disk.paths[0]
    config = write(root, "good", GOOD).parent / "config.pbtxt"
    text = config.read_bytes() + "\n# caf\u00e9 \u65e5\u672c\n".encode("gb18030")  # as on a server
    write(root, "good", "1 / 0", version="9" * 200)
    config.write_bytes(text)
    (root / "loop").symlink_to(root / "loop")
    (root / "good" / "7").symlink_to(root / "good" / "7")
    os.mkdir(os.fsencode(root) + b"/caf\xe9")
    assert disk.load("good").version == 1
    assert {r.name for r in disk.index()} >= {"good"}
    for mode in ("none", "poll"):
        with bls.ModelRepository(root, control_mode=mode, poll_seconds=None) as repo:
            assert said(repo, "good") == "good"


def test_a_folder_that_goes_away_while_it_is_read(disk: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    write(disk.paths[0], "m", GOOD)

    def gone(*_: Any) -> Any:
        raise FileNotFoundError(2, "No such file or directory", "1")

    monkeypatch.setattr("bls_notebook.repository.loading.loader.version_fingerprint", gone)
    with pytest.raises(bls.ModelLoadError, match=r"'m' could not be loaded: .*No such file"):
        disk.load("m")
    assert disk.index()[0].reason.startswith("model 'm' could not be loaded")


MODEL_PY = GOOD.encode()
OVERRIDES: dict[str, tuple[Any, str]] = {
    "a file as a folder": ({"file:1/a": b"", "file:1/a/x": b""}, "its file '1/a/x' cannot be written"),
    "a folder as a file": ({"file:1/a/b": b"", "file:1/a": b""}, "its file '1/a' cannot be written"),
    "twice": ({"file:1/model.py": b"", "file:1//model.py": b""}, "two file overrides for '1/model.py'"),
    "too long": ({"file:1/" + "a/" * 3000 + "x": b""}, "cannot be written: File name too long"),
    "too deep": ({"file:1/" + "a/" * 1500 + "x": b""}, "cannot be written: File name too long"),
    "half a character": ({"file:1/\ud800": b""}, "cannot be used"),
    "no bytes": ({"file:1/model.py": GOOD}, "got str, expected bytes"),
    "no name": ({5: b""}, "cannot be used"),
    "a number": ({"file:1/model.py": 5}, "got int, expected bytes"),
    "no code": ({"file:1/model.py": b"1 / 0"}, "ZeroDivisionError"),
    "another file": ({"file:1/other.py": b""}, "Python model file not found"),
    "a list": ([1], "files"),
    "a long name": ({"file:1/" + "x" * 300: b"", "file:1/model.py": b""}, "cannot be used"),
}


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where folders for models from memory are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("case", OVERRIDES)
def test_bad_overrides_leave_nothing(temporary: Path, case: str) -> None:
    files, words = OVERRIDES[case]
    config = {"backend": "python", "output": [{"name": "OUT", "data_type": "TYPE_STRING", "dims": [-1]}]}
    with bls.ModelRepository() as repo:
        repo.load("m", config, {"file:1/model.py": MODEL_PY})
        before = list(temporary.rglob("*"))
        with pytest.raises(bls.BLSError, match=words) as info:
            repo.load("m", config, files)
        assert len(str(info.value)) < 400
        assert "\n" not in str(info.value)
        assert (list(temporary.rglob("*")), said(repo, "m")) == (before, "good")
    assert not list(temporary.iterdir())


def test_no_folder_for_temporary_files(temporary: Path) -> None:
    temporary.rmdir()
    with bls.ModelRepository() as repo:
        with pytest.raises(bls.ModelLoadError, match="its folder cannot be written: No such file"):
            repo.define("m", GOOD, TEXT)
        temporary.mkdir()
        repo.define("m", GOOD, TEXT)
        assert said(repo, "m") == "good"


def test_first_definitions_side_by_side(temporary: Path) -> None:
    for _ in range(8):
        repo = bls.ModelRepository()
        together = threading.Barrier(8)

        def first(name: str, repo: Any = repo, together: threading.Barrier = together) -> None:
            together.wait()
            repo.define(name, GOOD, TEXT)

        for caller in [Caller(first, f"m{n}") for n in range(8)]:
            caller.result()
        assert len(list(temporary.iterdir())) == 1
        repo.close()
        assert not list(temporary.iterdir())


def test_a_repository_that_closes_meanwhile(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = SourceFolder()
    opened = Path.open

    def closing(self: Path, *args: Any, **kwargs: Any) -> Any:
        folder.close()
        self.parent.mkdir(parents=True, exist_ok=True)  # as if it had been made just after
        return opened(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", closing)
        with pytest.raises(bls.RepositoryClosedError):
            folder.write("m", {"1/model.py": b""})
    assert not list(temporary.iterdir())
    with pytest.raises(bls.RepositoryClosedError):
        folder.write("m", {"1/model.py": b""})
    assert not list(temporary.iterdir())


def test_good_source_is_never_refused_for_its_tree(repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    parse, failures = ast.parse, [SystemError("AST constructor recursion depth mismatch")] * 2

    def sometimes(*args: Any, **kwargs: Any) -> Any:
        if failures:
            raise failures.pop()
        return parse(*args, **kwargs)

    def never(*_: Any, **__: Any) -> Any:
        raise SystemError("AST constructor recursion depth mismatch")

    monkeypatch.setattr(code_analysis.ast, "parse", sometimes)
    assert undefined_names("print(what)") == {"what": 1}
    assert not failures
    monkeypatch.setattr(code_analysis.ast, "parse", never)
    assert undefined_names("print(what)") == {}
    repo.define("m", GOOD, TEXT)
    assert said(repo, "m") == "good"


def test_source_too_deep_to_look_at_is_no_reason(repo: bls.ModelRepository) -> None:
    repo.define("m", f"deep = {'+'.join('1' * 800)}\nwide = {'-' * 80}1\n{GOOD}", TEXT)
    assert said(repo, "m") == "good"
    with pytest.raises(bls.ModelLoadError, match=r"SyntaxError|MemoryError|RecursionError"):
        repo.define("m", f"deep = {'(' * 5000}1{')' * 5000}\n{GOOD}", TEXT)
    assert said(repo, "m") == "good"


def test_instance_counts_without_reason(repo: bls.ModelRepository) -> None:
    repo.define("m", GOOD, TEXT)
    for count in (MOST_INSTANCES + 1, 100_000, 2**31 - 1):
        for groups in (f"{{ count: {count} kind: KIND_CPU }}", ", ".join([f"{{ count: {count // 2 + 1} }}"] * 2)):
            config = f"{TEXT} instance_group [ {groups} ]"
            with pytest.raises(bls.ConfigError, match=f"instances, expected at most {MOST_INSTANCES:,}"):
                repo.define("m", GOOD, config)
            with pytest.raises(bls.ConfigError, match="expected at most"):
                repo.set_config("m", config)
    assert said(repo, "m") == "good"


def nested(levels: int, inner: Any = 1) -> Any:
    for _ in range(levels):
        inner = {"a": inner}
    return inner


CIRCLE: dict[str, Any] = {"backend": "python"}
CIRCLE["parameters"] = CIRCLE
# Functions, because searches for the owners of memory would visit the many objects in other tests.
DEEP: dict[str, Callable[[], Any]] = {
    "an unknown field": lambda: nested(100_000), "a known field": lambda: {"parameters": {"a": nested(100_000)}},
    "a value": lambda: {"max_batch_size": nested(100_000)}, "a circle": lambda: CIRCLE,
    "text": lambda: '{"a":' * 100_000 + "1" + "}" * 100_000,
    "lists": lambda: '{"input":' + "[" * 100_000 + "]" * 100_000 + "}",
    "a text of half a character": lambda: {"backend": "\ud800"},
    "text of half a character": lambda: 'backend: "\ud800"', "a long text": lambda: {"max_batch_size": "x" * 1_000_000},
    "a long list": lambda: {"max_batch_size": ["x"] * 100_000},
}  # fmt: skip


@pytest.mark.parametrize("case", DEEP)
def test_nested_configurations(repo: bls.ModelRepository, case: str) -> None:
    config = DEEP[case]()
    with pytest.raises(bls.ConfigError) as info:
        repo.define("m", GOOD, config)
    assert len(str(info.value)) < 600
    assert "\n" not in str(info.value)
    with pytest.raises(bls.ConfigError):
        repo.set_config("m", config)
    with pytest.raises(bls.BLSError):
        repo.load("m", config, {"file:1/model.py": MODEL_PY})
    assert not repo.ready("m")
