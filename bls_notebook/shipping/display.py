"""Displays of exports, certificates and tritonservers."""

from __future__ import annotations

from collections.abc import Iterator

from bls_notebook.display import change_block, join, parts, prose, tag
from bls_notebook.display import document as doc
from bls_notebook.inspection.differences_table import differences_table, inputs_table, lines_beside_table
from bls_notebook.records import count, duration, listed, ns, size, visible

from .proof.proof_script import DROPPED
from .records import (
    Certificate,
    Changes,
    Exported,
    ExportedModel,
    ModelCounts,
    ServedModel,
    ServerRecord,
    Unequal,
    Verified,
)

_EXPORT_COLUMNS = doc.columns("model | backend | from | files:r | calls")


@doc.document()
def exported_document(record: Exported) -> Iterator[doc.Block]:
    whole = size(sum(model.bytes for model in record.models))
    yield doc.Line([parts.name(record.place), parts.quiet(f"{count(len(record.models), 'model')} · {whole}")])
    rows = [doc.Row(_export_cells(model)) for model in record.models]
    yield doc.Table(f"Models exported to {record.place}", _EXPORT_COLUMNS, rows)
    facts = [f"requirements.txt: {', '.join(record.requirements)}"] if record.requirements else []
    facts += [f"needs about {size(record.shm_bytes)} of /dev/shm on a server"] if record.shm_bytes else []
    if "prove.py" in record.files:
        facts.append("prove.py compares the answers with those of a server")
    yield doc.Words(parts.quiet(" · ".join([*facts, "README.md: how to serve, test and measure the models"])))
    yield doc.Warnings(record.warnings)


def _export_cells(model: ExportedModel) -> list[doc.Said]:
    origin = "a cell" if model.source == "cell" else model.source
    return [parts.name(model.name), model.backend or "ensemble", origin, str(model.files), parts.listed(model.uses)]


_DIFF = 60  # lines of a file in text


@doc.document("changes")
def changes_document(record: Changes) -> Iterator[doc.Block]:
    """Show the differences of changed models to the files on disk."""
    of = f"{len(record.models):,} of {count(record.total, 'model')} changed"
    end = "written" if record.written else "nothing is written: `--write` (`write=True`) writes them"
    yield doc.Line([parts.coded(f"{of}; {end}" if record.models else of)], mark="✓" if record.written else "")
    for model in record.models:
        files = ", ".join(f"{change.file} +{change.added} −{change.removed}" for change in model.changes)
        title = parts.dots(parts.name(model.name), files, parts.quiet(model.folder))
        shown = [change_block(change, _DIFF) for change in model.changes]
        yield doc.Forms([doc.Words(title, gap=True), *shown], [doc.Fold(title, shown, not record.written)])
        yield doc.Warnings(model.notes)


_HASH = 16  # characters that are shown


@doc.document("seen findings session")
def certificate_document(record: Certificate) -> Iterator[doc.Block]:
    yield doc.Words(_verdict(record), "session-verdict", hang="  ")
    if record.varies:
        lines = [f"two fresh instances, the same requests, {line}" for line in record.varies]
        cause = "the model may use random numbers, the time, the order of sets, or state outside of itself"
        yield doc.Warnings((*lines, cause), "differs")
    for each in record.unequal:
        yield from _unequal_blocks(each)
    different_counts = [each for each in record.counted if not each.equal]
    yield doc.Warnings(tuple(_counted(each) for each in different_counts), "differs")
    yield doc.Warnings(record.notes)
    yield doc.Words(parts.quiet(" · ".join(_request_facts(record))))
    yield doc.Table("The two sides", doc.columns(" | here | on the server"), list(_both(record)))
    rows = [doc.Row([parts.code(path), parts.code(digest[:_HASH])]) for path, digest in record.files]
    if rows:
        title = f"{count(len(rows), 'file')} served on both sides, by SHA-256"
        yield doc.Forms([], [doc.Fold(title, [doc.Table(title, doc.columns("file | SHA-256"), rows)])])


def verified_document(record: Verified) -> doc.Document:
    differs = ("changed", record.changed), ("missing", record.missing), ("not in the certificate", record.added)
    words = "are those of the certificate" if record.equal else "are not those of the certificate"
    facts = f"{count(record.files, 'file')} of {record.model} in {record.folder} {words}"
    lines = tuple(f"{kind}: {listed(paths, 12)}" for kind, paths in differs if paths)
    return doc.Document([doc.Line([facts], mark="✓" if record.equal else "✗"), doc.Warnings(lines, "differs")])


def _verdict(record: Certificate) -> doc.Piece:
    if record.varies:
        text = "cannot be compared with a server: its answers vary between fresh instances"
        mark = tag("span", "?", cls="findings-tally-error")
        return doc.Piece(f"? {record.model} {text}", join(mark, tag("code", record.model), text, by=" "))
    if not record.requests:
        return doc.Piece("nothing was compared", tag("span", "nothing was compared"))
    if record.equal and record.failed >= record.requests:
        return _marked("!", "fails as the server does", record)
    if record.equal:
        return _marked("✓", "answers as the server does", record)
    if record.unequal and all(each.lost for each in record.unequal):
        is_here = any(line.startswith("no answer here") for each in record.unequal for line in each.what)
        return _marked("?", f"got no answer {'here' if is_here else 'from the server'}", record)
    if record.unequal:
        if record.rounds:
            return _marked("≈", "answers differently on the server by rounding", record, _rounding(record))
        return _marked("✗", "answers differently on the server", record)
    return _marked("✗", "answers as the server does, but its statistics differ", record)


def _rounding(record: Certificate) -> str:
    """Return how much answers are rounded otherwise, by which NumPy, and what accepts it."""
    numpy = [f" (NumPy {p.here} here, {p.there} on the server)" for p in record.packages if p.name == "numpy"]
    units = f"by at most {count(int(record.ulps_needed), 'unit')} in the last place"
    accepts = f"`--tolerance {tolerance_above(record.rounding)}` accepts it"
    return f". {record.rounded:,} of them differ, {units}{''.join(numpy[:1])}; {accepts}"


def tolerance_above(needed: float) -> str:
    """Return a number with one digit that is at least as large, such as ``3e-07``."""
    text = f"{needed:.0e}"
    digit, exponent = text.split("e")
    return text if float(text) >= needed else f"{int(digit) + 1}e{exponent}"


def _marked(sign: str, text: str, record: Certificate, remark: str = "") -> doc.Piece:
    text += f": {count(record.requests, 'request')}"
    if record.equal:
        codes = " without the codes of errors" if record.decoupled and record.failed > 0 else ""
        text += f", {parts.equal_how(record.tolerance, record.ulps)}{codes}"
    text += f", against {record.server.partition(', ')[0]}"
    if record.seconds:
        text += f", in {ns(int(record.seconds * 1e9))}"
    text += remark
    color = {"✓": "findings-good", "✗": "findings-tally-error"}.get(sign, "findings-tally-warning")
    mark = tag("span", sign, cls=color)
    return doc.Piece(f"{sign} {record.model} {text}", join(mark, tag("code", record.model), text, by=" "))


def _counted(counts: ModelCounts) -> str:
    labels = ("successful requests", "failed requests", "inferences", "executions")
    pairs = zip(labels, counts.here, counts.there, strict=True)
    return f"statistics of {counts.model}: " + ", ".join(
        f"{label} {here:,} here, {there:,} on the server" for label, here, there in pairs if here != there
    )


def _request_facts(record: Certificate) -> Iterator[str]:
    yield f"version {record.version}"
    if record.given:
        yield f"{count(record.given, 'request')} given"
    if record.generated:
        yield f"{record.generated:,} generated (seed {record.seed})"
    if record.failed:
        yield f"{record.failed:,} failed with the same error on both sides; not compared in its text: {DROPPED}"
    if record.stateful:
        begin = (
            "both sides began with fresh instances" if record.files else "the server's instances may have had others"
        )
        yield f"answers depend on earlier requests: {begin}"
    if record.alone:
        yield f"{count(record.alone, 'row')} of batches sent again one by one"
    if record.instances:
        yield f"in parallel with {', '.join(map(str, record.instances))} instances"
    if record.requests:
        of_stream = ", codes of errors, and versions and parameters of responses in streams" if record.decoupled else ""
        yield f"not compared: configurations, times, logs, custom metrics{of_stream}"
    if record.requests and record.never_sent:
        yield f"never sent: {listed(record.never_sent, 12)}"
    if record.counted and all(each.equal for each in record.counted):
        twice = any(each.here[:2] != each.there[:2] for each in record.counted)
        exception = ", but the server counts failed requests of ensembles twice" if twice else ""
        yield f"equal statistics of {count(len(record.counted), 'model')}{exception}"


def _both(record: Certificate) -> Iterator[doc.Row]:
    server, _, mode = record.server.partition(", model control mode ")
    yield doc.Row(["run by", record.here, server])
    if mode:
        yield doc.Row(["model control mode", "", mode])
    if record.here_ns:
        yield doc.Row(["median answer", ns(record.here_ns), f"{ns(record.there_ns)}, at the client"])
    for package in record.packages:
        yield doc.Row([package.name, package.here or "absent", package.there or "absent"])


def _unequal_blocks(unequal: Unequal) -> Iterator[doc.Block]:
    yield doc.Warnings(lines_beside_table(unequal.what, unequal.tensors), "warning" if unequal.lost else "differs")
    if unequal.tensors:
        yield differences_table(unequal.tensors, ("here", "on the server"))
    title = "the smallest request that shows the difference" if unequal.shrunk else "the request"
    if len(unequal.steps) > 1:
        title = "the smallest sequence that shows the difference" if unequal.shrunk else "the sequence"
    if not unequal.steady:
        title += "; sent again, it got equal answers"
    yield doc.Words(title, gap=True)
    for number, options in enumerate(unequal.options):
        if options:
            yield doc.Words(f"{f'request {number} ' * (len(unequal.steps) > 1)}with {options}")
    tensors = [tensor for step in unequal.steps for tensor in step]
    yield inputs_table("The request", tensors) if tensors else doc.Words(parts.quiet("no inputs"))


_SERVED_COLUMNS = doc.columns("model | version:r | backend | state | calls")
_KINDS = {"READY": "ready", "ENDED": "unavailable", "UNAVAILABLE": "unavailable"}


@doc.document("tried")
def served_document(record: ServerRecord) -> Iterator[doc.Block]:
    is_running = record.state in ("READY", "NOT READY")
    title = f"tritonserver {record.version}".strip()
    facts = [count(len(record.models), "model")]
    facts += [f"started in {duration(record.seconds)}"] if is_running and record.seconds else []
    state = parts.stated(record.state, _KINDS.get(record.state, ""))
    yield doc.Line([parts.name(title), state, parts.quiet(" · ".join(facts))])
    yield doc.Warnings(record.notes)
    if is_running:
        addresses = (("HTTP", record.http), ("gRPC", record.grpc), ("metrics", record.metrics))
        columns = doc.columns(" | ")
        rows = [doc.Row([protocol, parts.code(address)]) for protocol, address in addresses]
        yield doc.Table("Addresses, on this machine only", columns, rows, heads=False)
    if record.state != "STOPPED":
        yield from _served(record, title, is_running)


def _served(record: ServerRecord, title: str, is_running: bool) -> Iterator[doc.Block]:
    yield doc.Table(
        f"Models on {title}", _SERVED_COLUMNS, [doc.Row(_served_cells(model, is_running)) for model in record.models]
    )
    if is_running and record.models:
        yield doc.Words("to call it from any program on this machine (pip install tritonclient[grpc]):")
        yield _client(record)
    yield doc.Words(parts.quiet(record.program))
    if record.log_file:
        yield doc.Words(parts.quiet(f"log: {record.log_file}"))
    if record.log:
        log = tag("pre", prose("\n".join(record.log)))
        has_ended = record.state == "ENDED"
        lines = [f"    {visible(line)}" for line in record.log] if has_ended else []
        yield doc.Fold("last lines of the log", [doc.Both(lambda _: lines, log)], is_open=has_ended)


def _served_cells(model: ServedModel, is_running: bool) -> list[doc.Said]:
    versions = ", ".join(map(str, model.versions))
    state = parts.stated(model.state, _KINDS.get(model.state, "")) if is_running else parts.quiet("gone")
    if is_running and model.reason:
        text = f"{model.state} {model.reason}"
        state = doc.Piece(text, join(state.html, prose(model.reason), by=" "), cls="wrap")
    return [parts.name(model.name), versions, model.backend or "ensemble", state, parts.listed(model.calls)]


def _client(record: ServerRecord) -> doc.Block:
    """Return one line of Python that a user can paste and run."""
    called = {name for model in record.models for name in model.calls}
    first = next((model for model in record.models if model.name not in called), record.models[0])
    return parts.pasted(
        "import tritonclient.grpc as triton; "
        f"client = triton.InferenceServerClient({record.grpc!r}); "
        f"print(client.get_model_metadata({first.name!r}))"
    )
