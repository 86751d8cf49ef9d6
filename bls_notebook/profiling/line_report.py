"""Time by line as blocks of displays: the slowest lines of a model, and all lines of each model. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.records import count, ns, visible

from .analysis.line_times import SMALL
from .analysis.session_statistics import ModelStatistics, SessionStatistics
from .records.line_times import LineTime, ModelLines

_SLOWEST = 3  # lines of a model that is slow by itself, and of the others
_MUCH = 0.15  # fraction of all models' work from which on a line is shown beside its model
_LINES = 12  # lines of a model in the details


def slowest_lines(figures: SessionStatistics, models: Sequence[ModelLines]) -> list[doc.Block]:
    """Show the slowest lines of the model whose own work bounds a session, then slow lines of other models."""
    slow = max(figures.models, key=lambda model: model.critical, default=None)
    bounds = slow is not None and 2 * slow.critical >= figures.wall and slow.self_time >= slow.waiting
    lines = _lines_of(slow, models) if slow is not None and bounds else None
    slowest = [] if lines is None else [line for line in lines.lines if line.own >= SMALL][:_SLOWEST]
    if slow is None or lines is None or not slowest:
        return _across(figures.models, models)
    said = f"{slow.critical / max(1, figures.wall):.0%} of the time from start to end goes to `{lines.model}` itself."
    said += f" Its slowest {'lines' if len(slowest) > 1 else 'line'}"
    rows = [_row(line, line.own, _served(slow)) for line in slowest]
    return [
        doc.Words(parts.coded(f"{said}, by {count(lines.samples, 'sample')}:"), indent="  "),
        doc.Table(f"Slowest lines of {visible(lines.model)}", _columns("own"), rows),
        *_across(figures.models, models, slow),
    ]


def _across(
    figures: Sequence[ModelStatistics], models: Sequence[ModelLines], without: ModelStatistics | None = None
) -> list[doc.Block]:
    """Show the lines with a large part of the work of all models; none of a model that mostly waits for callees."""
    work = max(1, sum(model.self_time for model in figures))
    found = [
        (line.own * _served(model) / work, model, line)
        for model in figures
        if model is not without and model.self_time >= model.waiting and (lines := _lines_of(model, models)) is not None
        for line in lines.lines
        if line.own * _served(model) >= _MUCH * work
    ]
    if not found:
        return []
    rows = []
    for share, model, line in sorted(found, key=itemgetter(0), reverse=True)[:_SLOWEST]:
        _, *cells = _row(line, line.own, _served(model)).cells
        rows.append(doc.Row([f"{share:.0%}", *cells[:1], parts.code(model.name), *cells[1:]]))
    first, time, *others = _columns("own")
    columns = [replace(first, title="of the work of all models"), time, doc.Column("model"), *others]
    said = f"{'Slow lines of other models' if without else 'The slowest lines'}, by their share of all models' work:"
    return [doc.Words(said, indent="  "), doc.Table("Slow lines", columns, rows)]


def _lines_of(model: ModelStatistics, models: Sequence[ModelLines]) -> ModelLines | None:
    return next((m for m in models if (m.model, m.version) == (model.name, model.version) and m.known), None)


def _served(model: ModelStatistics) -> int:
    """Return the time of a model's executions in the session shown, ns; its lines may be of several runs."""
    return model.self_time + model.waiting


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
