from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bls_notebook.profiling.analysis.queue_simulation import (
    UNLIMITED,
    Batcher,
    Queued,
    Work,
    batches_seen,
    capacities,
    recipes,
    replay,
)
from bls_notebook.profiling.analysis.verdict import CAUSES, verdict
from bls_notebook.profiling.analysis.verdict_evidence import comparison_evidence
from bls_notebook.profiling.analysis.workload_simulation import needs_of_work
from bls_notebook.profiling.records.comparison import Measured, Verdict
from bls_notebook.profiling.records.spans import LockHeld
from bls_notebook.profiling.session import Session, Span
from tests.profiling.simulated import Locked, Model, session

MS = 1_000_000
N = 8


def runs(models: Mapping[str, Model], step: str = "a", n: int = N) -> tuple[Session, Session]:
    """The workload one after the other, and all at once."""
    return session(models, *(step,) * n), session(models, (step,) * n)


def seen(record: Session, model: str, **changes: Any) -> Session:
    models = tuple(replace(m, **changes) if m.name == model else m for m in record.models)
    return replace(record, models=models)


def judged(
    pair: tuple[Session, Session], *, cpu: float = 0.0, cores: int = 16, held: float = 0.0, n: int = N,
    waited: tuple[float, float] = (0.0, 0.0), parallel: float = 0.0, doubt: float = 0.0,
) -> Verdict:  # fmt: skip
    """The verdict, where `cpu` is the part of the time that the process was at work."""
    one, all_ = pair
    used, waits = round(cpu * one.wall), (round(waited[0] * one.wall), round(waited[1] * all_.wall))
    options = {"cores": cores, "parallel": parallel, "gil_share": held, "relative_error": doubt}
    measured = Measured(n, one.wall, all_.wall, used, used, *waits, **options)
    found = verdict(comparison_evidence(one, all_, measured))
    assert found.cause in CAUSES
    return found


PIPELINES: dict[str, tuple[dict[str, Model], str]] = {
    "one model": ({"a": Model([10 * MS])}, "a"),
    "two instances": ({"a": Model([10 * MS], instances=2)}, "a"),
    "a pipeline": ({"a": Model([MS, "b", "c", MS], 4), "b": Model([5 * MS]), "c": Model([7 * MS], 2)}, "a"),
    "a gather inside": ({"a": Model([MS, ("b", "c"), MS], 3), "b": Model([5 * MS]), "c": Model([MS])}, "a"),
}


@pytest.mark.parametrize(("models", "step"), PIPELINES.values(), ids=PIPELINES)
def test_a_replay_takes_as_long_as_the_truth_whatever_the_instances(models: dict[str, Model], step: str) -> None:
    one, _ = runs(models, step)
    for count in (1, 2, 4):
        changed = {name: replace(m, instances=count) for name, m in models.items()}
        truth = runs(changed, step)[1].wall
        found = replay(recipes(one), dict.fromkeys(capacities(one), count))
        assert found == pytest.approx(truth, rel=0.01)


@pytest.mark.parametrize(
    ("python", "computing", "ms"), [(0, 0, 10), (0.5, 0, 25), (1, 0, 40), (0, 1, 20), (0, 0.5, 15), (0.5, 1, 25)]
)
def test_own_work_waits_for_the_gil_and_for_a_processor(python: float, computing: float, ms: int) -> None:
    one, _ = runs({"a": Model([10 * MS])})
    work = Work({("a", 1): python}, {("a", 1): computing}, 2 if computing else 0)
    assert replay(recipes(one)[:4], {("a", 1): 4}, work=work) == pytest.approx(ms * MS, rel=0.01)


@pytest.mark.parametrize(("gil", "part"), [(0, 0), (18, 0.25), (90, 1)])
def test_work_needs_the_time_of_its_thread_and_of_that_its_part_of_the_gils(gil: int, part: float) -> None:
    one, _ = runs({"a": Model(["b", 10 * MS]), "b": Model([5 * MS])})
    used = {"a": 9 * MS, "b": 4 * MS}  # `b` ran on the thread of `a`
    spans = tuple(replace(span, cpu=used[span.model], thread=1) for span in one.spans)
    needs = needs_of_work(replace(one, spans=spans), gil * MS, 2)
    assert needs.computing == pytest.approx({("a", 1): 0.5, ("b", 1): 0.8}, rel=0.01)
    python = {key: part * share for key, share in needs.computing.items()} if part else {}
    assert needs.python == pytest.approx(python, rel=0.01)


def test_batches_fill_before_a_second_instance_takes_the_next() -> None:
    one, all_ = runs({"a": Model([10 * MS], batch=4)})
    late = [replace(s, sent=s.sent + i * 20_000, queued=s.queued + i * 20_000) for i, s in enumerate(all_.spans)]
    wait = late[3].queued - late[0].queued
    late = [moved(span, wait) for span in late]
    at_once = replay(recipes(one), {("a", 1): 1}, {("a", 1): Batcher.greedy(4, 10 * MS, 0)})
    assert at_once == pytest.approx(all_.wall, rel=0.01)
    batches = batches_seen(replace(all_, spans=tuple(late)))
    first = Queued(recipes(one)[0], 1, 0, print)
    assert batches["a", 1].most == 4
    assert batches["a", 1].form([first], 0) == (0, wait + 1)
    sent = [i * 20_000 for i in range(8)]
    assert replay(recipes(one), {("a", 1): 2}, batches, sent) < 11 * MS


def test_a_batch_that_was_not_full_waited_for_its_delay() -> None:
    _, all_ = runs({"a": Model([10 * MS], batch=3)}, n=3)
    batches = batches_seen(replace(all_, spans=tuple(moved(span, 2 * MS) for span in all_.spans)))
    queue = [Queued(recipes(all_)[0], 1, 0, print)] * 3
    assert batches["a", 1].most == 3
    assert batches["a", 1].form(queue, 0) == (0, 2 * MS + 1)


def test_a_full_batch_does_not_wait_for_its_delay() -> None:
    one, _ = runs({"a": Model([10 * MS])})
    assert replay(recipes(one), {("a", 1): 1}, {("a", 1): Batcher.greedy(N, 12 * MS, 50 * MS)}) < 13 * MS


def test_requests_queue_for_one_instance() -> None:
    found = judged(runs({"a": Model([10 * MS])}))
    assert (found.cause, found.model, found.count) == ("queue", "a", 4)
    assert "7 requests queued on the one instance of `a` for 87% of the time" in found.sentence
    assert "async brought nothing" in found.sentence
    assert "until `instance_group.count` > 1" in found.sentence
    assert [round(w.speedup, 1) for w in found.what_ifs] == [1.0, 2.0, 4.0]
    assert found.predicted == pytest.approx(4, rel=0.02)
    assert found.best == pytest.approx(8, rel=0.02)
    assert found.chain == pytest.approx(10 * MS, rel=0.01)
    assert Verdict.from_dict(found.to_dict()) == found
    assert UNLIMITED not in {w.count for w in found.what_ifs}


def test_more_than_four_instances_are_tried_up_to_one_for_each_request() -> None:
    found = judged(runs({"a": Model([10 * MS], instances=4)}, n=12), n=12)
    assert (found.cause, found.count) == ("queue", 12)
    assert [w.count for w in found.what_ifs] == [1, 2, 4, 8, 12]
    assert "until `instance_group.count` > 4" in found.sentence
    assert found.predicted == pytest.approx(12, rel=0.02)
    # Something else made it take half as long again: who knows what more instances would bring.
    one, _ = runs({"a": Model([10 * MS], instances=4)}, n=12)
    _, slow = runs({"a": Model([15 * MS], instances=4)}, n=12)
    assert judged((one, slow), n=12).count == 0


def moved(span: Span, ns: int) -> Span:
    """The span, as if its instance had begun later."""
    return replace(span, **{k: getattr(span, k) + ns for k in ("started", "inferred", "ended", "released")})


def test_requests_that_wait_for_no_other_are_not_counted() -> None:
    one, all_ = runs({"a": Model([10 * MS])}, n=2)
    # The first one's thread woke up late, and so all came later.
    late = replace(all_, spans=tuple(moved(span, 5 * MS) for span in all_.spans), wall=all_.wall + 5 * MS)
    assert judged((one, late), n=2).sentence.startswith(
        "1 request queued on the one instance of `a` for 40% of the time"
    )


def test_a_run_that_was_slow_by_chance_is_no_reason_for_a_change() -> None:
    one, all_ = runs({"a": Model([10 * MS])})
    slow = replace(all_, wall=all_.wall * 2)
    found = judged((one, slow), cpu=0.5, cores=2, parallel=1.0, waited=(0.5, 0.5))
    assert (found.cause, found.count) == ("busy", 0)


def test_the_callee_that_is_waited_for_is_named_and_its_caller_if_both_hold_each_other_back() -> None:
    found = judged(runs({"a": Model([MS, "b"], instances=8), "b": Model([10 * MS])}))
    assert (found.cause, found.model, found.models) == ("queue", "b", ("b",))
    found = judged(runs({"a": Model(["b"]), "b": Model([10 * MS])}))
    assert (found.cause, set(found.models)) == ("queue", {"a", "b"})
    assert found.predicted == pytest.approx(4, rel=0.05)


def test_no_model_is_advised_to_have_fewer_instances() -> None:
    models = {"a": Model([MS, ("b", "b", "b", "b"), MS]), "b": Model([10 * MS], instances=8)}
    found = judged(runs(models))
    assert (found.count, found.models) == (4, ("a",)), found.advice
    more = {**models, "a": replace(models["a"], instances=4)}
    assert found.predicted == pytest.approx(runs(models)[0].wall / runs(more)[1].wall, rel=0.02)


def test_async_helped() -> None:
    found = judged(runs({"a": Model([10 * MS], instances=8)}))
    assert (found.cause, found.count) == ("helped", 0)
    assert "8.0 times as fast, of 8.0 at best" in found.sentence
    one, all_ = runs({"a": Model([10 * MS], instances=8)})
    faster = judged((one, replace(all_, wall=all_.wall * 9 // 10)), cpu=0.5, cores=2, parallel=2.0)
    assert faster.best >= faster.speedup > 8


@pytest.mark.parametrize("instances", [1, 4])
def test_pure_python_is_named_whatever_the_instances(instances: int) -> None:
    one, _ = runs({"a": Model([10 * MS])})
    # With four instances each is slowed down by as much as there are: turns are taken.
    _, all_ = runs({"a": Model([10 * MS * instances], instances)})
    found = judged((one, all_), cpu=1.0, held=1.0)
    assert (found.cause, found.model, found.count) == ("gil", "a", 0)
    assert "process of its own" in found.advice
    assert [round(w.speedup, 1) for w in found.what_ifs] == [1.0, 1.0, 1.0]
    assert found.what_ifs[-1].on_server == pytest.approx(4, rel=0.05)


def test_pure_python_in_one_batch_gains_nothing_by_instances_on_a_server_either() -> None:
    found = judged(batch_of([10 * MS], [80 * MS]), cpu=1.0, held=1.0)
    assert found.cause == "gil"
    assert "and by the prediction hardly on a Triton server" in found.advice


def test_python_in_processes_does_not_wait_for_the_gil_of_the_engine() -> None:
    """The engine's GIL may be busy with passing requests on, and spans may look as if they took turns with it."""
    one, all_ = (seen(run, "a", processes=True) for run in runs({"a": Model([10 * MS], instances=2)}))
    for held in (1.0, -1.0):
        assert judged((one, all_), cpu=1.0, cores=2, held=held, parallel=2.0).cause == "helped"
    found = judged((one, seen(runs({"a": Model([20 * MS], instances=2)})[1], "a", processes=True)), cpu=1.0, held=-1.0)
    assert found.cause != "gil"


def test_pure_python_is_seen_from_spans_where_the_lock_was_not_measured() -> None:
    one, freed = runs({"a": Model([10 * MS], instances=4)})
    _, slow = runs({"a": Model([40 * MS], instances=4)})
    assert judged((one, slow), cpu=1.0, held=-1.0).cause == "gil"
    assert judged((one, freed), cpu=1.0, held=-1.0).cause != "gil"


def test_on_a_busy_machine_spans_do_not_show_who_had_the_lock() -> None:
    """The slow requests may have waited for a processor, so that pure Python is only one of the possible causes."""
    one, _ = runs({"a": Model([10 * MS], instances=4)})
    _, slow = runs({"a": Model([40 * MS], instances=4)})
    found = judged((one, slow), cpu=0.8, held=-1.0, cores=2, waited=(0.3, 0.5))
    assert (found.cause, "can look like a wait for the interpreter's lock" in found.sentence) == ("busy", True)


def test_numpy_that_lets_go_of_the_lock_fills_the_cores() -> None:
    one, _ = runs({"a": Model([10 * MS], instances=4)})
    _, all_ = runs({"a": Model([20 * MS], instances=4)})
    found = judged((one, all_), cpu=1.0, cores=2, held=0.02)
    assert (found.cause, found.best) == ("helped", pytest.approx(2, rel=0.05))
    assert "keeps the processors busy" in judged((one, one), cpu=1.0, cores=1, held=0.02).sentence
    late = judged((one, replace(one, wall=4 * one.wall)), cpu=1.0, cores=1, held=0.02)  # of one core, it used a quarter
    assert late.cause == "cores"
    assert "used only 0.2 of 1 cores" in late.sentence


@pytest.mark.parametrize(("parallel", "speedups"), [(0.0, [1.0, 2.0, 2.0]), (1.3, [1.0, 1.3, 1.3])])
def test_the_throughput_of_the_processors_bounds_the_prediction(parallel: float, speedups: list[float]) -> None:
    found = judged(runs({"a": Model([10 * MS])}), cpu=1.0, cores=2, held=0.02, parallel=parallel)
    assert (found.cause, found.count) == ("queue", 2)
    assert [round(w.speedup, 1) for w in found.what_ifs] == speedups


def test_threads_of_a_library_use_several_processors_for_one_request() -> None:
    one, all_ = (replace(run, beside=run.wall) for run in runs({"a": Model([10 * MS])}))
    found = judged((one, all_), cpu=2.0, cores=2, held=0.02, parallel=1.2)
    assert found.cause == "cores"
    assert {round(what.speedup, 1) for what in found.what_ifs} == {1.0}


def test_the_model_that_keeps_the_processors_busy_computes_and_does_not_wait() -> None:
    pair = runs({"a": Model(["waits", "computes"]), "waits": Model([12 * MS]), "computes": Model([10 * MS])})
    used = {"a": 0, "waits": 0, "computes": 10 * MS}
    one, all_ = (replace(run, spans=tuple(replace(s, cpu=used[s.model]) for s in run.spans)) for run in pair)
    found = judged((one, all_), cpu=2.0, cores=2, held=0.02)
    assert (found.cause, found.model) == ("cores", "computes")


def test_runs_that_differ_make_the_figures_rough_and_change_no_cause() -> None:
    sure, unsure = (judged(runs({"a": Model([10 * MS])}), doubt=doubt) for doubt in (0.02, 0.08))
    little = judged(runs({"a": Model([MS // 20])}), doubt=0.5)
    assert (little.cause, little.note) == ("little", "")
    assert sure.note == ""
    assert "the speedup is 1.0, give or take 16%" in unsure.note
    assert (unsure.cause, unsure.predicted) == (sure.cause, sure.predicted)


def test_other_programs_do_not_change_the_cause_and_are_told() -> None:
    # Half of the time the burner had no processor; both ways took twice as long.
    burner = judged(runs({"a": Model([20 * MS])}), cpu=0.5, held=1.0, cores=2, parallel=1.1, waited=(0.5, 0.5))
    assert burner.cause == "gil"
    assert "for 50% of the time" in burner.note
    # Two threads waited all the time.
    assert judged(runs({"a": Model([20 * MS])}), cpu=0.3, held=1.0, waited=(2.0, 2.0)).cause == "gil"
    one = runs({"a": Model([10 * MS])})[0]
    late = session({"a": Model([15 * MS], instances=8)}, ("a",) * N)
    helped = judged((one, late), cores=2, waited=(0.0, 0.5))
    assert helped.cause == "helped"
    assert helped.note
    assert judged((one, late), cores=2).cause == "partly"
    assert judged(runs({"a": Model([10 * MS])})).note == ""
    # NumPy on one instance, where two threads got no more done just now: on a quiet machine they would.
    numpy = runs({"a": Model([10 * MS])})
    assert judged(numpy, cpu=0.4, cores=2, parallel=1.0, waited=(0.6, 0.6)).cause == "busy"
    assert judged(numpy, cpu=1.0, cores=2, parallel=1.0).cause == "cores"


def changed(models: Mapping[str, Model], **changes: Any) -> Verdict:
    """The verdict, where `a` is recorded with these changes."""
    one, all_ = runs(models)
    return judged((seen(one, "a", **changes), seen(all_, "a", **changes)))


@pytest.mark.parametrize(("decoupled", "speedup"), [(False, 31 / 11), (True, 8 * 31 / 11)])
def test_sync_exec_in_an_async_execute(decoupled: bool, speedup: float) -> None:
    models = {"a": Model([MS, "b", "b", "b"]), "b": Model([10 * MS], instances=64)}
    found = changed(models, is_async=True, decoupled=decoupled)
    assert (found.cause, found.model, found.predicted) == ("sync_exec", "a", pytest.approx(speedup, rel=0.05))


def test_one_exec_after_awaited_calls_has_nothing_to_gather() -> None:
    models = {"a": Model([MS, "b", "c"]), "b": Model([10 * MS], 64), "c": Model([10 * MS], 64)}
    awaits = [
        seen(replace(r, spans=tuple(replace(s, kind="async" if s.model == "b" else s.kind) for s in r.spans)), "a",
             is_async=True)
        for r in runs(models)
    ]  # fmt: skip
    found = judged((awaits[0], awaits[1]))
    assert (found.cause, found.model, found.count) == ("one_at_a_time", "a", 4)
    assert "Or make `a` decoupled, and send its calls by async_exec: one" in found.advice


def test_a_coroutine_that_blocks() -> None:
    found = changed({"a": Model([10 * MS])}, is_async=True, decoupled=True)
    assert (found.cause, found.model, found.predicted) == ("blocking", "a", pytest.approx(8, rel=0.05))
    assert found.sentence.endswith("may share an instance, so async brought nothing.")
    two = changed({"a": Model([10 * MS], instances=2)}, is_async=True, decoupled=True)
    assert "ran one after the other in each instance though they may share an instance; async was 2.0" in two.sentence


def test_nothing_is_predicted_from_waits_for_processors_that_others_used() -> None:
    one, all_ = runs({"a": Model([10 * MS])})
    pair = tuple(seen(record, "a", is_async=True, decoupled=True) for record in (one, all_))
    found = judged(pair, cpu=0.2, cores=1, waited=(0.8, 0.8))
    assert (found.cause, found.predicted, found.what_ifs) == ("blocking", 0, ())
    assert "predicted" not in found.advice


def test_an_async_execute_that_is_not_decoupled_serves_one_at_a_time() -> None:
    found = changed({"a": Model([10 * MS])}, is_async=True)
    assert (found.cause, found.count) == ("one_at_a_time", 4)
    assert "predicted 4.0 times as fast as today's exec" in found.advice
    assert "Or make `a` decoupled: one" in found.advice


def test_no_more_instances_are_advised_than_there_are_requests() -> None:
    found = judged(runs({"a": Model([10 * MS])}, n=3), n=3)
    assert (found.count, [what.count for what in found.what_ifs]) == (3, [1, 2, 3])


def test_too_little_work() -> None:
    found = judged(runs({"a": Model([20_000])}), cpu=1.0)
    assert (found.cause, found.count) == ("little", 0)
    assert "a request takes 20 µs" in found.sentence
    # It does not become more where one of eight had to wait for a processor.
    one, all_ = runs({"a": Model([20_000])})
    spans = tuple(replace(s, ended=s.ended + 9 * MS) if i == 7 else s for i, s in enumerate(one.spans))
    stalled = replace(one, spans=spans, wall=one.wall + 9 * MS), replace(all_, wall=all_.wall + 9 * MS)
    assert judged(stalled, cpu=0.1, waited=(0.9, 0.9)).cause == "little"
    assert judged(stalled).cause != "little"


def test_instances_that_share_a_lock() -> None:
    found = judged(runs({"a": Model([Locked(10 * MS)], instances=4)}))
    assert (found.cause, found.model, found.what_ifs) == ("contention", "a", ())
    assert found.best == found.speedup
    # Half of the work is theirs alone; a callee's lock is the callee's.
    assert judged(runs({"a": Model([10 * MS, Locked(10 * MS)], instances=8)})).cause == "contention"
    calls = judged(runs({"a": Model([Locked(30 * MS), "b"], instances=8), "b": Model([10 * MS], instances=8)}))
    assert "wait for each other: not counting its calls, beside others a request takes" in calls.sentence
    # If the work explains the time only in part, no gain is predicted.
    doubt = judged(runs({"a": Model([Locked(30 * MS), "b"], instances=3), "b": Model([45 * MS], instances=8)}))
    assert (doubt.cause, doubt.count, doubt.predicted, doubt.what_ifs) == ("queue", 4, 0, ())
    assert "would take 225 ms now, and they took 285 ms" in doubt.advice
    callee = {"a": Model(["b"], instances=8), "b": Model([Locked(10 * MS)], instances=4)}
    assert judged(runs(callee)).model == "b"
    assert judged(runs({"a": Model([Locked(10 * MS)], instances=4)}), cpu=2.0, cores=2).cause != "contention"


def test_requests_that_differ_do_not_wait_for_each_other() -> None:
    one, all_ = runs({"a": Model([5 * MS], instances=N)})
    long = 40 * MS
    alone = [replace(s, ended=s.ended + long) if i == 3 else s for i, s in enumerate(one.spans)]
    together = [replace(s, ended=s.ended + long) if i % 2 else s for i, s in enumerate(all_.spans)]
    pair = replace(one, spans=tuple(alone)), replace(all_, spans=tuple(together), wall=all_.wall + long)
    assert judged(pair).cause != "contention"
    assert judged((one, pair[1])).cause == "contention"


def test_the_cache_answers() -> None:
    def hits(model: str, models: dict[str, Model]) -> Verdict:
        one, all_ = (
            replace(run, spans=tuple(replace(s, cached=s.model == model) for s in run.spans)) for run in runs(models)
        )
        return judged((one, all_))

    assert hits("a", {"a": Model([10 * MS])}).cause == "cached"
    short, long = ({"a": Model([work, "b"]), "b": Model([1000])} for work in (MS // 2, 10 * MS))
    assert (hits("b", short).cause, hits("b", short).model) == ("cached", "b")
    assert hits("b", long).cause == "queue"


def test_a_batcher() -> None:
    pair = (session({"a": Model([10 * MS])}, *("a",) * N), session({"a": Model([12 * MS], batch=8)}, ("a",) * N))
    found = judged(pair)
    assert (found.cause, found.model) == ("batched", "a")
    assert "up to 8 requests by one execute" in found.sentence
    four = session({"a": Model([10 * MS])}, *("a",) * N), session({"a": Model([12 * MS], batch=4)}, ("a",) * N)
    assert judged(four).count == 2
    assert judged((four[0], seen(four[1], "a", scheduler="sequence_batching"))).count == 0  # instances share sequences


@pytest.mark.parametrize(("most", "told"), [(4, True), (2, False)])
def test_instances_of_callers_that_limit_batches_are_named(most: int, told: bool) -> None:
    pair = runs({"front": Model(["a"], instances=2), "a": Model([10 * MS], batch=2)}, "front")
    seen = tuple(replace(model, max_batch_size=most) for model in pair[0].models)
    found = judged((replace(pair[0], models=seen), replace(pair[1], models=seen)))
    assert found.cause == "batched"
    assert ("No more than 2 requests reached `a` at once: with more instances of `front`" in found.advice) == told


def test_waits_of_single_requests_for_a_batch_are_told() -> None:
    one, all_ = (seen(run, "a", scheduler="dynamic_batching") for run in runs({"a": Model([10 * MS])}))
    slow = [
        replace(s, sent=4 * s.sent, queued=4 * s.sent, started=4 * s.sent + 30 * MS, ended=4 * s.sent + 40 * MS)
        for s in one.spans
    ]
    found = judged((replace(one, spans=tuple(slow), wall=4 * one.wall), all_))
    assert "waited for batches of `a` to fill for 75% of the time" in found.advice
    assert "to fill" not in judged((one, all_)).advice


def batch_of(alone: list[Any], batch: list[Any], count: int = 8) -> tuple[Session, Session]:
    """Requests to `a` by themselves, and all in one batch, with these steps."""
    b = {"b": Model([10 * MS], instances=count), "c": Model([5 * MS], instances=count)}
    return session({"a": Model(alone), **b}, *("a",) * N), session({"a": Model(batch, batch=N), **b}, ("a",) * N)


@pytest.mark.parametrize("steps", [["b"], ["b", "c"], [("b", "c"), "b"]], ids=["one call", "two", "some together"])
def test_a_batch_whose_requests_are_served_one_by_one_gains_by_gathering_them(steps: list[Any]) -> None:
    pair = batch_of(steps, steps * N)
    found = judged(pair)
    truth = session({"a": Model(steps, instances=N), "b": Model([10 * MS], 64), "c": Model([5 * MS], 64)}, ("a",) * N)
    assert (found.cause, found.model, found.count) == ("batch_in_turn", "a", 0)
    assert "`a` serves the requests of a batch one after the other" in found.sentence
    assert found.predicted == pytest.approx(pair[0].wall / truth.wall, rel=0.1)
    assert f"predicted {found.predicted:.1f} times as fast as today's exec" in found.advice
    few = judged(batch_of(steps, steps * N, count=1))
    assert few.cause == "batch_in_turn"
    assert "`instance_group.count` to 4 for `b`" in few.advice or "with 4 instances of `b`" in few.advice


def test_calls_of_a_batch_that_are_not_of_one_request_each_do_not_blame_its_code() -> None:
    for alone, batch in [
        (["b"], ["b"]),  # the batch is one request of the callee
        (["b"] * 4, ["b"] * 8),  # two requests of four parts
        (["b"], [("b",) * N]),  # gathered
        (["b", "c"], [("b",) * N, ("c",) * N]),  # gathered twice
    ]:
        assert judged(batch_of(alone, batch)).cause == "batched"
    # Neither does a callee that computes alone with every processor.
    assert judged(batch_of([10 * MS, "b"], [10 * MS, "b"] * N), cpu=1.0, cores=1).cause != "batch_in_turn"


def test_the_calls_of_a_batch_are_simulated() -> None:
    one, all_ = batch_of(["b"], [("b",) * N])
    batches = batches_seen(all_)
    for count in (1, 2, 8):
        truth = batch_of(["b"], [("b",) * N], count)[1].wall
        assert replay(recipes(one), {("a", 1): 1, ("b", 1): count}, batches) == pytest.approx(truth, rel=0.02)


def test_a_decoupled_instance_is_idle_when_its_execute_returns() -> None:
    alone, together = (seen(record, "a", decoupled=True) for record in runs({"a": Model([40 * MS], instances=N)}))
    early = replace(
        alone,
        spans=tuple(replace(s, kind="stream", inferred=s.started + 1, released=s.started + 1) for s in alone.spans),
    )
    (recipe, *_) = recipes(early)
    assert recipe.released is not None
    assert replay([recipe] * N, {("a", 1): 1}) == pytest.approx(together.wall, rel=0.02)
    # Two threads of a pool on one instance: what they share may be its own.
    pool = seen(session({"a": Model([40 * MS], instances=2)}, ("a",) * N), "a", decoupled=True, instances=("a_0",))
    spans = [
        replace(s, kind="stream", started=s.queued, inferred=s.queued, released=s.queued + 1, instance="a_0")
        for s in pool.spans
    ]
    found = judged((replace(early, models=pool.models), replace(pool, spans=tuple(spans))))
    # How a server distributes requests that make no instance busy is not known.
    assert (found.cause, found.count, found.predicted) == ("shared_instance", 4, 0)
    assert "More instances help if each has its own. How much is unknown" in found.advice
    assert "nothing" not in found.sentence + found.advice
    # Six threads for eight requests: two wait, and the mean is not much longer.
    ends = [(80 if number > 5 else 40) * MS for number in range(N)]
    last = [
        replace(span, sent=0, queued=0, started=0, inferred=0, released=1, ended=end)
        for span, end in zip(early.spans, ends, strict=True)
    ]
    late = replace(early, models=pool.models, spans=tuple(last), wall=80 * MS)
    assert judged((replace(early, models=pool.models), late)).cause == "shared_instance"


def test_a_busy_machine_makes_causes_unknown_that_it_imitates() -> None:
    one = runs({"a": Model([10 * MS], instances=N)})[0]
    late = session({"a": Model([60 * MS], instances=N)}, ("a",) * N)
    assert judged((one, late), cores=16).cause == "contention"
    found = judged((one, late), cores=16, waited=(0.3, 0.0))
    assert found.cause == "busy"
    assert found.sentence.startswith("Unknown: the machine was busy. For 30% of the time")
    assert "can look like a wait for each other" in found.sentence
    # What instances queue for is seen whatever the processors do.
    assert judged(runs({"a": Model([10 * MS])}), cores=2, waited=(0.3, 0.3)).cause == "queue"


def test_the_parts_of_a_requests_time_come_before_its_waits() -> None:
    pair = runs({"a": Model(["b", "c"]), "b": Model([20 * MS]), "c": Model([10 * MS])})
    held = tuple(LockHeld(s.started, s.inferred, ()) for s in pair[0].spans if s.model == "b")
    compared = judged((replace(pair[0], lock=held, cpu=1), pair[1]), cpu=0.66, held=0.66)
    assert compared.cause == "gil"
    assert compared.model == "b"
    where, waits = "Of a request's work, 67% in `b` (Python code under the GIL) and 33% in `c`.", "7 requests queued on"
    assert compared.sentence.index(where) < compared.sentence.index(waits)
    assert "instance_group.count" in compared.advice
    assert "More instances do not help" not in compared.advice


def test_no_advice_begins_with_an_alternative_to_nothing() -> None:
    found = changed({"a": Model([10 * MS])}, max_batch_size=8)
    assert found.advice.startswith("Set ")
    assert "Or let it batch: dynamic_batching" in found.advice
    one, all_ = (seen(r, "a", max_batch_size=8) for r in runs({"a": Model([10 * MS], instances=4)}, n=12))
    slow = replace(all_, spans=tuple(moved(s, 5 * MS) for s in all_.spans))
    assert not judged((one, slow), n=12).advice.startswith("Or")


def test_one_request_and_failed_ones() -> None:
    assert judged(runs({"a": Model([MS])}, n=1), n=1).cause == "one"
    bad = Span(
        1, "a", sent=0, queued=1, started=1, inferred=2, ended=3, state="error", error="no <b>\n\nAt:\n  m(1): x\n"
    )
    record = replace(runs({"a": Model([MS])})[0], spans=(bad, replace(bad, id=2)), wall=3)
    found = judged((record, record), n=2)
    assert (found.cause, found.sentence) == ("failed", "2 of 2 requests to `a` failed: no <b>")
    assert (found.speedup, found.best, found.what_ifs, found.note) == (0.0, 0.0, (), "")
    one, all_ = runs({"a": Model([MS])}, n=3)
    one = replace(one, spans=(replace(one.spans[0], state="cancelled"), *one.spans[1:]))
    found = judged((one, all_), n=3)
    assert (found.cause, found.speedup) == ("failed", 0.0)
    assert "1 of 3 requests to `a` was cancelled" in found.sentence
    one = replace(one, spans=(*one.spans, replace(one.spans[1], id=99, model="b")))
    assert "1 of 3 requests to `a` was cancelled" in judged((one, all_), n=3).sentence


def test_a_caller_of_many_is_known_by_the_call_before_each() -> None:
    one, _ = runs({"a": Model([MS, *["b"] * 300], 4), "b": Model([MS])}, n=2)
    recipe = recipes(one)[0]
    assert [sent.waited for sent in recipe.sent] == [(), *((i,) for i in range(299))]
    assert (recipe.waited, recipe.rows) == ((299,), 1)


@pytest.mark.parametrize("seed", range(40))
def test_a_call_waited_for_all_that_was_answered_before(seed: int) -> None:
    chance = random.Random(seed)
    parent = Span(1, "a", instance="a_0", sent=0, queued=0, started=0, inferred=100, ended=100)
    children = []
    for number in range(2, 2 + chance.randint(1, 12)):
        sent = chance.randint(0, 12)
        ended = sent + chance.choice((0, 0, 1, 3, 7))  # some are refused at once
        children.append(Span(number, "b", parent=1, sent=sent, queued=sent, started=ended, ended=ended))
    children.sort(key=lambda span: span.sent)
    (recipe,) = recipes(Session((parent, *children)))

    def all_of(waited: tuple[int, ...]) -> set[int]:
        return set(waited).union(*(all_of(recipe.sent[i].waited) for i in waited))

    for moment, waited in (
        *zip([c.sent for c in children], [s.waited for s in recipe.sent], strict=True),
        (100, recipe.waited),
    ):
        truth = {i for i, c in enumerate(children) if c.ended <= moment and c.sent < moment}
        assert all_of(waited) == truth


def test_no_count_is_predicted_with_which_a_model_waits_for_itself() -> None:
    # One at a time, each asks the model that it is served by.
    pair = [
        replace(record, models=record.models[:1], spans=tuple(replace(s, model="a") for s in record.spans))
        for record in runs({"a": Model(["a2", MS], 3), "a2": Model([MS], 3)}, n=2)
    ]
    assert [w.count for w in judged((pair[0], pair[1]), n=2).what_ifs] == [4]


def test_the_sentences_of_a_cause_differ_in_what_was_measured_only() -> None:
    pair = runs({"a": Model([10 * MS])})
    compared, cell = judged(pair), replace(pair[1], cores=16).verdict()
    waits = "queued on the one instance of `a` for 87% of the time:"
    assert (compared.cause, cell.cause) == ("queue", "queue")
    assert compared.sentence.startswith(f"7 requests {waits} async brought nothing")
    assert cell.sentence.startswith(f"8 requests took 80 ms, under way together. 7 of them {waits} they took as long")
