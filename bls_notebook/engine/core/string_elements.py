"""`string_elements`: the elements of a BYTES input in wire form, refused in Triton's words.

Requests over HTTP and gRPC and warm-up files use it. Mirrors core/src/infer_request.cc (ValidateBytesInputs).
"""

from __future__ import annotations

import struct


def string_elements(
    model: str, request_id: str, name: str, count: int, data: bytes | memoryview | list[bytes]
) -> list[bytes]:
    """Return the elements of an input of `count` elements; ValueError if the data have others."""
    who = f"[request id: {request_id or '<id_unknown>'}]"
    elements = data if isinstance(data, list) else []
    at, size = 0, 0 if isinstance(data, list) else len(data)
    while at < size and len(elements) <= count:
        if at + 4 > size:
            raise ValueError(
                f"{who} incomplete string length indicator for inference input '{name}' for model '{model}', expecting "
                f"4 bytes but only {size - at} bytes available. Please make sure the string length indicator is in "
                "one buffer."
            )
        (length,) = struct.unpack_from("<I", data, at)  # type: ignore[arg-type]  # no list
        at += 4
        if len(elements) < count and at + length > size:  # Triton counts an element before it reads it
            raise ValueError(
                f"incomplete string data for inference input '{name}', expecting string of length {length} but only "
                f"{size - at} bytes available"
            )
        elements.append(bytes(data[at : at + length]))  # type: ignore[arg-type]
        at += length
    of_input = f"for inference input '{name}' for model '{model}'"
    if len(elements) > count:
        raise ValueError(f"{who} unexpected number of string elements {count + 1} {of_input}, expecting {count}")
    if len(elements) < count:
        raise ValueError(f"{who} expected {count} string elements {of_input}, got {len(elements)}")
    return elements
