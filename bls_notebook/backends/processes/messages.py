"""Messages between the kernel and a worker, and the tensors in them.

A message is a JSON header, the bytes of its small tensors, and a memory file for each large one (`segments`), which
travels over the socket as an open file. So nothing is unpickled. Both sides run this module; the worker's Python may be
3.8. Without memory files (only Linux has them), the bytes of all tensors follow the header.

Guarantees: any thread may call `send`. A tensor that arrives has its own memory, which is writeable. EOFError: the
other side is gone.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
import threading
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from bls_notebook.backends.processes.segments import Segments
from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE, deserialize_bytes_tensor, serialize_byte_tensor
from bls_notebook.pb_utils.errors import ErrorCode, TritonError
from bls_notebook.pb_utils.options import DEFAULT_OPTIONS, InferenceTrace, MemoryType, Options, PreferredMemory
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Header = dict[str, Any]  # the Python of a worker may be too old for this

LARGE = 1 << 16  # bytes of a tensor that gets a memory file
MOST_FILES = 200  # of one message; Linux passes 253 at most
MOST_PARTS = 500  # buffers of one system call
_SIZES = struct.Struct("<IQ")  # of the header and of the bytes after it
_CHUNK = 1 << 14
_encode = json.JSONEncoder(separators=(",", ":")).encode
_FILES_SPACE = socket.CMSG_SPACE(253 * 4) if hasattr(socket, "CMSG_SPACE") else 0
_FLAGS = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_WITHOUT_WAIT = _FLAGS | getattr(socket, "MSG_DONTWAIT", 0)
_CAN_SPIN = hasattr(os, "sched_yield") and (os.cpu_count() or 1) > 1
SPIN_SECONDS = 0.0002  # of a wait for the next message before the thread sleeps


class Message:
    """A message that has arrived; `take` returns its tensors in order."""

    __slots__ = ("_at", "_body", "_large", "header")

    def __init__(self, header: Header, body: bytearray, large: list[Any]) -> None:
        self.header, self._body, self._large, self._at = header, body, large, 0

    def take(self, rows: Iterable[Sequence[Any]]) -> list[Tensor]:
        """Return the next tensors, described by rows of their name, data type, shape, bytes and place."""
        return [self._tensor(*row) for row in rows]

    def _tensor(self, name: str, datatype: str, shape: Sequence[int], size: int, segment: int) -> Tensor:
        memory: Any
        if segment:
            memory = self._large.pop(0)
            if isinstance(memory, OSError):
                raise MemoryError(f"no memory for the tensor '{name}' of {size} bytes: {memory}")
        else:
            memory = self._body[self._at : self._at + size]
            self._at += size
        if datatype == "BYTES":
            return Tensor._of(name, deserialize_bytes_tensor(memory).reshape(shape), datatype)
        dtype = DTYPE_OF_DATATYPE[datatype] if datatype in DTYPE_OF_DATATYPE else np.dtype(np.uint16)
        made: np.ndarray[Any, Any]
        if segment:
            made = np.ndarray(tuple(shape), dtype, memory)
        else:
            made = np.empty(tuple(shape), dtype)
            if size:
                made.reshape(-1).view(np.uint8)[:] = memory
        return Tensor._of(name, made, datatype)


class Channel:
    """One end of a socket for messages."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._segments = Segments()
        self._spins = False  # the last message came soon
        self._lock = threading.Lock()
        self._data = bytearray()  # received, and not part of a message yet
        self._files: deque[int] = deque()

    def send(self, header: Header, tensors: Iterable[Tensor] = ()) -> None:
        """Send a message; `rows` of its header describes the tensors."""
        parts: list[Any] = []
        files: list[int] = []
        try:
            rows = [self._packed(tensor, parts, files) for tensor in tensors]
            if rows:
                header["rows"] = rows
                dropped = self._segments.dropped()
                if dropped:
                    header["forget"] = dropped
            text = _encode(header).encode()
            size = sum(map(len, parts))
            parts.insert(0, _SIZES.pack(len(text), size) + text)
            if len(parts) > MOST_PARTS:
                parts = [b"".join(parts)]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
            with self._lock:
                sent = self.socket.sendmsg(parts, rights)
                if sent < _SIZES.size + len(text) + size:
                    self.socket.sendall(memoryview(b"".join(parts))[sent:])
        except OSError as error:
            raise EOFError(str(error)) from None
        finally:
            for file in files:
                os.close(file)

    def receive(self, spin: bool = False) -> Message:
        """Wait for a message; with `spin` stay on the processor for a moment, if the last one came soon."""
        if spin and _CAN_SPIN and not self._data:
            began = perf_counter()
            while self._spins and not self._fill(_CHUNK, _WITHOUT_WAIT):
                os.sched_yield()  # a sleeping process wakes slowly, above all on a virtual machine
                self._spins = perf_counter() - began < SPIN_SECONDS
            if not self._data:
                self._fill(_CHUNK)
                self._spins = perf_counter() - began < SPIN_SECONDS
        length, size = _SIZES.unpack(self._read(_SIZES.size))
        header = json.loads(self._read(length).decode())
        body = self._read(size) if size else bytearray()
        if "forget" in header:
            self._segments.forget(header["forget"])
        return Message(header, body, [self._large(*row[3:]) for row in header.get("rows", ()) if row[4]])

    def _large(self, size: int, number: int) -> Any:
        """Return the bytes of a tensor in a memory file, or the error why they cannot be read."""
        file = None
        if not self._segments.knows(number):
            if not self._files:
                return OSError("too many open files")
            file = self._files.popleft()
        try:
            return self._segments.read(number, size, file)
        except OSError as error:
            return error

    @property
    def has_more(self) -> bool:
        """True if a part of a message has been received already."""
        return bool(self._data)

    def _read(self, size: int) -> bytearray:
        data = self._data
        while len(data) < size:
            self._fill(max(_CHUNK, min(size - len(data), 1 << 24)))
        out = data[:size]
        del data[:size]
        return out

    def _fill(self, size: int, flags: int = _FLAGS) -> bool:
        """Receive at most this many bytes; return False if there are none yet."""
        try:
            chunk, rights, _, _ = self.socket.recvmsg(size, _FILES_SPACE, flags)
        except BlockingIOError:
            return False
        except OSError:
            chunk, rights = b"", []
        if not chunk:
            raise EOFError("the connection is closed")
        self._data += chunk
        for _, _, content in rights:
            files = array.array("i")
            files.frombytes(content[: len(content) - len(content) % files.itemsize])
            self._files.extend(files)
        return True

    def end(self) -> None:
        """Let `receive` raise EOFError after the messages that have arrived."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        """Close the socket; a thread that waits for a message gets an EOFError."""
        self.end()
        self.socket.close()
        self._segments.close()

    def _packed(self, tensor: Tensor, parts: list[Any], files: list[int]) -> tuple[Any, ...]:
        held: Any = tensor._array
        if tensor._datatype == "BYTES":
            data: Any = np.frombuffer(serialize_byte_tensor(held) or b"", np.uint8)
        else:
            data = np.ascontiguousarray(held).reshape(-1).view(np.uint8)
        size = len(data)
        segment = 0
        if size >= LARGE and hasattr(os, "memfd_create") and len(files) < MOST_FILES:
            try:
                segment = self._segments.write(data, files)
            except OSError:  # too many open files, or no address space
                pass
        if not segment:
            parts.append(data.data)
        return tensor._name, tensor._datatype, tuple(map(int, held.shape)), size, segment


def packed_options(options: Options) -> list[Any] | None:
    """Return the options of a request as plain data; None for the defaults."""
    if options is DEFAULT_OPTIONS:
        return None
    memory, trace = options.preferred_memory, options.trace
    return [
        options.request_id, options.correlation_id, options.flags, options.timeout, options.parameters,
        None if memory is None else [int(memory._memory_type), memory._device_id],
        None if trace is None else trace._context,
        options.priority,
    ]  # fmt: skip


def options_of(packed: list[Any] | None) -> Options:
    if packed is None:
        return DEFAULT_OPTIONS
    identity, correlation_id, flags, timeout, parameters, memory, trace, priority = packed
    return Options(
        identity,
        correlation_id,
        flags,
        timeout,
        parameters,
        None if memory is None else PreferredMemory(MemoryType(memory[0]), memory[1]),
        None if trace is None else InferenceTrace._of(trace),
        priority,
    )


def packed_response(response: InferenceResponse) -> list[Any]:
    """Return a response without its tensors as plain data."""
    error = response._error
    packed = None if error is None else [error._message, int(error._code)]
    return [len(response._outputs), packed, response._parameters]


def response_of(packed: list[Any], tensors: list[Tensor]) -> InferenceResponse:
    """Return a response, with its tensors from the front of a list."""
    count, error, parameters = packed
    outputs = [tensors.pop(0) for _ in range(count)]
    response = InferenceResponse(outputs, None if error is None else TritonError(error[0], ErrorCode(error[1])))
    response._parameters = parameters
    return response
