from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given

from bls_notebook.display.mime_bundle import render
from bls_notebook.profiling.session import ModelSeen, Session, Span
from bls_notebook.profiling.session_report import call_graph_mermaid, call_graph_text, session_figures
from bls_notebook.records import units
from tests.display.page import as_html, as_text
from tests.profiling.simulated import Model, session
from tests.profiling.strategies import sessions

MS = 1_000_000


def pipeline(instances: int = 1, name: str = "") -> Session:
    models = {
        "reader": Model([MS, "preprocess", ("classifier",) * 8], code="a"),
        "preprocess": Model([3 * MS], code="b"),
        "classifier": Model([4 * MS], instances, code=f"c{instances}"),
    }
    found = session(models, 2 * MS, "reader", MS)
    seen = tuple(replace(m, config="x") for m in found.models)
    return replace(found, models=seen, name=name)


HOSTILE = '<img src=x onerror=alert(1)>"]; click\n\u202e'
ATTACK = Session(
    (
        Span(1, HOSTILE, instance="a", started=0, inferred=9, ended=9, bytes_in=3 << 20, crossings=2),
        Span(2, HOSTILE, parent=1, instance="a", started=1, inferred=8, ended=8, kind="async"),
        Span(3, "b", parent=2, state="error", error=HOSTILE, sent=3, queued=3, started=4, inferred=4, ended=4),
    ),
    (ModelSeen(HOSTILE, code="1", config="1"), ModelSeen("b", code="1", config="1")),
    wall=9,
    name=HOSTILE,
    dropped=3,
)


def lines(text: str) -> dict[str, str]:
    return {line.split()[0]: line for line in text.splitlines() if line.split()}


def test_a_session_as_text_and_html() -> None:
    text = as_text(pipeline(name="before"))
    assert text.splitlines()[0] == "before  39.0 ms"
    rows = lines(text)
    assert "requests 1 · calls 9" in rows["wall"]
    assert "queued 112 ms" in rows["wall"]
    assert re.search(r"classifier +8 .*\b112 ms\b.*\b82% +82%", rows["classifier"])
    assert "no request in flight" in rows["notebook"]
    order = [line.split()[0] for line in text[text.index("model  ") :].splitlines()[1:]]
    assert order == ["classifier", "preprocess", "reader", "notebook"]  # by their part of the wall time
    html = as_html(pipeline())
    assert (html.count("<tr"), "bls-session-tile" in html, ">82%<" in html) == (5, True, True)


def test_errors_limits_and_transfers_are_told() -> None:
    text = as_text(ATTACK, width=200)
    for words in (
        "note: 3 requests beyond the limit", "1 error", "2 tensors moved between devices", "3 MiB in, 0 B out",
    ):  # fmt: skip
        assert words in text
    assert [label for label, *_ in session_figures(ATTACK.statistics())][-1] == "errors"


def test_nothing_is_shown_as_such() -> None:
    for record in (Session(), Session().statistics()):
        assert all("no requests" in form for form in (render(record).text, render(record).html))
    graph = render(Session().graph())
    assert "no calls" in graph.text
    assert graph.mermaid.startswith("flowchart LR\n")


def test_a_call_graph_as_text() -> None:
    graph = pipeline().graph()
    assert set(render(graph)._repr_mimebundle_()) == {"text/plain", "text/vnd.mermaid"}  # and no HTML
    text = call_graph_text(graph)
    assert text.splitlines()[0] == "notebook"
    assert re.search(r"→ reader +1 infer +own", text)
    assert re.search(r"→ classifier +8 async_exec, all in parallel +own .*, queued 112 ms", text)
    assert re.search(r"→ preprocess +1 exec ", text)


def test_a_call_graph_as_mermaid() -> None:
    graph = pipeline().graph()
    mermaid = call_graph_mermaid(graph)
    first, *rest = mermaid.splitlines()
    assert first == "flowchart LR"
    nodes = {line.split('["')[0].split("(")[0].strip() for line in rest if "-->" not in line and "-.->" not in line}
    edges = [re.fullmatch(r'  (n\d+) (-->|-\.->)\|"[^"]*"\| (n\d+)', line) for line in rest[len(nodes) :]]
    assert len(nodes) == 4
    assert len(edges) == len(graph.edges)
    assert all(e and {e[1], e[3]} <= nodes for e in edges)
    assert '-.->|"8 async_exec, all in parallel<br/>queued 112 ms"|' in mermaid
    assert "linkStyle" not in mermaid


def test_circles_are_red_and_hostile_names_are_words() -> None:
    mermaid = call_graph_mermaid(ATTACK.graph())
    assert "stroke:#d64545" in mermaid
    assert "<img" not in mermaid
    assert re.search(r"linkStyle \d+ stroke", mermaid)
    for line in mermaid.splitlines():
        if not line.strip().startswith(("linkStyle", "classDef", "class ", "flowchart")):
            assert line.count('"') == 2
            assert set(re.findall(r"<[^>]*>", line)) <= {"<br/>", "<b>", "</b>"}
    assert "↻" in call_graph_text(ATTACK.graph())


def test_a_large_graph_is_cut_to_what_mermaid_takes() -> None:
    spans = [Span(i, f"m{i}", parent=i - 1, instance="x", started=i, inferred=2000, ended=2000) for i in range(1, 900)]
    mermaid = call_graph_mermaid(Session(tuple(spans), wall=2000).graph())
    assert mermaid.count("-->") == 200


def test_hostile_names_do_no_harm() -> None:
    for record in (ATTACK, ATTACK.statistics(), ATTACK.graph()):
        found = render(record)
        for picture in re.findall(r'src="data:image/svg[^"]*"', found.html):
            assert not set("<>&") & set(picture)  # nothing in it is markup of the page
            assert "%3Cimg" not in picture  # nor of its own
        outside = re.sub(r'src="data:image/svg[^"]*"', "", found.html)
        assert "<img src=x" not in outside
        assert "\u202e" not in found.text + found.html + found.mermaid
        assert "onerror=alert" not in re.sub(r"&lt;img.*?&gt;", "", outside)


@given(sessions())
def test_every_session_can_be_shown(record: Session) -> None:
    for thing in (record, record.statistics(), record.graph()):
        found = render(thing)
        assert found.text
        assert all(len(line) < 200 for line in found.text.splitlines())


def test_percents() -> None:
    percents = {(1, 2): "50%", (0, 0): "0%", (1, 1000): "<1%", (0, 5): "0%", (5, 5): "100%"}
    assert {parts: units.percent(*parts) for parts in percents} == percents


def test_each_error_of_requests_is_told_once() -> None:
    bad = Span(1, "a", instance="a", started=1, inferred=2, ended=3, state="error", error="no\n\nAt:\n  x(1): y\n")
    spans = [replace(bad, id=i + 1, error=e) for i, e in enumerate([bad.error, bad.error, "<b>", "c", "d", "e"])]
    found = Session(tuple(spans), wall=9)
    shown = render(found)
    assert "error: a: no (2 times)" in shown.text
    assert "error: 2 more" in shown.text
    assert "At:" not in shown.text
    assert "a: &lt;b&gt;" in shown.html
    assert "error:" not in render(pipeline()).text
    assert "session-errors" not in render(pipeline()).html.split("</style>")[1]
