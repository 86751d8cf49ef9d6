"""The answers of a decoupled model on a server, by gRPC: HTTP cannot stream tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bls_notebook.engine.errors import BLSError
from bls_notebook.triton.kserve import decode_tensor, encode_tensor
from bls_notebook.triton.tritonserver import TritonServerError

from .answers import Answer, Output
from .asked import Request

_MOST = (1 << 31) - 1  # bytes of a message


def ask_stream(
    target: str, model: str, request: Request, more: Mapping[str, Any], wait: float
) -> list[Answer]:
    """Send a request and return its responses; a final flag that was sent alone is none, but where it is all.

    Parameters
    ----------
    target : str
        Host and port.
    more : mapping
        Parameters of the request, among them those of a sequence, as KServe's protocol has them.
    wait : float
        Seconds that all of it may take.

    Raises
    ------
    TritonServerError
        The server did not answer in time, or was lost.
    """
    try:
        import grpc
        from tritonclient.grpc import service_pb2, service_pb2_grpc
    except ImportError:
        raise BLSError(
            "compare: streams need gRPC, which is not installed: pip install 'bls_notebook[network]'"
        ) from None
    message = service_pb2.ModelInferRequest(model_name=model)
    for name, tensor in request.inputs.items():
        datatype, data = encode_tensor(name, tensor)
        message.inputs.add(name=name, datatype=datatype, shape=tensor._array.shape)
        message.raw_input_contents.append(data)
    for key, value in {**request.parameters, **more, "triton_enable_empty_final_response": True}.items():
        kind = {bool: "bool_param", int: "int64_param"}.get(type(value), "string_param")
        setattr(message.parameters[key], kind, value)
    options = [(f"grpc.max_{way}_message_length", _MOST) for way in ("send", "receive")]
    with grpc.insecure_channel(target, [*options, ("grpc.enable_http_proxy", 0)]) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        try:
            told = [each for each in stub.ModelStreamInfer(iter([message]), timeout=wait) if _says(each)]
        except grpc.RpcError as error:
            raise TritonServerError(f"tritonserver did not end the stream: {error.details()}") from None
    return list(map(_answer, told)) or [Answer()]


def _says(told: Any) -> bool:
    """Whether it is a response, and no final flag alone."""
    response = told.infer_response
    alone = not response.outputs and response.parameters["triton_final_response"].bool_param
    return bool(told.error_message) or not alone


def _answer(told: Any) -> Answer:
    if told.error_message:
        return Answer(error=told.error_message)
    response = told.infer_response
    outputs = zip(response.outputs, response.raw_output_contents, strict=True)
    return Answer(
        {
            each.name: Output(each.datatype, decode_tensor(each.datatype, each.shape, bytearray(data)))
            for each, data in outputs
        }
    )
