"""The plan of a trial: what the files of models show before any code runs, and the trial that follows it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.extending import Host
from bls_notebook.trying.trial_plan import TrialOptions, plan_trial
from tests.trying.conftest import DOUBLES, IO, PYTHON, calling, ensemble, in_notebook, put

ONES = {"IN": np.ones(3, np.float32)}
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
RUNS = {"1/model.py": DOUBLES}
# By model: its configuration and files, and its kind, the reason and the remedy.
MODELS: dict[str, tuple[str | None, dict[str, str], str, str, str]] = {
    "weights": (f'backend: "onnxruntime" {IO}', {"1/model.onnx": POINTER}, "stub", "Git LFS pointer", "lfs pull"),
    "onnx": (
        f'backend: "onnxruntime" {IO}', {"1/model.onnx": "x", "onnxruntime.py": ""}, "stub",
        "the package onnxruntime is missing", "`onnxruntime`: onnxruntime, or onnxruntime-gpu for CUDA",
    ),
    "flat": (f'name: "other" {PYTHON}', {"model.py": DOUBLES}, "real", "are beside its config.pbtxt", ""),
    "below": (PYTHON, {"src/model.py": DOUBLES}, "real", "its files are in src; a server needs them in", ""),
    "named": (f'name: "other" {PYTHON}', {**RUNS, "notes/a.txt": ""}, "real", 'has name: "other"', ""),
    "several": (
        PYTHON, {**RUNS, "configs/big.pbtxt": f"max_batch_size: 8 {PYTHON}", "configs/small.pbtxt": PYTHON}, "real",
        "configs/big.pbtxt is used", "",
    ),
    "http": (PYTHON, {"1/model.py": f'URL = "http://localhost:8000/v2/models/x/infer"\n{DOUBLES}'}, "real", "", ""),
    "a<b>": (PYTHON, RUNS, "absent", "it contains '<'", "rename it"),
    "wrong": ("input [{ name: ", RUNS, "absent", "config.pbtxt:1:", "correct it"),
    "whole": (ensemble(("wrong", "IN", "OUT")), {"1/x": ""}, "stub", "its step wrong is not loaded", "fix wrong"),
    "unknown": ('backend: "tensorrt"', {"1/x": ""}, "absent", "its configuration names no outputs", ""),
    "calls": (PYTHON, {"1/model.py": calling("elsewhere")}, "real", "", ""),
    "llm": ('backend: "vllm" instance_group [{ kind: KIND_MODEL }]', {"1/model.json": "{}"}, "stub", "vllm", ""),
    "engine": (f'backend: "tensorrtllm" max_batch_size: ${{triton_max_batch_size}} {IO}', {}, "stub", "", ""),
    "loop": (f'backend: "x" max_batch_size: ${{loop}} {IO}', {}, "absent", "expected a whole number", ""),
    "pipeline": (f'name: "main" {PYTHON}', {"1/model.py": calling("od_resize")}, "real", 'has name: "main"', ""),
    "resize": (f'name: "od_resize" {PYTHON}', RUNS, "real", "", ""),
    "refused": ('name: "nlp" backend: "vllm"', {"1/model.json": "{}"}, "stub", 'has name: "nlp", which a server', ""),
    "all": (ensemble(("states", "IN", "OUT")), {}, "real", "", ""),
    "states": (f"{PYTHON} sequence_batching {{ }}", RUNS, "real", "", ""),
}  # fmt: skip


def test_obstacles_and_changes_of_models(trying: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for name, (config, files, *_) in MODELS.items():
        put(tmp_path, name, config, files)
    put(tmp_path, "nothing", None, {"notes.txt": ""})
    repository, rows = trying(fill={"loop": "${loop}"}, model_config_name="big", ask=False)
    for name, (_, _, kind, why, remedy) in MODELS.items():
        row = rows["od_resize" if name == "resize" else name]
        assert (row.kind, why in row.why, remedy in in_notebook(row.remedy)) == (kind, True, True), row
    notes = rows[""].notes
    assert "resize is od_resize" in notes[0]
    assert "nothing" in notes[1]
    assert "the code of http names a server on this machine" in notes[-1]
    assert (repository.config("several").max_batch_size, repository.config("named").max_batch_size) == (8, 0)
    assert rows.keys() & {"nothing", "resize"} == set()
    assert f"{tmp_path.name}/flat/1" in rows["flat"].why, "the folder of the project, not the folder of links"
    assert not (tmp_path / "flat" / "1").exists()
    assert "called by calls" in rows["elsewhere"].why
    assert "%%tritonmodel elsewhere" in in_notebook(rows["elsewhere"].remedy)
    for name in ("flat", "pipeline"):
        assert repository.infer(name, ONES)["OUT"].as_numpy().tolist() == [2, 2, 2]
    assert not repository.ready("unknown")
    assert repository.infer("whole", ONES).stubs == ("whole",)
    assert "Request for unknown model" in repository.infer("calls", ONES).error.message()
    lines = {line.split()[1]: line for line in rows[""].requests}
    assert lines["all"].endswith("--sequence 1:end")
    assert lines["llm"].startswith("%bls llm text_input=")
    assert lines["llm"].endswith("--stream")
    answers = list(repository.stream("llm", {"text_input": "hello", "stream": [True]}))
    assert [answer["text_output"].as_numpy().shape for answer in answers] == [(1,)] * 3
    assert len(list(repository.stream("llm", {"text_input": "hello"}))) == 1, "vLLM streams only if it is asked to"
    folders = repository.paths
    repository.close()
    assert not any(folder.exists() for folder in folders), "the folder of links is removed"


def test_a_plan_loads_callees_first_and_runs_nothing(tmp_path: Path) -> None:
    put(tmp_path, "a", PYTHON, {"1/model.py": calling("b")})
    put(tmp_path, "b", PYTHON, {"1/model.py": "1 / 0"})
    put(tmp_path, "c", f'backend: "tensorrt" {IO}')
    options = TrialOptions(tmp_path, tmp_path, {}, "", "zeros", 0, {}, {}, None, 60.0)
    with bls.ModelRepository() as repository:
        plan = plan_trial(Host(repository), options)
        assert not any(repository.ready(name) for name in "abc")
    assert list(plan.models) == ["b", "a", "c"]
    assert [model.runs_code for model in plan.models.values()] == [True, True, False]
    assert [model.obstacle is None for model in plan.models.values()] == [True, True, False]
