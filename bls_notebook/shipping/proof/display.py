"""A certificate: whether a model answers here as on a server, what shows that, and what differs."""

from __future__ import annotations

from collections.abc import Iterator

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.html import join, tag
from bls_notebook.display.records.differences import differences_table, inputs_table, without_told
from bls_notebook.display.units import count, ns

from .certificate import Certificate, ModelCounts, Unequal

_HASH = 16  # characters that are shown


def certificate_document(record: Certificate) -> doc.Document:
    """Describe what was proven of a model."""
    return doc.Document(list(_blocks(record)), styles="seen findings session")


def _blocks(record: Certificate) -> Iterator[doc.Block]:
    yield doc.Words(_verdict(record), "session-verdict", hang="  ")
    for each in record.unequal:
        yield from _unequal(each)
    counted = [each for each in record.counted if not each.equal]
    yield doc.Warnings(tuple(_counted(each) for each in counted), "differs")
    yield doc.Warnings(record.notes)
    yield doc.Words(parts.quiet(" · ".join(_asked(record))))
    yield doc.Table("What answered", doc.columns(" | here | on the server"), list(_both(record)))
    rows = [doc.Row([parts.code(path), parts.code(digest[:_HASH])]) for path, digest in record.files]
    if rows:
        title = f"{count(len(rows), 'file')} served on both sides, by SHA-256"
        table = doc.Table(title, doc.columns("file | SHA-256"), rows)
        yield doc.Forms([], [doc.Fold(title, [table])])


def _verdict(record: Certificate) -> doc.Piece:
    if not record.requests:
        return doc.Piece("nothing was compared", tag("span", "nothing was compared"))
    if record.equal:
        return _marked("✓", "answers as the server does", record)
    if record.unequal:
        return _marked("✗", "answers differently on the server", record)
    return _marked("✗", "answers as the server does, which counts otherwise", record)


def _marked(sign: str, words: str, record: Certificate) -> doc.Piece:
    words += f": {count(record.requests, 'request')}"
    if record.equal:
        words += f", {parts.equal_how(record.tolerance, record.ulps)}"
    words += f", against {record.server.partition(', ')[0]}"
    if record.seconds:
        words += f", in {ns(int(record.seconds * 1e9))}"
    mark = tag("span", sign, cls="findings-good" if record.equal else "findings-tally-error")
    html = join(mark, tag("code", record.model), words, by=" ")
    return doc.Piece(f"{sign} {record.model} {words}", html)


def _counted(each: ModelCounts) -> str:
    words = ("requests answered", "failed", "inferences", "executions")
    pairs = zip(words, each.here, each.there, strict=True)
    return f"statistics of {each.model}: " + ", ".join(
        f"{word} {here:,} here, {there:,} on the server" for word, here, there in pairs if here != there
    )


def _asked(record: Certificate) -> Iterator[str]:
    yield f"version {record.version}"
    if record.given:
        yield f"{count(record.given, 'request')} given"
    if record.generated:
        yield f"{record.generated:,} generated (seed {record.seed})"
    if record.failed:
        yield f"{record.failed:,} answered by the same error on both"
    if record.alone:
        yield f"{count(record.alone, 'row')} of batches asked for alone"
    if record.instances:
        yield f"with {', '.join(map(str, record.instances))} instances side by side"
    if record.counted and all(each.equal for each in record.counted):
        yield f"statistics of {count(len(record.counted), 'model')} counted alike"


def _both(record: Certificate) -> Iterator[doc.Row]:
    """What there is to say of each side, side by side."""
    yield doc.Row(["run by", record.here, record.server])
    if record.requests:
        yield doc.Row(["median answer", ns(record.here_ns), f"{ns(record.there_ns)}, over loopback"])
    for each in record.packages:
        yield doc.Row([each.name, each.here or "absent", each.there or "absent"])


def _unequal(each: Unequal) -> Iterator[doc.Block]:
    yield doc.Warnings(without_told(each.what, each.tensors), "differs")
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
