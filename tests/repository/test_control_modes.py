"""Control modes, transitions, dependents of ensembles, and readiness."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.engine.core import instance
from bls_notebook.repository.polling import FolderPolling
from tests.engine import gates
from tests.engine.harness import Caller
from tests.repository.models import TEXT, said, saying, with_method, write
from tests.waiting import LIMIT


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    gates.open_all()


GATES = "from tests.engine import gates\n"
WAIT = "gates.open_gate('begun')\ngates.pass_gate('go')"


def states(repo: bls.ModelRepository) -> dict[str, str]:
    return {r.name if r.version == 1 else f"{r.name}/{r.version}": r.state for r in repo.index()}


def reasons(repo: bls.ModelRepository) -> dict[str, str]:
    return {r.name: r.reason for r in repo.index()}


def touch(file: Path, text: str) -> None:
    """Change a file so that it looks changed, however coarse the clock of the file system."""
    before = file.stat().st_mtime_ns
    file.write_text(text, encoding="utf-8")
    os.utime(file, ns=(before + 1_000_000, before + 1_000_000))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "a", saying("'a'"))
    write(tmp_path, "b", saying("'b'"))
    return tmp_path


def test_none_loads_everything_and_takes_no_orders(folder: Path) -> None:
    refused = "explicit model load / unload is not allowed if polling is enabled"
    load = "try:\n    pb_utils.load_model('a')\nexcept pb_utils.TritonModelException as e:\n    said = e"
    write(folder, "broken", "raise ValueError('no weights')\n")
    write(folder, "loads", saying("said", inside=load))
    with bls.ModelRepository(folder, control_mode="none") as repo:
        assert states(repo) == {"a": "READY", "b": "READY", "broken": "UNAVAILABLE", "loads": "READY"}
        assert "no weights" in reasons(repo)["broken"]
        for order in (repo.load, repo.unload):
            with pytest.raises(bls.ModelLoadError, match="control_mode='explicit'") as refusal:
                order("a")
            assert refusal.value.reason == refused
        assert said(repo, "loads").endswith(refused)
        with pytest.raises(bls.BLSError, match="control_mode is 'none'"):
            repo.poll()
        assert said(repo, "a") == "a"
        repo.define("cell", saying("'c'"), TEXT)
        repo.unload("cell")


def test_poll_follows_the_folders(folder: Path) -> None:
    with bls.ModelRepository(folder, control_mode="poll", poll_seconds=None) as repo:
        assert repo.poll() == []
        touch(folder / "a" / "1" / "model.py", saying("'a2'"))
        write(folder, "c", saying("'c'"))
        shutil.rmtree(folder / "b")
        assert (said(repo, "a"), sorted(repo.poll())) == ("a", ["a", "b", "c"])
        assert (said(repo, "a"), said(repo, "c")) == ("a2", "c")
        assert states(repo) == {"a": "READY", "b": "UNAVAILABLE", "c": "READY"}
        assert (reasons(repo)["b"], repo.poll()) == ("unloaded", [])
        touch(folder / "a" / "1" / "model.py", "def broken(:\n")  # what serves is kept, and the edit tried again
        assert (repo.poll(), said(repo, "a")) == ([], "a2")
        touch(folder / "a" / "1" / "model.py", saying("'mended'"))
        assert (repo.poll(), said(repo, "a")) == (["a"], "mended")


def test_poll_unloads_a_model_that_appears_in_a_second_folder(folder: Path, tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    with bls.ModelRepository(folder, folder, second, control_mode="poll", poll_seconds=None) as repo:
        shutil.copytree(folder / "a", second / "a")
        assert (repo.poll(), reasons(repo)["a"]) == (["a"], "model appears in two or more repositories")
        shutil.rmtree(second / "a")
        assert (repo.poll(), said(repo, "a")) == (["a"], "a")


def test_polling_goes_on_by_itself_and_ends_with_the_repository(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    polled = threading.Event()
    follow = FolderPolling.follow

    def told(self: FolderPolling) -> list[str]:
        out = follow(self)
        if threading.current_thread() is not threading.main_thread():
            polled.set()
        return out

    monkeypatch.setattr(FolderPolling, "follow", told)
    before = threading.enumerate()
    with bls.ModelRepository(folder, control_mode="poll", poll_seconds=0.001):
        assert polled.wait(LIMIT)
        pollers = [t for t in threading.enumerate() if t.name == "bls-poll" and t not in before]
    for thread in pollers:
        thread.join(LIMIT)
        assert not thread.is_alive()


@pytest.mark.parametrize("options", [{"control_mode": "sometimes"}, {"poll_seconds": 0}])
def test_bad_options(folder: Path, options: dict[str, Any]) -> None:
    with pytest.raises(bls.BLSError, match=next(iter(options))):
        bls.ModelRepository(folder, **options)


def test_only_versions_that_changed_load_again(disk: bls.ModelRepository) -> None:
    root = disk.paths[0]
    config = f"version_policy {{ all {{}} }}\n{TEXT}"
    count = f"{GATES}gates.shared['made'].append(__file__.split('/')[-2])\n"
    made = gates.shared["made"] = []
    for version in (1, 2):
        write(root, "m", saying(version, count), config, version)
    disk.load("m")
    assert made == ["1", "2"]
    touch(root / "m" / "2" / "model.py", saying("'two'", count))
    disk.load("m")
    assert (made, said(disk, "m", 1), said(disk, "m", 2)) == (["1", "2", "2"], "1", "two")
    (root / "m" / "3").mkdir()
    (root / "m" / "3" / "model.py").write_text(saying(3, count))
    disk.load("m")
    assert made == ["1", "2", "2", "3"]
    shutil.rmtree(root / "m" / "1")
    disk.load("m")
    assert (made, states(disk)) == (["1", "2", "2", "3"], {"m": "UNAVAILABLE", "m/2": "READY", "m/3": "READY"})
    assert [r.reason for r in disk.index()] == ["unloaded", "", ""]
    assert not disk.ready("m", 1)
    (root / "m" / "shared.txt").write_text("all versions may read it")
    disk.load("m")
    assert made == ["1", "2", "2", "3", "2", "3"]


def test_loading_and_unloading_are_seen_while_they_last(repo: bls.ModelRepository) -> None:
    other = Caller(repo.define, "m", saying("'done'", GATES + WAIT, WAIT.replace("go", "on")), TEXT)
    gates.pass_gate("begun")
    assert (states(repo), repo.ready("m")) == ({"m": "LOADING"}, False)
    gates.open_gate("go")
    other.result()
    assert states(repo) == {"m": "READY"}
    gates.gate("begun").clear()
    request = Caller(said, repo, "m")
    gates.pass_gate("begun")
    unload = Caller(repo.unload, "m")
    while repo.ready("m"):
        gates.gate("on").wait(0.001)
    assert states(repo) == {"m": "UNLOADING"}
    assert said(repo, "m").endswith("'m' has no available versions")
    assert not unload.done
    gates.open_gate("on")
    assert (request.result(), unload.result()) == ("done", None)
    assert (states(repo), reasons(repo)) == ({"m": "UNAVAILABLE"}, {"m": "unloaded"})


def ensemble(member: str, version: int = -1) -> str:
    return f"""platform: "ensemble"
{TEXT}
input [ {{ name: "X" data_type: TYPE_STRING dims: [ -1 ] }} ]
ensemble_scheduling {{ step [ {{ model_name: "{member}" model_version: {version}
  input_map {{ key: "IN" value: "X" }} output_map {{ key: "OUT" value: "OUT" }} }} ] }}
"""


WITH_INPUT = TEXT + '\ninput [ { name: "IN" data_type: TYPE_STRING dims: [ -1 ] } ]'


def lay_out(root: Path, name: str, config: str) -> None:
    (root / name / "1").mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(config)


@pytest.fixture
def ensembles(disk: bls.ModelRepository) -> bls.ModelRepository:
    root = disk.paths[0]
    write(root, "member", saying("'m'"), WITH_INPUT)
    lay_out(root, "inner", ensemble("member"))
    lay_out(root, "outer", ensemble("inner").replace('key: "IN"', 'key: "X"'))
    return disk


def test_ensembles_leave_with_a_member_and_come_back(ensembles: bls.ModelRepository) -> None:
    ensembles.load("outer")
    assert states(ensembles) == {"inner": "READY", "member": "READY", "outer": "READY"}
    ensembles.unload("member")
    assert set(states(ensembles).values()) == {"UNAVAILABLE"}
    assert reasons(ensembles)["outer"] == "unloaded: it needs 'member'"
    ensembles.load("member")
    assert set(states(ensembles).values()) == {"READY"}


def test_unload_dependents_takes_what_was_loaded_for_the_ensemble_alone(ensembles: bls.ModelRepository) -> None:
    ensembles.load("outer")
    ensembles.unload("outer")
    assert states(ensembles) == {"inner": "READY", "member": "READY", "outer": "UNAVAILABLE"}
    ensembles.load("outer")
    ensembles.unload("outer", unload_dependents=True)
    assert set(states(ensembles).values()) == {"UNAVAILABLE"}
    ensembles.load("member")
    ensembles.load("outer")
    ensembles.unload("outer", unload_dependents=True)
    assert states(ensembles) == {"inner": "UNAVAILABLE", "member": "READY", "outer": "UNAVAILABLE"}


def test_a_changed_member_is_checked_again(ensembles: bls.ModelRepository) -> None:
    ensembles.load("outer")
    touch(ensembles.paths[0] / "member" / "config.pbtxt", 'backend: "python"\n' + TEXT)
    ensembles.load("member")
    assert states(ensembles) == {"inner": "UNAVAILABLE", "member": "READY", "outer": "UNAVAILABLE"}
    assert "mapping to non-existing input IN in model member" in reasons(ensembles)["inner"]
    touch(ensembles.paths[0] / "member" / "config.pbtxt", 'backend: "python"\n' + WITH_INPUT)
    ensembles.load("member")
    assert set(states(ensembles).values()) == {"READY"}


def refusal(repo: bls.ModelRepository, name: str) -> str:
    with pytest.raises(bls.ModelLoadError) as failure:
        repo.load(name)
    assert "\n" not in str(failure.value)
    assert states(repo)[name] == "UNAVAILABLE"
    return failure.value.reason


def test_ensembles_that_cannot_be_loaded(disk: bls.ModelRepository) -> None:
    """Worded as by a real tritonserver 2.51."""
    root = disk.paths[0]
    write(root, "member", saying("'m'"), WITH_INPUT)
    write(root, "broken", "raise ValueError('no weights')\n", WITH_INPUT)
    numbers = WITH_INPUT.replace("TYPE_STRING", "TYPE_FP32")
    write(root, "numbers", saying("'m'"), numbers)
    write(root, "shaped", saying("'m'"), WITH_INPUT.replace("-1", "3"))
    for name, config in {
        "missing": ensemble("nobody"), "version": ensemble("member", 7), "breaks": ensemble("broken"),
        "types": ensemble("numbers"), "shapes": ensemble("shaped").replace("-1 ]", "4 ]"),
        "input": ensemble("member").replace('key: "IN"', 'key: "NOPE"'),
        "output": ensemble("member").replace('key: "OUT"', 'key: "NOPE"'),
        "rows": "max_batch_size: 8\n" + ensemble("batches"),
        "itself": ensemble("itself").replace('key: "IN"', 'key: "X"'),
        "one": ensemble("two").replace('key: "IN"', 'key: "X"'),
        "two": ensemble("one").replace('key: "IN"', 'key: "X"'),
    }.items():  # fmt: skip
        lay_out(root, name, config)
    write(root, "batches", saying("'m'"), "max_batch_size: 4\n" + WITH_INPUT)
    head = "load failed for model '{}': "
    for name, words in {
        "missing": "ensemble missing contains models that are not available or ambiguous: nobody",
        "version": "ensemble 'version' depends on 'member' whose required version 7 is not loaded.",
        "breaks": "ensemble 'breaks' depends on 'broken' which has no loaded version. Model 'broken' loading "
        "failed with error: version 1 is at UNAVAILABLE state: Internal: ValueError: no weights",
        "types": "in ensemble types, ensemble tensor X: inconsistent data type: TYPE_STRING is inferred from "
        "model types while TYPE_FP32 is inferred from model numbers",
        "shapes": "in ensemble shapes, ensemble tensor X: inconsistent shape: [4] is inferred from model "
        "shapes while [3] is inferred from model shaped",
        "input": "in ensemble input, ensemble tensor X is mapping to non-existing input NOPE in model member",
        "output": "in ensemble output, ensemble tensor OUT is mapped from non-existing output NOPE in model member",
        "rows": "ensemble rows allows maximum batch size 8, but it contains model batches which only allows "
        "maximum batch size to be 4",
        "itself": "circular dependency between ensembles: itself -> ... -> itself -> itself",
        "one": "circular dependency between ensembles: one -> ... -> two -> one",
    }.items():
        assert refusal(disk, name).startswith(head.format(name) + words)


def test_an_ensemble_of_cells_follows_their_definitions(repo: bls.ModelRepository) -> None:
    repo.define("member", saying("'first'"), WITH_INPUT)
    record = repo.set_config("e", ensemble("member"))
    assert record is not None
    assert record.backend == "ensemble"

    def ask() -> str:
        return str(repo.infer("e", {"X": ["x"]})["OUT"].as_numpy()[0].decode())

    assert ask() == "first"
    repo.define("member", saying("'second'"), WITH_INPUT)
    assert ask() == "second"


def test_a_polled_ensemble_waits_for_its_members(tmp_path: Path) -> None:
    lay_out(tmp_path, "an_ensemble", ensemble("member"))
    with bls.ModelRepository(tmp_path, control_mode="poll", poll_seconds=None) as repo:
        assert "not available or ambiguous: member" in reasons(repo)["an_ensemble"]
        write(tmp_path, "member", saying("'m'"), WITH_INPUT)
        repo.poll()
        assert states(repo) == {"an_ensemble": "READY", "member": "READY"}


@pytest.mark.parametrize("kind", ["", "async "])
def test_is_ready_of_the_model(repo: bls.ModelRepository, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = {"return True": True, "return False": False, "return 1": False, "raise ValueError": False}
    for body, ready in bodies.items():
        source = saying("pb_utils.is_model_ready('m')") + f"\n    {kind}def is_ready(self):\n        {body}\n"
        repo.define("m", source, TEXT)
        assert (repo.ready("m"), said(repo, "m")) == (ready, str(ready))
    monkeypatch.setattr(instance, "READY_SECONDS", 0.01)
    repo.define("m", with_method(saying("'m'", GATES), "is_ready(self)", f"{WAIT}\nreturn True"), TEXT)
    assert not repo.ready("m")  # it takes too long
    gates.pass_gate("begun")
    monkeypatch.setattr(instance, "READY_SECONDS", 10.0)
    gates.open_gate("go")
    assert repo.ready("m")
