"""A certificate: whether a model answers here as on a server, what shows that, and what differs."""

from __future__ import annotations

from collections.abc import Iterator

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.html import join, tag
from bls_notebook.display.inspection.differences import differences_table, inputs_table
from bls_notebook.display.units import count, ns
from bls_notebook.observe.records.shipping.certificate import Certificate, Counted, Unequal

_HASH = 16  # characters that are shown


def certificate_document(record: Certificate) -> doc.Document:
    """Describe what was proven of a model."""
    return doc.Document(list(_blocks(record)), styles="seen findings session")


def _blocks(record: Certificate) -> Iterator[doc.Block]:
    yield doc.Words(_verdict(record))
    for each in record.unequal:
        yield from _unequal(each)
    counted = [each for each in record.counted if not each.equal]
    yield doc.Warnings(tuple(_counted(each) for each in counted), "differs")
    yield doc.Warnings(record.notes)
    if record.requests:
        yield doc.Tiles(_figures(record))
    yield doc.Words(parts.quiet(" · ".join(_conditions(record))))
    rows = [doc.Row([parts.code(path), parts.code(digest[:_HASH])]) for path, digest in record.files]
    if rows:
        title = f"{count(len(rows), 'file')} served on both sides, by SHA-256"
        table = doc.Table(title, doc.columns("file | SHA-256"), rows)
        yield doc.Forms([], [doc.Fold(title, [table])])


def _verdict(record: Certificate) -> doc.Piece:
    if not record.requests:
        return doc.Piece("nothing was compared", tag("span", "nothing was compared"))
    if record.equal:
        how = parts.equal_how(record.tolerance, record.ulps)
        return _marked("✓", f"answers as the server does: {count(record.requests, 'request')}, {how}", record)
    return _marked("✗", "answers differently on the server", record)


def _marked(sign: str, words: str, record: Certificate) -> doc.Piece:
    mark = tag("span", sign, cls="findings-good" if record.equal else "findings-tally-error")
    html = join(mark, parts.name(record.model).html, words, by=" ")
    return doc.Piece(f"{sign} {record.model} {words}", html)


def _figures(record: Certificate) -> list[tuple[str, str, str]]:
    given = f"{record.given:,} given" if record.given else ""
    generated = f"{record.generated:,} generated, seed {record.seed}" if record.generated else ""
    sent = " and ".join(filter(None, (given, generated)))
    return [
        ("compared", f"{record.requests:,}", sent),
        ("refused alike", f"{record.failed:,}", "the same error on both"),
        ("here", ns(record.here_ns), "median, in this process"),
        ("on the server", ns(record.there_ns), "median, over loopback"),
    ]


def _counted(each: Counted) -> str:
    words = ("requests answered", "failed", "inferences", "executions")
    pairs = zip(words, each.here, each.there, strict=True)
    return f"statistics of {each.model}: " + ", ".join(
        f"{word} {here:,} here, {there:,} on the server" for word, here, there in pairs if here != there
    )


def _also(record: Certificate) -> Iterator[str]:
    if record.alone:
        yield f"{count(record.alone, 'row')} of batches asked for alone"
    if record.instances:
        yield f"with {', '.join(map(str, record.instances))} instances side by side"
    if record.counted and all(each.equal for each in record.counted):
        yield f"statistics of {count(len(record.counted), 'model')} counted alike"


def _conditions(record: Certificate) -> Iterator[str]:
    yield from _also(record)
    yield f"version {record.version}"
    yield f"here {record.here}"
    yield f"there {record.server}"
    for each in record.packages:
        if each.here == each.there:
            yield f"{each.name} {each.here}"
        else:
            yield f"{each.name} {each.here or 'absent'} here, {each.there or 'absent'} there"


def _unequal(each: Unequal) -> Iterator[doc.Block]:
    yield doc.Warnings(each.what, "differs")
    if each.tensors:
        yield differences_table(each.tensors, ("here", "on the server"))
    kind = "the smallest request that shows it" if each.shrunk else "the request"
    if len(each.steps) > 1:
        kind = "the smallest sequence that shows it" if each.shrunk else "the sequence"
    if not each.steady:
        kind += ", which was answered alike when it was sent again: the model is not deterministic"
    yield doc.Words(kind, gap=True)
    tensors = [tensor for step in each.steps for tensor in step]
    yield inputs_table("The request", tensors) if tensors else doc.Words(parts.quiet("no inputs"))
