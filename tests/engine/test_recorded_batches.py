"""What a real server made of batches and sequences (recorded_batches.json), and what happens here."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.engine.schedulers import batch_scheduler, dynamic
from bls_notebook.extending import host_of
from tests.engine.batch_scenarios import CONFIGS, LIMIT, RECORDED, SCENARIOS, Play, play_on_real_server, write_models
from tests.engine.fake_clock import FakeClock
from tests.engine.harness import until

recorded = json.loads(RECORDED.read_text())

# The real server cannot hand over correlation IDs that are text.
ON_PURPOSE = {
    "direct_text_ids": {
        "batches": [[[0, 1, False, 1.0, "blue"]], [[1, 0, False, 1.0, "blue"]], [[2, 0, True, 1.0, "blue"]]],
        "errors": {},
    }
}


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> Iterator[Play]:
    write_models(tmp_path / "models")
    entered, changed = [0], threading.Condition()
    inner, dynamic_home_call = batch_scheduler.BatchScheduler._enter, dynamic.home_call

    def count() -> None:
        with changed:
            entered[0] += 1
            changed.notify_all()

    class Idle(list[Any]):
        """The idle instances; a request that takes one itself enters no queue."""

        def pop(self, *place: Any) -> Any:
            instance = super().pop(*place)
            count()
            return instance

    def enter(self: batch_scheduler.BatchScheduler, *args: Any) -> Any:
        result = inner(self, *args)
        count()
        return result

    def home_call(model: Any, scheduler: Any, runner: Any) -> Any:
        scheduler._idle = Idle(scheduler._idle)
        return dynamic_home_call(model, scheduler, runner)

    monkeypatch.setattr(batch_scheduler.BatchScheduler, "_enter", enter)
    monkeypatch.setattr(dynamic, "home_call", home_call)

    def arrived(count: int) -> None:
        with changed:
            assert changed.wait_for(lambda: entered[0] >= count, LIMIT)
        schedulers: list[Any] = [host_of(repo).ready(name).scheduler for name in CONFIGS]
        until(lambda: not any(each._asked for each in schedulers), "an idle instance does not begin its batch")

    with bls.ModelRepository(tmp_path / "models") as repo:

        def infer(model: str, inputs: dict[str, Any], **options: Any) -> Any:
            response = repo.infer(model, inputs, **options)
            if response.error is not None:
                return response.error.message()
            return json.loads(response["BATCH"].as_numpy().ravel()[0])

        for name in CONFIGS:
            repo.load(name)
        played = Play(infer, arrived, clock.advance, tmp_path)
        try:
            yield played
        finally:
            played.open()


def as_outside(report: Any) -> Any:
    """A BLS caller is told whose answer an error is; over HTTP it is not."""
    if isinstance(report, dict) and "errors" in report:
        errors = {k: e.split("Error when running inference: ")[-1] for k, e in report["errors"].items()}
        return {**report, "errors": errors}
    return report


@pytest.mark.parametrize("name", SCENARIOS)
def test_as_the_real_server(name: str, play: Play) -> None:
    assert as_outside(json.loads(json.dumps(SCENARIOS[name](play)))) == ON_PURPOSE.get(name, recorded[name])


def test_every_scenario_is_recorded() -> None:
    assert set(SCENARIOS) == set(recorded)
    assert not [name for name, report in recorded.items() if "lost" in report]


@pytest.fixture(scope="module")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from bls_notebook.shipping.servers import tritonserver
    from bls_notebook.shipping.servers.server_programs import is_supported

    if not is_supported():
        pytest.skip("no tritonserver here")
    try:
        environment = tritonserver.make_environment()
    except tritonserver.TritonServerError as error:
        if "BLS_NOTEBOOK_TRITON_ENV" in os.environ:  # somebody counts on it
            raise
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("real") / "models"
    write_models(folder)
    server = tritonserver.TritonServer(folder, environment=environment, load=["*"])
    with server:
        yield server
        server.stop(graceful=False)  # its models take their time to end


@pytest.mark.extra
@pytest.mark.triton
@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_record_is_what_the_real_server_does(name: str, real_server: Any, tmp_path: Path) -> None:
    for attempt in range(3):  # which requests have arrived when a batch is formed is up to the machine
        folder = tmp_path / str(attempt)
        folder.mkdir()
        report = json.loads(json.dumps(play_on_real_server(real_server, folder, SCENARIOS[name])))
        if report == recorded[name]:
            return
    assert report == recorded[name]
