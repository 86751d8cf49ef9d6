"""A comparison of `exec` with `async_exec` as a report: sentence, figures, timelines, and what-if table."""

from __future__ import annotations

from typing import Any

from bls_notebook.display import parts
from bls_notebook.display.document import Block, Column, Document, Line, Note, Row, Table, Tiles, Words
from bls_notebook.display.html import join, tag
from bls_notebook.display.units import count, ns, percent
from bls_notebook.profiling.analysis.verdict_text import give_or_take, times
from bls_notebook.profiling.records.comparison import Comparison, Verification, failures
from bls_notebook.profiling.timeline.picture import timeline_block
from bls_notebook.records.measurements import Quartiles

from .session_report import verdict_words

# Causes with which the number of instances has nothing to do: there a prediction for it would only distract.
_NOT_OF_INSTANCES = ("little", "batched", "helped", "one", "failed")


def comparison_document(comparison: Comparison, *, widget: Any = None) -> Document:
    """Describe a comparison: the sentence, figures, timelines, and what other instance counts would bring.

    A `widget` covers the picture of both timelines while a kernel is there.
    """
    verdict = comparison.verdict
    blocks: list[Block] = [
        Line([parts.name(comparison.model), parts.quiet(_what(comparison))]),
        *verdict_words(verdict),
    ]
    blocks += [Words(parts.quiet(parts.coded(line)), indent="  ") for line in comparison.gathered.unbatched]
    blocks.append(Tiles(_figures(comparison)))
    if comparison.gathered.spans:
        both = (comparison.sequential, comparison.gathered)
        blocks.append(timeline_block(both, widget=widget, gap=True))
    heads, rows = _what_if(comparison)
    if rows:
        marked = [Row(cells, "session-advised" if cells[0] == str(verdict.count) else "") for cells in rows]
        columns = [Column(head, "r") for head in heads]
        blocks.append(Table("What other instance counts bring", columns, marked))
    if verdict.count:
        hint = "`%blsprofile --tune` (`bls.tune`) looks for the smallest setting, of each model by itself."
        blocks.append(Words(parts.quiet(parts.coded(hint)), indent="  "))
    if comparison.verification is not None:
        said = _verified(comparison.verification)
        shown = join(tag("b", "verified"), tag("span", parts.coded(said).html), by=" ")
        blocks.append(Note("verified", said, tag("div", shown, cls="head")))
    return Document(blocks, styles="session figure")


def _what(comparison: Comparison) -> str:
    runs = f"{count(comparison.repeat, 'run')} of each, medians"
    if comparison.settings[0].problem:
        runs = "not compared, as requests failed"
    return f"{count(comparison.requests, 'request')}, exec against async_exec; {runs}"


def _figures(comparison: Comparison) -> list[tuple[str, str, str]]:
    """Label, value, and what it means."""
    now = comparison.settings[0]
    if now.problem:
        both = (("exec", now.sequential), ("async_exec", now.gathered))
        return [(f"failed by {way}", f"{failures(run)} of {now.measured.requests}", "") for way, run in both]
    figures = comparison.gathered.statistics()
    return [
        ("sequential exec", ns(now.measured.sequential), _runs(now.sequential_quartiles)),
        ("gathered async_exec", ns(now.measured.gathered), _runs(now.gathered_quartiles)),
        ("speed-up", f"{times(now.measured.speedup)}×", f"{times(comparison.verdict.best)}× at best"),
        (
            "overlap",
            percent(figures.overlap, figures.busy),
            "of the busy time of the gathered run: two requests or more were worked on at once",
        ),
        (
            "a request queued",
            percent(figures.waited, figures.wall),
            f"of the gathered run; {ns(figures.queued)} for all requests together",
        ),
    ]


def _runs(spread: Quartiles) -> str:
    return (
        f"{count(spread.count, 'run')}: middle half {ns(spread.q1)} to {ns(spread.q3)}, "
        f"all {ns(spread.least)} to {ns(spread.most)}"
    )


def _what_if(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Headings and rows; the measured columns stay empty where nothing was run."""
    verdict = comparison.verdict
    models = ", ".join(verdict.models or (comparison.model,))
    heads = [f"instances of {models}", "predicted", "speed-up", "on a server", "measured", "speed-up"]
    today = 0 if comparison.settings[0].problem else comparison.settings[0].measured.sequential
    measured = {s.count: s for s in comparison.settings[1:]}
    predicted = {} if verdict.cause in _NOT_OF_INSTANCES else {w.count: w for w in verdict.what_ifs}
    rows = []
    for number in sorted({*measured, *predicted}):
        cells = [str(number)]
        what = predicted.get(number)
        cells += [ns(what.wall), f"{times(what.speedup)}×", f"{times(what.on_server)}×"] if what else [""] * 3
        setting = measured.get(number)
        wall = setting.measured.gathered if setting else 0
        if setting and setting.problem:
            cells += ["failed", ""]
        else:
            cells += [ns(wall), f"{times(today / wall)}×" if today else ""] if wall else ["", ""]
        rows.append(cells)
    keep = [i for i in range(len(heads)) if any(cells[i] for cells in rows)]
    return [heads[i] for i in keep], [[cells[i] for i in keep] for cells in rows]


def _verified(verification: Verification) -> str:
    whom = " and ".join(f"`{model}`" for model in verification.models)
    if verification.error:
        with_them = f"{count(verification.count, 'instance')} of {whom}"
        return f"could not be run with {with_them}: {verification.error}"
    measured = f"{times(verification.measured)}×{give_or_take(verification.relative_error)}"
    return (
        f"with {count(verification.count, 'instance')} of {whom}: predicted "
        f"{times(verification.predicted)}×, measured {measured} "
        f"({verification.off:.0%} off)"
    )


def comparison_widget(comparison: Comparison, width: int) -> Any:
    """Return the interactive timeline of both runs; None if nothing was recorded."""
    if not comparison.gathered.spans:
        return None
    from bls_notebook.profiling.timeline.widget import Timeline  # needs anywidget

    return Timeline(comparison.sequential, comparison.gathered)
