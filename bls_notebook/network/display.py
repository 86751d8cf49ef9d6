"""Displays of connections and endpoints."""

from __future__ import annotations

from collections.abc import Iterator

from bls_notebook.display import document as doc
from bls_notebook.display import error_box, models_table, parts
from bls_notebook.records import Remedy, count

from .records import ConnectionRecord, EndpointModel, EndpointRecord

_CONNECTION_KINDS = {"CONNECTED": "ready", "LOST": "unavailable"}


@doc.document()
def connection_document(record: ConnectionRecord) -> Iterator[doc.Block]:
    state = parts.stated(record.state, _CONNECTION_KINDS.get(record.state, ""))
    facts = [record.server] if record.server else []
    if record.state != "DISCONNECTED":
        facts.append(count(len({model.name for model in record.models}), "model"))
    yield doc.Line([parts.name(record.address), state, parts.quiet(" · ".join(facts))])
    if record.state == "LOST":
        yield doc.Warnings([f"no answer: {record.reason}; its models serve again when it answers"])
    if record.models:
        yield models_table(f"Models at {record.address}", record.models)
        first = record.models[0]
        inputs = " ".join(f"{spec.name}=..." for spec in first.inputs)
        call = Remedy(
            f": `repo.infer({first.name!r}, inputs)`", f" from a cell: `{f'%bls {first.name} {inputs}'.strip()}`"
        )
        yield doc.Words(
            parts.dots(
                parts.coded(f"call one{call}"),
                parts.coded(f"from a model: `InferenceRequest(model_name='{first.name}', ...)`"),
            )
        )
    if record.names:
        names = ", ".join(f"{local} is {remote}" for local, remote in record.names)
        yield doc.Words(parts.quiet(f"names on the server: {names}"))


_COLUMNS = doc.columns("model | version:r | state | requests:r | failed:r")
_ENDPOINT_KINDS = {"READY": "ready", "CLOSED": "unavailable"}
_NOT_LOADED = "not loaded"  # the index's reason for a model on disk that was never loaded
_OPEN = "no token: any program on this machine may call these models, and load models with its own code"
_CLOSED = "its repository is closed, so no model can be called; start another endpoint"


@doc.document("tried error")
def endpoint_document(record: EndpointRecord) -> Iterator[doc.Block]:
    up = record.state != "STOPPED"
    requests = {model.name: model.requests for model in record.models}
    shown = [model for model in record.models if model.reason != _NOT_LOADED or model.requests]
    rest = len({model.name for model in record.models} - {model.name for model in shown})
    facts = [count(len({m.name for m in shown}), "model"), count(sum(requests.values()), "request")]
    facts += [f"{record.under_way} under way"] if record.under_way else []
    state = parts.stated(record.state, _ENDPOINT_KINDS.get(record.state, ""))
    yield doc.Line([parts.name("endpoint"), state, parts.quiet(" · ".join(facts))])
    if up:
        listens = (("HTTP", record.http), ("gRPC", record.grpc), ("metrics", f"{record.http}/metrics"))
        rows = [doc.Row([protocol, parts.code(address)]) for protocol, address in listens]
        rows += [doc.Row(["token", parts.code(record.token)])] if record.token else []
        yield doc.Table("Addresses, on this machine only", doc.columns(" | "), rows, heads=False)
        yield from _client_lines(record)
    if shown and (up or any(requests.values())):
        yield doc.Table("Models and requests from clients", _COLUMNS, list(map(_model_row, shown)))
    if rest and up:
        yield doc.Words(parts.quiet(f"{count(rest, 'other')} not loaded; clients may load them"))
    if record.error is not None and up:
        yield doc.Words("the last error that a client received:")
        yield error_box(record.error)
    notes = [_OPEN] if up and not record.token else []
    yield doc.Warnings([*notes, _CLOSED] if record.state == "CLOSED" else notes)


def _model_row(model: EndpointModel) -> doc.Row:
    state = parts.stated(model.state, "ready" if model.state == "READY" else "")
    reason = [parts.quiet(model.reason)] if model.reason else []
    shown_state = parts.dots(state, *reason, by=" ")
    counts = [f"{number:,}" if number else "" for number in (model.requests, model.failed)]
    return doc.Row([parts.name(model.name), str(model.version), shown_state, *counts])


def _client_lines(record: EndpointRecord) -> Iterator[doc.Block]:
    """Yield lines that a user can paste and run."""
    ready = [model for model in record.models if model.state == "READY"]
    name = ready[0].name if ready else "MODEL"
    header = f"authorization: Bearer {record.token}"
    headers = f", headers={{'authorization': 'Bearer {record.token}'}}" if record.token else ""
    yield doc.Words("to call it from any program on this machine (pip install tritonclient[grpc]):")
    yield parts.pasted(
        "import tritonclient.grpc as triton; "
        f"client = triton.InferenceServerClient({record.grpc!r}); "
        f"print(client.get_model_metadata({name!r}{headers}))"
    )
    option = f' -H "{header}"' if record.token else ""
    commands = [
        f"curl{option} {record.http}/v2/models/{name}",
        f"perf_analyzer -m {name} -i grpc -u {record.grpc}{option}",
    ]
    yield doc.Fold("in a shell", [parts.pasted("\n".join(commands))])
