"""HTTP/1.1 as the bytes of one request, and of its answer as they come; knows no connection. Pure.

`http.client` takes longer to read the few lines above a small answer than everything else takes here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

Body = bytes | bytearray

_ROOM = 1 << 12  # bytes that are taken at a time while nobody knows how many come
_MOST_HEAD = 1 << 16
_AHEAD = 1 << 22  # bytes of a body that room is made for before they come
_NO_BODY = (204, 304)
_END = b"\r\n"


def head_of(method: str, path: str, host: str, headers: Mapping[str, str], size: int | None) -> bytes:
    """Return what comes before the body of a request."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *(f"{k}: {v}" for k, v in headers.items())]
    if size is not None:
        lines.append(f"Content-Length: {size}")
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1", "replace")


class Answer:
    """An answer as it comes: `status`, `headers` by names in lower case, and `body`, once it is complete."""

    __slots__ = (
        "_at",
        "_chunks",
        "_have",
        "_more",
        "_room",
        "_size",
        "body",
        "headers",
        "status",
        "will_close",
    )

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body: Body = b""
        self.will_close = True  # nothing more can be sent over its connection
        self._room = bytearray(_ROOM)
        self._have = 0  # bytes that have come into it
        self._more: Callable[[], bool] = self._head  # looks at them; whether the answer is complete
        self._size = 0  # of the body
        self._at = 0  # where the next chunk begins
        self._chunks: list[Body] = []

    def take(self, receive: Callable[[memoryview], int]) -> bool:
        """Have a socket's `recv_into` called, once; whether the answer is complete.

        Raises
        ------
        OSError
            The socket's; or what comes is no HTTP.
        ValueError
            It is HTTP that nobody can make sense of.
        """
        room, left = self._room, self._size - len(self._room)
        if self._have == len(room):
            room.extend(bytes(min(len(room), left) if left > 0 else len(room)))
        count = receive(memoryview(room)[self._have :])
        if count:
            self._have += count
            return self._more()
        if self._more != self._until_end:
            raise ConnectionResetError("the server closed the connection before its answer was complete")
        self.body = room[: self._have]
        return True

    def _head(self) -> bool:
        room = self._room
        if self._have > 6 and not room.startswith(b"HTTP/1."):
            raise OSError("what answers there does not speak HTTP")
        end = room.find(b"\r\n\r\n", 0, self._have)
        if end < 0:
            if self._have > _MOST_HEAD:
                raise ValueError(f"more than {_MOST_HEAD} bytes of headers")
            return False
        first, *lines = room[:end].decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        self.status, headers = _number(rest[:3]), self.headers
        headers.clear()
        for line in lines:
            name, _, value = line.partition(":")
            name, value = name.lower(), value.strip()
            if headers.setdefault(name, value) != value and name == "content-length":
                raise ValueError("two lengths")
        came = room[end + 4 : self._have]
        self._have = len(came)
        if 100 <= self.status < 200:  # another follows
            self._room = came + bytes(_ROOM)
            return self._head()
        option = headers.get("connection", "").lower()
        self.will_close = "keep-alive" not in option if version == "HTTP/1.0" else "close" in option
        if self.status in _NO_BODY:
            headers["content-length"] = "0"
        elif "chunked" in headers.get("transfer-encoding", "").lower():
            self._room, self._more = came + bytes(_ROOM), self._chunked
            return self._chunked()
        elif "content-length" not in headers:
            self._room, self._more, self.will_close = came + bytes(_ROOM), self._until_end, True
            return False
        self._size, self._more = _number(headers["content-length"]), self._fixed
        if self._have > self._size:  # nobody asked for the rest
            self.will_close, self._have = True, self._size
        self._room = bytearray(min(self._size, max(_AHEAD, self._have)))
        self._room[: self._have] = came[: self._have]
        return self._fixed()

    def _fixed(self) -> bool:
        self.body = self._room
        return self._have == self._size

    def _until_end(self) -> bool:
        return False

    def _chunked(self) -> bool:
        room, have = self._room, self._have
        while (end := room.find(_END, self._at, have)) >= 0:
            size = _number(room[self._at : end].partition(b";")[0].decode("latin-1").strip(), 16)
            start = end + 2
            if size == 0:
                if not room.startswith(_END, start) and room.find(_END + _END, start, have) < 0:
                    return False  # trailers, or the last line, are to come
                self.body = b"".join(self._chunks)
                self.will_close |= not room[:have].endswith(_END + _END)
                return True
            if have < start + size + 2:
                return False
            if not room.startswith(_END, start + size):
                raise ValueError("a chunk has another size than it says")
            self._chunks.append(room[start : start + size])
            self._at = start + size + 2
        if have - self._at > _MOST_HEAD:
            raise ValueError("a chunk without its size")
        return False


def _number(text: str, base: int = 10) -> int:
    if not (text.isascii() and text.isalnum()):
        raise ValueError(f"{text[:40]!r} is no number")
    return int(text, base)
