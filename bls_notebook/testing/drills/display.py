"""Display of a drill: a table of faults by callee, then each problem with its line of code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bls_notebook.display import Html, join, parts, tag
from bls_notebook.display import document as doc
from bls_notebook.records import count, grouped
from bls_notebook.testing.records import VERDICTS, CodePlace, Drilled, DrilledCase

_MARKS = {"bad": "✗", "odd": "!", "good": "✓", "open": "·"}
_COLOURS = {"bad": "unavailable", "odd": "loading", "good": "ready", "open": "dim"}
_CLASSES = {"bad": "bad", "odd": "doubtful", "good": "good", "open": "open"}


@doc.document("drill")
def drilled_document(drilled: Drilled) -> Iterator[doc.Block]:
    """Show the verdict on each fault, and the lines of code."""
    tally = [f"{len(cases)} {label}" for worth, label in _CLASSES.items() if (cases := drilled.of(worth))]
    facts = [count(len(drilled.callees), "callee"), count(len(drilled.cases), "fault"), *tally]
    mark = "✗" if drilled.of("bad") else "!" if drilled.of("odd") or not drilled.cases else "✓"
    yield doc.Line([parts.name(drilled.model), parts.quiet(parts.dots(*facts, parts.time(drilled.seconds)))], mark=mark)
    single = [case for case in drilled.cases if len(case.faults) == 1]
    if single:
        yield _table(drilled, single)
    for worth, title in (("bad", "bad"), ("odd", "doubtful")):
        cases = drilled.of(worth)
        if groups := _grouped(cases):
            kinds = f" of {count(len(groups), 'kind')}" if len(groups) < len(cases) else ""
            yield parts.opened(f"{title}: {len(cases)}{kinds}", list(map(_group, groups)), worth == "bad")
    if drilled.unreached:
        names = ", ".join(drilled.unreached)
        yield doc.Words(f"named in the code, but not reached by this request: {names}", gap=True)
    if drilled.untried:
        lines = [doc.Words(parts.quiet(f"not tried: {line}")) for line in drilled.untried]
        yield doc.Forms(lines, [doc.Fold("faults that were not tried", lines)])
    for number, note in enumerate(drilled.notes):
        yield doc.Words(parts.quiet(note), gap=not number and not drilled.unreached)
    verdicts = {case.verdict for case in drilled.cases}
    if meanings := {verdict: text for verdict, (_, text) in VERDICTS.items() if verdict in verdicts}:
        rows = [doc.Row([verdict, doc.Piece(text, Html(text), cls="wrap")]) for verdict, text in meanings.items()]
        table = doc.Table("Verdicts", doc.columns("verdict | means"), rows, last="wrap")
        # The groups above explain the others.
        unexplained = [f"{verdict}: {text}" for verdict, text in meanings.items() if VERDICTS[verdict][0] == "open"]
        lines = [doc.Words(parts.quiet(line)) for line in unexplained]
        yield doc.Forms(lines, [doc.Fold("meaning of the verdicts", [table])])


def _table(drilled: Drilled, cases: Sequence[DrilledCase]) -> doc.Table:
    by = {(case.faults[0].fault, case.faults[0].model): case for case in cases}
    faults = dict.fromkeys(case.faults[0].fault for case in cases)
    columns = [doc.Column("fault"), *(doc.Column(parts.name(callee)) for callee in drilled.callees)]
    rows = [doc.Row([fault, *(_cell(by.get((fault, callee))) for callee in drilled.callees)]) for fault in faults]
    return doc.Table("Verdict on each fault of each callee", columns, rows, indent="  ")


def _cell(case: DrilledCase | None) -> doc.Piece:
    if case is None:
        return doc.Piece("", Html())
    words = f"{_MARKS[case.worth]} {case.verdict}"
    shown = tag("span", words, cls=_COLOURS[case.worth])
    where = "" if case.at is None else f"\n{_where(case.at)}  {case.at.code}"
    return doc.Piece(words, shown, title=f"{case.said}{where}")


def _grouped(cases: Sequence[DrilledCase]) -> list[list[DrilledCase]]:
    """Group cases by verdict and line of code; cases without a line by verdict and callee."""
    groups: dict[tuple[object, ...], list[DrilledCase]] = {}
    for case in cases:
        at = case.at or case.sent
        where = (at.model, at.file, at.line) if at else _callees(case)
        groups.setdefault((case.verdict, len(case.faults), where), []).append(case)
    return list(groups.values())


def _callees(case: DrilledCase) -> tuple[str, ...]:
    return tuple(fault.model for fault in case.faults)


def _faults(group: Sequence[DrilledCase]) -> str:
    if any(len(case.faults) > 1 for case in group):
        return "; ".join(case.name for case in group)
    by = grouped((case.faults[0].model, case.faults[0].fault) for case in group)
    return "; ".join(f"{callee}: {', '.join(faults)}" for callee, faults in by.items())


def _said(group: Sequence[DrilledCase]) -> list[str]:
    """Return the explanations of a group: each sentence once, with its faults if there are several."""
    sentences = grouped((case.said, case) for case in group)
    if len(sentences) == 1:
        return list(sentences)
    if len({_callees(case) for case in group}) > 1:
        return [f"{_faults(cases)}: {said}" for said, cases in sentences.items()]
    faults_of = {said: [" and ".join(f.fault for f in case.faults) for case in sentences[said]] for said in sentences}
    return [f"{', '.join(faults)}: {said}" for said, faults in faults_of.items()]


def _where(at: CodePlace) -> str:
    return f"{at.file}:{at.line}" if at.file else f"{at.model}, line {at.line}"


def _group(cases: Sequence[DrilledCase]) -> doc.Box:
    case = cases[0]
    words = tag("b", case.verdict, cls=_COLOURS[case.worth]), tag("b", _faults(cases))
    blocks: list[doc.Block] = [doc.Words(doc.Piece(f"{case.verdict}  {_faults(cases)}", join(*words, by=" ")), "")]
    blocks += [doc.Words(said, "", indent="  ") for said in _said(cases)]
    if place := case.at or case.sent:
        found = f"{'at' if case.at is not None else 'called at'} {_where(place)}"
        blocks.append(doc.Line([parts.quiet(found), parts.code(place.code)], indent="  "))
    return doc.Box(blocks, f"drill-item drill-{case.worth}", _MARKS[case.worth])
