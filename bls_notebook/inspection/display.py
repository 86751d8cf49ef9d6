"""Displays of the inspector (a model, a tensor, a response) and of the watch.

In a notebook, widgets cover an inspection and the watch. The watch has buttons that load, unload and reload models.
Samples arrive on the watch's thread, so it updates while a cell runs; it stops when its last view is closed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from math import prod
from time import localtime, strftime
from typing import Any

from bls_notebook.display import (
    Display,
    Html,
    display_of,
    error_box,
    has_kernel,
    join,
    model_blocks,
    parts,
    prose,
    render,
    response_head,
    tag,
    with_widget,
)
from bls_notebook.display import document as doc
from bls_notebook.display.parts import media_html, number
from bls_notebook.inspection.statistics_table import statistics_document
from bls_notebook.records import (
    DeviceTable,
    Figures,
    TextSeen,
    count,
    duration,
    first_line,
    shape,
    shortened,
    size,
    visible,
)

from .records import ConfigSetting, InstanceNow, ModelNow, ModelView, ResponseView, TensorView, WatchRecord
from .statistics_table import devices_document

_KINDS = {"busy": "loading", "idle": "ready"}
_LINES = 40  # the most lines of a source that are shown unfolded
_ORIGINS = {
    "author": "written by the author", "model": "set by auto_complete_config", "Triton": "filled in by Triton",
    "default": "default",
}  # fmt: skip


def model_view_document(view: ModelView) -> doc.Document:
    styles = (
        "seen config stats" + (" changes" if view.model.changes else "") + (" error" if view.error is not None else "")
    )
    return doc.Document(list(_model_blocks(view)), styles=styles)


def _model_blocks(view: ModelView) -> Iterator[doc.Block]:
    yield from model_blocks(view.model)
    yield from _calls(view)
    yield from _now(view)
    if view.statistics is not None and (view.statistics.success.count or view.statistics.fail.count):
        yield parts.opened("statistics", list(statistics_document([view.statistics]).blocks))
    yield from _processes(view)
    yield _memory(view)
    if view.error is not None:
        yield parts.opened("last error", [error_box(view.error)])
    if view.source:
        yield _source(view)
    yield _config(view)


def _calls(view: ModelView) -> Iterator[doc.Block]:
    by = ", ".join(view.callers) or "no known model"
    if view.callers or view.calls:
        facts = [f"called by {by}", f"calls {', '.join(view.calls)}" if view.calls else ""]
        yield doc.Words(parts.dots(*facts), cls="facts", indent="  ")


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


def _processes(view: ModelView) -> Iterator[doc.Block]:
    """Yield the memory of each process, and the instances whose memory by name is unknown."""
    facts = [f"{each.instance} {each.pid}{f': {size(each.bytes)}' if each.bytes else ''}" for each in view.processes]
    if facts:
        yield doc.Words(parts.quiet(f"{'process' if len(facts) == 1 else 'processes'}: {', '.join(facts)}"), gap=True)
    if silent := [each.instance for each in view.processes if not each.known]:
        said = f"{', '.join(silent)}: what it keeps is unknown, because its native code keeps the GIL; inspect it again"
        yield doc.Words(parts.quiet(said), indent="  ")


def _memory(view: ModelView) -> doc.Block:
    if not view.held:
        return doc.Words(parts.quiet("memory: the model keeps no array"), gap=True)
    columns = doc.columns("name | size:r | what | device")
    rows = [
        doc.Row([parts.code(each.name), parts.memory(each.bytes), each.what, parts.device(each.device)])
        for each in view.held
    ]
    more = view.held_bytes - sum(each.bytes for each in view.held)
    blocks: list[doc.Block] = [doc.Table("Memory that the model keeps", columns, rows, most=60)]
    if more > 0:
        blocks.append(doc.Words(parts.quiet(f"and {size(more)} under other names"), indent="  "))
    return parts.opened(f"memory: the model keeps {size(view.held_bytes)}", blocks)


def _config(view: ModelView) -> doc.Block:
    explicit = [setting for setting in view.settings if setting.origin != "default"]
    rest = [setting for setting in view.settings if setting.origin == "default"]
    own = sum(setting.origin == "author" for setting in explicit)
    title = f"configuration: {count(own, 'field')} written, {len(explicit) - own} completed"
    table = doc.Table("Configuration", _SETTING_COLUMNS, list(map(_setting, explicit)), last="wrap", most=52)
    folded = [doc.Table("Defaults", _SETTING_COLUMNS, list(map(_setting, rest)))]
    html: list[doc.Block] = [table, doc.Fold(f"{count(len(rest), 'default')}", folded)]
    words = doc.Words(parts.quiet(f"and {count(len(rest), 'default')}"), indent="  ")
    return doc.Forms([doc.Words(title, gap=True), table, words], [doc.Fold(title, html, len(explicit) <= 24)])


_SETTING_COLUMNS = doc.columns("field | value | from")


def _setting(each: ConfigSetting) -> doc.Row:
    words = _ORIGINS.get(each.origin, each.origin)
    origin = doc.Piece(words, tag("span", words, cls="" if each.origin == "author" else "dim"))
    value = shortened(each.value, 200)
    return doc.Row([doc.Piece(each.path, tag("span", each.path, cls="config-key")), parts.code(value), origin])


def _source(view: ModelView) -> doc.Block:
    lines = view.source.rstrip().split("\n")
    title = f"{view.file}: {count(len(lines), 'line')}"
    shown = tag("pre", highlighted(view.source.rstrip()), cls="config-text")
    text = [f"  {visible(line.expandtabs(4))}".rstrip() for line in lines]
    return parts.opened(title, [doc.Both(lambda _: text, shown)], len(lines) <= _LINES)


def highlighted(source: str) -> Html:
    """Return Python source with the syntax colours of a displayed configuration."""
    from pygments.lexers.python import PythonLexer  # first needed here
    from pygments.token import Comment, Keyword, Literal, Name, Number, String

    kinds = (
        (Comment, "com"), (Keyword.Constant, "lit"), (Keyword, "key"), (String, "str"), (Number, "lit"),
        (Name.Decorator, "key"), (Literal, "lit"),
    )  # fmt: skip
    pieces: list[str] = []
    for token, words in PythonLexer(stripnl=False, ensurenl=False).get_tokens(source):
        kind = next((name for of, name in kinds if token in of), "")
        pieces.append(tag("span", prose(words), cls=f"config-{kind}") if kind else prose(words))
    return join(*pieces)


_SIDE, _ONE_OF_MANY = 300, 104  # pixels of a picture
_STYLES = "session seen figure"


def tensor_view_document(view: TensorView) -> doc.Document:
    return doc.Document(list(_blocks(view)), styles=_STYLES)


def response_view_document(view: ResponseView) -> doc.Document:
    blocks: list[doc.Block] = list(response_head(view.response))
    blocks += [doc.Box(list(_blocks(each)), "seen-tensor", gap=True) for each in view.tensors]
    left = len(view.response.tensors) - len(view.tensors)
    if view.tensors and left and len(view.tensors) > 1:
        names = ", ".join(tensor.name for tensor in view.response.tensors[len(view.tensors) :])
        blocks.append(doc.Words(parts.quiet(f"and {count(left, 'more output')}: {names}")))
    return doc.Document(blocks, styles=f"{_STYLES} error" if view.response.error else _STYLES)


def _blocks(view: TensorView) -> Iterator[doc.Block]:
    tensor = view.tensor
    pieces = [parts.name(tensor.name or "array"), parts.datatype(tensor.datatype), parts.code(shape(tensor.shape))]
    pieces += [parts.device(tensor.device), parts.quiet(parts.memory(tensor.bytes))]
    if view.index:
        pieces.append(parts.quiet(f"slice {view.index} of {shape(view.whole)}"))
    yield doc.Line(pieces)
    if tensor.figures is not None:
        yield doc.Tiles(list(_tiles(tensor.figures, "F" in tensor.datatype)))
    yield from _shown(view)
    for text in view.texts:
        yield from _text(text)
    left = prod(tensor.shape) - len(view.texts)
    if view.texts and left:
        yield doc.Words(parts.quiet(f"and {count(left, 'more element')}"), indent="  ")
    if view.values:
        title = " ".join(view.notes) or "values"
        lines = view.values.split("\n")
        pre = doc.Both(lambda _: [f"  {visible(line)}".rstrip() for line in lines], tag("pre", prose(view.values)))
        yield doc.Forms([doc.Line([title], indent="  "), pre], [doc.Fold(title, [pre], is_open=len(lines) <= 3)])
    elif view.notes:
        yield doc.Words(parts.quiet(*view.notes), indent="  ")


def _tiles(figures: Figures, floats: bool) -> Iterator[tuple[str, str, str]]:
    yield "min", number(figures.least), "the least finite element"
    yield "max", number(figures.greatest), "the greatest finite element"
    yield "mean", number(figures.mean), "of the finite elements"
    if floats:
        yield "NaN", f"{figures.nans:,}", "elements that are not a number"
        yield "Inf", f"{figures.infinities:,}", "elements that are infinite"
    if figures.every > 1:
        yield "sampled", f"1 in {figures.every:,}", "elements, evenly spaced, because the tensor is large"


def _shown(view: TensorView) -> Iterator[doc.Block]:
    """Yield the pictures, the histogram and the sound side by side in HTML; a line of text for each."""
    tensor, said = view.tensor, []
    boxes: list[Html] = []
    if tensor.pictures:
        side = _SIDE if len(tensor.pictures) == 1 else _ONE_OF_MANY
        images = [media_html(each, side, tensor.name or "array") for each in tensor.pictures]
        first = tensor.pictures[0]
        if any(images):
            boxes.append(_figure(tag("div", *images, cls="seen-row"), first.said))
            said.append(f"{count(len(tensor.pictures), 'picture')} of {first.height}×{first.width}: {first.said}")
    figures = tensor.figures
    if figures is not None and max(figures.histogram, default=0) > 0:
        counts = figures.histogram
        ends = number(figures.least), number(figures.greatest)
        axis = tag("div", tag("span", ends[0]), Html(" "), tag("span", ends[1]), cls="seen-axis")
        most = f"up to {count(max(counts), 'element')} a bin"
        boxes.append(_figure(join(_bars(counts, _bins(figures)), axis), f"histogram, {most}"))
        said.append(f"{ends[0]} ▕{_sparks(counts)}▏ {ends[1]}  histogram, {most}")
    if view.sound is not None:
        player = media_html(view.sound, 0, tensor.name or "array")
        if player:
            boxes.append(_figure(player, f"sound {view.sound.said}", "seen-wide"))
            said.append(f"a sound {view.sound.said}")
    if boxes:
        yield doc.Both(lambda _: [f"  {visible(line)}" for line in said], tag("div", *boxes, cls="seen-boxes"))


def _figure(inside: Html, words: str, cls: str = "") -> Html:
    return tag("div", inside, tag("div", words, cls="dim"), cls=f"seen-box {cls}".strip())


_HEIGHTS = "▁▂▃▄▅▆▇█"


def _sparks(counts: Sequence[int]) -> str:
    """Draw the counts of a histogram as one line of block characters."""
    return "".join(_HEIGHTS[round(7 * n / max(counts))] if n > 0 else " " for n in counts)


def _bars(counts: Sequence[int], titles: tuple[str, ...]) -> Html:
    shown = (
        tag("span", style=f"height:{max(100 * n / max(counts), 2) if n > 0 else 0:.1f}%",
            title=titles[i] if i < len(titles) else None)
        for i, n in enumerate(counts)
    )  # fmt: skip
    return tag("div", *shown, cls="seen-bars")


def _bins(figures: Figures) -> tuple[str, ...]:
    if figures.least is None or figures.greatest is None:
        return ()
    low, wide = (float(figures.least), (float(figures.greatest) - float(figures.least)) / len(figures.histogram))
    return tuple(
        f"{number(low + i * wide)} to {number(low + (i + 1) * wide)}: {n:,}" for i, n in enumerate(figures.histogram)
    )


def _text(text: TextSeen) -> Iterator[doc.Block]:
    facts = [f"[{', '.join(map(str, text.index))}]", text.kind, size(text.bytes) if text.bytes >= 0 else ""]
    yield doc.Line([parts.quiet(parts.dots(*facts))], indent="  ")
    shown = media_html(text.media, _SIDE, text.kind) if text.media is not None else Html()
    body = tag("pre", prose(text.text), cls="seen-text") if text.text else Html()
    lines = [f"    {visible(line)}" for line in text.text.split("\n")] if text.text else []
    yield doc.Both(lambda _: lines, join(shown, body))


def inspected_display(value: Any, *, width: int, live: bool) -> Display:
    """Draw a `pb_utils` tensor or response as its inspection."""
    from .inspection import inspect  # first needed here

    return render(inspect(value).record, width=width, live=live)


_NO_WIDGET = "this is one sample; for a live panel: pip install anywidget, then restart the kernel"


def watch_document(record: WatchRecord, missing: bool = False) -> doc.Document:
    """List the models with their states and statistics; `missing` says that anywidget is not installed."""
    at = strftime("%H:%M:%S", localtime(record.at))
    title = doc.Line([parts.name(record.place), parts.quiet("closed" if record.closed else f"at {at}")])
    used = [model for model in record.models if model.in_use]
    heads = "model", "state", "busy", "queue", "answered", "failed", "p50", "p99"
    columns = [doc.Column(head, how.strip()) for head, how in zip(heads, "  rrrrtt", strict=True)]
    blocks: list[doc.Block] = [title]
    if used:
        caption = f"State of the models of {record.place}"
        blocks.append(doc.Table(caption, columns, list(map(_watch_row, used)), indent="", most=40))
    rest = len(record.models) - len(used)
    if rest or not used:
        blocks.append(doc.Words(parts.quiet(count(rest, "model") + " not loaded" if rest else "no models")))
    devices = devices_document(DeviceTable(record.devices))
    blocks += devices.blocks[:1] if record.devices else []
    if missing:
        blocks.append(doc.Words(parts.quiet(_NO_WIDGET), gap=True))
    return doc.Document(blocks, styles=devices.styles)


def _watch_row(model: ModelNow) -> doc.Row:
    version = f" version {model.version}" if model.version != 1 else ""
    name = doc.Piece(model.name + version, tag("span", parts.name(model.name).html, parts.quiet(version).html))
    if model.state != "READY":
        reason = doc.Piece(model.reason, tag("span", prose(model.reason), cls="dim"), cls="wrap", wide=6)
        return doc.Row([name, parts.state(model), reason])
    stub = parts.stub(model.reason if model.reason.startswith("stub: ") else "")
    return doc.Row([
        name,
        parts.spaced(parts.state(model), *stub),
        f"{model.busy:,} of {model.instances:,}" if model.instances else "",
        f"{model.queue:,}",
        f"{model.answered:,}",
        f"{model.failed:,}",
        parts.time(None if model.p50 is None else model.p50 / 1e9),
        parts.time(None if model.p99 is None else model.p99 / 1e9),
    ])  # fmt: skip


def render_watch(watch: Any, *, width: int = 100, live: bool = True) -> Display:
    """Draw a `Watch`: a table of the present state, covered by a live panel if widgets work."""
    record = watch.record
    missing = live and has_kernel() and importlib.util.find_spec("anywidget") is None
    display = display_of(watch_document(record, missing), width)
    return with_widget(display, lambda: _widgets().WatchWidget(watch)) if live and not record.closed else display


def _widgets() -> Any:
    from . import inspector_widget  # needs anywidget

    return inspector_widget


def render_inspection(inspection: Any, *, width: int, live: bool) -> Display:
    """Draw an `Inspection`, covered by controls to change its tensor, slice and rate if widgets work."""
    display = render(inspection.record, width=width)
    return with_widget(display, lambda: _widgets().Inspector(answering(inspection, width))) if live else display


def answering(inspection: Any, width: int) -> Callable[[dict[str, Any]], tuple[str, dict[str, Any]]]:
    """Return a function from a widget's query to HTML and the state of its controls; `{}` is the inspection itself."""
    known: dict[str, Any] = {}

    def answer(question: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        asked: dict[str, Any] = {key: question[key] for key in ("tensor", "at") if key in question}
        rate = question.get("rate") or None
        try:
            changed = inspection.asked(**asked, rate=rate) if question else inspection
            html = render(changed.record, width=width).html
        except Exception as error:  # an error appears in the widget and fails no cell
            if not known:
                raise
            return "", {**known, **asked, "rate": rate or 0, "said": first_line(str(error))}
        views = getattr(changed.record, "tensors", (changed.record,))
        known.update(
            tensors=[[name, list(dims)] for name, dims in changed.tensors.items()],
            tensor=changed.tensor,
            at=changed.at,
            rate=changed.rate or 0,
            sound=any(getattr(view, "sound", None) is not None for view in views),
            again=isinstance(changed.value, str),  # a model can be queried again
            said="",
        )
        return html, dict(known)

    return answer
