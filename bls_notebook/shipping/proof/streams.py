"""The answers of a decoupled model on a server, by gRPC: HTTP cannot stream tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bls_notebook.engine.errors import BLSError
from bls_notebook.network.kserve.rest import decode_tensor, encode_tensor
from bls_notebook.shipping.exports.proof_script import Tensor, ask
from bls_notebook.shipping.servers.tritonserver import TritonServerError

from .answers import Answer, Output
from .asked import Request


def ask_stream(
    target: str, model: str, request: Request, more: Mapping[str, Any], wait: float
) -> list[Answer]:
    """Send a request and return its responses; a final flag that was sent alone is none, but where it is all.

    ``target`` is host and port; ``more`` are parameters of the request, among them those of a sequence, as
    KServe's protocol has them; ``wait`` are the seconds that all of it may take, else a TritonServerError.
    """
    try:
        import grpc
        from tritonclient.grpc import service_pb2_grpc
    except ImportError:
        raise BLSError(
            "compare: streams need gRPC, which is not installed: pip install 'bls_notebook[network]'"
        ) from None
    inputs = [
        (name, *encode_tensor(name, tensor), list(tensor._array.shape))
        for name, tensor in request.inputs.items()
    ]
    tensors = [(name, datatype, shape, data) for name, datatype, data, shape in inputs]
    options = [(f"grpc.max_{way}_message_length", -1) for way in ("send", "receive")]
    with grpc.insecure_channel(target, [*options, ("grpc.enable_http_proxy", 0)]) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        try:
            answers = ask(stub, model, tensors, {**request.parameters, **more}, True, wait)
        except grpc.RpcError as error:
            raise TritonServerError(f"tritonserver did not end the stream: {error.details()}") from None
    return [Answer(error=error) if error else Answer(dict(_outputs(outputs))) for error, outputs in answers]


def _outputs(told: Mapping[str, Tensor]) -> Iterator[tuple[str, Output]]:
    for name, datatype, shape, data in told.values():
        yield name, Output(datatype, decode_tensor(datatype, shape, bytearray(data)))
