"""Displays of models: one version, lists of versions, configurations and changed files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from bls_notebook.display import as_text as text
from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.document import Both, Document, Forms, Line
from bls_notebook.display.html import Html, join, prose, tag
from bls_notebook.records.models import Change, ModelRecord, TensorSpecRecord
from bls_notebook.records.remedy_words import remedy
from bls_notebook.records.units import count, shape
from bls_notebook.records.visible_text import visible

_EMPTY = "no models: define one with {define}, or load one with {load}"
_SHORT = 40  # characters; a longer reason gets a separate row
_NAMES = 3  # largest number of tensor names on each side of a signature


def model_document(record: ModelRecord) -> doc.Document:
    return doc.Document(list(model_blocks(record)), styles="changes" if record.changes else "")


def model_blocks(record: ModelRecord) -> Iterator[doc.Block]:
    time = parts.time(record.load_seconds)
    loaded = parts.quiet("loaded in ", time) if time.text else time
    version = parts.quiet(f"version {record.version}")
    marks = (*parts.stub(record.stub), *parts.remote(record.remote))
    yield doc.Line([parts.name(record.name), version, parts.state(record), *marks, loaded])
    if record.stub:
        yield doc.Warnings([f"its answers are made up: {record.stub}"], label="stub")
    if record.reason:
        reason = tag("span", prose(record.reason), cls="wrap")
        yield doc.Note("reason", record.reason, tag("div", parts.quiet("reason").html, Html(" "), reason))
    yield doc.Words(parts.dots(*_facts(record)), cls="facts", indent="  ")
    both = (("inputs", record.inputs), ("outputs", record.outputs))
    batch = record.max_batch_size > 0
    groups = [doc.Group(title, [_spec(s, batch) for s in specs]) for title, specs in both if specs]
    if groups:
        columns = doc.columns("name | datatype | shape |")
        yield doc.Table(f"Inputs and outputs of {record.name}", columns, groups, headed=False, heads=False)
    yield doc.Warnings(record.warnings)
    yield from changes_blocks(record.changes)


def _facts(record: ModelRecord) -> Iterator[str]:
    if record.backend:
        yield f"{record.backend} backend"
    kind = record.instance_kind.removeprefix("KIND_").upper()
    if not record.remote:  # a remote server does not report its instances
        home = ("each " * (record.instances > 1) + "in a process of its own",) if record.processes else ()
        yield ", ".join((count(record.instances, "instance") + f" on {kind}" * (kind in {"CPU", "GPU"}), *home))
    yield f"batches of up to {record.max_batch_size}" if record.max_batch_size > 0 else "no batching"
    if record.decoupled:
        yield "decoupled: any number of responses"
    if record.source:
        kept = f" with the configuration of {record.config_source}" if record.config_source else ""
        yield f"from {'a cell' if record.source == 'cell' else record.source}{kept}"


def _spec(spec: TensorSpecRecord, batch: bool) -> doc.Row:
    dims = shape(spec.dims, batch=batch)
    any_size = "-1 means any size" if -1 in spec.dims else None
    shown_dims = doc.Piece(dims, tag("code", dims, title=any_size))
    optional = parts.quiet("optional" if spec.optional else "")
    return doc.Row([parts.name(spec.name), parts.datatype(spec.datatype), shown_dims, optional])


def models_document(records: Sequence[ModelRecord]) -> doc.Document:
    """Show models in the given order; reasons are wrapped and never cut."""
    if not records:
        return doc.Document([doc.Words(parts.quiet(parts.coded(str(remedy(_EMPTY, name="NAME")))))])
    table = models_table("Models in the repository", records)
    return doc.Document([table, doc.Words(parts.quiet(_summary(records)), gap=True)])


def models_table(caption: str, records: Sequence[ModelRecord]) -> doc.Table:
    columns = doc.columns("model | version:r | state | load time:t | source | inputs → outputs")
    rows = [row for record in records for row in _rows(record)]
    return doc.Table(caption, columns, rows, indent="", last="wrap", most=28)


def _rows(record: ModelRecord) -> Iterator[doc.Row]:
    """Yield the row of a model, and in text a second one for a long reason."""
    has_tensors, reason = record.inputs or record.outputs, record.reason
    signature = f"{_names(record.inputs)} → {_names(record.outputs)}" if has_tensors else ""
    beside = not signature and len(reason) <= _SHORT
    is_notable = record.state == "READY"  # a model that serves although it has a reason
    below = tag("div", prose(reason), cls="loading" if is_notable else "dim") if reason else ""
    inside = join(tag("code", signature) if signature else "", below)
    last = doc.Piece(reason if beside else signature, inside, cls="wrap")
    state = parts.spaced(parts.state(record), *parts.stub(record.stub), *parts.remote(record.remote))
    named: list[doc.Said] = [parts.name(record.name), str(record.version), state]
    # A long path is cut on a narrow page.
    path = tag("span", record.source, cls="dim value", title=record.source or None)
    source = doc.Piece(record.source, tag("span", path, cls="fit"))
    yield doc.Row([*named, parts.time(record.load_seconds), source, last])
    if reason and not beside:
        yield doc.Row(["", "", reason], only="text")


def _names(specs: tuple[TensorSpecRecord, ...]) -> str:
    rest = f", +{len(specs) - _NAMES}" if len(specs) > _NAMES else ""
    return ", ".join(spec.name for spec in specs[:_NAMES]) + rest or "nothing"


def _summary(records: Sequence[ModelRecord]) -> str:
    ready = sum(record.state == "READY" for record in records)
    models = len({record.name for record in records})
    versions = f" in {count(len(records), 'version')}" if models < len(records) else ""
    return f"{count(models, 'model')}{versions}, {ready:,} ready"


_TOKEN = re.compile(
    r"""(?P<com>\#[^\n]*)
    |(?P<str>"[^"\\\n]*(?:\\.[^"\\\n]*)*"?|'[^'\\\n]*(?:\\.[^'\\\n]*)*'?)
    |(?P<key>[A-Za-z_]\w*(?=[ \t]*[:{\[]))
    |(?P<lit>\b[A-Z][A-Z0-9_]+\b|\btrue\b|\bfalse\b|-?\b\d[\w.]*)
    |\w+""",
    re.VERBOSE,
)


def config_document(name: str, pbtxt: str) -> Document:
    """Show a configuration under the name of its model, uncut, so that it can be copied."""
    named = Line([parts.name(name), parts.quiet("config.pbtxt")])
    heading = Forms([Line([f"config.pbtxt of {name}"], mark="#")], [named])
    return Document([heading, config_block(pbtxt)], styles="config")


def config_block(pbtxt: str) -> Both:
    """Show a configuration (or YAML) with colors; the stylesheet is ``config``."""
    shown = tag("pre", _coloured(pbtxt.rstrip().expandtabs(4)), cls="config-text")
    return Both(lambda _: [visible(pbtxt.rstrip(), lines=True)], shown)


def _coloured(pbtxt: str) -> Html:
    pieces: list[str] = []
    end = 0
    for match in _TOKEN.finditer(pbtxt):
        cls = f"config-{match.lastgroup}" if match.lastgroup else None
        pieces += [prose(pbtxt[end : match.start()]), tag("span", prose(match[0]), cls=cls) if cls else prose(match[0])]
        end = match.end()
    return join(*pieces, prose(pbtxt[end:]))


_IN_TEXT = 12  # lines of a change in text, which cannot fold
_CLASSES = {"+": "changes-came", "-": "changes-went", "…": "dim"}


def changes_blocks(changes: Sequence[Change]) -> Iterator[doc.Block]:
    """Yield changes under a summary line; nothing without changes."""
    if changes:
        counts = ", ".join(f"{change.file} +{change.added} −{change.removed}" for change in changes)
        title = f"changed since the last definition: {counts}"
        blocks = [change_block(change, _IN_TEXT) for change in changes]
        yield doc.Forms([doc.Words(title, indent="  "), *blocks], [doc.Fold(title, blocks)])


def change_block(change: Change, most: int) -> doc.Block:
    """Show a change; in text, at most `most` lines."""
    return doc.Both(lambda width: list(_text(change, width, most)), _html(change))


def _text(change: Change, width: int, most: int) -> Iterator[str]:
    for number, (sign, line) in zip(_numbers(change), change.lines[:most], strict=False):
        yield from text.wrap(f"{number}{sign} {visible(line)}", width, "    ", "      " + " " * len(number))
    if len(change.lines) > most:
        yield f"    … {len(change.lines) - most} more lines"


def _numbers(change: Change) -> list[str]:
    """Return the prefix of each line: its number, if the change has numbers."""
    if not change.numbers or len(change.numbers) != len(change.lines):
        return [""] * len(change.lines)
    width = len(str(max(change.numbers)))
    return [f"{number or '':>{width}} " for number in change.numbers]


def _html(change: Change) -> Html:
    # The newline is for readers without the stylesheet; with it, the line is a block, which ignores the newline.
    lines = (
        tag(
            "span",
            *([tag("span", number, cls="dim")] if number else []),
            f"{sign} {visible(line)}",
            Html("\n"),
            cls=_CLASSES.get(sign, ""),
        )
        for number, (sign, line) in zip(_numbers(change), change.lines, strict=True)
    )
    return tag("div", tag("span", change.file, cls="dim"), tag("pre", *lines, cls="changes-lines"))
