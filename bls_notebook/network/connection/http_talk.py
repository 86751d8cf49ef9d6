"""`Conversation`: one request over HTTP and its answer; `Connections`: what they go over.

A request that can be sent without waiting, over a connection that is open already, has its answer received by
one thread for all of a link's. What can wait (connecting, TLS, large bodies, a limit of time) has a thread.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from weakref import finalize

from bls_notebook.pb_utils.errors import ErrorCode

from .address import Address
from .http_wire import Answer, head_of
from .link import RETRIES, InThread, Link, RemoteError

_CONNECT_SECONDS = 5.0
_MOST_KEPT = 64  # idle connections
_JOINED = 1 << 16  # bytes of a body up to which it is sent with its headers
_ONCE = getattr(select, "EPOLLIN", 0) | getattr(select, "EPOLLONESHOT", 0)


class Connections:
    """The connections to one server, which go from request to request."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._kept: list[socket.socket] = []
        self._closed = False
        self.receiver = Receiver() if hasattr(os, "eventfd") and not address.encrypted else None
        self._context: ssl.SSLContext | None = None
        if address.encrypted:
            tls = address.tls
            self._context = ssl.create_default_context(cafile=tls.root_certificates)
            if tls.certificate_chain is not None:
                self._context.load_cert_chain(tls.certificate_chain, tls.private_key)
        if self.receiver is not None:
            finalize(self, self.receiver.stop).atexit = False

    def kept(self, seconds: float | None) -> socket.socket | None:
        """Return an open connection that nobody uses, if there is one."""
        while self._kept:
            try:
                found = self._kept.pop()
            except IndexError:  # taken just now
                break
            if _is_quiet(found):  # else the server has closed it
                found.settimeout(seconds)
                return found
            found.close()
        return None

    def opened(self, seconds: float | None) -> socket.socket:
        """Return a new connection; OSError where the server cannot be reached."""
        host, limit = self._address.host, min(_CONNECT_SECONDS, seconds or _CONNECT_SECONDS)
        made = socket.create_connection((host, self._address.port), limit)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                made = self._context.wrap_socket(made, server_hostname=host)
            made.settimeout(seconds)
        except BaseException:
            made.close()
            raise
        return made

    def keep(self, connection: socket.socket) -> None:
        """Take back a connection whose answer has been read."""
        if len(self._kept) < _MOST_KEPT:
            self._kept.append(connection)
            if self._closed:  # since, perhaps
                self.close()
        else:
            connection.close()

    def close(self) -> None:
        """Close those that nobody uses, now and from now on."""
        self._closed = True
        while (found := self.kept(0)) is not None:
            found.close()
        if self.receiver is not None:
            self.receiver.stop()


class Receiver:
    """A thread that is called when there is something to be read; there is none before the first wait."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._stop = os.eventfd(0)
        finalize(self, os.close, self._stop).atexit = False
        self._poll.register(self._stop, _ONCE)
        self._process = os.getpid()
        self._waiting: dict[int, Callable[[], bool]] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ended = False

    def watch(self, connection: socket.socket, more: Callable[[], bool]) -> bool:
        """Have `more` called when there is something to be read, until it says that it was all.

        False where this has ended, or the system has no thread, or no room, for it.
        """
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="bls-remote-answers", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    return False
                self._thread = thread
            if self._ended:
                return False
            number = connection.fileno()
            self._waiting[number] = more
            try:
                self._watch_once(number)
            except OSError:  # the system watches no more
                del self._waiting[number]
                return False
        return True

    def _watch_once(self, number: int) -> None:
        try:
            self._poll.modify(number, _ONCE)
        except FileNotFoundError:
            self._poll.register(number, _ONCE)

    def stop(self) -> None:
        """End once nothing is waited for; takes no lock, for it may be called by a destructor."""
        if os.getpid() == self._process:  # not what a forked child drops
            os.eventfd_write(self._stop, 1)

    def _run(self) -> None:
        stopping = False
        while not self._ended:
            for number, _ in self._poll.poll():
                if number == self._stop:
                    stopping = True
                    continue
                # First: once it is over, the connection is somebody else's.
                more = self._waiting.pop(number, None)
                if more is None:  # not ours: a forked child may keep open what is closed here
                    continue
                try:
                    if not more():
                        self._waiting[number] = more
                        self._watch_once(number)
                except BaseException as error:
                    told = (type(error), error, error.__traceback__, threading.current_thread())
                    threading.excepthook(threading.ExceptHookArgs(told))
                del more  # what it refers to is not kept while idle
            if stopping:
                with self._lock:
                    self._ended = not self._waiting


class Conversation:
    """One request over HTTP and its answer; any thread may end it."""

    def __init__(
        self,
        link: Link,
        connections: Connections,
        method: str,
        path: str,
        body: Sequence[Any],
        headers: Mapping[str, str],
    ) -> None:
        self._link = link
        self._connections = connections
        self._method = method
        self._path = link.address.path + path
        self._body = body
        self.headers = headers
        self._answer = Answer()
        # So that nobody shuts down what is another's by now. A destructor may end what its thread lets go of.
        self._lock = threading.RLock()
        self._connection: socket.socket | None = None
        self.ended = False

    def end(self) -> None:
        """End it: whoever waits for it is told so."""
        with self._lock:
            self.ended = True
            if self._connection is not None:
                with suppress(OSError):  # the server has closed it
                    # Not the method of TLS, after which what is still being sent would go in plain.
                    socket.socket.shutdown(self._connection, socket.SHUT_RDWR)

    def _use(self, connection: socket.socket) -> None:
        with self._lock:
            self._connection = connection

    def _let_go(self, connection: socket.socket, keep: bool) -> None:
        with self._lock:
            self._connection = None
            keep = keep and not self.ended
        if keep:
            self._connections.keep(connection)
        else:
            connection.close()

    @property
    def _is_given_up(self) -> bool:
        return self.ended or self._link.closed

    def held(self, seconds: float | None) -> Answer:
        """Return the answer; RemoteError where there is none. What cannot be sent is tried again."""
        for pause in (*RETRIES, None):
            try:
                connection = self._connected(seconds)
                return self._exchanged(connection, self._parts(), seconds)
            except RemoteError as error:
                if error.sent or pause is None or self.ended or self._link.lost:
                    raise
            time.sleep(pause)
        raise AssertionError

    def begun(self, over: Callable[[Answer | RemoteError], None], in_thread: InThread) -> bool:
        """Send it, if that takes no wait; `over` is called then, on any thread. False where it would."""
        receiver = self._connections.receiver
        if receiver is None or self._link.address.timeout is not None or self._is_given_up:
            return False
        parts = self._parts()
        connection = self._connections.kept(0) if len(parts) == 1 else None
        if connection is None:
            return False
        self._use(connection)

        def finish(rest: Sequence[Any]) -> None:
            try:
                found: Answer | RemoteError = self._exchanged(connection, rest, None)
            except RemoteError as error:
                found = error
            over(found)

        def more() -> bool:
            try:
                finish(())
            except BlockingIOError:
                return False
            return True

        def wait() -> None:
            connection.settimeout(None)
            finish([parts[0][count:]])

        try:
            count = 0 if self._is_given_up else connection.send(parts[0])
        except OSError:  # which comes again
            count = 0
        if count < len(parts[0]) or not receiver.watch(connection, more):
            in_thread(wait)
        return True

    def _parts(self) -> list[Any]:
        size = sum(map(len, self._body)) if self._body else None
        head = head_of(self._method, self._path, self._link.address.target, self.headers, size)
        # What is small goes in one piece.
        return [b"".join((head, *self._body))] if (size or 0) <= _JOINED else [head, *self._body]

    def _connected(self, seconds: float | None) -> socket.socket:
        try:
            found = self._connections.kept(seconds) or self._connections.opened(seconds)
        except (OSError, ValueError) as error:
            raise self._problem(error, False, seconds) from error
        self._use(found)
        return found

    def _exchanged(self, connection: socket.socket, parts: Sequence[Any], seconds: float | None) -> Answer:
        """Send what is left, and receive what comes; BlockingIOError where that takes a wait and may not."""
        answer = self._answer
        try:
            if self._is_given_up:
                raise OSError("it was given up")
            for part in parts:
                connection.sendall(part)
            while not answer.take(connection.recv):
                pass
        except BlockingIOError:
            raise
        except BaseException as error:
            self._let_go(connection, False)
            if isinstance(error, (OSError, ValueError, MemoryError)):
                raise self._problem(error, True, seconds) from error
            raise
        self._let_go(connection, not answer.will_close)
        return answer

    def _problem(self, error: Exception, sent: bool, seconds: float | None) -> RemoteError:
        link = self._link
        if isinstance(error, TimeoutError):
            if not sent or seconds is None:
                return link.unanswered(f"no connection within {_CONNECT_SECONDS:g} s", sent)
            if seconds == link.address.timeout:
                return link.timed_out()
            return link.unanswered(f"no answer within {seconds:g} s", True)
        if isinstance(error, ssl.SSLError):
            return link.unanswered(f"TLS: {error.reason or error}", sent)
        if isinstance(error, OSError):
            return link.unanswered(_words(error), sent)
        return RemoteError(f"{link.address}: the answer is no HTTP ({_words(error)})", ErrorCode.INTERNAL)


def _is_quiet(connection: socket.socket) -> bool:
    """Whether there is nothing to be read, not even an end."""
    if not hasattr(select, "poll"):  # Windows
        return not select.select([connection], [], [], 0)[0]
    (poll := select.poll()).register(connection, select.POLLIN)
    return not poll.poll(0)


def _words(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__)[:200]
