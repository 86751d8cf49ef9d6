"""Two sessions compared, as tables: what got faster, what moved, and whether it was the same code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from bls_notebook.display import parts, text
from bls_notebook.display.html import Html, join, row, table, tag
from bls_notebook.display.session.words import factor, ns
from bls_notebook.observe.analysis.difference import Change, Difference, EdgeChange, ModelChange

__all__ = ["by_time", "code_sentence", "difference_html", "difference_text"]

_Changed = TypeVar("_Changed", ModelChange, EdgeChange)
_HEADS = ("before", "", "after", "", "change", "queue", "moved")
_VERDICTS = {"faster": "▲", "slower": "▼", "same": "≈", "": ""}
_NONE = "no requests in either session"


def difference_text(difference: Difference, *, width: int = 100) -> str:
    """Describe what changed from one session to another as plain text.

    Parameters
    ----------
    difference : Difference
    width : int
        Terminal cells in a line.

    Returns
    -------
    str
        A line on the whole, a row for each model and for each call of one model by another.
    """
    before, after = _names(difference)
    lines = [text.head(f"{before} → {after}", *_whole(difference)), f"  {code_sentence(difference)}"]
    if not difference.models:
        return "\n".join([*lines, f"  {_NONE}"])
    rows = [[m.name, *_cells(m.duration, m.queue, _moved_model(m))] for m in by_time(difference.models)]
    rows += [[_call(e), *_cells(e.duration, e.queue, ", ".join(e.moved))] for e in by_time(difference.edges)]
    lines += text.table(rows, heads=["", *_HEADS], right=" trtr", width=width, last="wrap")
    lines.append("  before, after: median of a request ± half of the IQR")
    return "\n".join(lines)


def difference_html(difference: Difference, *, picture: Html | None = None) -> str:
    """Describe what changed from one session to another as HTML.

    Parameters
    ----------
    difference : Difference
    picture : Html, optional
        Of `difference_figure`, shown above the table.

    Returns
    -------
    str
        One ``div`` with its stylesheet.
    """
    before, after = _names(difference)
    top = parts.line(parts.name(f"{before} → {after}"), parts.quiet(parts.dots(*_whole(difference))))
    code = parts.line(parts.quiet(code_sentence(difference)), cls="facts")
    if not difference.models:
        return parts.output(top, code, parts.line(parts.quiet(_NONE)), styles="session")
    heads = [("", ""), *((head, "num" if i < 4 else "") for i, head in enumerate(_HEADS))]
    models = [_row(parts.name(m.name), m.duration, m.queue, _moved_model(m)) for m in difference.models]
    calls = [_row(tag("code", _call(e)), e.duration, e.queue, ", ".join(e.moved)) for e in difference.edges]
    groups = [_group("models", models), _group("calls", calls)]
    whole = table("What changed", heads, groups, groups=True)
    shown = [picture] if picture is not None else []
    return parts.output(top, code, *shown, whole, styles="figure session")


def by_time(changes: Iterable[_Changed]) -> list[_Changed]:
    """Return models or calls in the order of their requests' times, the longest first."""
    return sorted(changes, key=lambda c: -max(c.duration.before.q3, c.duration.after.q3))


def code_sentence(difference: Difference) -> str:
    """Return whether the two sessions ran the same code."""
    changed = [m.name for m in difference.models if m.code == "changed"]
    configured = [m.name for m in difference.models if m.config == "changed" and m.code != "changed"]
    if changed or configured:
        said = [f"code of {', '.join(changed)}"] if changed else []
        said += [f"configuration of {', '.join(configured)}"] if configured else []
        return f"changed between the two: {' and '.join(said)}"
    if difference.code == "same":
        return "the same code and configuration of every model"
    one = [m.name for m in difference.models if not m.duration.before.count or not m.duration.after.count]
    if one:
        return f"in one of the two only: {', '.join(one)}"
    return "whether it was the same code is not known"


def _names(difference: Difference) -> tuple[str, str]:
    return difference.before or "before", difference.after or "after"


def _whole(difference: Difference) -> list[str]:
    before, after = difference.span_before, difference.span_after
    change = factor(before / after) if after and before else ""
    return [f"first request to last answer {ns(before)} → {ns(after)}", change]


def _call(edge: EdgeChange) -> str:
    return f"{edge.caller or 'notebook'} → {edge.callee}"


def _moved_model(model: ModelChange) -> str:
    words = list(model.moved)
    words += ["new code"] if model.code == "changed" else []
    words += ["new configuration"] if model.config == "changed" else []
    return ", ".join(words)


def _cells(duration: Change, queue: Change, moved: str) -> list[str]:
    before, after = duration.before, duration.after
    waited = f"{ns(queue.before.median)} → {ns(queue.after.median)}"
    return [
        ns(before.median) if before.count else "",
        f"±{ns(before.iqr / 2)}" if before.iqr else "",
        ns(after.median) if after.count else "",
        f"±{ns(after.iqr / 2)}" if after.iqr else "",
        _change(duration),
        waited if queue.before.median or queue.after.median else "",
        moved,
    ]


def _change(change: Change) -> str:
    if change.verdict == "same":
        return "≈ within the spread"
    if not change.verdict:
        return "not in both"
    return f"{_VERDICTS[change.verdict]} {factor(change.factor)}"


def _row(head: Html, duration: Change, queue: Change, moved: str) -> Html:
    cells = _cells(duration, queue, moved)
    verdict = f"session-{duration.verdict}" if duration.verdict else "dim"
    kinds = ["num", "num dim", "num", "num dim", verdict, "", ""]
    return row([
        tag("th", head, scope="row"),
        *(tag("td", cell, cls=kind) for cell, kind in zip(cells, kinds, strict=True)),
    ])  # fmt: skip


def _group(title: str, rows: list[Html]) -> Html:
    head = row([tag("th", title, scope="rowgroup", colspan=len(_HEADS) + 1)])
    return tag("tbody", join(head, *rows)) if rows else Html()
