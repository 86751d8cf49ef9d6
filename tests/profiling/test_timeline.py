from __future__ import annotations

import itertools
import re
import struct
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from bls_notebook.display.svg import ALARM, model_inks
from bls_notebook.profiling.analysis.span_tree import SpanTree
from bls_notebook.profiling.intervals import levels
from bls_notebook.profiling.session import Mark, ModelSeen, NamedMark, Session, Source, Span
from bls_notebook.profiling.timeline.lanes import TimelineLayout
from bls_notebook.profiling.timeline.picture import (
    UNAWAITED,
    timeline_alt,
    timeline_block,
    timeline_lines,
    timeline_svg,
)
from bls_notebook.profiling.timeline.widget import path_columns, session_columns
from bls_notebook.records.models import TensorSeen
from tests.display.samples import HOSTILE
from tests.profiling.sessions import MS, Made, everything, many, pipeline
from tests.profiling.strategies import sessions

FORMATS = {"f8": "d", "f4": "f", "u4": "I", "i4": "i", "u2": "H", "u1": "B"}


def names(layout: TimelineLayout) -> list[tuple[str, str]]:
    return [(lane.model or lane.name, lane.label) for lane in layout.lanes]


def columns(encoded: dict[str, Any]) -> dict[str, tuple[float, ...]]:
    """What the browser reads."""
    return {
        name: struct.unpack_from(f"<{count}{FORMATS[kind]}", encoded["data"], offset)
        for name, kind, offset, count in encoded["columns"]
    }


def test_each_instance_has_a_lane_and_callers_are_above_callees() -> None:
    assert names(TimelineLayout(pipeline(True))) == [
        ("notebook", ""), ("reader", "0"), ("resize", "0"), ("classify", "0"), ("classify", "1"),
    ]  # fmt: skip
    assert names(TimelineLayout(everything())) == [
        ("notebook", ""), ("reader", "0"), ("flow", ""), ("detect", "0"), ("detect", "1"), ("speak", "0"),
        ("speak", "never ran"), ("embed", "0"), ("embed", "never ran"), ("gpu:0", "device"),
    ]  # fmt: skip


def test_idle_instances_share_a_lane_and_the_tenth_comes_after_the_ninth() -> None:
    def labels(count: int, *busy: int) -> list[str]:
        made = Made(busy=count)
        for instance in busy:
            made.add("busy", 0, 0, MS, instance)
        return [lane.label for lane in TimelineLayout(made.session()).lanes]

    assert labels(12, 1, 10, 9) == ["", "1", "9", "10", "0, 2–8, 11 idle"]
    assert labels(8, 1, 3, 5)[-1] == "5 others idle"


def test_waits_and_overlapping_streams_have_rows_and_a_batch_shares_one() -> None:
    layout = TimelineLayout(pipeline(True))
    resized = [i for i, span in enumerate(pipeline(True).spans) if span.model == "resize"]
    assert ([layout.wait[i] for i in resized], layout.lanes[2].waits) == ([-1, 0, 1, 2, 3, 4, 5, 6], 7)
    session = everything()
    layout = TimelineLayout(session)
    assert [layout.row[i] for i, span in enumerate(session.spans) if span.kind == "stream"] == [0, 1, 2]
    batch = [i for i, span in enumerate(session.spans) if span.batch == 3]
    assert {layout.row[i] for i in batch} == {0}
    assert [(layout.part[i], layout.parts[i]) for i in batch] == [(0, 4), (1, 4), (2, 4), (3, 4)]


@pytest.mark.parametrize(
    ("kind", "label", "for_loop"),
    [
        ({}, "0", False),
        ({"is_async": True}, "0 async", False),
        ({"decoupled": True}, "0 decoupled", False),
        ({"is_async": True, "decoupled": True}, "0 async decoupled", True),
        ({"is_async": True, "decoupled": True, "scheduler": "dynamic_batching"}, "0 async decoupled", False),
    ],
)
def test_a_wait_for_an_event_loop_differs_from_a_queue_for_an_instance(
    kind: dict[str, Any], label: str, for_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bls_notebook.display.svg._slots", {})  # after many models, an ink has a hatch, too
    made = Made(tuner=1)
    for i in range(4):
        made.add("tuner", 0, i * 40 * MS, 39 * MS, kind="stream", marks=(Mark((i + 1) * 40 * MS, "final"),))
    session = made.session()
    session = replace(session, models=(replace(session.models[0], **kind),))
    assert names(TimelineLayout(session))[1] == ("tuner", label)
    svg = timeline_svg(session)
    assert ("waits for the event loop" in svg) == ("M0 1h2M0 2h2" in svg) == for_loop
    assert ("one batch at a time" in svg) == (kind.get("is_async", False) and not kind.get("decoupled", False))
    assert svg.count(">tuner</text>") == 5  # each block, and the legend
    assert "a response" not in svg  # the end of a stream has no sign
    encoded = session_columns(session, model_inks(["", "tuner"]))
    assert [lane["loop"] for lane in encoded["lanes"]] == [False, for_loop]


def test_only_the_first_lane_of_a_model_says_that_it_is_async() -> None:
    made = Made(scan=2)
    for i in range(2):
        made.call("scan", i, MS)
    session = made.session()
    session = replace(session, models=(replace(session.models[0], is_async=True),))
    assert [label for _, label in names(TimelineLayout(session))] == ["", "0 async", "1"]


def test_blocks_say_which_call_and_which_response_they_are_if_these_orders_differ() -> None:
    def raced(*times: int) -> Session:
        made = Made(podium=1, track=len(times))
        podium = made.add("podium", 0, 0, 50 * MS)
        for ms in times:
            made.call("track", MS, ms * MS, podium.id, kind="async")
        return made.session()

    session = raced(40, 10, 30, 20)
    assert list(TimelineLayout(session).turns.values()) == [(1, 4), (2, 1), (3, 3), (4, 2)]
    svg = timeline_svg(session)
    assert "track: call 1, response 4" in svg
    assert svg.count(">track<") == 2  # in the legend, and in a block too narrow for more
    found = columns(session_columns(session, model_inks(["", "podium", "track"])))
    assert (found["turn_call"], found["turn_response"]) == ((0, 1, 2, 3, 4), (0, 4, 1, 3, 2))
    for times in ((10, 20, 30), (30, 29)):  # in order; at about the same time
        assert TimelineLayout(raced(*times)).turns == {}


def test_a_lane_of_many_requests_counts_them() -> None:
    for count, label in ((9, ">rate · 0</text>"), (60, ">rate · 0 ×60</text>")):
        made = Made(rate=1)
        for i in range(count):
            made.call("rate", i * MS, MS // 2)
        session = made.session()
        assert label in timeline_svg(session)
        lane = session_columns(session, model_inks(["", "rate"]))["lanes"][1]
        assert label == f">{lane['title']} · {lane['label']}{lane['count']}</text>"


def test_the_name_of_a_failed_request_has_a_cross_whatever_its_color() -> None:
    made = Made(facts=1)
    made.call("facts", 0, MS)
    made.call("facts", 2 * MS, MS, state="error", error="no facts")
    svg = timeline_svg(made.session())
    assert (svg.count(">facts</text>"), svg.count(">✗ facts</text>"), svg.count(">✗ error</text>")) == (2, 1, 1)
    for failed, name, frames in ((0, ">batch of 4<", 0), (3, ">batch of 4: ✗ 3<", 3), (4, ">batch of 4: ✗ all<", 1)):
        made = Made(facts=1)
        for i in range(4):
            made.add("facts", 0, 0, MS, batch=1, state="error" if i < failed else "ok")
        svg = timeline_svg(made.session())
        assert name in svg
        paths = [path.get("d", "") for path in ET.fromstring(svg).iter() if path.get("stroke") == ALARM.light]
        assert "".join(paths).count("z") == frames  # one for each failed request, or one for all


def test_the_strip_of_requests_at_work_has_a_scale() -> None:
    def numbers(*starts: int) -> list[str]:
        made = Made(a=len(starts))
        for i, start in enumerate(starts):
            made.add("a", 0, start * MS, 10 * MS, i)
        svg = timeline_svg(made.session())
        return re.findall(r'text-anchor="end" font-size="9"[^>]*>([^<]*)<', svg)

    assert numbers(0) == ["0", "1"]
    assert numbers(0, 0, 0) == ["0", "3"]
    assert numbers(0, 5, 5) == ["0", "3", "2"]  # two wait until the fifth millisecond


@given(sessions())
def test_nothing_lies_on_anything_else(session: Session) -> None:
    layout = TimelineLayout(session)
    rows: dict[tuple[int, int], list[tuple[int, int]]] = {}
    waits: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for i, span in enumerate(session.spans):
        assert layout.row[i] < layout.lanes[layout.lane[i]].rows
        assert layout.wait[i] < max(layout.lanes[layout.lane[i]].waits, 1)
        if layout.part[i] == 0:
            place = (layout.lane[i], layout.row[i])
            rows.setdefault(place, []).append((span.started, span.ended))
        if layout.wait[i] >= 0:
            waits.setdefault((layout.lane[i], layout.wait[i]), []).append((span.sent, span.started))
        if layout.parent[i] >= 0:
            assert session.spans[layout.parent[i]].id == span.parent
    for taken in (*rows.values(), *waits.values()):
        taken.sort()
        assert all(a[1] <= b[0] or a[0] == a[1] for a, b in itertools.pairwise(taken)), taken


def unfolded(encoded: dict[str, Any]) -> dict[str, Any]:
    """The columns with their times as they were, as ``unfold`` of ``widgets/timeline_data.js`` makes them."""
    found: dict[str, Any] = {name: list(map(int, column)) for name, column in columns(encoded).items()}
    found["sent"] = list(itertools.accumulate(found["sent"]))
    for before, name in itertools.pairwise(("sent", "queued", "started", "inferred", "ended")):
        found[name] = [a + b for a, b in zip(found[before], found[f"to_{name}"], strict=True)]
    found["device_ns"] = [ns - 1 for ns in found["device_ns"]]
    found["parent"] = [i - back if back else -1 for i, back in enumerate(found["back"])]
    found["first"] = [i - lead for i, lead in enumerate(found["lead"])]
    ends = list(itertools.accumulate(found["own_count"], initial=0))
    found["own"] = []
    for i, (at, end) in enumerate(itertools.pairwise(ends)):
        pieces, last = [], found["started"][i]
        for after, ns in zip(found["own_after"][at:end], found["own_ns"][at:end], strict=True):
            pieces.append((last + after, last + after + ns))
            last += after + ns
        found["own"].append(pieces)
    return found


def test_columns_hold_every_span() -> None:
    session = everything()
    encoded = session_columns(session, model_inks(span.model for span in session.spans))
    found = unfolded(encoded)
    for i, span in enumerate(session.spans):
        for name in ("id", "sent", "queued", "started", "inferred", "ended", "bytes_in", "device_ns", "rows"):
            assert found[name][i] == getattr(span, name), name
        assert encoded["models"][found["model"][i]]["name"] == span.model
        assert encoded["kinds"][found["kind"][i]] == span.kind
        is_awaited = span.state != "ok" or span.id not in SpanTree.of(session).unawaited()
        assert encoded["states"][found["state"][i]] == (span.state if is_awaited else UNAWAITED)
        ends = [0, *found["text_end"]]
        at = found["error"][i]
        assert encoded["texts"][ends[at] : ends[at + 1]].decode() == span.error
        at = found["request"][i]
        assert encoded["texts"][ends[at] : ends[at + 1]].decode() == span.request_id
    marks = [(i, mark.ns) for i, span in enumerate(session.spans) for mark in span.marks]
    assert list(zip(found["mark_span"], found["mark_ns"], strict=True)) == marks
    assert (encoded["dropped"], encoded["facts"]) == (
        12, "4 requests and 12 calls · 78.0 ms · 1.4 at work on average, 3 at most · 24.0 ms queued in all · "
        "12 requests not recorded",
    )  # fmt: skip


def test_strips_hold_every_run_and_wait_and_the_self_time_of_callers() -> None:
    session = everything()
    encoded = session_columns(session, model_inks(span.model for span in session.spans))
    found, tree = unfolded(encoded), SpanTree(session)
    layout = TimelineLayout(session)
    held: dict[str, list[int]] = {}
    for k, strip in enumerate(encoded["strips"]):
        at, end = int(found["strip_at"][k]), int(found["strip_at"][k + 1])
        held.setdefault(strip["what"], []).extend(map(int, found["strip_of"][at:end]))
        lane = encoded["lanes"][strip["lane"]]
        assert lane["top"] <= strip["top"] < lane["bottom"] <= encoded["bottom"]
    first = [tree.execution(span.id) == span.id for span in session.spans]
    assert sorted(held["run"]) == [i for i, span in enumerate(session.spans) if span.ran and first[i]]
    assert sorted(held["refused"]) == [i for i, span in enumerate(session.spans) if not span.ran]
    assert sorted(held["gpu"]) == [i for i, span in enumerate(session.spans) if span.device_ns >= 0]
    for i, span in enumerate(session.spans):
        own = tree.self_time(span.id) if first[i] and tree.children.get(span.id) else []
        assert found["own"][i] == own
        assert session.spans[found["first"][i]].id == tree.execution(span.id)
        assert found["parent"][i] == layout.parent[i]


@given(sessions())
def test_curves_tell_how_many_there_are_at_a_time(session: Session) -> None:
    encoded = session_columns(session, model_inks(["", *(span.model for span in session.spans)]))
    found = columns(encoded)
    queued = [(span.queued, span.started) for span in session.spans]
    events = SpanTree(session).working_events()
    working = [((begin - 1) // 2, end // 2) for begin, end in zip(events[::2], events[1::2], strict=True)]
    for name, intervals in (("working", working), ("queued", queued)):
        place = encoded["curves"][name]
        at = itertools.accumulate(found["curve_ns"][place["at"] : place["end"]])
        level = found["curve_level"][place["at"] : place["end"]]
        assert list(zip(at, level, strict=True)) == levels(intervals)
        assert place["most"] == max(level, default=0)


def test_the_notebook_waits_for_what_it_sent_and_else_works() -> None:
    made = Made(m=2)
    for sent, ended in ((10, 20), (15, 30), (30, 35), (40, 50)):
        made.add("m", sent * MS, sent * MS, 0, ended=ended * MS)
    session = made.session(wall=60 * MS)
    encoded = session_columns(session, model_inks(["m"]))
    found = columns(encoded)
    assert (found["wait_from"], found["wait_to"]) == ((10 * MS, 40 * MS), (35 * MS, 50 * MS))
    [strip, *_] = encoded["strips"]
    assert strip["what"] == "notebook"
    assert found["strip_of"][: found["strip_at"][1]] == (0, 3)  # the first of those that it waited for
    assert encoded["lanes"][0]["share"] == "42%"
    line = timeline_lines(session, width=76)[0]
    assert line.split() == ["notebook", re.sub("[^█]", "▒", line.split()[1])]


def test_marks_are_on_the_timeline_in_every_form() -> None:
    marks = (NamedMark(5 * MS, "loaded <b>"), NamedMark(60 * MS, HOSTILE, 1))
    session = replace(pipeline(True), marks=marks)
    encoded = session_columns(session, model_inks(span.model for span in session.spans))
    found = columns(encoded)
    assert encoded["marks"][0] == "loaded <b>"
    assert not set(encoded["marks"][1]) & set("\x1b\x00\u202e")
    assert (found["named_ns"], found["named_span"]) == ((5 * MS, 60 * MS), (-1, 0))
    text = "\n".join(timeline_lines(session))
    assert "▼ loaded <b> 5.00 ms" in text
    assert text.count("▼") == 3
    assert "loaded &lt;b&gt;" in timeline_svg(session)


def test_the_code_of_requests_goes_to_the_browser() -> None:
    spans = (
        Span(1, "a", instance="a_0", ended=9, source=2, line=1),
        Span(2, "b", 3, 1, instance="b_0", ended=9, source=1, line=2),
    )
    seen = ModelSeen("a", inputs=(TensorSeen("X", "FP32", (-1, 3)),), max_batch_size=4)
    sources = (Source("model.py", "one\ntwo\x1b", "a", 1, execute=2), Source("In [4]", "a()\n"))
    encoded = session_columns(Session(spans, (seen,), 9, sources=sources), model_inks("ab"))
    found = columns(encoded)
    assert (found["source"], found["line"]) == ((2, 1), (1, 2))
    assert [source["title"] for source in encoded["sources"]] == ["a", "In [4]"]
    assert encoded["sources"][0]["text"] == "one\ntwo\\x1b"
    assert encoded["sources"][0]["of"] == encoded["models"][0]["of"] == ["a", 1]
    assert encoded["models"][0]["inputs"] == [("X", "FP32", (-1, 3))]
    assert (encoded["models"][0]["batches"], encoded["models"][1]["of"]) == (True, ["b", 3])


def test_the_path_names_spans_by_their_place() -> None:
    session = pipeline(True)
    steps = session.critical_path()
    encoded = path_columns(session, steps)
    found = columns(encoded)
    ids = [session.spans[int(i)].id if i >= 0 else 0 for i in found["span"]]
    assert ids == [step.span for step in steps]
    assert [encoded["phases"][int(k)] for k in found["phase"]] == [step.phase for step in steps]
    shares = {what: (model, ns) for what, model, ns in encoded["shares"]}
    assert shares["resize"] == (
        "resize",
        sum(step.end - step.begin for step in steps if (step.model, step.phase) == ("resize", "compute_infer")),
    )


def test_hostile_text_is_made_visible_before_it_leaves() -> None:
    span = Span(1, HOSTILE, instance=HOSTILE, device=HOSTILE, device_ns=3, ended=9, request_id=HOSTILE, error=HOSTILE)
    session = Session((span,), wall=9, name=HOSTILE)
    encoded = session_columns(session, model_inks([HOSTILE]))
    said = [encoded["name"], encoded["models"][0]["name"], encoded["texts"].decode()]
    said += [lane[key] for lane in encoded["lanes"] for key in ("label", "name", "title")]
    assert not any(char in text for text in said for char in "\x1b\x00\u202e\u2066\ud800\n")


def test_text_of_two_sessions_on_one_axis() -> None:
    lines = timeline_lines(pipeline(False), pipeline(True), width=80)
    assert lines[0] == "sequential  271 ms"
    assert lines[6] == "gathered  119 ms"
    ends = [len(line) for line in lines]
    assert max(ends[:6]) == 80
    assert max(ends[7:13]) == 16 + 29  # on the scale of the other: 64 * 119 / 271 cells
    [waiting] = lines[9].split()
    assert waiting[1:] == "".join(sorted(waiting[1:], reverse=True))  # fewer and fewer, from seven on
    assert waiting[1] == "7"
    assert "its calls run" in lines[-1]
    assert "waiting" in lines[-1]
    made = Made(**{f"model{i}": 1 for i in range(40)})
    for i in range(40):
        made.call(f"model{i}", i * MS, MS)
    assert "and 17 more lanes" in "\n".join(timeline_lines(made.session()))


@pytest.mark.parametrize(("session", "most"), [(many(1500), 500_000), (many(64), 12_000), (Session(), 12_000)])
def test_the_picture_is_small_and_the_same_each_time(
    session: Session, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bls_notebook.display.svg._slots", {})  # no colour is taken
    svg = timeline_svg(session)
    assert svg.startswith("<svg")
    assert svg == timeline_svg(session)
    assert len(timeline_block([session]).html) < most


def test_two_sessions_have_whole_titles_in_the_figure_and_its_words() -> None:
    title = "exec, one after the other, with a long explanation"
    one, two = pipeline(False, name=title), pipeline(True, name="gathered")
    svg = timeline_svg(one, two)
    assert f">{title}: 271 ms</text>" in svg
    assert ">gathered: 119 ms</text>" in svg
    assert timeline_alt(one, two) == (
        f"Timeline. {title}: 1 request and 16 calls in 271 ms (classify 8, reader 1, resize 8). "
        "gathered: 1 request and 16 calls in 119 ms (classify 8, reader 1, resize 8)."
    )


def test_words_of_the_picture_keep_to_its_plot_at_any_width() -> None:
    root = ET.fromstring(timeline_svg(everything()))
    svg = "{http://www.w3.org/2000/svg}"
    shapes, words = root.findall(f"{svg}svg")
    for axis in (shapes, words):
        assert float(axis.get("x", "")[:-1]) + float(axis.get("width", "")[:-1]) < 100
    assert shapes.get("preserveAspectRatio") == "none"
    assert all(0 <= float(text.get("x", "0%")[:-1]) <= 100 for text in words.iter(f"{svg}text"))
