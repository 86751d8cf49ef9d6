from __future__ import annotations

import colorsys
import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.devices import allocation_log
from bls_notebook.lifetimes import memory_recording as memory_track
from bls_notebook.lifetimes.records import Life
from tests.engine import gates
from tests.engine.harness import until
from tests.lifetimes import memory_models as models
from tests.repository.models import ECHOES

BIG = 5_000  # elements: larger than what is copied in any case


@pytest.fixture
def repo() -> Iterator[bls.ModelRepository]:
    with bls.ModelRepository() as repository:
        models.load_all(repository)
        yield repository


def ask(repo: bls.ModelRepository, op: int, x: Any, model: str = "worker", **options: Any) -> Any:
    response = repo.infer(model, {"OP": np.array([op], np.int32), "X": x}, **options)
    assert response.error is None, response.error.message()
    return response


def of(lives: tuple[Life, ...], tensor: str) -> list[Life]:
    return [life for life in lives if life.tensor == tensor]


def steps(life: Life) -> list[tuple[str, str]]:
    return [(stay.role, stay.at.model) for stay in life.stays]


def test_the_lives_of_one_request(repo: bls.ModelRepository) -> None:
    x = np.ones(BIG, np.float32)
    with bls.track_memory(name="one") as lifetimes:
        response = ask(repo, models.DOUBLE, x, request_id="r1")
    record = lifetimes.record
    given, copy = of(record.lives, "X")
    assert (given.how, given.maker.model, given.died, given.bytes) == ("new", "", -1, x.nbytes)
    assert (copy.how, copy.source, copy.device, copy.shape) == ("copy", given.id, "cpu", (BIG,))
    assert (copy.maker.model, copy.maker.version, copy.maker.instance) == ("worker", 1, "worker_0_0")
    assert (copy.maker.request, copy.maker.request_id) == (1, "r1")
    assert copy.born <= copy.stays[0].ns <= copy.died <= record.wall
    assert steps(copy) == [("input", "worker")]
    (made,) = of(record.lives, "Y")  # it moved: its giver let go of it
    assert (made.how, made.maker.model, made.died, made.datatype) == ("new", "worker", -1, "FP32")
    assert steps(made) == [("output", "")]
    assert [life.id for life in record.left_behind()] == [made.id]
    assert (record.name, bool(record.began)) == ("one", True)
    del response


def test_a_response_that_is_let_go_leaves_nothing_behind_and_the_ledger_keeps_nothing(
    repo: bls.ModelRepository,
) -> None:
    x = np.ones(BIG, np.float32)
    gone = weakref.ref(x)
    with bls.track_memory() as lifetimes:
        response = ask(repo, models.DOUBLE, x)
        del x
        assert gone() is None
        assert lifetimes.bytes("cpu") == BIG * 4
        seen = weakref.ref(response["Y"]._array)
        assert lifetimes.record.alive()
        del response
        until(lambda: seen() is None and not lifetimes.bytes("cpu"))
    assert not lifetimes.alive()
    assert lifetimes.peak("cpu").bytes >= 2 * BIG * 4


def test_a_view_pins_its_whole_base(repo: bls.ModelRepository) -> None:
    with bls.track_memory() as lifetimes:
        small = ask(repo, models.PIN, np.ones(BIG, np.float32))
        del small
    (base,) = lifetimes.alive()
    assert base.bytes == 4 * BIG * 4
    assert base.shape == (BIG,)  # of the part that was sent
    assert [(holder.kind, holder.name) for holder in base.holders] == [("attribute", "worker.kept[0]")]
    ask(repo, models.FORGET, np.ones(1, np.float32))


def test_an_array_that_goes_from_model_to_model_is_one_life_where_it_moves(repo: bls.ModelRepository) -> None:
    with bls.track_memory() as lifetimes:
        response = ask(repo, models.NEST, np.ones(BIG, np.float32))
    (life,) = [life for life in of(lifetimes.record.lives, "Y") if life.died < 0]
    assert (life.maker.model, life.how) == ("other", "new")
    assert steps(life) == [("output", "worker"), ("output", "")]
    assert life.stays[0].at.request == 1
    assert life.maker.request == 2
    del response


def test_a_block_knows_the_span_of_its_request(repo: bls.ModelRepository) -> None:
    with bls.profile():
        ask(repo, models.DOUBLE, np.ones(BIG, np.float32))  # numbers of spans go on from profile to profile
    with bls.track_memory() as lifetimes:
        before = ask(repo, models.DOUBLE, np.ones(BIG, np.float32))
        with bls.profile() as profile:
            response = ask(repo, models.NEST, np.ones(BIG, np.float32), request_id="r")
    worker, other = sorted(profile.record.spans, key=lambda span: span.sent)
    assert (worker.model, other.model, other.parent) == ("worker", "other", worker.id)
    without, made = (life for life in of(lifetimes.record.lives, "Y") if life.died < 0)
    assert without.maker.span == 0
    assert made.maker.span == other.id
    assert made.stays[0].at.span == worker.id
    inputs = {life.maker.model: life.maker.span for life in of(lifetimes.record.lives, "X") if life.maker.span}
    assert inputs == {"worker": worker.id} | ({"other": other.id} if "other" in inputs else {})
    del before, response


def test_bytes_tensors_count_as_they_are_sent(repo: bls.ModelRepository) -> None:
    kinds = [f'{k} [ {{ name: "{n}", data_type: TYPE_STRING, dims: [ -1 ] }} ]' for k, n in
             (("input", "IN"), ("output", "OUT"))]  # fmt: skip
    repo.define("echo", ECHOES, "\n".join(kinds))
    words = np.array([b"four", b"a" * 1000], np.object_)
    with bls.track_memory() as lifetimes:
        response = repo.infer("echo", {"IN": words})
    assert {life.bytes for life in lifetimes.record.lives} == {4 + 4 + 4 + 1000}
    assert lifetimes.left_behind()[0].bytes == response.record.tensors[0].bytes


def test_a_copy_on_a_gpu_belongs_to_the_model_that_gets_it(repo: bls.ModelRepository) -> None:
    bls.simulate_gpus(1, even_with_cuda=True)
    try:
        x = bls.cupy().ones(BIG, np.float32)
        with bls.track_memory() as lifetimes:
            response = ask(repo, models.DOUBLE, x, preferred_memory="cpu")
    finally:
        bls.simulate_gpus(0)
    copy, given = sorted(of(lifetimes.record.lives, "X"), key=lambda life: life.how)
    assert (given.device, given.maker.model, given.died) == ("gpu:0", "", -1)
    assert (copy.device, copy.maker.model, copy.how, copy.source) == ("gpu:0", "worker", "copy", given.id)
    moved = of(lifetimes.record.lives, "Y")[-1]
    assert (moved.device, moved.maker.model, moved.how) == ("cpu", "worker", "transfer")
    assert moved.transfer_ns > 0
    del response


def test_a_stream_that_is_not_read_to_its_end(repo: bls.ModelRepository) -> None:
    request = {"OP": np.array([3], np.int32), "X": np.ones(BIG, np.float32)}
    with bls.track_memory() as lifetimes:
        responses = repo.stream("streamer", request)
        first = next(responses)
        until(lambda: sum(life.tensor == "Y" for life in lifetimes.alive()) == 3)
        waiting = [life for life in lifetimes.alive() if life.tensor == "Y"]
        assert {life.maker.model for life in waiting} == {"streamer"}
        del responses, first
        until(lambda: lifetimes.bytes() == request["X"].nbytes + 4)


def test_async_requests_belong_to_the_request_that_sent_them(repo: bls.ModelRepository) -> None:
    with bls.track_memory() as lifetimes:
        response = ask(repo, models.DOUBLE, np.ones(BIG, np.float32), "gatherer")
        until(lambda: lifetimes.bytes() == response["Y"]._array.nbytes)
    # Where a thread has not let go of an answer yet, the gatherer's own is a copy, of request 1.
    made = [life for life in of(lifetimes.record.lives, "Y") if life.maker.request != 1]
    assert sorted(life.maker.request for life in made) == [2, 3, 4]
    assert all(steps(life)[0] == ("output", "gatherer") for life in made)


def test_the_copies_that_a_response_cache_gives(repo: bls.ModelRepository) -> None:
    config = models._CONFIG.format(count=1, more="response_cache { enable: true }")
    repo.define("cached", models._HEAD + models._WORKER, config)
    x = np.ones(BIG, np.float32)
    ask(repo, models.DOUBLE, x, "cached")
    with bls.track_memory() as lifetimes:
        again = ask(repo, models.DOUBLE, x, "cached")
    (life,) = of(lifetimes.record.lives, "Y")
    assert (life.maker.model, life.died, steps(life)) == ("cached", -1, [("output", "")])
    del again


def test_a_tensor_that_is_exported(repo: bls.ModelRepository) -> None:
    response = ask(repo, models.DOUBLE, np.ones(BIG, np.float32))
    with bls.track_memory() as lifetimes:
        array = np.from_dlpack(response["Y"])
        del response
    (life,) = lifetimes.alive()
    assert [stay.role for stay in life.stays] == ["view"]
    assert life.bytes == array.nbytes


def test_requests_of_many_threads(repo: bls.ModelRepository) -> None:
    held: list[Any] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(40):
            op = int(random.choice([models.ECHO, models.DOUBLE, models.NEST, models.KEEP_INPUT]))
            held.append(ask(repo, op, np.ones(int(random.integers(1, BIG)), np.float32)))
            if random.random() < 0.5:
                held.pop(0)

    with bls.track_memory() as lifetimes:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until(lambda: all(life.holders for life in lifetimes.alive()[:20]))
        held.clear()
        ask(repo, models.FORGET, np.ones(1, np.float32))
        until(lambda: lifetimes.bytes() == 0)
    numbers = {stay.at.request for life in lifetimes.record.lives for stay in life.stays} - {0}
    assert len(numbers) >= 160


def holders(lifetimes: Any, tensor: str = "Y") -> set[tuple[str, str]]:
    return {(h.kind, h.name) for life in lifetimes.alive() if life.tensor == tensor for h in life.holders}


def test_attributes_of_models_are_named_by_their_path(repo: bls.ModelRepository) -> None:
    with bls.track_memory() as lifetimes:
        for op in (models.KEEP_INPUT, models.KEEP_OUTPUT, models.CLOSURE):
            ask(repo, op, np.ones(BIG, np.float32))
    assert holders(lifetimes, "X") == {("attribute", "worker.kept[0]")}
    assert holders(lifetimes) == {
        ("attribute", "worker.kept[1]['made']"),
        ("attribute", "worker.later[0] (its variable 'made')"),
    }
    assert {str(h.remedy) for life in lifetimes.alive() for h in life.holders} == {"repo.reload('worker')"}


def test_variables_of_functions_and_generators_are_named(
    repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hide() -> Iterator[Any]:
        hidden = ask(repo, models.DOUBLE, np.ones(BIG, np.float32))
        yield None
        del hidden

    hiding = hide()
    with bls.track_memory() as lifetimes:
        kept = {"here": [ask(repo, models.DOUBLE, np.ones(BIG, np.float32))]}
        next(hiding)
        monkeypatch.setattr(colorsys, "hidden", hiding, raising=False)  # a library, which is not searched
        del hiding
    where = "test_variables_of_functions_and_generators_are_named()"
    assert holders(lifetimes) == {("frame", f"kept in {where}"), ("frame", "hidden in hide()")}
    del kept


def test_blocks_of_reference_cycles_are_not_left_behind(repo: bls.ModelRepository) -> None:
    with bls.track_memory() as lifetimes:
        ring: list[Any] = [ask(repo, models.DOUBLE, np.ones(BIG, np.float32))]
        ring.append(ring)
        del ring
    assert not lifetimes.alive()
    (life,) = of(lifetimes.record.lives, "Y")
    assert life.died <= lifetimes.record.wall


def test_nothing_is_left_of_a_track(repo: bls.ModelRepository) -> None:
    x = np.ones(BIG, np.float32)
    with bls.track_memory():
        response = ask(repo, models.ECHO, x)
        assert weakref.getweakrefcount(x) == 1
        assert allocation_log.recording is not None
    assert weakref.getweakrefcount(x) == 0
    assert weakref.getweakrefcount(response["Y"]._array) == 0
    assert allocation_log.recording is None


def test_errors_and_interrupts_leave_nothing_on(repo: bls.ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    class Broken:
        simulated = False

        def array_module(self) -> None:
            raise RuntimeError("no driver")

    lifetimes = bls.track_memory()
    with pytest.raises(ZeroDivisionError), lifetimes:  # noqa: PT012
        ask(repo, models.DOUBLE, np.ones(3, np.float32))
        raise ZeroDivisionError
    assert len(lifetimes.record.lives) == 6
    with monkeypatch.context() as patched:  # while one ends
        patched.setattr(gc, "collect", interrupted)
        with pytest.raises(KeyboardInterrupt), bls.track_memory():
            pass
    assert allocation_log.recording is None
    with monkeypatch.context() as patched:  # while one begins
        patched.setattr(memory_track, "devices", list)
        patched.setattr(memory_track, "gpus", Broken)
        with pytest.raises(RuntimeError, match="no driver"), bls.track_memory():
            pass
    with bls.track_memory() as track:
        assert track.bytes() == 0


def test_a_track_is_used_once() -> None:
    track = bls.track_memory()
    with pytest.raises(bls.BLSError, match="nothing is tracked yet"):
        track.record
    with track:
        pass
    with pytest.raises(bls.BLSError, match="make a new one"), track:
        pass
    assert track.record is track.record


@pytest.mark.parametrize("limit", [0, True, 1.5, "9"])
def test_a_limit_that_makes_no_sense(limit: Any) -> None:
    with pytest.raises(bls.BLSError, match="limit: got"):
        bls.track_memory(limit=limit)


@pytest.fixture
def short_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is read into the table after a tenth of the usual number of requests."""
    monkeypatch.setattr(memory_track, "MOST_LOG", 4_000)


@pytest.mark.parametrize("calls", [60, 400])
def test_memory_of_the_track_itself_is_bounded(repo: bls.ModelRepository, short_log: None, calls: int) -> None:
    x = np.ones(8, np.float32)
    with bls.track_memory(limit=50) as lifetimes:
        ask(repo, models.KEEP_INPUT, np.ones(100, np.float32))
        for _ in range(calls):
            ask(repo, models.DOUBLE, x)
        assert lifetimes._recording is not None
        assert len(lifetimes._recording.log) < 4_500
        assert lifetimes.bytes() == 400 + x.nbytes
    record = lifetimes.record
    assert len(record.lives) == 50
    assert record.dropped > calls * 3
    (kept,) = record.left_behind()
    assert (kept.bytes, kept.maker.model, kept.maker.request) == (400, "worker", 1)


def test_a_block_that_was_read_and_dies_before_the_log_is_shortened(repo: bls.ModelRepository, short_log: None) -> None:
    x = np.ones(8, np.float32)
    with bls.track_memory(limit=50) as lifetimes:
        held = [ask(repo, models.DOUBLE, np.ones(100, np.float32))]
        assert lifetimes.bytes() == 400
        held.clear()
        shortened = 0
        for _ in range(400):
            before = len(lifetimes._recording.log)
            ask(repo, models.DOUBLE, x)
            shortened += len(lifetimes._recording.log) < before
        assert shortened > 1
        assert lifetimes.bytes() == x.nbytes
    assert lifetimes.record.dropped == 6 + 5 * 400 + 1 - 50


def test_an_answer_that_comes_in_the_next_track(repo: bls.ModelRepository) -> None:
    wait = "from tests.engine import gates\n        gates.open_gate('arrived')\n        gates.pass_gate('go on')"
    source = models._HEAD + models._WORKER.replace("        return [", f"        {wait}\n        return [", 1)
    repo.define("late", source, models._CONFIG.format(count=1, more=""))
    answers: list[Any] = []
    sender = threading.Thread(target=lambda: answers.append(ask(repo, models.DOUBLE, np.ones(BIG, np.float32), "late")))
    with bls.track_memory():
        sender.start()
        gates.pass_gate("arrived")
    with bls.track_memory() as lifetimes:
        ask(repo, models.DOUBLE, np.ones(BIG, np.float32))
        gates.open_gate("go on")
        sender.join()
    (late,) = lifetimes.alive()
    assert (late.tensor, late.maker.model, late.maker.request) == ("Y", "", 0)  # not those of `worker`


def test_blocks_beyond_the_limit_are_counted(repo: bls.ModelRepository) -> None:
    with bls.track_memory(limit=2) as lifetimes:
        for _ in range(5):
            ask(repo, models.KEEP_INPUT, np.ones(100, np.float32))
        assert lifetimes.bytes("cpu") == 5 * 400
    record = lifetimes.record
    assert record.bytes("cpu") + record.dropped_bytes == 5 * 400
    ask(repo, models.FORGET, np.ones(1, np.float32))
