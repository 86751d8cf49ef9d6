"""A client for programs: NumPy arrays to the models of a server over HTTP, and arrays back."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from bls_notebook.pb_utils.dtypes import from_bits
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.repository.requests.inputs import client_parameters

from .http_client import INFER_BYTES, HttpAnswer, HttpClient, HttpExchange, error_text
from .json_codec import JSON_LENGTH, decode_outputs, encode_request
from .tensors import DTYPES

Array = npt.NDArray[Any]
_DATATYPES = {dtype.name: name for name, dtype in DTYPES.items() if name != "BF16"} | {"bfloat16": "BF16"}


@dataclass(frozen=True)
class InferResult:
    """A server's response: the model and version that answered, the request's ID, outputs, parameters.

    The outputs are writeable arrays of their own, by name: ``BYTES`` gives objects of type `bytes`, ``BF16``
    gives ``float32``. ``datatypes`` has Triton's name of each output's data type.
    """

    model: str
    version: str
    request_id: str
    outputs: dict[str, Array]
    datatypes: dict[str, str]
    parameters: dict[str, Any]

    def __getitem__(self, name: str) -> Array:
        """The output of that name."""
        return self.outputs[name]

    def as_numpy(self) -> dict[str, Array]:
        """The outputs, by name."""
        return dict(self.outputs)


class ModelClient:
    """Asks a server about its models, and for inference. A subclass has the connection and the errors.

    `wait` is everywhere the number of seconds that the answer may take.
    """

    def http_client(self) -> HttpClient:
        """Return the connection to the server."""
        raise NotImplementedError

    def send(
        self,
        method: str,
        path: str,
        body: Sequence[Any] = (),
        headers: Mapping[str, str] | None = None,
        wait: float = 60.0,
    ) -> HttpAnswer:
        """Send an HTTP request and return the answer, whatever its status; ServerError if there is none."""
        exchange = HttpExchange(self.http_client(), method, path, body, headers or {}, INFER_BYTES)
        return exchange.answer(wait)

    def refuse(self, message: str, status: int) -> NoReturn:
        """Raise the error for an answer that is an error."""
        raise NotImplementedError

    def load(
        self,
        name: str,
        config: str | Mapping[str, Any] | None = None,
        files: Mapping[str, bytes] | None = None,
        wait: float = 120.0,
    ) -> None:
        """Load or reload a model.

        `config` overrides config.pbtxt: JSON text, or a mapping. `files` are the model's files by path
        (``"1/model.py"``), instead of those on disk; they need `config`.
        """
        parameters: dict[str, str] = {}
        if config is not None:
            parameters["config"] = config if isinstance(config, str) else json.dumps(config)
        for path, content in (files or {}).items():
            parameters[f"file:{path.removeprefix('file:')}"] = base64.b64encode(content).decode()
        self._json("POST", f"{self._repository_path(name)}/load", {"parameters": parameters}, wait)

    def unload(self, name: str, unload_dependents: bool = False, wait: float = 120.0) -> None:
        """Unload a model. The answer may come before the model is gone: see `index`."""
        body = {"parameters": {"unload_dependents": unload_dependents}}
        self._json("POST", f"{self._repository_path(name)}/unload", body, wait)

    def ready(self, name: str | None = None, version: int | None = None) -> bool:
        """Whether the server, or a model of it, is ready."""
        path = "/v2/health/ready" if name is None else f"{self._path(name, version)}/ready"
        return self.send("GET", path).status == 200

    def index(self, wait: float = 60.0) -> list[dict[str, str]]:
        """The repository index: name, version, state, reason."""
        rows: list[dict[str, str]] = self._json("POST", "/v2/repository/index", wait=wait)
        return rows

    def config(self, name: str, version: int | None = None) -> dict[str, Any]:
        """A model's completed configuration."""
        return dict(self._json("GET", f"{self._path(name, version)}/config"))

    def statistics(self, name: str, version: int | None = None) -> dict[str, Any]:
        """A model's statistics."""
        return dict(self._json("GET", f"{self._path(name, version)}/stats"))

    def metadata(self) -> dict[str, Any]:
        """The server's name, version and extensions."""
        return dict(self._json("GET", "/v2"))

    def infer(
        self,
        name: str,
        inputs: Mapping[str, npt.ArrayLike | Tensor],
        outputs: Sequence[str] | None = None,
        version: int = -1,
        timeout: int = 0,
        request_id: str = "",
        correlation_id: int | str = 0,
        flags: int = 0,
        parameters: Mapping[str, str | int | bool] | None = None,
        headers: Mapping[str, str] | None = None,
        wait: float = 60.0,
    ) -> InferResult:
        """Send one request and return the response. Not for decoupled models, which HTTP cannot serve.

        The parameters are those of `ModelRepository.infer`, then `headers` of the request, and `wait`.
        An array whose dtype has no Triton data type is a TypeError.
        """
        tensors = [tensor_of_array(key, value) for key, value in inputs.items()]
        request = InferenceRequest(
            request_id, correlation_id, tensors, list(outputs or ()), name, version, flags, timeout
        )
        own, priority = client_parameters(parameters or {})
        request._options = replace(request._options, parameters=own, priority=priority)
        parts = encode_request(request, outputs is None, binary=True)
        sent = {**(headers or {}), JSON_LENGTH: str(len(parts[0])), "Content-Type": "application/octet-stream"}
        path = f"{self._path(name, None if version == -1 else version)}/infer"
        answer = self.send("POST", path, parts, sent, wait)
        if answer.status != 200:
            self.refuse(error_text(answer), answer.status)
        return decode_result(answer.body, answer.headers.get(JSON_LENGTH.lower()))

    def _path(self, name: str, version: int | None) -> str:
        return self.http_client().model_path(name, "" if version is None else str(version))

    def _repository_path(self, name: str) -> str:
        return f"/v2/repository{self._path(name, None).removeprefix('/v2')}"

    def _json(self, method: str, path: str, body: object = None, wait: float = 60.0) -> Any:
        parts = () if body is None else (json.dumps(body).encode(),)
        answer = self.send(method, path, parts, None, wait)
        if answer.status != 200:
            self.refuse(error_text(answer), answer.status)
        return json.loads(answer.body) if answer.body else None


def decode_result(body: bytes, length: str | None) -> InferResult:
    """Return the response in a body; `length` is the value of the header `JSON_LENGTH`, None without one."""
    document, tensors = decode_outputs(body, length)
    arrays = {t._name: from_bits(t._array) if t._datatype == "BF16" else t._array for t in tensors}
    datatypes = {t._name: t._datatype for t in tensors}
    model, version, request_id = (document.get(key, "") for key in ("model_name", "model_version", "id"))
    return InferResult(model, version, request_id, arrays, datatypes, document.get("parameters") or {})


def tensor_of_array(name: str, value: npt.ArrayLike | Tensor) -> Tensor:
    """Return an input tensor of an array, or of what NumPy makes one of."""
    if isinstance(value, Tensor):
        return value
    array = np.asarray(value)
    if array.dtype.kind in "OSU":
        return Tensor._of(name, array.astype(np.object_), "BYTES")
    datatype = _DATATYPES.get(array.dtype.name)
    if datatype is None:
        raise TypeError(f"input {name!r}: NumPy dtype {array.dtype} has no Triton data type; cast it first")
    return Tensor._of(name, array.astype(array.dtype.newbyteorder("="), copy=False), datatype)
