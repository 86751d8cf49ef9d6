"""Time by line as blocks of displays: the slowest lines of a model, and all lines of each model. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.records import count, ns, visible

from .analysis.line_times import SMALL
from .analysis.session_statistics import SessionStatistics
from .records.line_times import LineTime, ModelLines

_SLOWEST = 3  # lines of a model that is slow by itself
_LINES = 12  # lines of a model in the details


def slowest_lines(figures: SessionStatistics, models: Sequence[ModelLines]) -> list[doc.Block]:
    """Show the slowest lines of the model whose own work bounds a session; nothing if there is none."""
    slow = max(figures.models, key=lambda model: model.critical, default=None)
    if slow is None or 2 * slow.critical < figures.wall or slow.self_time < slow.waiting:
        return []
    lines = next((m for m in models if (m.model, m.version) == (slow.name, slow.version) and m.known), None)
    slowest = [] if lines is None else [line for line in lines.lines if line.own >= SMALL][:_SLOWEST]
    if lines is None or not slowest:
        return []
    said = f"Most of the time goes to `{lines.model}` itself. Its slowest {'lines' if len(slowest) > 1 else 'line'}"
    whole = slow.self_time + slow.waiting  # of the session shown; the lines may be of several runs
    rows = [_row(line, line.own, whole) for line in slowest]
    return [
        doc.Words(parts.coded(f"{said}, by {count(lines.samples, 'sample')}:"), indent="  "),
        doc.Table(f"Slowest lines of {visible(lines.model)}", _columns("own"), rows),
    ]


def time_by_line(models: Sequence[ModelLines]) -> list[doc.Block]:
    """Show the lines of models with their shares, called helpers included."""
    return [block for model in models for block in _model(model)]


def _model(model: ModelLines) -> list[doc.Block]:
    whole = f"{count(model.executions, 'execution')}, {ns(model.ns)}, {count(model.samples, 'sample')}"
    title = doc.Line([parts.name(model.model), parts.quiet(whole)], indent="  ")
    if not model.known:
        why = "its executions are too short" if model.are_short else "too few samples"
        return [title, doc.Words(parts.quiet(f"{why} for shares of lines"), indent="  ")]
    ordered = sorted(model.lines[:_LINES], key=lambda line: (line.file, line.line))
    rows = [_row(line, line.share, model.ns) for line in ordered]
    if model.unseen >= SMALL:
        unseen = ns(round(model.unseen * model.ns))
        rows.append(doc.Row([f"{model.unseen:.0%}", unseen, "", "no line of its code was seen"]))
    return [title, doc.Table(f"Time by line of {visible(model.model)}", _columns("share"), rows)]


def model_lines_document(model: ModelLines) -> doc.Document:
    """Describe the time by line of a model."""
    return doc.Document(_model(model), styles="session")


def _columns(share: str) -> list[doc.Column]:
    meaning = "of the time of its executions" + ("" if share == "own" else ", called helpers included")
    return [doc.Column("share", "r", meaning), doc.Column("time", "r", meaning), doc.Column("line"), doc.Column("code")]


def _row(line: LineTime, share: float, whole: int) -> doc.Row:
    spent = ns(round(share * whole))
    waits = 2 * line.waits > share
    time = f"{'await' if 'await' in line.text else 'waits'}, {spent}" if waits else spent
    file = "" if line.file == "model.py" else f"{line.file}, "
    function = f" of {line.function}" if line.function else ""
    return doc.Row([f"{share:.0%}", time, f"{file}{line.line}{function}", parts.code(line.text)])
