"""`sweep` in the kernel and on an endpoint: points, restored counts and statistics, failures, Ctrl-C, the magic."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.display import render
from bls_notebook.sweeps import Sweep, sweeper
from bls_notebook.sweeps.records import SweepPoint
from tests.data_sets.conftest import DOUBLE, READER
from tests.engine import gates
from tests.engine.harness import press_ctrl_c
from tests.magics.conftest import Cells, cells, shell  # noqa: F401 - fixtures

ROW = {"IN": np.ones((1, 1), np.float32)}
SHORT = 0.05  # seconds of a point
CONFIG = """
max_batch_size: 4
input {{ name: "IN" data_type: TYPE_FP32 dims: [ 1 ] }}
output [ {{ name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] }} {more} ]
"""


@pytest.fixture
def repo() -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository() as repository:
        define(repository)
        yield repository


def define(repository: bls.ModelRepository) -> None:
    repository.define("double", DOUBLE, CONFIG.format(more=""))
    names = ', { name: "NAME" data_type: TYPE_STRING dims: [ 1 ] }'
    repository.define("reader", READER, CONFIG.format(more=names))


def sweep(repository: bls.ModelRepository, **options: Any) -> Any:
    return bls.sweep("reader", ROW, **{"repo": repository, "seconds": SHORT, "concurrency": (1,), **options})


def counts(repository: bls.ModelRepository, name: str) -> tuple[int, int]:
    """Return the instances and the requests of a model."""
    statistics = repository.statistics(name)["model_stats"][0]["inference_stats"]
    return repository.config(name).instance_group[0].count, statistics["success"]["count"]


def test_every_combination_is_a_point_and_counts_and_statistics_are_restored(repo: bls.ModelRepository) -> None:
    repo.infer("reader", ROW)
    found = sweep(repo, rows=(1, 4), concurrency=(1, 2), rate=(100,), instances={"double": (1, 2)})
    assert [(dict(p.instances)["double"], p.rows, p.concurrency, p.rate) for p in found.points] == [
        (instances, rows, *load) for instances in (1, 2) for rows in (1, 4) for load in ((1, 0), (2, 0), (0, 100))
    ]
    assert found.planned == 12
    assert found.place == "kernel"
    assert all(point.latency.count or point.problem for point in found.points)
    assert {model.name for point in found.points for model in point.models} == {"reader", "double"}
    assert all(model.latency.p50 > 0 for model in found.points[0].models)
    assert [counts(repo, name) for name in ("reader", "double")] == [(1, 1), (1, 1)]


def test_failed_requests_are_named_and_their_point_is_never_the_best(repo: bls.ModelRepository) -> None:
    inputs = [ROW, {"IN": np.full((1, 1), 13, np.float32)}]
    found = bls.sweep("double", inputs, concurrency=(1,), seconds=SHORT, budget=60.0, repo=repo)
    (point,) = found.points
    assert [message for message, _ in point.failed] == ["thirteen"]
    assert abs(point.failures - point.latency.count) <= 1
    assert found.best is None
    text = render(found).text
    assert f"{point.failures:,} failed: thirteen" in text
    assert "GIL" in text


def test_many_different_errors_are_all_counted(repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeper, "_ERRORS", 1)
    code = DOUBLE.replace('return error("thirteen")', """from tests.engine import gates
            gates.count("errors")
            return error(f"error {gates.counts['errors']}")""")  # fmt: skip
    repo.define("double", code, CONFIG.format(more=""))
    inputs = [ROW, *[{"IN": np.full((1, 1), 13, np.float32)}] * 9]
    (point,) = bls.sweep("double", inputs, concurrency=(1,), seconds=1.0, repo=repo).points
    assert point.failed[-1][0] == "other errors"
    assert point.failures == gates.counts["errors"]
    assert point.failures > 1


def test_a_server_of_this_kernel_is_measured_over_the_network(repo: bls.ModelRepository) -> None:
    pytest.importorskip("grpc")
    with bls.endpoint(repo) as endpoint:
        found = sweep(repo, server=endpoint)
        assert (found.place, found.points[0].failures) == ("endpoint", 0)
        assert {model.name for model in found.points[0].models} == {"reader", "double"}
        with pytest.raises(bls.BLSError, match=r"only those of a server that bls\.serve started"):
            sweep(repo, server=endpoint, instances={"reader": (2,)})
    told = "; pass what it returned as server, not the address"
    with bls.endpoint(repo, token="") as endpoint, pytest.raises(bls.BLSError, match=told):
        sweep(repo, server=f"grpc://{endpoint.grpc_url}", instances={"reader": (2,)})
    assert counts(repo, "reader") == (1, 0)


def test_sequences_and_streams_can_be_swept(repo: bls.ModelRepository) -> None:
    config = "sequence_batching { } instance_group { count: 2 kind: KIND_CPU }"
    repo.define("sequence", DOUBLE, CONFIG.format(more="") + config)
    stream = DOUBLE.replace("return [self.answer(array(request)) for request in requests]", """
        for request in requests:
            sender = request.get_response_sender()
            sender.send(self.answer(array(request)))
            sender.send(self.answer(array(request)), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    """)  # fmt: skip
    repo.define("stream", stream, CONFIG.format(more="") + "model_transaction_policy { decoupled: true }")
    for name in ("sequence", "stream"):
        (point,) = bls.sweep(name, ROW, concurrency=(2,), seconds=SHORT, repo=repo).points
        assert point.latency.count
        assert not point.failed


def test_processes_are_named_as_measured() -> None:
    with bls.ModelRepository() as repository:
        repository.isolation = "process"
        define(repository)
        assert sweep(repository).place == "processes"


def test_a_setting_that_cannot_be_loaded_is_named_and_others_are_measured(repo: bls.ModelRepository) -> None:
    code = (
        DOUBLE
        + """
    def initialize(self, args):
        from tests.engine import gates
        gates.count("instances")
        if gates.counts["instances"] > 2:
            raise MemoryError("no room")
"""
    )
    repo.define("double", code, CONFIG.format(more=""))
    found = sweep(repo, instances={"double": (1, 3)})
    assert not found.points[0].problem
    assert "no room" in found.points[1].problem
    assert counts(repo, "double")[0] == 1


def test_ctrl_c_keeps_the_finished_points_and_restores_the_instances(repo: bls.ModelRepository) -> None:
    code = DOUBLE.replace("def answer(self, x):", """def answer(self, x):
        from tests.engine import gates
        if len(x) == 2:
            gates.open_gate("second point")
            gates.pass_gate("never opened")""")  # fmt: skip
    repo.define("double", code, CONFIG.format(more=""))
    waits = threading.Thread(target=lambda: (gates.pass_gate("second point"), press_ctrl_c()))
    waits.start()
    found = sweep(repo, rows=(1, 2), instances={"double": (2,)})
    waits.join()
    assert [point.rows for point in found.points] == [1]
    assert found.planned == 2
    assert "interrupted" in render(found).text
    assert counts(repo, "double") == (1, 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rows": (8,)}, "rows: got 8, expected at most 4, its max_batch_size"),
        ({"rows": (0,)}, "rows: got (0,), expected whole numbers from 1"),
        ({"rate": (-1,)}, "rate: got (-1,), expected numbers greater than 0"),
        ({"instances": {"nobody": (1,)}}, "nobody"),
    ],
)
def test_wrong_arguments(repo: bls.ModelRepository, options: dict[str, Any], words: str) -> None:
    with pytest.raises(bls.BLSError) as caught:
        sweep(repo, **options)
    assert words in str(caught.value)


def test_a_model_that_fails_at_once_is_not_swept(repo: bls.ModelRepository) -> None:
    with pytest.raises(bls.BLSError, match="model 'double' fails: thirteen; use inputs that succeed"):
        bls.sweep("double", {"IN": np.full((1, 1), 13, np.float32)}, repo=repo)


def test_the_best_point_has_most_rows_within_the_budget() -> None:
    def point(**fields: Any) -> SweepPoint:
        given = {"instances": [], "rows": 1, "concurrency": 1, "seconds": 1.0, **fields}
        return SweepPoint.from_dict(given)

    quick = {"count": 100, "p50": 0.01, "p95": 0.02}
    most = point(rows=8, latency={**quick, "count": 50})
    others = [
        point(latency=quick),
        point(rows=8, latency={**quick, "p95": 0.2}),
        point(rows=8, latency=quick, failed=[["e", 1]]),
        point(rows=8, latency=quick, problem="overloaded"),
        point(rows=8, latency={"count": 19, "p50": 0.01}),
    ]
    assert Sweep("m", "kernel", (*others, most), budget=0.1).best == most
    assert Sweep("m", "kernel", (*others, most)).best is None
    loads = [point(concurrency=n, latency={"count": 100 + n, "p50": n / 10, "p95": n / 10}) for n in (1, 2)]
    assert "The most, within 2%, is 101 requests/s, with 1 at once" in render(Sweep("m", "kernel", (*loads,))).text
    shown = render(Sweep("m", "kernel", (point(latency=quick, instances=[["m", 2]]),) * 2)).html
    assert re.findall(r' alt="[^"]*with \S+ at once, ([^"]*?):', shown) == ["m × 2"]
    equal = [point(latency=quick, instances=[["m", number]]) for number in (2, 4)]
    picture = unquote(render(Sweep("m", "kernel", (*equal,))).html)
    assert len(set(re.findall(r" y='([\d.]+)' text-anchor='middle'[^>]*>1</text>", picture))) == 2, "labels are apart"
    slow = point(problem="overloaded: 37.6 per s were answered, and the queue grew")
    assert f'wrap" style="text-align:left">{slow.problem}</td>' in render(Sweep("m", "kernel", (slow,))).html


def test_the_queue_that_takes_most_of_the_time_is_named() -> None:
    def shown(queued: float) -> str:
        calls = [["m", 10, 0.001, 0.05, []], ["slow", 10, queued, 0.02, []], ["quick", 90, 0.001, 0.001, []]]
        names = ("name", "requests", "queued", "computed")
        models = [dict(zip(names, call, strict=False)) for call in calls]
        given = {"instances": [["m", 4]], "rows": 1, "concurrency": 2, "seconds": 1.0, "models": models}
        return " ".join(render(Sweep("m", "kernel", (SweepPoint.from_dict(given),))).text.split())

    assert "each request to `slow` spent 30.0 ms in its queue, of 51.0 ms in queue and `execute` of `m`" in shown(0.03)
    assert "in its queue" not in shown(0.01)
    assert "model, 2 at once, m × 4 requests" in shown(0.01)


def test_more_instances_that_were_measured_and_answered_no_more_are_no_advice() -> None:
    def point(instances: int, concurrency: int, responses: int) -> SweepPoint:
        models = [{"name": "m", "requests": 100, "queued": 0.01, "computed": 0.01}]
        load = {"instances": [["m", instances]], "rows": 1, "concurrency": concurrency, "seconds": 1.0}
        return SweepPoint.from_dict({**load, "models": models, "latency": {"count": responses, "p95": 0.1}})

    def words(*points: SweepPoint) -> str:
        return " ".join(render(Sweep("m", "kernel", points)).text.split())

    assert "more instances of `m` answered no more." in words(point(1, 4, 100), point(2, 4, 90))
    assert "more instances of `m`, or larger batches, may answer more." in words(point(1, 4, 100), point(2, 1, 90))


def test_other_programs_make_the_figures_rough(repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeper.OtherPrograms, "share", lambda self, workers=0: 0.6)
    shown = " ".join(render(sweep(repo, concurrency=(2,))).text.split())
    assert "other programs used up to 60% of the processors (with 2 at once): the figures are rough" in shown
    monkeypatch.setattr(sweeper.OtherPrograms, "share", lambda self, workers=0: 0.1)
    assert "other programs" not in render(sweep(repo, concurrency=(2,))).text


def test_the_magic_and_the_file(cells: Cells, tmp_path: Path) -> None:  # noqa: F811
    define(bls.current_repository())
    cells.shell.user_ns["row"] = ROW["IN"]
    file = tmp_path / "sweep.json"
    line = f"--rows 1,2 --concurrency 1,2 --instances 1,2 --instances double=2 --seconds {SHORT} --budget 60s"
    assert cells(f"found = %blssweep reader IN=row {line} --save {file}").success
    found = cells.shell.user_ns["found"]
    assert len(found.points) == 8
    assert found.points[-1].instances == (("reader", 2), ("double", 2))
    assert found.budget == 60
    assert bls.open_file(file) == found
    assert "expected a number greater than 0" in cells("%blssweep reader IN=row --rate 0").stderr


def test_the_notebooks_own_server_is_known_by_its_url(cells: Cells) -> None:  # noqa: F811
    pytest.importorskip("grpc")
    define(bls.current_repository())
    cells.shell.user_ns["row"] = ROW["IN"]
    assert cells("endpoint = %tritonrepo endpoint").success
    load = f"--concurrency 1 --seconds {SHORT} --server {{endpoint.url}}"
    assert cells(f"found = %blssweep reader IN=row {load}").success, "without its token it would refuse the requests"
    found = cells.shell.user_ns["found"]
    assert (found.place, found.points[0].failures) == ("endpoint", 0)
    cells("%tritonrepo endpoint --stop")
