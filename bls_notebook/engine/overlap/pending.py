"""One request that a program has sent ahead, and its answer.

Guarantees: it is sent once, by whoever finds first that what it needs has been answered; its answer is taken
once, whoever waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from sys import _getframe
from types import FrameType
from typing import Any, Protocol
from weakref import ref

import numpy as np

from bls_notebook.engine.description import describe, home_of
from bls_notebook.engine.failures import error_response
from bls_notebook.engine.recording.code_lines import line_of, place_finder
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.threads import start_in_thread
from bls_notebook.engine.waiting.waiting import wait_for
from bls_notebook.pb_utils.errors import TritonModelException
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.profiling.records.program import Call
from bls_notebook.records.visible import first_line

from .lazy import lazy_source, real

_place = place_finder()
_AROUND = f"{__package__}.ahead"  # what calls `execute`
Open = Callable[[InferenceRequest, Context], "Ticket | InferenceResponse"]


class Program(Protocol):
    """Whose call it is."""

    def look(self, call: Pending) -> InferenceResponse:
        """Wait for an answer that the program looks at."""

    def spoil(self, why: str) -> None:
        """Say that the run says nothing."""


class Pending:
    """A request that the program has sent, and its answer, once that is there (`lazy.Source`)."""

    def __init__(self, program: Program, number: int, request: InferenceRequest, open_: Open) -> None:
        self.number = number
        self.model, self._version = request._model_name, request._model_version
        self.outputs: Sequence[tuple[str, str]] = ()
        self.needs: list[Pending] = []
        self.ordered = self.over = False
        self._tensors: list[ref[Tensor]] = []
        self._program, self._open = program, open_
        self._context = copy_context()
        self._lock = threading.Lock()
        self._waiting: list[Pending] = []
        self._missing = 0
        self._ticket: Ticket | None = None
        self._begun = False
        self._sent, self._there = threading.Event(), threading.Event()
        self._response: InferenceResponse | None = None
        self._place = _place()
        self._lines = _lines()
        for tensor in request._inputs:
            array: Any = tensor._array
            source = lazy_source(array)
            if isinstance(source, Pending) and source._program is program:
                if source not in self.needs:
                    self.needs.append(source)
            elif source is not None:  # kept since an `execute` before
                tensor._array = real(array)
        if self.needs:  # the program may change its arrays before this is sent
            request = _copied(request)
        self._request: InferenceRequest | None = request

    def record(self) -> Call:
        """Return what is remembered of it."""
        needs = tuple(sorted(call.number for call in self.needs))
        line = None if self._place is None else line_of(self._place)
        return Call(self.model, max(1, self._version), needs, self.ordered, line, self._lines)

    # -- sending -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Send it, or have it sent when what it needs is there."""
        missing = [call for call in self.needs if not call._wait(self)]
        with self._lock:
            self._missing += len(missing)
            ready = self._missing == 0
        if ready:
            self._send()

    def _wait(self, other: Pending) -> bool:
        """Have another call told of the answer; False where it need not wait."""
        with self._lock:
            if self._response is not None:
                return True
            self._waiting.append(other)
            return False

    def _answered_one(self) -> None:
        with self._lock:
            self._missing -= 1
            ready = self._missing == 0
        if ready:
            start_in_thread(self._send)

    def _send(self) -> None:
        with self._lock:
            if self._begun:
                return
            self._begun = True
            request, self._request = self._request, None
        assert request is not None
        try:
            request._inputs = [_made_real(tensor) for tensor in request._inputs]
            opened = self._context.run(self._open, request, self._context.copy())
            if isinstance(opened, InferenceResponse):
                self._take(opened)
            else:
                opened.on_response = self._look
                self._ticket = opened
                opened.model.scheduler.submit(opened)
        except BaseException as error:  # whoever waits for it is told, whatever has come in between
            self._take(error_response(describe(error).message))
            if not isinstance(error, Exception):
                raise
        finally:
            self._sent.set()

    def ready(self) -> InferenceRequest:
        """Return the request with what it is made of, to be sent by somebody else; see `take`."""
        with self._lock:
            self._begun = True
            request, self._request = self._request, None
        assert request is not None
        request._inputs = [_made_real(tensor) for tensor in request._inputs]
        return request

    def take(self, response: InferenceResponse) -> None:
        """Take the answer from who has sent the request."""
        self.outputs = [(tensor._name, tensor._datatype) for tensor in response._outputs]
        self._take(response)
        self._sent.set()

    # -- the answer --------------------------------------------------------------------------------

    def _look(self) -> None:
        ticket = self._ticket
        taken = None if ticket is None else ticket.take()
        if taken is not None:
            self._take(taken[0])

    def _take(self, response: InferenceResponse) -> None:
        with self._lock:
            self._response = response
            waiting, self._waiting = self._waiting, []
        self._there.set()
        for other in waiting:
            other._answered_one()

    def answer(self) -> InferenceResponse:
        """Wait for the answer."""
        for call in self._before():
            call._wait_for_it()
        return self._wait_for_it()

    def _before(self) -> list[Pending]:
        """All calls that have to be answered first, in the order of the program; there may be thousands."""
        found: dict[int, Pending] = {}
        todo = [self]
        while todo:
            for call in todo.pop().needs:
                if call.number not in found and call._response is None:
                    found[call.number] = call
                    todo.append(call)
        return [found[number] for number in sorted(found)]

    def _wait_for_it(self) -> InferenceResponse:
        self._send()
        self._sent.wait()  # another thread may be about to
        if self._response is None and self._ticket is not None:
            wait_for(self._ticket)
            self._look()
        self._there.wait()  # another thread may have taken it
        response = self._response
        assert response is not None
        return response

    def settle(self) -> InferenceResponse:
        """Wait for the answer, and put it in place of what is lazy: the model may keep its tensors."""
        response = self.answer()
        self.over = True
        for reference in self._tensors:
            tensor = reference()
            if tensor is not None:
                tensor._array = real(tensor._array)
        return response

    # -- as the source of a lazy response ------------------------------------------------------------

    def known(self) -> InferenceResponse | None:
        """Return the response if it is there, and may be known by now."""
        return self._response

    def made(self, tensor: Tensor) -> Tensor:
        """Take note of a tensor that has something lazy in it."""
        self._tensors.append(ref(tensor))
        return tensor

    def looked_at(self) -> InferenceResponse:
        """Wait for the response, which the program looks at."""
        return self._program.look(self)

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """Return an output, which the program looks at."""
        return self.output(name, self._program.look(self))

    def output(self, name: str, response: InferenceResponse) -> np.ndarray[Any, Any]:
        """Return an output of the response."""
        for tensor in response._outputs:
            if tensor._name == name:
                return tensor._array
        why = f"`{self.model}` did not send {name!r}"
        if response._error is not None:
            why = f"`{self.model}` answered with an error: {first_line(response._error._message)}"
        self._program.spoil(why)
        raise TritonModelException(why)


def _lines() -> tuple[int, ...]:
    """The lines of the file that `execute` is in by which the program has come here, the innermost first."""
    frame: FrameType | None = _getframe(2)
    found: list[tuple[str, int]] = []
    while frame is not None and frame.f_globals.get("__name__") != _AROUND:
        if home_of(frame.f_globals) is not None:
            found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(line for file, line in found if file == found[-1][0])


def _copied(request: InferenceRequest) -> InferenceRequest:
    """Return a request whose arrays are its own, but for the lazy ones."""
    out = InferenceRequest.__new__(InferenceRequest)
    for name in InferenceRequest.__slots__:
        if name != "__weakref__" and hasattr(request, name):
            setattr(out, name, getattr(request, name))
    out._inputs = [
        Tensor._of(t._name, t._array.copy(), t._datatype) if lazy_source(t._array) is None else t
        for t in request._inputs
    ]
    return out


def _made_real(tensor: Tensor) -> Tensor:
    """Return a tensor with what it is made of, which has been answered."""
    lazy: Any = tensor._array
    source = lazy_source(lazy)
    if not isinstance(source, Pending):
        return tensor
    return Tensor._of(tensor._name, source.output(lazy._name, source.answer()), tensor._datatype)
