"""Parts of repositories of somebody else's, and what tries them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.devices import registry
from bls_notebook.records.remedy_words import Remedy, on_surface
from bls_notebook.trying import load_or_stub
from tests.repository.models import HEAD

IN = 'input [{ name: "IN" data_type: TYPE_FP32 dims: [-1] }]'
IO = f'{IN} output [{{ name: "OUT" data_type: TYPE_FP32 dims: [-1] }}]'
PYTHON = f'backend: "python" {IO}'
DOUBLES = f"""{HEAD}

class TritonPythonModel:
    def execute(self, requests):
        arrays = [request.inputs()[0].as_numpy() * 2 for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]) for array in arrays]
"""


def time_limits_pass_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit of a model passes when it calls `threading.main_thread().passes()`, however long it loads."""

    class Timer:
        def __init__(self, seconds: float, interrupt: Callable[[], None]) -> None:
            threading.main_thread().passes = interrupt  # type: ignore[attr-defined]

        def start(self) -> None: ...

        def cancel(self) -> None: ...

    monkeypatch.setattr(load_or_stub, "Timer", Timer)


def calling(callee: str, inside: str = "") -> str:
    """Source of a model that hands on what another one answers."""
    return f"""{HEAD}

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            response = pb_utils.InferenceRequest(
                model_name="{callee}", requested_output_names=["OUT"], inputs=request.inputs()
            ).exec()
            if response.has_error():
                raise pb_utils.TritonModelException(response.error().message())
            out = pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()
            {inside or "pass"}
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)]))
        return responses
"""


def ensemble(*steps: tuple[str, str, str]) -> str:
    """Return the configuration of an ensemble; a step has a model, and the tensors of its IN and OUT."""
    written = "".join(
        f'step {{ model_name: "{name}" model_version: -1 input_map {{ key: "IN" value: "{a}" }} '
        f'output_map {{ key: "OUT" value: "{b}" }} }}'
        for name, a, b in steps
    )
    return f'platform: "ensemble" {IO} ensemble_scheduling {{ {written} }}'


def in_notebook(remedy: str | Remedy) -> str:
    """Return a remedy's words for a notebook; those for a script or a shell have no magic."""
    for surface in "python", "shell":
        with on_surface(surface):
            assert "%" not in str(remedy)
            assert "`!" not in str(remedy)
    with on_surface("notebook"):
        return str(remedy)


def put(root: Path, name: str, config: str | None, files: dict[str, str] | None = None) -> Path:
    """Write a model's folder, as it lies in somebody's repository."""
    folder = root / name
    folder.mkdir(parents=True)
    if config is not None:
        (folder / "config.pbtxt").write_text(config, encoding="utf-8")
    for path, text in (files or {}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def trying(tmp_path: Path) -> Iterator[Callable[..., tuple[bls.ModelRepository, dict[str, Any]]]]:
    """Tries the repository in a folder; gives it, and the rows of its report by name."""
    opened: list[bls.ModelRepository] = []

    def run(folder: Path = tmp_path, **options: Any) -> tuple[bls.ModelRepository, dict[str, Any]]:
        options.setdefault("tell", lambda text: None)
        options.setdefault("in_kernel", True)  # faster; `test_in_processes` compares
        repository, report = bls.try_repository(folder, **options)
        opened.append(repository)
        return repository, {"": report, **{row.name: row for row in report.models}}

    simulated = registry.simulated_gpus()
    yield run
    for repository in opened:
        repository.close()
    registry.simulate_gpus(simulated)
