"""The worker's link to the kernel: steps, requests to the kernel, interrupts, and the model's output.

Guarantees: an interrupt strikes the step that it was meant for, and never a message. `tell` takes no locks, because
destructors call it.
"""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from itertools import count
from queue import SimpleQueue
from typing import Any

from bls_notebook.backends.processes.error_facts import facts_of
from bls_notebook.backends.processes.messages import Channel, Message
from bls_notebook.pb_utils import _runtime
from bls_notebook.pb_utils.errors import TritonModelException
from bls_notebook.pb_utils.response import StreamEnded

WATCH_SECONDS = 1.0
FRAMES = 200  # that an exchange with the kernel may use beyond the recursion limit
OWN = "<bls_notebook>"  # the files of this package in tracebacks begin with it
RAISES = {cls.__name__: cls for cls in (TritonModelException, ValueError, TypeError, RuntimeError, StreamEnded)}


class StepInterrupted(KeyboardInterrupt):
    """Raised in the model's code on the main thread when the kernel interrupts it."""


caller_here: ContextVar[Any] = _runtime.caller_var


def current_number() -> int:
    """Return the number of the execution whose code runs here; 0 if it is not known."""
    caller = caller_here.get()
    return 0 if caller is None else caller.number


def taken(items: list[int]) -> list[int]:
    out = items[:]
    del items[: len(out)]
    return out


class _Pending:
    """An answer that a thread waits for."""

    def __init__(self) -> None:
        self.message: Any = None
        self._arrived = threading.Event()

    def put(self, message: Any) -> None:
        self.message = message
        self._arrived.set()

    def wait(self) -> Any:
        self._arrived.wait()
        return self.message


def end_process() -> None:
    """End this process after an exception: a worker without one of its own threads would never answer its callers."""
    try:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(1)


class Kernel:
    """The kernel, as the worker sees it: steps come from `home`, other messages from `side`."""

    def __init__(self, home: Channel, side: Channel) -> None:
        self.home, self.side = home, side
        self.main = threading.get_ident()
        self.step = 0  # number of the running step; 0 while none runs
        self._guard = threading.Lock()  # held to begin and end a step, and to interrupt it
        self._struck = 0  # the step that is to be interrupted
        self._asking = False  # the main thread is sending or receiving a message
        self._numbers = count(1)
        self._pending: dict[int, Any] = {}
        self.replies = 0  # that have come on the side
        self.server: Any = None  # `ServerProxy`
        self.site: Any = None  # returns the code that calls, for profiles
        self._burst = False  # an event loop has sent a request in this round: the next ones are sent together
        self._watched = False  # whether a thread watches for code that only awaits
        self._later: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.dropped: list[int] = []  # requests that the model dropped, to be reported with the answer of the step
        self.read: list[int] = []  # errors of responses that the model asked for
        signal.signal(signal.SIGINT, self._interrupt)
        threading.Thread(target=self._send_later, name="bls-sender", daemon=True).start()

    def _send_later(self) -> None:
        while True:
            header = self._later.get()
            try:
                if header:
                    self.side.send(header)
                else:
                    self.side.flush()
            except EOFError:
                return
            except BaseException:  # such as a lack of memory
                end_process()

    @property
    def on_home(self) -> bool:
        """Whether this is the main thread in a step, and may use the home's channel."""
        return bool(self.step) and not self._asking and threading.get_ident() == self.main

    def tell(self, header: dict[str, Any]) -> None:
        """Send a message without an answer. Also for destructors: it takes no locks."""
        if self.on_home:
            self._asking = True
            try:
                self.home.send(header)
            finally:
                self._asking = False
            self._raise_struck()
        else:
            self._later.put(header)

    def release(self, number: int) -> None:
        """Tell the kernel that the model has dropped a tensor on a GPU. Also for destructors."""
        self.tell({"op": "gpu_released", "exports": [number], "buffers": []})

    def ask(self, op: str, tensors: Any = (), **header: Any) -> Message:
        """Send a request to the kernel and return its answer; raise the exception that it carries."""
        return self.ask_alike(None, lambda: header, op, header.get("call", 0), tensors)

    def ask_alike(self, key: Any, make: Callable[[], dict[str, Any]], op: str, call: int, tensors: Any) -> Message:
        """As `ask`, with the header that `make` returns; see `Channel.send_alike`. A key of None equals no other."""
        if self.on_home:
            if _unsent:
                flush()
            limit = sys.getrecursionlimit()
            self._asking = True
            try:
                # A RecursionError would leave a part of the answer in the channel.
                sys.setrecursionlimit(limit + FRAMES)
                if key is None:
                    self.home.send({**make(), "op": op}, tensors, waits=True)
                else:
                    self.home.send_alike(key, lambda: {**make(), "op": op}, 0, call, tensors)
                answer = self.home.receive()
            finally:
                self._asking = False
                sys.setrecursionlimit(limit)
            if self._struck:
                self._raise_struck()
        else:
            answer = self.begin({**make(), "op": op}, tensors, _Pending()).wait()
        raised = answer.header.get("raise")
        if raised is not None:
            raise StepInterrupted if raised[0] == "Interrupted" else RAISES.get(raised[0], RuntimeError)(raised[1])
        return answer

    def begin(self, header: dict[str, Any], tensors: Any, pending: Any) -> Any:
        """Send a request on the side; `pending.put` is called with the answer."""
        header["id"] = number = next(self._numbers)
        self._pending[number] = pending
        if not self._watched and header["op"] == "async_exec":
            self._watched = True
            threading.Thread(target=self._watch, name="bls-watch", daemon=True).start()
        if header["op"] != "async_exec":
            self.side.send(header, tensors)
        elif self._burst:
            if self.side.queue(header, tensors):
                self._later.put({})  # in case that this thread does not return to its loop soon
        else:
            self.side.send(header, tensors)
            self._burst = True
            asyncio.get_running_loop().call_soon(self._end_burst)
        return pending

    def _end_burst(self) -> None:
        self._burst = False
        try:
            self.side.flush()
        except EOFError:  # the kernel has gone
            pass

    def _watch(self) -> None:
        """Tell the kernel when all code only awaits responses, so that it can refuse one that would never come."""
        while self._pending:
            before = self.replies
            time.sleep(WATCH_SECONDS)
            if self._pending and self.replies == before and only_awaits(self.main, self.step):
                self._later.put({"op": "stalled", "replies": before})
        self._watched = False

    def answered(self, message: Message) -> None:
        self.replies += 1
        self._pending.pop(message.header["re"]).put(message)

    def _interrupt(self, *_: Any) -> None:
        if self._struck == self.step and not self._asking:
            self._raise_struck()

    def _raise_struck(self) -> None:
        if self._struck and self._struck == self.step:
            self._struck = 0
            raise StepInterrupted

    def interrupt(self, step: int) -> None:
        """Interrupt a step, if it runs. Called on the reader's thread."""
        with self._guard:
            if self.step == step:
                self._struck = step
                signal.pthread_kill(self.main, signal.SIGINT)

    def run(self, step: int, call: Any) -> dict[str, Any]:
        """Run a step on the main thread and return the header of its answer."""
        header: dict[str, Any]
        try:
            try:
                with self._guard:
                    self.step = step
                header = call()
            finally:
                with self._guard:
                    self.step = 0
        except StepInterrupted:
            header = {"interrupted": True}
        except BaseException as error:
            header = {"error": described(error)}
        self.step = 0  # also if the interrupt struck as the step ended
        return header


def only_awaits(main: int, step: int) -> bool:
    """Return whether each thread is the worker's own, or in an event loop that only BLS responses can wake."""
    own = {thread.ident for thread in threading.enumerate() if thread.name.startswith("bls-")}
    for ident, innermost in sys._current_frames().items():
        frame: Any = innermost
        while frame is not None and frame.f_code.co_name != "_run_once":
            frame = frame.f_back
        loop = None if frame is None else frame.f_locals.get("self")
        if loop is None:
            if ident in own or (ident == main and not step):
                continue
            return False
        selector = getattr(loop, "_selector", None)
        if selector is None or len(selector.get_map()) > 1 or loop._scheduled or loop._ready:
            return False
        if innermost.f_code.co_name != "select":
            return False
    return True


def places(main: int, step: int, tasks: list[Any]) -> list[list[Any]]:
    """Return the places of running code, innermost first: of the step, of other threads, and of suspended tasks."""
    stacks = sys._current_frames()
    innermost = [stacks.pop(main)]
    innermost = [*(innermost if step else []), *stacks.values()]
    out = []
    for frame in innermost:
        while frame is not None:
            out.append([frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name])
            frame = frame.f_back  # type: ignore[assignment]
    for task in tasks:
        out += [[f.f_code.co_filename, f.f_lineno, f.f_code.co_name] for f in reversed(task.get_stack())]
    return out


def described(error: BaseException) -> dict[str, Any]:
    """Return an exception as plain data: its class, text and places, innermost last."""
    places = [
        [frame.f_code.co_filename, line, frame.f_code.co_name]
        for frame, line in traceback.walk_tb(_own(error, BaseException, "__traceback__"))
        if not frame.f_code.co_filename.startswith((OWN, "<frozen importlib"))
    ]
    kind = _own(type(error), type, "__name__")
    out: dict[str, Any] = {"kind": kind, "text": _text_of(error), "places": places[-30:]}
    try:
        out["chain"] = [vars(facts) for facts in facts_of(error, _text_of)]
    except BaseException:  # the class of an exception is the model's code
        out["chain"] = []
    if issubclass(type(error), SyntaxError):
        message, file, line = (_own(error, SyntaxError, name) for name in ("msg", "filename", "lineno"))
        if type(line) is int:
            out["syntax"] = [_text_of(message), _text_of(file), line]
    return out


def _own(instance: object, cls: type, name: str) -> Any:
    """Return an attribute as a class of Python itself defines it."""
    return cls.__dict__[name].__get__(instance)


def _text_of(value: object) -> str:
    """Return `str(value)`, whatever the class of the value does."""
    try:
        return str.__getitem__(str(value), slice(1_000_000))
    except BaseException:
        return "<MESSAGE UNAVAILABLE DUE TO ANOTHER EXCEPTION>"


class ModelOutput(io.TextIOBase):
    """Standard output or error of the model: complete lines go to the kernel, with the request that they belong to."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, kernel: Kernel, name: str, file: int) -> None:
        self._kernel, self._name = kernel, name
        self._file = file
        self._texts = threading.local()
        self.buffer = open(file, "wb", buffering=0, closefd=False)  # noqa: SIM115 - as long as the process

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        waiting = getattr(self._texts, "text", "") + text
        self._texts.text = waiting
        if "\n" in text or len(waiting) > 4096:
            self.flush()
        else:
            _unsent.add(threading.get_ident())
        return len(text)

    def flush(self) -> None:
        text = getattr(self._texts, "text", "")
        if text:
            self._texts.text = ""
            self._kernel.tell({"op": "write", "stream": self._name, "text": text, "call": current_number()})

    def fileno(self) -> int:
        return self._file

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False


_unsent: set[int] = set()  # threads that have written an incomplete line


def flush() -> None:
    """Send the model's output."""
    if not _unsent:
        return
    _unsent.discard(threading.get_ident())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, ModelOutput):
            stream.flush()
