"""Messages between the kernel and a worker, and the tensors in them.

A message is a JSON header, the bytes of its small tensors, and a memory file for each large one (`segments`), which
travels over the socket as an open file. So nothing is unpickled. Both sides run this module; the worker's Python may be
3.8. Without memory files (only Linux has them), the bytes of all tensors follow the header. A tensor on a GPU travels
as `OnGPU`, which each end makes and resolves (`gpu_exchange`, `worker_exchange`).

Most messages equal an earlier one but for the numbers of step and execution, and the content of tensors. Both ends keep
the headers of such messages (`send_alike`), because making and reading JSON costs more than the rest.

Guarantees: any thread may call `send`. A tensor that arrives has its own memory, which is writeable. EOFError: the
other side is gone.
"""

from __future__ import annotations

import array
import json
import os
import select
import socket
import struct
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from bls_notebook.backends.processes.segments import Segments
from bls_notebook.backends.processes.wakeups import Wakeups
from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE, deserialize_bytes_tensor, serialize_byte_tensor
from bls_notebook.pb_utils.errors import ErrorCode, TritonError
from bls_notebook.pb_utils.options import DEFAULT_OPTIONS, InferenceTrace, MemoryType, Options, PreferredMemory
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Header = dict[str, Any]  # the Python of a worker may be too old for this

LARGE = 1 << 16  # bytes of a tensor that gets a memory file
MOST_FILES = 200  # of one message; Linux passes 253 at most
# The lengths of the header and of the bytes after it; whether the header is kept, and its numbers; of a sender that
# waits, its time, thread, processors, and whether it has bound the receiver (`wakeups`).
_PREFIX = struct.Struct("<IQ?QQQIQ?")
_PREFIX_SIZE = _PREFIX.size
MOST_HEADERS = 256  # headers of one end
_NO_WAITER = 0, 0, 0, False
_CHUNK = 1 << 14
_encoder = json.JSONEncoder(separators=(",", ":"))
_json: Any = json.encoder
try:  # `encode` makes this object anew each time
    _parts: Any = _json.c_make_encoder(
        None, _encoder.default, _json.encode_basestring_ascii, None, ":", ",", False, False, True
    )
except (AttributeError, TypeError):  # another Python's `json`

    def _parts(header: Header, level: int) -> tuple[str]:
        return (_encoder.encode(header),)


_decode = json.JSONDecoder().raw_decode
_FILES_SPACE = socket.CMSG_SPACE(253 * 4) if hasattr(socket, "CMSG_SPACE") else 0
_FLAGS = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class OnGPU:
    """The array of a tensor on a GPU on its way to the other process.

    `place` begins with the number of the GPU. `data` has the bytes of memory of a simulated GPU, and none if the
    receiver uses the memory itself (CUDA IPC).
    """

    __slots__ = ("data", "place", "shape")

    def __init__(self, place: Sequence[Any], shape: Sequence[int], data: Any) -> None:
        self.place, self.shape, self.data = place, shape, data


class Message:
    """A message that has arrived; `take` returns its tensors in order."""

    __slots__ = ("_at", "_body", "_large", "header")

    def __init__(self, header: Header, body: Any, at: int, large: list[Any]) -> None:
        self.header, self._body, self._at, self._large = header, body, at, large

    def take(self, rows: Iterable[Sequence[Any]]) -> list[Tensor]:
        """Return the next tensors, described by rows of name, data type, shape, bytes, memory file and GPU, if any."""
        return [self._tensor(*row) for row in rows]

    def _tensor(
        self, name: str, datatype: str, shape: Sequence[int], size: int, segment: int, gpu: Sequence[Any] | None = None
    ) -> Tensor:
        if segment:
            memory = self._large.pop(0)
            if isinstance(memory, OSError):
                raise MemoryError(f"no memory for the tensor '{name}' of {size} bytes: {memory}")
            at = 0
        else:
            memory, at = self._body, self._at
            self._at += size
        if gpu is not None:
            data: Any = OnGPU(gpu, shape, np.ndarray(size, np.uint8, memory, at))
            return Tensor._of(name, data, datatype)
        if datatype == "BYTES":
            return Tensor._of(name, deserialize_bytes_tensor(memory[at : at + size]).reshape(shape), datatype)
        dtype = DTYPE_OF_DATATYPE[datatype] if datatype in DTYPE_OF_DATATYPE else np.dtype(np.uint16)
        array: np.ndarray[Any, Any] = np.ndarray(shape, dtype, memory, at)
        return Tensor._of(name, array if segment else array.copy(), datatype)


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)


class Channel:
    """One end of a socket for messages."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._segments = Segments()
        self._wakeups = Wakeups()
        self._lock = threading.Lock()
        self._data: Any = b""  # received, and not part of a message yet
        self._files: deque[int] = deque()
        self._queued: list[bytes] = []  # messages that the next one, or `flush`, sends
        self._sent: dict[Any, bytes] = {}  # headers as JSON, by their keys
        self._seen: dict[bytes, Header] = {}
        self._writable = select.poll()
        self._writable.register(end, select.POLLOUT)

    def send(self, header: Header, tensors: Sequence[Tensor] = (), waits: bool = False) -> None:
        """Send a message; `rows` of its header describes the tensors. `waits`: this thread calls `receive` next."""
        data, files = self._message(header, tensors, waits)
        with self._lock:
            self._write(data, files)

    def send_alike(self, key: Any, make: Callable[[], Header], step: int, call: int, tensors: Sequence[Tensor]) -> None:
        """As `send` for a thread that receives next; of equal keys, only the first one's header is made.

        The header that arrives has the numbers of the step and the call, too.
        """
        parts: list[Any] = [b""]
        rows = []
        size = 0
        for tensor in tensors:
            data: Any = tensor._array
            if tensor._datatype == "BYTES" or data.__class__ is OnGPU or data.nbytes >= LARGE:
                self.send({**make(), "step": step, "call": call}, tensors, waits=True)
                return
            size += data.nbytes
            rows.append((tensor._name, tensor._datatype, data.shape, data.nbytes, 0))
            parts.append(data.tobytes())
        key = key, tuple(rows)
        text = self._sent.get(key)
        if text is None:
            if len(self._sent) >= MOST_HEADERS:
                self._sent.clear()
            text = self._sent[key] = "".join(_parts({**make(), "rows": rows}, 0)).encode()
        parts[0] = _PREFIX.pack(len(text), size, True, step, call, *self._wakeups.wait_next()) + text
        with self._lock:
            self._write(b"".join(parts), [])

    def queue(self, header: Header, tensors: Sequence[Tensor] = ()) -> bool:
        """Let the next message or `flush` send this one, too; return whether it is the first such one."""
        data, files = self._message(header, tensors)
        with self._lock:
            if files:
                self._write(data, files)
            else:
                self._queued.append(data)
            return len(self._queued) == 1

    def flush(self) -> None:
        """Send the queued messages."""
        with self._lock:
            if self._queued:
                self._write(b"", [])

    def post(self, header: Header, tensors: Sequence[Tensor] = ()) -> None:
        """Send a message on a thread that may not wait: if the other end does not read, another thread waits."""
        data, files = self._message(header, tensors)
        if len(data) < LARGE and self._lock.acquire(False):
            try:
                if self._writable.poll(0):
                    self._write(data, files)
                    return
            finally:
                self._lock.release()
        threading.Thread(target=self._write_patiently, args=(data, files), name="bls-writer", daemon=True).start()

    def _write_patiently(self, data: bytes, files: list[int]) -> None:
        with self._lock, suppress(EOFError):
            self._write(data, files)

    def _message(self, header: Header, tensors: Sequence[Tensor], waits: bool = False) -> tuple[bytes, list[int]]:
        """Return the bytes of a message, and the memory files that travel with it."""
        parts: list[Any] = []
        files: list[int] = []
        try:
            size = 0
            if tensors:
                header["rows"] = rows = [self._packed(tensor, parts, files) for tensor in tensors]
                size = sum([row[3] for row in rows if not row[4]])
                if self._segments.has_dropped:
                    header["forget"] = self._segments.dropped()
            text = "".join(_parts(header, 0)).encode()
            waiter = self._wakeups.wait_next() if waits else _NO_WAITER
            return b"".join([_PREFIX.pack(len(text), size, False, 0, 0, *waiter), text, *parts]), files
        except BaseException:
            _close(files)
            raise

    def _write(self, data: bytes, files: list[int]) -> None:
        """Send the queued messages, and one with these files, which are closed. Called with the lock."""
        if self._queued:
            data = b"".join([*self._queued, data])
            self._queued.clear()
        try:
            if files:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
                sent = self.socket.sendmsg([data], rights)
            else:
                sent = self.socket.send(data)
            if sent < len(data):
                self.socket.sendall(memoryview(data)[sent:])
        except OSError as error:
            raise EOFError(str(error)) from None
        finally:
            if files:
                _close(files)

    def receive(self) -> Message:
        """Wait for a message."""
        data: Any = self._data
        if not data:
            data = self._chunk(_CHUNK)  # nearly always one message
        while len(data) < _PREFIX_SIZE:
            data += self._chunk(_CHUNK)
        length, size, kept, step, call, sent, *waiter = _PREFIX.unpack_from(data)
        start = _PREFIX_SIZE + length
        end = start + size
        if len(data) < end:
            data = bytearray(data)
            while len(data) < end:
                data += self._chunk(max(_CHUNK, min(end - len(data), 1 << 24)))
        self._data = data[end:]
        if sent:
            self._wakeups.woken(sent, *waiter)
        text = bytes(data[_PREFIX_SIZE:start])
        if kept:
            header = self._seen.get(text)
            if header is None:
                if len(self._seen) >= MOST_HEADERS:
                    self._seen.clear()
                header = self._seen[text] = _decode(text.decode())[0]
            return Message({**header, "step": step, "call": call}, data, start, [])
        header = _decode(text.decode())[0]
        if "forget" in header:
            self._segments.forget(header["forget"])
        large = [self._large(*row[3:5]) for row in header["rows"] if row[4]] if "rows" in header else []
        return Message(header, data, start, large)

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

    def _chunk(self, size: int) -> bytes:
        """Receive at most this many bytes."""
        try:
            chunk, rights, _, _ = self.socket.recvmsg(size, _FILES_SPACE, _FLAGS)
        except OSError:
            chunk, rights = b"", []
        if not chunk:
            self._wakeups.free()
            raise EOFError("the connection is closed")
        for _, _, content in rights:
            files = array.array("i")
            files.frombytes(content[: len(content) - len(content) % files.itemsize])
            self._files.extend(files)
        return chunk

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
        data = held
        gpu: tuple[Any, ...] = ()
        if held.__class__ is OnGPU:
            data, gpu = held.data, (held.place,)
        elif tensor._datatype == "BYTES":
            data = np.frombuffer(serialize_byte_tensor(held) or b"", np.uint8)
        size, segment = data.nbytes, 0
        if size >= LARGE and hasattr(os, "memfd_create") and len(files) < MOST_FILES:
            try:
                segment = self._segments.write(np.ascontiguousarray(data).reshape(-1).view(np.uint8), files)
            except OSError:  # too many open files, or no address space
                pass
        if not segment:
            parts.append(data.tobytes())
        return (tensor._name, tensor._datatype, held.shape, size, segment, *gpu)


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


def request_of(options: list[Any] | None, outputs: list[str], model: str, version: int, inputs: list[Tensor]) -> Any:
    """Return a request, whose maker has checked it."""
    request = InferenceRequest.__new__(InferenceRequest)
    request._options = options_of(options)
    request._requested, request._inputs = tuple(outputs), inputs
    request._model_name, request._model_version = model, version
    request._answerable = request._response_sender = request._maker = None
    request._release_flags = 0
    return request


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
