from __future__ import annotations

from hypothesis import given

from bls_notebook.profiling.session import Mark, Session, Span
from tests.profiling.simulated import Model, Step, session
from tests.profiling.strategies import sessions, systems


def told(record: Session) -> list[tuple[str, str, int]]:
    return [(s.model, s.phase, s.end - s.begin) for s in record.critical_path()]


def test_of_nothing_it_is_the_notebook() -> None:
    assert told(Session(wall=7)) == [("", "notebook", 7)]
    assert Session().critical_path() == ()


def test_a_wait_in_the_queue_is_the_work_of_those_before() -> None:
    record = session({"a": Model([10])}, ("a",) * 3)
    steps = record.critical_path()
    assert [(s.span, s.phase.removeprefix("compute_"), s.behind) for s in steps] == [
        (3, "input", 0), (1, "infer", 3), (1, "output", 3), (2, "infer", 3), (2, "output", 3), (3, "infer", 0),
        (3, "output", 0),
    ]  # fmt: skip


def test_unexplained_waits_are_the_queue() -> None:
    delayed = Span(1, "a", instance="a_0", sent=0, queued=1, started=9, inferred=10, ended=10, released=10)
    assert told(Session((delayed,), wall=10)) == [
        ("a", "compute_input", 1),
        ("a", "queue", 8),
        ("a", "compute_infer", 1),
    ]


def test_a_response_of_a_stream_is_an_end() -> None:
    caller = Span(1, "a", instance="a_0", sent=0, started=0, inferred=20, ended=20)
    stream = Span(
        2, "s", parent=1, instance="s_0", kind="stream", sent=2, queued=2, started=2, inferred=3, ended=30,
        marks=(Mark(8), Mark(15), Mark(30, "final")),
    )  # fmt: skip
    assert told(Session((caller, stream), wall=20)) == [
        ("a", "compute_infer", 2),
        ("s", "compute_infer", 13),
        ("a", "compute_infer", 5),
    ]


def test_a_callee_that_outlives_its_caller_does_not_count_for_it() -> None:
    caller = Span(1, "a", instance="a_0", sent=0, started=0, inferred=10, ended=10)
    left = Span(2, "b", parent=1, instance="b_0", kind="async", sent=2, started=2, inferred=50, ended=50)
    assert told(Session((caller, left), wall=10)) == [("a", "compute_infer", 10)]


def test_long_chains_of_calls_are_no_recursion() -> None:
    models = {f"m{i}": Model([1, f"m{i + 1}"]) for i in range(3000)}
    models["m3000"] = Model([1])
    record = session(models, "m0")
    assert len(record.spans) == 3001
    assert sum(s.end - s.begin for s in record.critical_path()) == record.wall


@given(sessions())
def test_steps_cover_the_wall_time_once_and_lie_in_their_spans(record: Session) -> None:
    spans = {s.id: s for s in record.spans}
    at = 0
    for step in record.critical_path():
        assert step.begin == at < step.end
        at = step.end
        if step.phase == "notebook":
            assert step.span == 0
            continue
        span = spans[step.span]
        assert (step.model, step.instance) == (span.model, span.instance)
        low, high = {
            "compute_input": (span.sent, span.queued),
            "queue": (span.queued, span.started),
            "compute_infer": (span.started, span.inferred),
            "compute_output": (span.inferred, span.ended),
        }[step.phase]
        assert low <= step.begin
        assert step.end <= high
        if step.behind:
            waiting = spans[step.behind]
            assert waiting.queued <= step.begin
            assert step.end <= waiting.started
    assert at == record.wall


@given(systems())
def test_without_queues_nothing_off_the_path_matters(system: tuple[dict[str, Model], list[Step]]) -> None:
    models, notebook = system
    for model in models.values():
        model.instances, model.batch = 1000, 1
    record = session(models, *notebook)
    on_path = {s.model for s in record.critical_path()}
    for name, model in models.items():
        if name not in on_path:
            model.steps = [0 if isinstance(s, int) else s for s in model.steps]
    assert session(models, *notebook).wall == record.wall
