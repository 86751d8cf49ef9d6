"""A request's JSON is refused where a server refuses it and Python's parser does not."""

from __future__ import annotations

import pytest

from bls_notebook.network.kserve.errors import ProtocolError
from bls_notebook.network.kserve.json_codec import parsed


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"a": 1e999}', "Number too big to be stored in double. at 6"),
        (b'{"a": -' + b"1" * 310 + b"}", "Number too big to be stored in double. at 6"),
        (rb'{"a": "\ud800"}', "The surrogate pair in string is invalid. at 7"),
        (rb'{"a": "\ud83d\ude00\udc00"}', "The surrogate pair in string is invalid. at 19"),
    ],
)
def test_json_that_a_server_refuses_is_an_error(body: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=f"failed to parse the request JSON buffer: {reason}"):
        parsed(body)


def test_json_with_large_numbers_and_escapes_is_read() -> None:
    body = rb'{"a": [1e300, 1e-999, 18446744073709551615, Infinity], "b": "\ud83d\ude00 \\ud800"}'
    assert parsed(body) == {"a": [1e300, 0.0, 18446744073709551615, float("inf")], "b": "\U0001f600 \\ud800"}
