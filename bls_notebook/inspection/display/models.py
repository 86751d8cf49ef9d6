"""Display of a model: its instances, memory, callers and callees, settings and source."""

from __future__ import annotations

from collections.abc import Iterator

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.html import Html, join, prose, tag
from bls_notebook.display.records.errors import error_box
from bls_notebook.display.records.models import model_blocks
from bls_notebook.display.records.statistics import statistics_document
from bls_notebook.display.units import count, duration, size
from bls_notebook.inspection.records import ConfigSetting, InstanceNow, ModelView
from bls_notebook.records.visible_text import visible

_KINDS = {"busy": "loading", "idle": "ready"}
_LINES = 40  # of a source, that are shown unfolded
_ORIGINS = {
    "author": "as it was written", "model": "set by auto_complete_config", "Triton": "filled in by Triton",
    "default": "default",
}  # fmt: skip


def model_view_document(view: ModelView) -> doc.Document:
    """Describe a model."""
    styles = "seen config stats" + " changes" * bool(view.model.changes) + " error" * (view.error is not None)
    return doc.Document(list(_blocks(view)), styles=styles)


def _blocks(view: ModelView) -> Iterator[doc.Block]:
    yield from model_blocks(view.model)
    yield from _calls(view)
    yield from _now(view)
    if view.statistics is not None and (view.statistics.success.count or view.statistics.fail.count):
        yield parts.opened("statistics", list(statistics_document([view.statistics]).blocks))
    yield _memory(view)
    if view.error is not None:
        yield parts.opened("last error", [error_box(view.error)])
    if view.source:
        yield _source(view)
    yield _config(view)


def _calls(view: ModelView) -> Iterator[doc.Block]:
    by = ", ".join(view.callers) or "no model that is known"
    if view.callers or view.calls:
        told = [f"called by {by}", f"calls {', '.join(view.calls)}" if view.calls else ""]
        yield doc.Words(parts.dots(*told), cls="facts", indent="  ")


def _now(view: ModelView) -> Iterator[doc.Block]:
    if not view.instances:
        return
    busy = sum(each.state == "busy" for each in view.instances)
    waiting = f"{count(view.queued, 'request')} in the queue" if view.queued else "nothing in the queue"
    title = f"now: {busy} of {count(len(view.instances), 'instance')} busy, {waiting}"
    columns = doc.columns("instance | device | state | does")
    rows = [
        doc.Row([
            parts.name(each.name), parts.device(each.device),
            parts.stated(each.state, _KINDS.get(each.state, "")), _does(each),
        ])
        for each in view.instances
    ]  # fmt: skip
    yield parts.opened(title, [doc.Table("Instances", columns, rows)], len(rows) <= 8)


def _does(each: InstanceNow) -> str:
    if each.state != "busy":
        return ""
    since = f"for {duration(each.seconds)}" if each.seconds is not None else ""
    waits = f"waits for {', '.join(each.waits)}" if each.waits else ""
    return ", ".join(filter(None, [f"a request of {each.sender}", since, waits]))


def _memory(view: ModelView) -> doc.Block:
    if not view.held:
        return doc.Words(parts.quiet("memory: it keeps no array"), gap=True)
    columns = doc.columns("name | size:r | what | device")
    rows = [
        doc.Row([parts.code(each.name), parts.memory(each.bytes), each.what, parts.device(each.device)])
        for each in view.held
    ]
    shown = sum(each.bytes for each in view.held)
    more = view.held_bytes - shown
    blocks: list[doc.Block] = [doc.Table("Memory that the model keeps", columns, rows, most=60)]
    if more > 0:
        blocks.append(doc.Words(parts.quiet(f"and {size(more)} under other names"), indent="  "))
    return parts.opened(f"memory: it keeps {size(view.held_bytes)}", blocks)


def _config(view: ModelView) -> doc.Block:
    given = [each for each in view.settings if each.origin != "default"]
    rest = [each for each in view.settings if each.origin == "default"]
    own = sum(each.origin == "author" for each in given)
    title = f"configuration: {count(own, 'field')} written, {len(given) - own} completed"
    table = doc.Table("Configuration", _COLUMNS, [_setting(each) for each in given], last="wrap", most=52)
    folded = [doc.Table("Defaults", _COLUMNS, [_setting(each) for each in rest])]
    html: list[doc.Block] = [table, doc.Fold(f"{count(len(rest), 'default')}", folded)]
    words = doc.Words(parts.quiet(f"and {count(len(rest), 'default')}"), indent="  ")
    return doc.Forms([doc.Words(title, gap=True), table, words], [doc.Fold(title, html, len(given) <= 24)])


_COLUMNS = doc.columns("field | value | from")


def _setting(each: ConfigSetting) -> doc.Row:
    words = _ORIGINS.get(each.origin, each.origin)
    origin = doc.Piece(words, tag("span", words, cls="" if each.origin == "author" else "dim"))
    value = each.value if len(each.value) <= 200 else f"{each.value[:199]}…"
    return doc.Row([
        doc.Piece(each.path, tag("span", each.path, cls="config-key")), parts.code(value), origin
    ])  # fmt: skip


# -- source --------------------------------------------------------------------------------------------


def _source(view: ModelView) -> doc.Block:
    lines = view.source.rstrip().split("\n")
    title = f"{view.file}: {count(len(lines), 'line')}"
    shown = tag("pre", highlighted(view.source.rstrip()), cls="config-text")
    text = [f"  {visible(line.expandtabs(4))}".rstrip() for line in lines]
    return doc.Forms(
        [doc.Words(title, gap=True), doc.Both(lambda _: text)],
        [doc.Fold(title, [doc.Both(lambda _: [], shown)], len(lines) <= _LINES)],
    )


def highlighted(source: str) -> Html:
    """Colour Python as a config is coloured; plain where Pygments is not installed."""
    try:
        from pygments.lexers.python import PythonLexer
        from pygments.token import Comment, Keyword, Literal, Name, Number, String
    except ImportError:
        return prose(source)
    kinds = (
        (Comment, "com"), (Keyword.Constant, "lit"), (Keyword, "key"), (String, "str"), (Number, "lit"),
        (Name.Decorator, "key"), (Literal, "lit"),
    )  # fmt: skip
    pieces: list[str] = []
    for token, words in PythonLexer(stripnl=False, ensurenl=False).get_tokens(source):
        kind = next((name for of, name in kinds if token in of), "")
        pieces.append(tag("span", prose(words), cls=f"config-{kind}") if kind else prose(words))
    return join(*pieces)
