"""Displays of exports, certificates and tritonservers."""

from __future__ import annotations

from collections.abc import Iterator

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.html import join, prose, tag
from bls_notebook.display.records.differences import differences_table, inputs_table, without_told
from bls_notebook.records.units import count, duration, ns, size
from bls_notebook.records.visible_text import visible

from .records import Certificate, Exported, ExportedModel, ModelCounts, ServedModel, ServerRecord, Unequal

_EXPORT_COLUMNS = doc.columns("model | backend | from | files:r | calls")


def exported_document(record: Exported) -> doc.Document:
    """Describe an export."""
    return doc.Document(list(_export_blocks(record)))


def _export_blocks(record: Exported) -> Iterator[doc.Block]:
    whole = size(sum(model.bytes for model in record.models))
    yield doc.Line([parts.name(record.place), parts.quiet(f"{count(len(record.models), 'model')} · {whole}")])
    rows = [doc.Row(_export_cells(model)) for model in record.models]
    yield doc.Table(f"Models exported to {record.place}", _EXPORT_COLUMNS, rows)
    facts = [f"requirements.txt: {', '.join(record.requirements)}"] if record.requirements else []
    facts += [f"at least {size(record.shm_bytes)} of /dev/shm on a server"] if record.shm_bytes else []
    if "prove.py" in record.files:
        facts.append("prove.py there proves the answers on a machine with a server")
    yield doc.Words(parts.quiet(" · ".join([*facts, "README.md there: how to serve, test and measure it"])))
    there = dict(record.elsewhere)
    absent = [
        f"{model.name} calls {name}, which is at {there[name]} and was left out: a server has to have both"
        if name in there
        else f"{model.name} calls {name}, which does not serve here and was left out: load it and export "
        "again, or have it on the server"
        for model in record.models
        for name in model.absent
    ]
    unknown = [
        f"{name} is imported and not installed here: add its package to requirements.txt" for name in record.unknown
    ]
    yield doc.Warnings((*absent, *unknown))


def _export_cells(model: ExportedModel) -> list[doc.Said]:
    came = "a cell" if model.source == "cell" else model.source
    backend = model.backend or "ensemble"
    return [parts.name(model.name), backend, came, str(model.files), parts.listed(model.calls)]


_HASH = 16  # characters that are shown


def certificate_document(record: Certificate) -> doc.Document:
    """Describe what was proven of a model."""
    return doc.Document(list(_certificate_blocks(record)), styles="seen findings session")


def _certificate_blocks(record: Certificate) -> Iterator[doc.Block]:
    yield doc.Words(_verdict(record), "session-verdict", hang="  ")
    for each in record.unequal:
        yield from _unequal_blocks(each)
    counted = [each for each in record.counted if not each.equal]
    yield doc.Warnings(tuple(_counted(each) for each in counted), "differs")
    yield doc.Warnings(record.notes)
    yield doc.Words(parts.quiet(" · ".join(_request_facts(record))))
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


def _request_facts(record: Certificate) -> Iterator[str]:
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
    yield doc.Row(["run by", record.here, record.server])
    if record.requests:
        yield doc.Row(["median answer", ns(record.here_ns), f"{ns(record.there_ns)}, over loopback"])
    for each in record.packages:
        yield doc.Row([each.name, each.here or "absent", each.there or "absent"])


def _unequal_blocks(each: Unequal) -> Iterator[doc.Block]:
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


_SERVED_COLUMNS = doc.columns("model | version:r | backend | state | calls")
_KINDS = {"READY": "ready", "ENDED": "unavailable", "UNAVAILABLE": "unavailable"}


def served_document(record: ServerRecord) -> doc.Document:
    """Describe a server."""
    return doc.Document(list(_server_blocks(record)), styles="tried")


def _server_blocks(record: ServerRecord) -> Iterator[doc.Block]:
    up = record.state in ("READY", "NOT READY")
    named = f"tritonserver {record.version}".strip()
    facts = [count(len(record.models), "model")]
    facts += [f"started in {duration(record.seconds)}"] if up and record.seconds else []
    state = parts.stated(record.state, _KINDS.get(record.state, ""))
    yield doc.Line([parts.name(named), state, parts.quiet(" · ".join(facts))])
    yield doc.Warnings(record.notes)
    if up:
        addresses = (("HTTP", record.http), ("gRPC", record.grpc), ("metrics", record.metrics))
        columns = doc.columns(" | ")
        rows = [doc.Row([what, parts.code(where)]) for what, where in addresses]
        yield doc.Table("Where it listens, on this machine alone", columns, rows, heads=False)
    if record.state != "STOPPED":
        yield from _served(record, named, up)


def _served(record: ServerRecord, named: str, up: bool) -> Iterator[doc.Block]:
    yield doc.Table(
        f"Models on {named}", _SERVED_COLUMNS, [doc.Row(_served_cells(model, up)) for model in record.models]
    )
    if up and record.models:
        yield doc.Words("to call it from any program on this machine (pip install tritonclient[grpc]):")
        yield _client(record)
    yield doc.Words(parts.quiet(record.program))
    if record.log_file:
        yield doc.Words(parts.quiet(f"log: {record.log_file}"))
    if record.log:
        log = tag("pre", prose("\n".join(record.log)))
        ended = record.state == "ENDED"
        lines = [f"    {visible(line)}" for line in record.log] if ended else []
        yield doc.Fold("the last lines of its log", [doc.Both(lambda _: lines, log)], is_open=ended)


def _served_cells(model: ServedModel, up: bool) -> list[doc.Said]:
    versions = ", ".join(map(str, model.versions))
    state = parts.stated(model.state, _KINDS.get(model.state, "")) if up else parts.quiet("gone")
    if up and model.reason:
        words = f"{model.state} {model.reason}"
        state = doc.Piece(words, join(state.html, prose(model.reason), by=" "), cls="wrap")
    return [parts.name(model.name), versions, model.backend or "ensemble", state, parts.listed(model.calls)]


def _client(record: ServerRecord) -> doc.Block:
    """One line of Python that a person can paste and run."""
    called = {name for model in record.models for name in model.calls}
    first = next((model for model in record.models if model.name not in called), record.models[0])
    return parts.pasted(
        "import tritonclient.grpc as triton; "
        f"client = triton.InferenceServerClient({record.grpc!r}); "
        f"print(client.get_model_metadata({first.name!r}))"
    )
