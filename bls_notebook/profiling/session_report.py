"""A session as a report: verdict, figures, timeline, a row for each model; its call graph. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from bls_notebook.display import Display, Html, clip, parts, table, text
from bls_notebook.display import document as doc
from bls_notebook.records import count, ns, percent, size, some_ns, spoken, visible

from .analysis.call_graph import CallGraph, CallGraphNode, Edge
from .analysis.session_statistics import ModelStatistics, SessionStatistics
from .line_report import slowest_lines, time_by_line
from .records.spans import NOTEBOOK
from .records.verdicts import Verdict
from .session import Session
from .timeline.picture import timeline_block


def verdict_words(verdict: Verdict) -> list[doc.Block]:
    """Return the sentence of a verdict, its advice, and its note on rough figures, as blocks."""
    said = [(parts.coded(verdict.sentence), "session-verdict"), (parts.coded(verdict.advice), "session-advice")]
    return [doc.Words(piece, style, "  ") for piece, style in (*said, (parts.quiet(verdict.note), "")) if piece.text]


_ERRORS = 3  # errors that are quoted
_NONE = "no requests: nothing was sent to a model while the profile was on"

# Heading, alignment, meaning.
_COLUMNS = (
    ("requests", "r", "requests sent to the model"),
    ("median", "t", "median time of a request, from sending to its last response"),
    ("own", "t", "the model's own work in execute, summed over its requests; a batch counts once"),
    ("callees", "t", "time in execute while a callee's response was outstanding"),
    ("queued", "t", "time that its requests waited for an instance, summed"),
    ("busy", "r", "mean fraction of the wall time in which an instance was busy"),
    ("critical path", "r", "fraction of the wall time that it bounded: a faster model shortens the session"),
    ("", "", ""),
)


verdict_folds: list[Callable[[Session], bool]] = []
"""Functions that say whether the reader of a session should look at the picture before the verdict."""


def session_document(session: Session, *, widget: Any = None) -> doc.Document:
    """Describe a session: verdict, figures, timeline, a row for each model, errors and notes.

    A `widget` covers the picture of the timeline while a kernel is running.
    """
    picture = [timeline_block([session], widget=widget)] if session.spans else []
    verdict, notes = verdict_words(session.verdict()), session.unbatched + session.notes
    lines, figures = session.lines(), session.statistics()
    verdict = [*slowest_lines(figures, lines), *verdict]
    if any(folds(session) for folds in verdict_folds):
        more = [doc.Words(parts.quiet(parts.coded(note)), indent="  ") for note in notes]
        verdict, notes = [doc.Forms([], [doc.Fold("the verdict", [*verdict, *more])])], ()
    return figures_document(
        figures,
        name=session.name,
        verdict=verdict,
        picture=picture,
        errors=_errors(session),
        notes=notes,
        sender=session.sender,
        lines=time_by_line(lines),
    )


def figures_document(
    figures: SessionStatistics,
    *,
    name: str = "",
    verdict: Sequence[doc.Block] = (),
    picture: Sequence[doc.Block] = (),
    errors: Sequence[str] = (),
    notes: Sequence[str] = (),
    sender: str = NOTEBOOK,
    lines: Sequence[doc.Block] = (),
) -> doc.Document:
    """Describe a session's figures, with its verdict, its picture, its time by line, and the errors of its requests."""
    top = doc.Line([parts.name(name or "session"), doc.Piece(ns(figures.wall), Html())])
    if not figures.requests:
        return doc.Document([top, doc.Words(parts.quiet(_NONE), indent="  ")], styles="session")
    table_rows = _rows(figures, sender)
    # On a narrow page there is no room for empty columns.
    keep = [i for i in range(len(_COLUMNS) - 1) if any(cells[i] for _, cells in table_rows)]
    columns = [doc.Column("model"), *(doc.Column(*_COLUMNS[i]) for i in (*keep, -1))]
    rows = []
    for model, cells in table_rows:
        remarks = doc.Piece(cells[-1], text(cells[-1]), cls="session-remarks")
        rows.append(doc.Row([parts.name(model), *(cells[i] for i in keep), remarks]))
    dropped = f"{count(figures.dropped, 'request')} beyond the limit {'is' if figures.dropped == 1 else 'are'} not"
    dropped += " counted here; record more with a larger limit"
    blocks = [
        top,
        *verdict,
        *(doc.Words(parts.quiet(parts.coded(note)), indent="  ") for note in notes),
        doc.Tiles(session_figures(figures)),
        *picture,
        doc.Table("Models of the session", columns, rows, last="wrap"),
        doc.Forms(html=[doc.Fold("Time by line", lines)] if lines else []),
        doc.Warnings(errors, "error", "session-errors"),
        doc.Warnings([dropped] if figures.dropped else [], "note"),
    ]
    return doc.Document(blocks, styles="session figure")


def session_figures(figures: SessionStatistics) -> list[tuple[str, str, str]]:
    """Return the figures above the picture of a session: label, value, and meaning."""
    busy = f"{ns(figures.busy)} with at least one request at work"
    overlap = f"{ns(figures.overlap)} of the busy time with two or more requests at work"
    at_once = f"mean number of requests at work during the busy time; {figures.peak} at most"
    queued = f"sum of all waits for an instance; for {ns(figures.waited)} at least one request waited"
    ends = {
        "errors": figures.failed,
        "cancelled": figures.cancelled,
        "cached": figures.cached,
        "unfinished": figures.unfinished,
    }
    return [
        ("wall", ns(figures.wall), "length of the recording"),
        ("requests", f"{figures.requests - figures.calls:,}", "those that no model sent"),
        *([("calls", f"{figures.calls:,}", "requests that models sent")] if figures.calls else []),
        ("busy", percent(figures.busy, figures.wall), busy),
        ("overlap", percent(figures.overlap, figures.busy), overlap),
        ("at once", f"{figures.concurrency:.1f}", at_once),
        ("queued", ns(figures.queued) if figures.queued else "0", queued),
        *((label, f"{number:,}", "") for label, number in ends.items() if number),
    ]


def _rows(figures: SessionStatistics, sender: str) -> list[tuple[str, list[str]]]:
    """Return the cells of each model, the largest part of the critical path first; the notebook's cells are last."""
    versions = Counter(model.name for model in figures.models)
    out = []
    for model in sorted(figures.models, key=lambda m: (-m.critical, m.name, m.version)):
        name = f"{model.name}/{model.version}" if versions[model.name] > 1 else model.name
        out.append((name, _cells(model, figures)))
    share = percent(figures.notebook, figures.wall)
    return [*out, (sender, ["", "", some_ns(figures.notebook), "", "", "", share, "no request in flight"])]


def _cells(model: ModelStatistics, figures: SessionStatistics) -> list[str]:
    instances = figures.wall * model.instances
    return [
        f"{model.requests:,}",
        ns(model.duration.median),
        some_ns(model.self_time),
        some_ns(model.waiting),
        some_ns(model.queued),
        percent(model.busy, instances) if model.instances else "",
        percent(model.critical, figures.wall),
        ", ".join(_remarks(model)),
    ]


def _remarks(model: ModelStatistics) -> list[str]:
    out = ["a stub"] if model.stub else ["remote"] if model.remote else []
    if model.processes:
        out.append("a process" if model.instances == 1 else f"{model.instances:,} processes")
        out += [f"{ns(model.cpu)} of processor time"] if model.cpu > 0 else []
        out += [f"threads took turns with the GIL for {ns(model.turns)}"] if model.turns > 0 else []
    elif model.instances > 1:
        out.append(count(model.instances, "instance"))
    if 0 < model.executions < model.requests - model.cached - model.failed - model.cancelled:
        out.append(f"in {count(model.executions, 'batch').replace('batchs', 'batches')}")
    if model.device_ns >= 0:
        out.append(f"{ns(model.device_ns)} on the {'server' if model.remote else 'GPU'}")
    for number, noun in (
        (model.failed, "error"),
        (model.cancelled, "cancelled"),
        (model.cached, "from the cache"),
        (model.unfinished, "unfinished"),
    ):
        if number:
            out.append(count(number, noun) if noun == "error" else f"{number:,} {noun}")
    if model.crossings:
        out.append(f"{count(model.crossings, 'tensor')} moved between devices")
    if model.bytes_in + model.bytes_out >= 1 << 20:
        out.append(f"{size(model.bytes_in)} in, {size(model.bytes_out)} out")
    return out


def _errors(session: Session) -> list[str]:
    """Return each error once: its model and first line."""
    numbers: Counter[str] = Counter()
    for span in session.spans:
        if span.state == "error":
            # Without the traceback that Triton puts below a message.
            first = spoken(span.error).strip().partition("\n")[0]
            numbers[f"{span.model}: {clip(first, 300)}"] += 1
    errors = [f"{error} ({n:,} times)" if n > 1 else error for error, n in numbers.items()]
    more = len(errors) - _ERRORS
    return [*errors[:_ERRORS], f"{more:,} more"] if more > 1 else errors


def session_widget(session: Session, width: int) -> Any:
    """Return the interactive timeline of a session; None if nothing was recorded."""
    return timeline_widget(session, titled=False) if session.spans else None


def timeline_widget(*sessions: Session, titled: bool = True) -> Any:
    """Return the interactive timeline of one session, or of two on one axis."""
    from .timeline.widget import Timeline  # needs anywidget

    return Timeline(*sessions, titled=titled)


_EMPTY = "no calls: nothing was sent to a model while the profile was on"
_RED = "#d64545"
_AMBER = "#b9770e"
_LONGEST = 48  # characters of a name
_DRAWN = 200  # edges; Mermaid refuses more than 500


def call_graph_text(graph: CallGraph, *, width: int = 100) -> str:
    """Describe a call graph as plain text: the callers, each followed by its callees."""
    if not graph.edges:
        return _EMPTY
    rows: list[list[str]] = []
    nodes = {node.name: node for node in graph.nodes}
    for caller in sorted({e.caller for e in graph.edges}):
        node = nodes.get(caller)
        rows.append([caller or graph.sender, ", ".join(_facts(node)) if node is not None else ""])
        for edge in graph.edges:
            if edge.caller == caller:
                split = [f"own {ns(edge.self_time)}"]
                split += [f"callees {ns(edge.waiting)}"] if edge.waiting else []
                split += [f"queued {ns(edge.queued)}"] if edge.queued else []
                mark = "↻" if edge.cycle else "→"
                callee = nodes.get(edge.callee)
                mark_of = "" if callee is None else _mark(callee)
                named = f"{edge.callee} ({mark_of})" if mark_of else edge.callee
                rows.append([f"  {mark} {named}", _how(edge), ", ".join(split), _data(edge)])
    lines = table(rows, width=width, indent="", last="wrap", most=52)
    if any(e.cycle for e in graph.edges):
        lines.append("↻ is part of a cycle of calls")
    return "\n".join(lines)


def call_graph_mermaid(graph: CallGraph) -> str:
    """Return a Mermaid flowchart with red cycles; a very large graph is reduced to the calls with most time."""
    names = {"": "n0"} | {node.name: f"n{i}" for i, node in enumerate(graph.nodes, 1)}
    lines = ["flowchart LR"]
    if not graph.edges:
        return f'{lines[0]}\n  n0["{_escaped(_EMPTY)}"]\n'
    edges = sorted(graph.edges, key=lambda e: -e.duration)[:_DRAWN]
    shown = {e.caller for e in edges} | {e.callee for e in edges}
    if "" in shown:
        lines.append(f'  n0(["{_escaped(graph.sender)}"])')
    for node in graph.nodes:
        if node.name in shown:
            inside = "<br/>".join([f"<b>{_escaped(node.name)}</b>", *map(_escaped, _facts(node))])
            left, right = ("[[", "]]") if node.ensemble else ("[", "]")
            lines.append(f'  {names[node.name]}{left}"{inside}"{right}')
    for edge in edges:
        said = [_how(edge), f"queued {ns(edge.queued)}" if edge.queued else "", _data(edge)]
        words = "<br/>".join(_escaped(word) for word in said if word)
        arrow = "-.->" if edge.calls == edge.asynchronous + edge.stream else "-->"
        lines.append(f'  {names[edge.caller]} {arrow}|"{words}"| {names[edge.callee]}')
    red = [str(i) for i, edge in enumerate(edges) if edge.cycle]
    if red:
        lines.append(f"  linkStyle {','.join(red)} stroke:{_RED},stroke-width:2.5px")
        lines.append(f"  classDef cycle stroke:{_RED},stroke-width:2.5px")
        inside = ",".join(names[n.name] for n in graph.nodes if n.cycle and n.name in shown)
        lines.append(f"  class {inside} cycle")
    stubs = [names[n.name] for n in graph.nodes if n.stub and n.name in shown]
    if stubs:
        lines.append(f"  classDef stub stroke:{_AMBER},stroke-width:1.5px,stroke-dasharray:5 4")
        lines.append(f"  class {','.join(stubs)} stub")
    return "\n".join(lines) + "\n"


def _mark(node: CallGraphNode) -> str:
    return "a stub" if node.stub else "remote" if node.remote else ""


def _facts(node: CallGraphNode) -> list[str]:
    """Return the lines in a model's box."""
    calls = count(node.calls, "call")
    if 0 < node.executions < node.calls and not node.errors:
        calls += f" in {node.executions:,} executions"
    out = [*filter(None, [_mark(node)]), calls]
    if node.executions:
        out.append(f"own {ns(node.self_time)}")
    if node.waiting:
        out.append(f"callees {ns(node.waiting)}")
    if node.queued:
        out.append(f"queued {ns(node.queued)}")
    if node.errors:
        out.append(count(node.errors, "error"))
    return out


def _how(edge: Edge) -> str:
    """Describe the calls from one model to another: number, kind, in parallel or in sequence."""
    kinds = [(edge.sync, "exec"), (edge.asynchronous, "async_exec"), (edge.stream, "stream"), (edge.ensemble, "step")]
    if not edge.caller:
        kinds = [(edge.sync, "infer"), (edge.asynchronous, "infer_async"), *kinds[2:]]
    used = [(number, word) for number, word in kinds if number]
    out = " + ".join(f"{number:,} {word}" for number, word in used)
    if edge.calls > 1:
        side_by_side = "all" if edge.parallel == edge.calls else f"{edge.parallel:,}"
        out += f", {side_by_side} in parallel" if edge.parallel else ", in sequence"
    if edge.cached:
        out += f", {edge.cached:,} cached"
    return out


def _data(edge: Edge) -> str:
    out = []
    if edge.bytes_in or edge.bytes_out:
        out.append(f"{size(edge.bytes_in)} in, {size(edge.bytes_out)} out")
    if edge.crossings:
        out.append(count(edge.crossings, "device crossing"))
    return ", ".join(out)


def _escaped(words: str) -> str:
    """Escape text inside a quoted Mermaid label, which writes special characters as entities."""
    clipped = clip(visible(words), _LONGEST * 2)
    return "".join(c if c.isalnum() or c in " .,_-+/:()→" or c in "µ·×…" else f"#{ord(c)};" for c in clipped)


def call_graph_display(graph: CallGraph, *, width: int, live: bool) -> Display:
    """Draw a call graph as text and as Mermaid."""
    return Display(call_graph_text(graph, width=width), mermaid=call_graph_mermaid(graph))
