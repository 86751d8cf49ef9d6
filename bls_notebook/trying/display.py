"""Report of a trial: which models are real, which are stubs and why, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bls_notebook.display import document as doc
from bls_notebook.display import join, parts, tag
from bls_notebook.records import Remedy, count, listed, surfaces

from .records import TrialReport, TriedModel

_KINDS = {"absent": ("not loaded", "unavailable"), "stub": ("stub", "loading"), "real": ("real", "ready")}
_FOLDED = 8  # if there are more real models and others too, the real ones are folded
_REQUESTS = 3  # example requests outside the fold


@doc.document("tried")
def trial_document(report: TrialReport) -> Iterator[doc.Block]:
    """Describe a trial: models that are not real first, then example requests."""
    by_kind = {kind: [m for m in report.models if m.kind == kind] for kind in _KINDS}
    broken, unknown, asked = (sum(getattr(m, flag) for m in report.models) for flag in ("broken", "unknown", "asked"))
    answered = sum(m.asked and not m.problem for m in report.models)
    counts = {
        count(len(by_kind["stub"]), "stub"): by_kind["stub"],
        f"{len(by_kind['absent'])} not loaded": by_kind["absent"],
        f"{broken} broken": broken,
        f"{unknown} with a file missing here": unknown,
        f"{answered} of {asked} answered a generated request": asked,
    }
    shown_counts = [f"{len(by_kind['real'])} real", *(words for words, number in counts.items() if number)]
    facts = parts.dots(count(len(report.models), "model"), *shown_counts, parts.time(report.seconds))
    mark = "!" if by_kind["absent"] or broken or unknown or answered < asked else "✓"
    yield doc.Line([parts.name(report.folder), parts.quiet(facts)], mark=mark)
    if report.left:
        words = f"interrupted: {count(len(report.left), 'model')} not loaded: {listed(report.left, 12)}"
        line = f"`%tritonrepo load {' '.join(report.left[:3])}{' ...' if len(report.left) > 3 else ''}`"
        load = Remedy("`for name in report.left: repository.load(name)`", line, "run the command again")
        yield doc.Warnings([f"{words}; the loaded models stay loaded. To continue: {load}"])
    real = by_kind["real"]
    plain = [m for m in real if not _comments(m)] if len(real) > _FOLDED and len(real) < len(report.models) else []
    shown = [m for kind in _KINDS for m in by_kind[kind] if m not in plain]
    if shown:
        yield _table(shown)
    if plain:
        names = ", ".join(m.name for m in plain)
        fold = doc.Fold(f"{len(plain)} more models are real and unchanged", [_table(plain)])
        yield doc.Forms([doc.Note("real and unchanged", names)], [fold])
    yield from _requests(report)
    notes = list(report.notes)
    if by_kind["stub"]:
        notes.append("`.stubs` of a response names the stubs that it depends on; their outputs are made up")
    yield from (doc.Words(parts.quiet(parts.coded(note)), gap=not number) for number, note in enumerate(notes))


def _table(models: Sequence[TriedModel]) -> doc.Table:
    columns = doc.columns("model | backend | is | load time:t | why, and how to make it real")
    rows = [row for model in models for row in _rows(model)]
    return doc.Table("Models that were tried", columns, rows, indent="", last="wrap", most=28)


def _rows(model: TriedModel) -> Iterator[doc.Row]:
    """Yield the row of a model, and in text another one with the remedy."""
    said, cls = _KINDS.get(model.kind, (model.kind, ""))
    if model.broken:
        said, cls = f"broken, {said}", "unavailable"
    kind = doc.Piece(said, tag("b", said, cls="loading" if model.problem else cls))
    comments = "; ".join(_comments(model))
    remedy = tag("div", "→ ", parts.coded(str(model.remedy)).html, cls="tried-remedy") if model.remedy else ""
    last = doc.Piece(comments, join(parts.coded(comments).html, remedy), cls="wrap")
    yield doc.Row([parts.name(model.name), parts.quiet(model.backend), kind, parts.time(model.seconds), last])
    if model.remedy:
        yield doc.Row(["", "", f"→ {model.remedy}"], only="text")


def _comments(model: TriedModel) -> list[str]:
    """Return why a model is not real or was changed, and what a generated request showed."""
    problem = f"a generated request failed: {model.problem}" if model.problem else ""
    missing = f"its code looked for files that it did not find: {listed(model.missing, 6)}" if model.missing else ""
    return [text for text in (model.why, problem, missing, *(f"warning: {text}" for text in model.warnings)) if text]


def _requests(report: TrialReport) -> Iterator[doc.Block]:
    if not report.requests:
        return
    first, others = report.requests[:_REQUESTS], report.requests[_REQUESTS:]
    models = "the model that no other calls" if len(report.requests) == 1 else "the models that no others call"
    place = ", in a notebook" if first[0].startswith("%load_ext") or surfaces[-1:] != ["notebook"] else ""
    yield doc.Words(f"next{place}, send a request to {models}:", gap=True)
    yield parts.pasted("\n".join(first))
    if others:
        rest = [parts.pasted("\n".join(others))]
        yield doc.Forms(rest, [doc.Fold(f"{len(others)} more", rest)])
