"""HTTP/1.1 as the bytes of one request, and of its answer as they come; knows no connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from httptools import HttpParserCallbackError, HttpParserError, HttpResponseParser

_PIECE = 1 << 16  # bytes that are taken at a time; larger ones take longer to copy
_MOST_HEAD = 1 << 16
_PROTOCOL = b"HTTP/1."


def head_of(method: str, path: str, host: str, headers: Mapping[str, str], size: int | None) -> bytes:
    """Return what comes before the body of a request."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *(f"{k}: {v}" for k, v in headers.items())]
    if size is not None:
        lines.append(f"Content-Length: {size}")
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1", "replace")


class Answer:
    """An answer as it comes: `status`, `headers` by names in lower case, and `body`, once it is complete."""

    __slots__ = (
        "_begin",
        "_complete",
        "_ends_with_connection",
        "_head",
        "_parser",
        "body",
        "headers",
        "status",
        "will_close",
    )

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.will_close = True  # nothing more can be sent over its connection
        self._parser: HttpResponseParser | None = None  # while it comes: the two refer to each other
        self._begin = b""  # what came, until it is enough to know the protocol by
        self._head = 0  # bytes that came since the last of the body: headers, sizes of chunks
        self._ends_with_connection = False
        self._complete = False

    def take(self, receive: Callable[[int], bytes]) -> bool:
        """Have a socket's `recv` called, once; whether the answer is complete.

        Raises
        ------
        OSError
            The socket's; or what comes is no HTTP.
        ValueError
            It is HTTP that nobody can make sense of.
        """
        data = receive(_PIECE)
        try:
            if data:
                self._feed(data)
            elif self._ends_with_connection:
                self._complete = True
            else:
                raise ConnectionResetError("the server closed the connection before its answer was complete")
        except BaseException:
            self._parser = None
            raise
        if self._complete:
            self._parser = None
        return self._complete

    def _feed(self, data: bytes) -> None:
        if len(self._begin) < len(_PROTOCOL):
            self._begin += data[: len(_PROTOCOL)]
            if not self._begin.startswith(_PROTOCOL[: len(self._begin)]):
                raise OSError("what answers there does not speak HTTP")
        self._head += len(data)
        if self._parser is None:
            self._parser = HttpResponseParser(self)
        try:
            self._parser.feed_data(data)
        except HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except HttpParserError as error:
            if not self._complete:
                raise ValueError(str(error)) from error
            self.will_close = True
        if self._head > _MOST_HEAD:
            raise ValueError(f"more than {_MOST_HEAD} bytes of headers")

    # -- what the parser calls -------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Another begins, after an interim answer; else nobody has asked for it."""
        if self._complete:
            self.will_close = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, the first of its name; not what follows chunks."""
        if not self.status:
            self.headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1").strip())

    def on_headers_complete(self) -> None:
        """Take note of how the answer will end."""
        parser, headers = self._parser, self.headers
        if self.status or parser is None:
            return
        self.status = parser.get_status_code()
        if self.status == 101:
            raise ValueError("it changes to another protocol, which nobody has asked for")
        if self.status < 200:
            return
        self._head = 0
        self.will_close = not parser.should_keep_alive()
        self._ends_with_connection = "content-length" not in headers and "transfer-encoding" not in headers

    def on_body(self, data: bytes) -> None:
        """Keep a piece of the body."""
        if not self._complete:
            self.body += data
            self._head = 0

    def on_message_complete(self) -> None:
        """It is complete, unless it is an interim answer."""
        if self.status < 200:
            self.status = 0
            self.headers.clear()
        else:
            self._complete = True
