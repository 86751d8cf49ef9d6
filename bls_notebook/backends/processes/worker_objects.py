"""The objects of the kernel that a model in a worker uses: the server, requests, responses and metrics."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from bls_notebook.backends.processes import messages, worker_exchange
from bls_notebook.backends.processes.messages import Message
from bls_notebook.backends.processes.worker_link import OWN, RAISES, Kernel, current_number, taken
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.pb_utils.errors import TritonModelException
from bls_notebook.pb_utils.options import DEFAULT_OPTIONS
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse, ResponseIterator
from bls_notebook.pb_utils.tensor import CHANGED, Tensor

NOT_IN_EXECUTE = "BLS is only supported during the 'execute' function."


class _Family:
    """A metric family in the kernel."""

    def __init__(self, kernel: Kernel, instance: str, number: int) -> None:
        self.instance = instance
        self._kernel, self._number = kernel, number

    def metric(self, labels: dict[str, str], buckets: Any) -> _Metric:
        number = self._kernel.ask("metric", family=self._number, labels=labels, buckets=buckets).header["metric"]
        return _Metric(self._kernel, self._number, number)

    def drop(self) -> None:
        self._kernel.tell({"op": "drop_family", "family": self._number})


class _Metric:
    def __init__(self, kernel: Kernel, family: int, number: int) -> None:
        self._do: Any = partial(kernel.ask, "measure", family=family, metric=number)

    def increment(self, value: float) -> None:
        self._do(method="increment", values=[value])

    def set(self, value: float) -> None:
        self._do(method="set", values=[value])

    def observe(self, value: float) -> None:
        self._do(method="observe", values=[value])

    def value(self) -> float:
        return float(self._do(method="value", values=[]).header["value"])


class ServerProxy:
    """What `pb_utils` asks of the server."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def load_for_model(self, who: str, name: str, config: str, files: dict[str, bytes] | None) -> tuple[str, ...]:
        """Load a model; the kernel notes the warnings."""
        texts = None if files is None else {key: value.decode("latin-1") for key, value in files.items()}
        self._kernel.ask("load", call=current_number(), name=name, config=config, contents=texts)
        return ()

    def unload_for_model(self, who: str, name: str, unload_dependents: bool) -> None:
        self._kernel.ask("unload", call=current_number(), name=name, dependents=unload_dependents)

    def is_ready_for_model(self, who: str, name: str, version: str) -> bool:
        answer = self._kernel.ask("is_ready", call=current_number(), name=name, version=version)
        return bool(answer.header["ready"])

    def metric_family(self, who: str, directory: str, name: str, description: str, kind: str) -> _Family:
        answer = self._kernel.ask("family", call=current_number(), name=name, description=description, kind=kind)
        return _Family(self._kernel, who, answer.header["family"])


class ReceivedTicket:
    """A request that the model has received; the kernel hears when the model has dropped it and its sender."""

    __slots__ = ("__weakref__", "_kernel", "_number")

    def __init__(self, kernel: Kernel, number: int) -> None:
        self._kernel, self._number = kernel, number

    def is_cancelled(self) -> bool:
        return bool(self._kernel.ask("cancelled", request=self._number).header["cancelled"])

    def send(self, response: InferenceResponse | None, final: bool) -> None:
        packed = None if response is None else packed_answer(response)
        tensors = [] if response is None or response._error is not None else response._outputs
        self._kernel.ask(
            "send",
            worker_exchange.sent(tensors, self._kernel),
            request=self._number,
            response=packed,
            final=final,
            read=taken(self._kernel.read),
        )

    def drop_sender(self) -> None:
        """Do nothing: the destructor reports it."""

    def __del__(self) -> None:
        if self._kernel.on_home:
            self._kernel.dropped.append(self._number)
        else:
            self._kernel.tell({"op": "drop", "requests": [self._number]})


class _ErrorSeen:
    """Notes that the model asked for the error of a response."""

    __slots__ = ("_kernel", "_number")

    def __init__(self, kernel: Kernel, number: int) -> None:
        self._kernel, self._number = kernel, number

    @property
    def read(self) -> bool:
        return False

    @read.setter
    def read(self, value: bool) -> None:
        self._kernel.read.append(self._number)


class _Responses:
    """The responses to a BLS request for a decoupled model."""

    def __init__(self, kernel: Kernel, number: int) -> None:
        self._kernel, self._number = kernel, number

    def next_response(self) -> tuple[InferenceResponse, bool]:
        answer = self._kernel.ask("next", stream=self._number, call=current_number())
        return received_response(self._kernel, answer), answer.header["final"]

    def cancel(self) -> None:
        self._kernel.ask("cancel_stream", stream=self._number)

    def discard(self) -> None:
        self._kernel.tell({"op": "discard", "stream": self._number})


def _note_changed(tensors: list[Tensor], words: str) -> None:
    """Warn of tensors whose present content a server would not send; `words` contains their name."""
    caller: Any = caller_var.get()
    if caller is not None and (changed := [tensor._name for tensor in tensors if tensor._has_changed()]):
        model = caller.instance_name.rpartition("_")[0]
        caller.note_warnings([f"model '{model}', {words.format(name)}{CHANGED}" for name in changed])


def packed_answer(response: InferenceResponse) -> list[Any]:
    """Return a response of the model as plain data, with the line that made its error, or the error's number."""
    _note_changed(response._outputs, "output '{}'")
    packed = messages.packed_response(response)
    error = response._error
    if error is not None:
        code, line = error._made
        own = not code.co_filename.startswith(OWN)
        packed[0] = 0  # an error is sent without outputs
        packed[1] += [[code.co_filename, line, code.co_name] if own else None, error._origin]
    return packed


def received_response(kernel: Kernel, answer: Message) -> InferenceResponse:
    tensors = worker_exchange.received(answer.take(answer.header.get("rows", ())), kernel)
    response = messages.response_of(answer.header["response"], tensors)
    if "seen" in answer.header:
        response._received = _ErrorSeen(kernel, answer.header["seen"])
        response._error._origin = answer.header["seen"]  # type: ignore[union-attr]
    return response


class _Arrivals:
    """The answers that have come for coroutines of a loop; all that come before it wakes wake it once."""

    def __init__(self) -> None:
        self._answers: deque[tuple[_Reply, Message]] = deque()
        self._posted = False

    def add(self, loop: asyncio.AbstractEventLoop, reply: _Reply, message: Message) -> None:
        self._answers.append((reply, message))
        if not self._posted:
            self._posted = True
            try:
                loop.call_soon_threadsafe(self._set)
            except RuntimeError:  # the loop is closed
                self._answers.clear()

    def _set(self) -> None:
        self._posted = False
        while self._answers:
            reply, message = self._answers.popleft()
            reply.set(message)


_arrivals: WeakKeyDictionary[asyncio.AbstractEventLoop, _Arrivals] = WeakKeyDictionary()


class _Reply:
    """The answer to a BLS request that a coroutine awaits."""

    def __init__(self, caller: WorkerCaller, decoupled: bool) -> None:
        self._caller, self._decoupled = caller, decoupled
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self._loop.create_future()
        self._arrivals = _arrivals.setdefault(self._loop, _Arrivals())

    def put(self, message: Message) -> None:
        self._arrivals.add(self._loop, self, message)

    def set(self, message: Message) -> None:
        """Complete the future. Called in the loop."""
        if not self.future.done():
            raised = message.header.get("raise")
            if raised is not None:
                self.future.set_exception(RAISES.get(raised[0], RuntimeError)(raised[1]))
            else:
                self.future.set_result(self._caller.answer(message, self._decoupled))


class WorkerCaller:
    """The sender of BLS requests: one execution, or with number 0 the bare threads of the model."""

    def __init__(self, kernel: Kernel, number: int, instance: str, directory: str, may_send: bool = True) -> None:
        self.server: Any = kernel.server
        self.number, self.instance_name, self.directory = number, instance, directory
        self._kernel, self._may_send = kernel, may_send

    def _header(self, request: InferenceRequest, decoupled: bool) -> dict[str, Any]:
        if not self._may_send:
            raise TritonModelException(NOT_IN_EXECUTE)
        return {
            "call": self.number, "model": request._model_name, "version": request._model_version,
            "options": messages.packed_options(request._options), "outputs": request._requested, "decoupled": decoupled,
            **({} if self._kernel.site is None else {"site": self._kernel.site()}),
        }  # fmt: skip

    def exec(self, request: InferenceRequest, decoupled: bool, given: bool) -> Any:
        _note_changed(request._inputs, f"input '{{}}' of '{request._model_name}'")
        kernel, key = self._kernel, None
        if request._options is DEFAULT_OPTIONS and kernel.site is None:
            key = request._model_name, request._model_version, request._requested, decoupled, self._may_send
        make, inputs = partial(self._header, request, decoupled), request._inputs
        if self._may_send:  # otherwise `make` raises the error
            inputs = worker_exchange.sent(inputs, kernel)
        return self.answer(kernel.ask_alike(key, make, "exec", self.number, inputs), decoupled)

    def async_exec(self, request: InferenceRequest, decoupled: bool, given: bool) -> asyncio.Future[Any]:
        _note_changed(request._inputs, f"input '{{}}' of '{request._model_name}'")
        header = {**self._header(request, decoupled), "op": "async_exec"}
        inputs = worker_exchange.sent(request._inputs, self._kernel)
        reply = _Reply(self, decoupled)
        self._kernel.begin(header, inputs, reply)
        return reply.future

    def answer(self, answer: Message, decoupled: bool) -> Any:
        if decoupled:
            return ResponseIterator(_Responses(self._kernel, answer.header["stream"]))
        return received_response(self._kernel, answer)

    def bare_caller(self) -> WorkerCaller:
        return WorkerCaller(self._kernel, 0, self.instance_name, self.directory)

    def log(self, level: str, message: str, file: str, line: int) -> None:
        self._kernel.tell(
            {"op": "log", "call": self.number, "level": level, "text": message, "file": file, "line": line}
        )

    def note_warnings(self, warnings: Iterable[str]) -> None:
        self._kernel.tell({"op": "warn", "call": self.number, "texts": list(warnings)})

    def model_directory(self) -> str:
        return self.directory
