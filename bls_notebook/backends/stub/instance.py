"""An instance of a stub: a request in, outputs as they are configured out, each response marked as a stub's.

Guarantees: every request is answered; outputs that nobody asked for are not made; one that cannot be made
fails its request alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic, sleep
from typing import Any
from zlib import crc32

from bls_notebook.devices.errors import DeviceError
from bls_notebook.devices.moves import to_gpu
from bls_notebook.pb_utils.errors import TritonError
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.sender import TRITONSERVER_RESPONSE_COMPLETE_FINAL
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.records.stubbed import Stubbed

from .how import Stub
from .shapes import declared, output_dims
from .values import TooLargeError, fingerprint, fitted, made

_SLICE = 0.05  # seconds after which a wait looks whether it is to end


def pause(seconds: float, ended: Callable[[], bool] | None = None) -> None:
    """Wait; an interrupt ends it, soon in any thread, and so does `ended`, once it says so."""
    until = monotonic() + seconds
    while (left := until - monotonic()) > 0 and not (ended is not None and ended()):
        sleep(min(left, _SLICE))


class StubInstance:
    """One instance of a stub; `config` is the completed configuration's JSON form."""

    is_async = False

    def __init__(self, config: dict[str, Any], stub: Stub) -> None:
        self._name: str = config["name"]
        self._stub = stub
        self._batching: bool = config["max_batch_size"] > 0
        self._decoupled = bool(config.get("model_transaction_policy", {}).get("decoupled"))
        self._inputs = declared(config["input"])
        self._outputs = declared(config["output"])
        self._mark = (Stubbed(self._name),)

    def execute(self, requests: list[InferenceRequest]) -> list[InferenceResponse] | None:
        if self._stub.seconds:
            pause(self._stub.seconds)
        if not self._decoupled:
            return [self._answer(request, 0) for request in requests]
        for request in requests:
            self._stream(request)
        return None

    def finalize(self) -> None:
        """There is nothing to let go of."""

    def ready(self) -> bool:
        return True

    def _stream(self, request: InferenceRequest) -> None:
        sender = request.get_response_sender()
        last = max(1, self._stub.responses) - 1
        for number in range(last + 1):
            response = self._answer(request, number)
            over = number == last or response.has_error()
            sender.send(response, flags=TRITONSERVER_RESPONSE_COMPLETE_FINAL if over else 0)
            if over or sender.is_cancelled():
                break
        else:
            return
        if not over:
            sender.send(flags=TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def _answer(self, request: InferenceRequest, number: int) -> InferenceResponse:
        try:
            tensors = list(self._tensors(request, number))
            if self._stub.gpu is not None:
                tensors = [_on_gpu(tensor, self._stub.gpu) for tensor in tensors]
            response = InferenceResponse(tensors)
        except TooLargeError as error:
            response = InferenceResponse([], TritonError(str(error)))
        except (MemoryError, DeviceError) as error:
            response = InferenceResponse([], TritonError(f"stub of '{self._name}': {error}"))
        response._warnings = self._mark
        return response

    def _tensors(self, request: InferenceRequest, number: int) -> Iterator[Tensor]:
        given = {t._name: tuple(t._array.shape) for t in request._inputs}
        lead = 1 if self._batching else 0
        rows = next((shape[0] for shape in given.values() if shape), 1) if self._batching else None
        inputs = [(spec, given[name][lead:]) for name, spec in self._inputs.items() if name in given]
        seeds: list[int] | None = None
        if self._stub.values == "random":
            whose = crc32(self._name.encode("utf-8", "surrogatepass"))
            seeds = [self._stub.seed, whose, fingerprint(request._inputs), number]
        for name, spec in self._outputs.items():
            if name not in request._requested:
                continue
            recorded = self._stub.recorded.get(name)
            if recorded is not None:
                yield Tensor._of(name, fitted(recorded, rows), spec.datatype)
                continue
            shape = output_dims(spec, inputs)
            yield made(self._name, name, spec.datatype, shape if rows is None else (rows, *shape), seeds)


def _on_gpu(tensor: Tensor, gpu: int) -> Tensor:
    if tensor._datatype == "BYTES":
        return tensor
    array: Any = to_gpu(tensor._array, gpu)
    return Tensor._of(tensor._name, array, tensor._datatype)
