"""A comparison of `exec` with `async_exec`: the sentence, figures, timelines on one axis, and what if."""

from __future__ import annotations

from typing import Any

from bls_notebook.display import parts, text
from bls_notebook.display.html import Html, join, row, table, tag
from bls_notebook.display.session.summary import tiles
from bls_notebook.display.session.words import ns, percent
from bls_notebook.display.timeline.html import timeline_html
from bls_notebook.display.timeline.text import timeline_lines
from bls_notebook.display.units import count
from bls_notebook.observe.analysis.quartiles import Spread
from bls_notebook.observe.analysis.verdict_words import give_or_take, times
from bls_notebook.observe.records.comparison import Comparison, Verification, failures

__all__ = ["comparison_html", "comparison_text"]

_PREDICTED = "by a replay of the requests as they were one at a time"
# Causes with which the number of instances has nothing to do: there a prediction for it would only distract.
_NOT_OF_INSTANCES = ("little", "batched", "helped", "one", "failed")
_SERVER = "on a Triton server each instance is a process of its own, with a lock (GIL) of its own"


def comparison_text(comparison: Comparison, *, width: int = 100) -> str:
    """Describe a comparison as plain text.

    Parameters
    ----------
    comparison : Comparison
    width : int
        Terminal cells in a line.

    Returns
    -------
    str
        The sentence first, then figures, both timelines, and what other instance counts would bring.
    """
    verdict = comparison.verdict
    lines = [text.head(comparison.model, _what(comparison))]
    lines += text.wrap(verdict.sentence, width, "  ")
    lines += text.wrap(verdict.advice, width, "  ") if verdict.advice else []
    lines += text.wrap(verdict.note, width, "  ") if verdict.note else []
    lines.append("  " + text.facts(*(f"{label} {value}" for label, value, _ in _figures(comparison))))
    if comparison.gathered.spans:
        lines += ["", *timeline_lines([comparison.sequential, comparison.gathered], width=width), ""]
    heads, rows = _what_if(comparison)
    if rows:
        lines += text.table(rows, heads=[head for head, _ in heads], right="r" * len(heads), width=width)
    if comparison.verification is not None:
        lines += text.note("verified", _verified(comparison.verification), width)
    return "\n".join(lines)


def comparison_html(comparison: Comparison, *, widget: Any = None) -> str:
    """Describe a comparison as HTML.

    Parameters
    ----------
    comparison : Comparison
    widget : Timeline, optional
        What covers the picture of both timelines while a kernel is there.

    Returns
    -------
    str
        One ``div`` with its stylesheet.
    """
    verdict = comparison.verdict
    children = [
        parts.line(parts.name(comparison.model), parts.quiet(_what(comparison))),
        tag("div", _code(verdict.sentence), cls="session-verdict"),
        tag("div", _code(verdict.advice), cls="session-advice") if verdict.advice else Html(),
        parts.line(parts.quiet(verdict.note)) if verdict.note else Html(),
        tiles(_figures(comparison)),
    ]
    if comparison.gathered.spans:
        children.append(timeline_html(comparison.sequential, comparison.gathered, widget=widget))
    heads, rows = _what_if(comparison)
    if rows:
        body = (
            row(
                [tag("th", first, cls="num", scope="row"), *(tag("td", cell, cls="num") for cell in rest)],
                cls="session-advised" if first == str(verdict.count) else "",
            )
            for first, *rest in rows
        )
        children.append(table("What other instance counts bring", [(h, "num") for h, _ in heads], body))
    if comparison.verification is not None:
        children.append(
            parts.line(tag("b", "verified"), tag("span", _code(_verified(comparison.verification))))
        )
    return parts.output(*children, styles="session figure")


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
        ("sequential exec", ns(now.measured.sequential), _runs(now.sequential_spread)),
        ("gathered async_exec", ns(now.measured.gathered), _runs(now.gathered_spread)),
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


def _runs(spread: Spread) -> str:
    return (
        f"{count(spread.count, 'run')}: middle half {ns(spread.q1)} to {ns(spread.q3)}, "
        f"all {ns(spread.least)} to {ns(spread.most)}"
    )


def _what_if(comparison: Comparison) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """Headings with what they mean, and rows; the measured columns stay empty where nothing was run."""
    verdict = comparison.verdict
    models = ", ".join(verdict.models or (comparison.model,))
    heads = [
        (f"instances of {models}", "instance_group.count of each"),
        ("predicted", _PREDICTED),
        ("speed-up", "against today's exec"),
        ("on a server", _SERVER),
        ("measured", "the median of the gathered runs"),
        ("speed-up", "against today's exec"),
    ]
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
    measured = f"{times(verification.measured)}×{give_or_take(verification.doubt)}"
    return (
        f"with {count(verification.count, 'instance')} of {whom}: predicted "
        f"{times(verification.predicted)}×, measured {measured} "
        f"({verification.off:.0%} off)"
    )


def _code(words: str) -> Html:
    """Show what is between backticks as code."""
    pieces = words.split("`")
    return join(*(tag("code", piece) if i % 2 else piece for i, piece in enumerate(pieces)))
