"""Common parts of backends for model files: reading a completed configuration, and running requests as a batch.

Guarantees of `BatchedInstance`: every request gets one response. Requests of equal shapes run as one batch. If a
request's inputs are invalid, the other requests still run. As on Triton, outputs of an instance on a GPU are on that
GPU, unless the requester prefers other memory.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import accumulate
from typing import Any

import numpy as np

from bls_notebook.backends import BackendError
from bls_notebook.devices import DeviceError, simulated_gpus, to_gpu
from bls_notebook.pb_utils import InferenceRequest
from bls_notebook.pb_utils.errors import ErrorCode, TritonError
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.records import ErrorRecord, encodable

INVALID = "Invalid argument"


def imported(backend: str, package: str, install: str) -> Any:
    """Import the package that runs a backend's models; BackendError with the command `install` if that fails."""
    try:
        return import_module(package)
    except (ImportError, OSError) as error:  # OSError: a shared library is missing
        raise BackendError(
            f'backend "{backend}" needs the package {package}, which cannot be imported here ({error}); install it: '
            f"{install}"
        ) from error


def build_has_gpu(has_cuda: Callable[[], bool]) -> bool:
    """Return whether a package can use the GPUs here; simulated GPUs need no CUDA build."""
    try:
        return bool(simulated_gpus()) or has_cuda()
    except BackendError:
        return True  # opening a model reports the missing package


def parameter(config: dict[str, Any], key: str) -> str | None:
    """Return the text of a configuration parameter, or None."""
    entry = config.get("parameters", {}).get(key)
    return None if entry is None else str(entry.get("string_value", ""))


def int_parameter(config: dict[str, Any], key: str) -> int | None:
    """Return a parameter as an int, or None; text after the number is ignored, as in C."""
    value = parameter(config, key)
    if value is None:
        return None
    digits = re.match(r"\s*[+-]?\d+", value)
    if digits is None:
        raise BackendError(f"failed to convert '{value}' to integral number", INVALID)
    return int(digits[0])


def bool_parameter(config: dict[str, Any], key: str) -> bool | None:
    """Return a parameter as a bool, or None."""
    value = parameter(config, key)
    if value is None:
        return None
    values = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
    if value.lower() not in values:
        raise BackendError(f"failed to convert '{value}' to boolean", INVALID)
    return values[value.lower()]


def dims_of(tensor: dict[str, Any]) -> list[int]:
    """Return the dims of an input or output after its `reshape`, as the model file has them."""
    dims = tensor["reshape"].get("shape", ()) if "reshape" in tensor else tensor["dims"]
    return [int(d) for d in dims]


def controls_of(config: dict[str, Any]) -> dict[str, str]:
    """Return the data types of sequence control inputs by name; "" if the control's values imply the type."""
    controls = config.get("sequence_batching", {}).get("control_input", ())
    return {c["name"]: c["control"][0].get("data_type", "") for c in controls if c.get("control")}


def refuse_parts(config: dict[str, Any]) -> None:
    """Raise BackendError for configuration parts that these backends do not support here."""
    parts = [p for p in ("batch_input", "batch_output") if config.get(p)]
    parts += [f"allow_ragged_batch of input '{i['name']}'" for i in config["input"] if i["allow_ragged_batch"]]
    if config.get("sequence_batching", {}).get("state"):
        parts.append("sequence_batching.state")
    if parts:
        raise BackendError(
            f"model '{config['name']}': {', '.join(parts)}: not supported for {config['backend']} models in the "
            "notebook (a real Triton server supports it); remove it to try the model here",
            "Unsupported",
        )


class BatchError(Exception):
    """A request cannot run, or its result cannot be returned; the message becomes the response's error."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.INTERNAL) -> None:
        super().__init__(message)
        self.code = code


class BatchedInstance(ABC):
    """One instance of a model; `gpu` is the number of its GPU, or None."""

    is_async = False

    def __init__(self, config: dict[str, Any], gpu: int | None) -> None:
        self.name: str = config["name"]
        self.gpu = gpu
        self._batching: bool = config["max_batch_size"] > 0
        self._names = tuple(o["name"] for o in config["output"])

    @abstractmethod
    def _feed(self, request: InferenceRequest) -> dict[str, Any]:
        """Return a request's inputs in the runtime's form: arrays, tensors or lists by name."""

    @abstractmethod
    def _run(self, names: list[str], feed: dict[str, Any]) -> Sequence[Any]:
        """Run the model and return these outputs, in this order."""

    @abstractmethod
    def _tensor(self, name: str, result: Any) -> Tensor:
        """Return an output, or one request's rows of it, as a tensor."""

    def _join(self, parts: list[Any]) -> Any:
        """Concatenate one input of several requests, in the form that `_feed` returns."""
        return np.concatenate(parts)

    def execute(self, requests: list[InferenceRequest]) -> list[InferenceResponse]:
        responses: dict[int, InferenceResponse] = {}
        groups: dict[Any, list[tuple[int, dict[str, Any]]]] = {}
        for i, request in enumerate(requests):
            try:
                feed = self._feed(request)
            except BatchError as error:
                responses[i] = self._failed(error)
                continue
            except (MemoryError, DeviceError) as error:
                responses[i] = self._failed(BatchError(f"model '{self.name}', inputs: {error}"))
                continue
            # Without a batch dimension, requests cannot be joined.
            joins = self._batching and len(requests) > 1
            key = tuple(sorted((n, _shape(a)[1:]) for n, a in feed.items())) if joins else i
            groups.setdefault(key, []).append((i, feed))
        for group in groups.values():
            answers = self._run_group([requests[i] for i, _ in group], [feed for _, feed in group])
            responses.update(zip([i for i, _ in group], answers, strict=True))
        return [responses[i] for i in range(len(requests))]

    def _run_group(self, requests: list[InferenceRequest], feeds: list[dict[str, Any]]) -> list[InferenceResponse]:
        names = [name for name in self._names if any(name in r._requested for r in requests)]
        rows = (next((_shape(value)[0] for value in feed.values()), 1) if self._batching else 0 for feed in feeds)
        ends = list(accumulate(rows))
        try:
            joined = feeds[0]
            if len(feeds) > 1:
                joined = {name: self._join([feed[name] for feed in feeds]) for name in joined}
            results = self._run(names, joined)
            for name, result in zip(names, results, strict=True) if self._batching else ():
                shape = _shape(result)
                if shape[:1] != (ends[-1],):
                    raise BatchError(
                        f"model '{self.name}', output '{name}': the graph gave shape {list(shape)} for a "
                        f"batch of {ends[-1]}; the first dimension of every output must be the batch's, or set "
                        "max_batch_size: 0"
                    )
            if len(feeds) == 1:
                return [self._response(names, results)]
            return [
                self._response(names, [result[start:end] for result in results])
                for start, end in zip([0, *ends], ends, strict=False)
            ]
        except BatchError as error:
            return [self._failed(error) for _ in feeds]

    def _response(self, names: list[str], results: Sequence[Any]) -> InferenceResponse:
        tensors = [self._tensor(name, result) for name, result in zip(names, results, strict=True)]
        if self.gpu is not None:
            try:
                for tensor in tensors:
                    if tensor._datatype != "BYTES":
                        tensor._array = to_gpu(tensor._array, self.gpu)
            except (MemoryError, DeviceError) as error:
                raise BatchError(f"model '{self.name}', outputs: {error}") from error
        return InferenceResponse(tensors)

    def _failed(self, cause: BatchError) -> InferenceResponse:
        error = TritonError(encodable(str(cause)), cause.code)
        error._origin = ErrorRecord(error._message, cause.code.name, (self.name,))  # marks an error of the model itself
        return InferenceResponse([], error)


def _shape(value: Any) -> tuple[int, ...]:
    return (len(value),) if isinstance(value, list) else tuple(value.shape)
