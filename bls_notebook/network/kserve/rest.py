"""The KServe v2 protocol with binary tensors: arrays to a request's body, an answer's body to arrays.

Pure functions on bytes; no connection is made here.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bls_notebook.pb_utils import Tensor
from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE, deserialize_bytes_tensor, from_bits

Array = npt.NDArray[Any]
NUMPY_OF = {name: dtype for name, dtype in DTYPE_OF_DATATYPE.items() if name != "BYTES"}
TRITON_OF = {dtype.name: name for name, dtype in NUMPY_OF.items()} | {"bfloat16": "BF16"}


@dataclass(frozen=True)
class InferResult:
    """What a server answered.

    `model`, `version`: the model that answered, and the version of it.
    `request_id`: as given in the request.
    `outputs`: writeable arrays of their own. ``BYTES`` gives objects of type `bytes`, ``BF16`` gives
        ``float32``.
    `datatypes`: Triton's name of each output's data type.
    `parameters`: response parameters.
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


def encode_request(
    inputs: Mapping[str, npt.ArrayLike | Tensor],
    outputs: Sequence[str] | None = None,
    request_id: str = "",
    parameters: Mapping[str, Any] | None = None,
) -> tuple[bytes, int]:
    """Encode an inference request; return the body, and how many bytes of it are JSON.

    That number is the value of the header ``Inference-Header-Content-Length``. An array whose dtype has no
    Triton data type is a TypeError.
    """
    chunks, described = [], []
    for name, value in inputs.items():
        array: Array = value._array if isinstance(value, Tensor) else np.asarray(value)
        datatype, data = encode_tensor(name, value if isinstance(value, Tensor) else array)
        chunks.append(data)
        size = {"binary_data_size": len(data)}
        described.append({"name": name, "shape": list(array.shape), "datatype": datatype, "parameters": size})
    header: dict[str, Any] = {"inputs": described, "parameters": {**(parameters or {})}}
    if request_id:
        header["id"] = request_id
    if outputs is None:
        header["parameters"]["binary_data_output"] = True
    else:
        header["outputs"] = [{"name": name, "parameters": {"binary_data": True}} for name in outputs]
    text = json.dumps(header, separators=(",", ":")).encode()
    return b"".join([text, *chunks]), len(text)


def decode_response(body: bytes, json_length: int | None) -> InferResult:
    """Decode an answer to an inference request.

    ``json_length`` is the value of the header ``Inference-Header-Content-Length``; None where there is none.
    """
    length = len(body) if json_length is None else json_length
    header = json.loads(body[:length])
    outputs, datatypes, at = {}, {}, length
    for item in header.get("outputs", ()):
        size = item.get("parameters", {}).get("binary_data_size", 0)
        outputs[item["name"]] = decode_tensor(
            item["datatype"], item["shape"], bytearray(body[at : at + size])
        )
        datatypes[item["name"]] = item["datatype"]
        at += size
    model, version, request_id = (header.get(key, "") for key in ("model_name", "model_version", "id"))
    return InferResult(model, version, request_id, outputs, datatypes, header.get("parameters", {}))


def encode_tensor(name: str, value: Array | Tensor) -> tuple[str, bytes]:
    """Return the data type of an input and its bytes, as both protocols have them; a TypeError where it
    has none.
    """
    if isinstance(value, Tensor) and value._datatype == "BF16":
        return "BF16", value._array.tobytes()
    array: Array = value._array if isinstance(value, Tensor) else value
    if array.dtype.kind in "OSU":
        values = array.ravel(order="C").tolist()
        items = [value if isinstance(value, bytes) else str(value).encode() for value in values]
        return "BYTES", b"".join(part for item in items for part in (struct.pack("<I", len(item)), item))
    datatype = TRITON_OF.get(array.dtype.name)
    if datatype is None:
        raise TypeError(f"input {name!r}: NumPy dtype {array.dtype} has no Triton data type; cast it first")
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return datatype, array.tobytes()


def decode_tensor(datatype: str, shape: Sequence[int], data: bytearray) -> Array:
    """Return an output of its bytes: writeable; BYTES as objects of type `bytes`, BF16 as float32."""
    if datatype == "BYTES":
        return deserialize_bytes_tensor(bytes(data)).reshape(shape)
    if datatype == "BF16":
        return from_bits(np.frombuffer(data, np.uint16)).reshape(shape)
    return np.frombuffer(data, NUMPY_OF[datatype]).reshape(shape)
