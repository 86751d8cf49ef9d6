"""`Upcalls`: what a worker asks of the kernel while its model runs, such as BLS requests, logs and metrics.

Each is done on behalf of the execution whose code asks (`Caller`), so that the engine sees the requests of a process as
it sees those of a thread: in the wait graph, in profiles, in statistics. What may wait gets a thread of its own, unless
the home asks, which waits for its worker anyway.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import Context, copy_context
from functools import partial
from itertools import count
from typing import Any

from bls_notebook.backends.protocol import WorkerCode
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse, StreamEnded
from bls_notebook.pb_utils.tensor import Tensor

from .gpu_exchange import COPIED, GpuExchange
from .messages import Message, packed_options, packed_response, request_of, response_of
from .process import Listener, WorkerProcess

Header = dict[str, Any]
Reply = tuple[Header, Sequence[Tensor]]
MOST_SPANS = 100_000  # executions of a profile
MOST_CALLS = 1000  # whose executions are remembered for threads that they started
_NOTHING: Reply = ({}, ())


class Upcalls(Listener):
    """The objects of one worker's model in the kernel, by their numbers."""

    def __init__(self, noted: Callable[[str, str], None] | None = None) -> None:
        self._noted = noted
        self.gpus = GpuExchange()
        self._numbers = count(1)
        self._requests: dict[int, InferenceRequest] = {}  # that the model has
        self._calls: dict[int, tuple[Any, Context]] = {}  # the last executions, and the contexts of their output
        self._latest: tuple[Any, Context] = (None, Context())
        self._streams: dict[int, Any] = {}
        self._seen: dict[int, Any] = {}  # errors of responses that the model has not asked for
        self._families: dict[int, tuple[Any, list[Any]]] = {}
        self._replies = 0  # on the side
        self.spans: dict[int, int] = {}  # the numbers of executions in the log of a profile

    def call(self, caller: Any) -> int:
        """Return the number of an execution, by which the worker names it."""
        number = next(self._numbers)
        self._latest = self._calls[number] = caller, copy_context()
        observed = getattr(caller, "observed", None)
        if observed is not None and observed.span:
            self.spans[number] = observed.span
            if len(self.spans) > MOST_SPANS:
                self.spans.pop(next(iter(self.spans)))
        if len(self._calls) > MOST_CALLS:
            self._calls.pop(next(iter(self._calls)))
        return number

    def packed(self, requests: Sequence[InferenceRequest], call: int) -> tuple[list[Any], list[Tensor]]:
        """Return the requests of an execution, as plain data, and their tensors. A single one has its number, as 0."""
        rows, tensors = [], []
        for request in requests:
            number = next(self._numbers) if requests[1:] else 0
            self._requests[number or call] = request
            rows.append((
                number, packed_options(request._options), request._requested, request._model_name,
                request._model_version, len(request._inputs),
            ))  # fmt: skip
            tensors += self.gpus.sent(request._inputs, self._calls[call][0])
        return rows, tensors

    def requests(self) -> list[InferenceRequest]:
        """Return the requests that the model has not dropped."""
        return list(self._requests.values())

    def ended(self, header: Header) -> None:
        """Note the requests and errors in the answer of a step."""
        for number in header.get("dropped", ()):
            self._requests.pop(number or header["call"], None)
        for number in header.get("read", ()):
            response = self._seen.get(number)
            if response is not None:
                response._mark_read()

    def made(self, packed: list[Any], tensors: list[Tensor]) -> InferenceResponse:
        """Return a response that the model made, with its tensors from the front of a list."""
        response, error = response_of(packed, tensors), packed[1]
        if error is not None and response._error is not None:
            _, _, place, number = error
            if place is not None:
                response._error._made = WorkerCode(place[0], place[2]), place[1]  # type: ignore[assignment]
            if number in self._seen:  # the model passes on the error of a response
                response._error._origin = self._seen[number]._error._origin
        return response

    def forget(self) -> None:
        """Drop the objects of a process that has ended: its requests, its iterators, its metric families."""
        families = list(self._families.values())
        for objects in (self._requests, self._calls, self._streams, self._seen, self._families):
            objects.clear()
        self.gpus.forget()
        self._latest = (None, Context())
        for family, _ in families:
            family.drop()

    def printed(self, stream: str, text: str) -> None:
        self._latest[1].copy().run(_write, stream, text)

    def answer(self, message: Message, process: WorkerProcess, at_home: bool) -> None:
        header = message.header
        op, number = header["op"], header.get("id")
        if op == "write" and header["stream"] == "stderr":
            process.hear(header["text"])
        work = partial(getattr(self, f"_{op}"), message)
        if at_home:
            content, tensors = self._done(work)
            if op not in _TOLD:
                _answer_home(process, content, tensors)
            return

        def reply(answer: Reply) -> None:
            if number is not None:
                self._replies += 1
                content = {**answer[0], "re": number}
                with contextlib.suppress(EOFError):
                    (process.side.post if op == "async_exec" else process.side.send)(content, answer[1])

        def respond() -> None:
            reply(self._done(work))

        if op == "async_exec":
            self._caller(header)[1].copy().run(self._async_exec, message, reply)
        elif op in _WAITS:
            context = self._caller(header)[1].copy()
            threading.Thread(target=context.run, args=(respond,), name=f"bls-upcall-{op}", daemon=True).start()
        else:
            self._caller(header)[1].copy().run(respond)

    def _done(self, call: Callable[[], Reply]) -> Reply:
        try:
            return call()
        except StreamEnded as error:
            return {"raise": ["StreamEnded", str(error)]}, ()
        except Exception as error:
            return {"raise": [type(error).__name__, str(error)]}, ()
        except BaseException as error:  # the engine's interrupt, or Ctrl-C
            return {"raise": ["Interrupted", str(error)]}, ()

    def _caller(self, header: Header) -> tuple[Any, Context]:
        """Return the execution whose code asks, or the sender for bare threads, and the context of its output."""
        number = header.get("call", 0)
        if number in self._calls:
            return self._calls[number]
        latest, context = self._latest
        if latest is None:
            return caller_var.get(), copy_context()
        return latest.bare_caller(), context

    def _on_behalf(self, header: Header, call: Callable[[Any], Any]) -> Any:
        """Return `call(caller)`, with the caller as the one of this thread."""
        caller, before = self._caller(header)[0], caller_var.get()
        caller_var.set(caller)
        try:
            return call(caller)
        finally:
            caller_var.set(before)

    def _request(self, message: Message) -> Any:
        header = message.header
        inputs = self.gpus.received(message.take(header.get("rows", ())))
        request = request_of(header["options"], header["outputs"], header["model"], header["version"], inputs)
        request._site = tuple(_instructions(header.get("site", ())))
        return request

    def _responded(self, response: InferenceResponse, **more: Any) -> Reply:
        header: Header = {"response": packed_response(response), **more}
        if response._error is not None:
            header["seen"] = number = next(self._numbers)
            self._seen[number] = response
            if len(self._seen) > MOST_CALLS:
                self._seen.pop(next(iter(self._seen)))
        return header, self.gpus.sent(response._outputs, self._caller({})[0])

    def _sent(self, result: Any, decoupled: bool) -> Reply:
        """Return the answer to a BLS request: its response, or the number of the iterator over its responses."""
        if not decoupled:
            return self._responded(result)
        number = next(self._numbers)
        self._streams[number] = result
        return {"stream": number}, ()

    def _exec(self, message: Message) -> Reply:
        request, decoupled = self._request(message), message.header["decoupled"]
        box = [request]
        del request
        return self._sent(
            self._on_behalf(message.header, lambda caller: caller.exec(box.pop(), decoupled, True)), decoupled
        )

    def _stalled(self, message: Message) -> Reply:
        """Handle that all code of the worker only awaits responses, if none is on its way to it."""
        if message.header["replies"] == self._replies:
            for caller, _ in list(self._calls.values()):
                caller.stall(lambda: message.header["replies"] == self._replies)
        return _NOTHING

    def _async_exec(self, message: Message, reply: Callable[[Reply], None]) -> None:
        """Send a request, and reply on the thread that has its response."""
        decoupled = message.header["decoupled"]

        def begin() -> Reply:
            request = [self._request(message)]
            self._on_behalf(message.header, lambda caller: caller.begin_exec(request.pop(), decoupled, then))
            return _NOTHING

        def then(result: Any) -> None:
            reply(self._done(lambda: self._sent(result, decoupled)))

        begun = self._done(begin)
        if begun is not _NOTHING:
            reply(begun)

    def _next(self, message: Message) -> Reply:
        number = message.header["stream"]
        stream = self._streams[number]._stream
        response, final = self._on_behalf(message.header, lambda caller: stream.next_response())
        if final:
            self._streams[number]._done = True
            self._streams.pop(number)
        return self._responded(response, final=final)

    def _cancel_stream(self, message: Message) -> Reply:
        stream = self._streams.get(message.header["stream"])
        if stream is not None:
            stream.cancel()
        return _NOTHING

    def _discard(self, message: Message) -> Reply:
        self._streams.pop(message.header["stream"], None)  # its destructor discards the responses
        return _NOTHING

    def _send(self, message: Message) -> Reply:
        header = message.header
        self.ended({"read": header["read"]})
        packed = header["response"]
        tensors = self.gpus.received(message.take(header.get("rows", ())))
        response = None if packed is None else self.made(packed, tensors)
        self._requests[header["request"]].get_response_sender()._request.send(response, header["final"])
        return _NOTHING

    def _cancelled(self, message: Message) -> Reply:
        return {"cancelled": self._requests[message.header["request"]].is_cancelled()}, ()

    def _drop(self, message: Message) -> Reply:
        self.ended({"dropped": message.header["requests"]})
        return _NOTHING

    def _gpu_buffers(self, message: Message) -> Reply:
        places = self.gpus.buffers(message.header["wanted"])
        if places is None:
            self._caller(message.header)[0].note_warnings([COPIED])
        return {"places": places}, ()

    def _gpu_released(self, message: Message) -> Reply:
        self.gpus.released(message.header["exports"], message.header["buffers"])
        return _NOTHING

    def _log(self, message: Message) -> Reply:
        header = message.header
        self._caller(header)[0].log(header["level"], header["text"], header["file"], header["line"])
        return _NOTHING

    def _warn(self, message: Message) -> Reply:
        self._caller(message.header)[0].note_warnings(message.header["texts"])
        return _NOTHING

    def _write(self, message: Message) -> Reply:
        _write(message.header["stream"], message.header["text"])
        return _NOTHING

    def _load(self, message: Message) -> Reply:
        header, texts = message.header, message.header["contents"]
        files = None if texts is None else {key: text.encode("latin-1") for key, text in texts.items()}

        def load(caller: Any) -> None:
            server, name = caller.server, header["name"]
            caller.note_warnings(server.load_for_model(caller.instance_name, name, header["config"], files))

        self._on_behalf(header, load)
        return _NOTHING

    def _unload(self, message: Message) -> Reply:
        header = message.header

        def unload(caller: Any) -> None:
            caller.server.unload_for_model(caller.instance_name, header["name"], header["dependents"])

        self._on_behalf(header, unload)
        return _NOTHING

    def _is_ready(self, message: Message) -> Reply:
        header = message.header

        def ask(caller: Any) -> bool:
            return bool(caller.server.is_ready_for_model(caller.instance_name, header["name"], header["version"]))

        return {"ready": self._on_behalf(header, ask)}, ()

    def _note(self, message: Message) -> Reply:
        header, noted = message.header, self._noted
        if noted is not None:
            self._on_behalf(header, lambda _: noted(header["kind"], header["text"]))
        return _NOTHING

    def _ask_note(self, message: Message) -> Reply:
        return self._note(message)

    def _family(self, message: Message) -> Reply:
        header, caller = message.header, self._caller(message.header)[0]
        names = header["name"], header["description"], header["kind"]
        family = caller.server.metric_family(caller.instance_name, caller.directory, *names)
        number = next(self._numbers)
        self._families[number] = family, []
        return {"family": number}, ()

    def _drop_family(self, message: Message) -> Reply:
        family = self._families.pop(message.header["family"], None)
        if family is not None:
            family[0].drop()
        return _NOTHING

    def _metric(self, message: Message) -> Reply:
        family, metrics = self._families[message.header["family"]]
        metrics.append(family.metric(message.header["labels"], message.header["buckets"]))
        return {"metric": len(metrics) - 1}, ()

    def _measure(self, message: Message) -> Reply:
        header = message.header
        metric = self._families[header["family"]][1][header["metric"]]
        return {"value": getattr(metric, header["method"])(*header["values"])}, ()


_TOLD = {
    "write",
    "note",
    "log",
    "warn",
    "drop",
    "discard",
    "drop_family",
    "stalled",
    "gpu_released",
}  # messages without an answer
_WAITS = {"stalled", "exec", "next", "load", "unload", "is_ready", "cancel_stream"}


def _instructions(site: Iterable[Sequence[Any]]) -> Iterator[Any]:
    """Yield code and its line for each place of a stack in a worker, as a flat stack."""
    for file, function, first, line in site:
        yield WorkerCode(file, function, first)
        yield line


def _answer_home(process: WorkerProcess, content: Header, tensors: Sequence[Tensor]) -> None:
    response = content.get("response")
    try:
        if response is None or response[1] is not None or len(content) > 1:
            process.home.send(content, tensors, waits=True)
        else:
            process.home.send_alike(tuple(response), lambda: content, 0, 0, tensors)
    except EOFError:  # the process has ended
        pass


def _write(stream: str, text: str) -> None:
    """Show the output of a model. Its reader continues if the program has closed the stream."""
    file = getattr(sys, stream)
    if file is not None:
        with contextlib.suppress(Exception):
            file.write(text)
            file.flush()
