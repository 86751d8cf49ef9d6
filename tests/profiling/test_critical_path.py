from __future__ import annotations

from hypothesis import given

from bls_notebook.profiling.analysis.span_tree import SpanTree, holds
from bls_notebook.profiling.records.session import Mark, Session, Span
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
    (a,) = record.statistics().models
    assert a.blocked == 22


def test_what_nobody_explains_is_the_queue_itself() -> None:
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


def simple(record: Session) -> list[tuple[int, int, int, str, int]]:
    """The path by its definition: looks through everything, at every step."""
    tree = SpanTree(record)
    found: list[tuple[int, int, int, str, int]] = []

    def note(span: int, phase: str, begin: int, end: int, behind: int) -> None:
        if begin < end:
            found.append((begin, end, span, phase, behind))

    def scope(span: int, begin: int, end: int, behind: int) -> None:
        phase = "compute_infer" if span else "notebook"
        sent = [c for c in record.spans if tree.execution(c.parent) == tree.execution(span)]
        while begin < end:
            moments = [(c.ended, c.id) for c in sent]
            moments += [(m.ns, c.id) for c in sent for m in c.marks if m.kind == "response"]
            moments = [(t, c) for t, c in moments if begin < t <= end and tree.spans[c].sent < t]
            if not moments:
                note(span, phase, begin, end, behind)
                return
            answered, child = max(moments)
            note(span, phase, answered, end, behind)
            end = max(begin, tree.spans[child].sent)
            request(tree.spans[child], end, answered, behind)

    def request(span: Span, begin: int, end: int, behind: int) -> None:
        served(span, begin, end, behind, span.ended)
        queue(span, max(begin, span.queued), min(end, span.started), behind)
        note(span.id, "compute_input", begin, min(end, span.queued), behind)

    def served(span: Span, begin: int, end: int, behind: int, last: int) -> None:
        inferred = last if span.kind == "stream" else span.inferred
        note(span.id, "compute_output", max(begin, inferred), min(end, last), behind)
        scope(span.id, max(begin, span.started), min(end, inferred), behind)

    def queue(span: Span, begin: int, end: int, behind: int) -> None:
        firsts = [members[0] for members in tree.members.values()]
        others = [
            f for f in firsts
            if f.ran and (f.model, f.instance) == (span.model, span.instance)
            and tree.execution(span.id) != f.id
        ]  # fmt: skip
        while begin < end:
            left = [(holds(f)[1], f.id) for f in others]
            left = [(t, f) for t, f in left if begin < t <= end and tree.spans[f].started < t]
            if not left:
                note(span.id, "queue", begin, end, behind)
                return
            gone, holder = max(left)
            note(span.id, "queue", gone, end, behind)
            end = max(begin, tree.spans[holder].started)
            served(tree.spans[holder], end, gone, behind or span.id, gone)

    scope(0, 0, record.wall, 0)
    joined: list[tuple[int, int, int, str, int]] = []
    for step in sorted(found):
        if joined and joined[-1][1] == step[0] and joined[-1][2:] == step[2:]:
            joined[-1] = (joined[-1][0], *step[1:])
        else:
            joined.append(step)
    return joined


@given(sessions())
def test_it_is_the_one_that_looking_through_everything_finds(record: Session) -> None:
    assert [(s.begin, s.end, s.span, s.phase, s.behind) for s in record.critical_path()] == simple(record)
