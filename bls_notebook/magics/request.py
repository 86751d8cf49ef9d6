"""``%bls``: send a request to a model; a stream's table grows while responses arrive."""

from __future__ import annotations

import argparse
import asyncio
import uuid
import weakref
from time import monotonic
from typing import Any

import bls_notebook as bls
from bls_notebook import Response
from bls_notebook.records.progress import Progress, progress

from .arguments import Parser, Variables, identifier, names, seconds, whole_number
from .cell_errors import CellInterrupted, debug_later, fail_on, reported
from .magic import Magic
from .notebook import Notebook
from .request_line import RequestLine, parameters_of, read_line, sequence
from .results import Responses, Streams, answers_of

# A stream that is over sooner is shown once, at its end.
FIRST_AFTER = 0.25
BETWEEN = 0.1


class LiveTable:
    """Shows responses while they arrive, unless that is to be quiet."""

    def __init__(self, notebook: Notebook, responses: Responses, quiet: bool = False) -> None:
        self._notebook = notebook
        self._responses = responses
        self._shows = notebook.has_kernel and not quiet
        self._id = ""
        self._next = monotonic() + FIRST_AFTER

    def take(self, response: Response) -> None:
        """Add a response and show it, unless the last update was a moment ago."""
        self._responses.append(response)
        if self._shows and monotonic() >= self._next:
            self._update()
            self._next = monotonic() + BETWEEN

    def finish(self) -> None:
        """Show the whole of it, if it has been shown in part; the cell need not show it again then."""
        if self._id:
            self._update()
            self._responses.shown_in = self._notebook.cell_number

    def _update(self) -> None:
        known = bool(self._id)
        self._id = self._id or uuid.uuid4().hex
        self._notebook.publish(self._notebook.draw(self._responses), self._id, update=known)


Call = dict[str, Any]
Result = Response | Responses | Streams

PARSER = Parser(
    "%bls",
    "Sends a request to a model and gives its response, or a list of them with -n or --stream (with both, "
    "a list for each stream). Pieces of text that stream are joined: answers.text() gives them too. Of more "
    "than 20 requests, -n shows median, p90, p99 and a histogram. "
    "INPUT=EXPRESSION is an input by its name; the expression sees the notebook's variables. Arrays are "
    "sent as they are; lists, numbers and text take the data type that the model's config asks for. "
    "An error response is shown, not raised (unless "
    "%config BLSNotebook.raise_errors = True); %debug then opens in the frame of the model that failed. "
    "%%bls runs a whole cell that sends requests of its own.",
    """\
  %bls add_sub INPUT0=[1, 2, 3] INPUT1=np.ones(3)
  answer = %bls add_sub INPUT0=a INPUT1=a + b --outputs OUTPUT0
  %bls square_int32 IN=[4] --stream
  %bls square_int32 IN=[4] --stream -n 50
  %bls add_sub INPUT0=a INPUT1=b -n 64 --async --into answers
  %bls counter IN=[1] --sequence 7:start
""",
)
PARSER.usage = "%(prog)s MODEL [INPUT=EXPRESSION ...] [options]"
_add = PARSER.add_argument
_add("model", metavar="MODEL", help="the model's name")
_add("--outputs", type=names, metavar="OUTPUT,...", help="only these outputs")
_add("--device", metavar="DEVICE", help="where the outputs should be: cpu, gpu:0")
_add("--async", dest="in_loop", action="store_true", help="by async_exec; with -n all requests at once")
_add("--stream", action="store_true", help="collect all responses of a decoupled model")
_add("-n", dest="count", type=whole_number(1), metavar="N", help="send it N times")
_add(
    "--timeout", type=seconds, default=0, metavar="TIME",
    help="how long it may wait in the queue, such as 5ms, if the model's queue policy allows a request to set that "
    "(a warning says if not); Triton gets whole microseconds",
)  # fmt: skip
_add("--sequence", type=sequence, metavar="ID[:start,end]", help="correlation ID, then :start, :end or :start,end")
_add("--parameters", metavar="NAME=VALUE,...", help="request parameters: name=value, or an expression for a dict")
_add("--version", type=whole_number(1), default=-1, metavar="N", help="of the model (default: the newest)")
_add("--trace", action="store_true", help="begin a trace: request.trace() has a context then")
_add("--request-id", default="", metavar="ID", help="any text")
_add("--into", type=identifier, metavar="NAME", help="a variable for the response, or the list of them")
_add("-q", "--quiet", action="store_true", help="show nothing")


def bls_line(notebook: Notebook, line: str, cell: str, variables: Variables) -> Result | None:
    """Send a request to a model."""
    read = read_line(PARSER, line, variables)
    arguments = PARSER.parse(read.words)
    call = _call(read, arguments, variables)
    with reported(notebook):
        # Clearer than Triton's words for a model that is not ready, or is asked for one response only.
        model = bls.current_repository().record(arguments.model)
        if model.decoupled and not arguments.stream:
            PARSER.error(f"model {model.name!r} is decoupled, it gives any number of responses; add --stream")
        result = _send(notebook, call, arguments)
    _debug_first_error(notebook, result)
    notebook.assign(arguments.into, result)
    notebook.answered(result)
    if not arguments.quiet or arguments.into:  # plain data about it: the tensors are nobody's for that
        notebook.remember(result)
    responses = answers_of(result)
    errors = [response.record.error for response in responses if response.error is not None]
    messages = [error.message for error in errors if error is not None]
    came = getattr(result, "shown_in", None) == notebook.cell_number
    fail_on(notebook, messages, errors[0] if came and errors else result)
    return None if arguments.quiet else result


def _call(read: RequestLine, arguments: argparse.Namespace, variables: Variables) -> Call:
    correlation_id, flags = arguments.sequence or (0, 0)
    return {
        "name": arguments.model,
        "inputs": read.values(variables, "%bls"),
        "outputs": arguments.outputs,
        "version": arguments.version,
        "preferred_memory": arguments.device,
        "timeout": round(arguments.timeout * 1_000_000),  # microseconds
        "request_id": arguments.request_id,
        "correlation_id": correlation_id,
        "flags": flags,
        "parameters": parameters_of(arguments.parameters, variables),
        "trace": arguments.trace,
    }


def _send(notebook: Notebook, call: Call, arguments: argparse.Namespace) -> Result:
    """Send one request, or one that streams, or several: in a row, or all at once in an event loop."""
    repository, count = bls.current_repository(), arguments.count
    if arguments.stream and count is not None:
        return _streams(notebook, call, arguments)
    arrived = Responses(stream=arguments.stream)

    async def one() -> Response:
        response = await repository.infer_async(**call)
        told.step()
        return response

    async def together() -> None:
        arrived.extend(await asyncio.gather(*(one() for _ in range(count))))

    try:
        with progress(arguments.model, count or 0, "response" if arguments.stream else "request") as told:
            if arguments.stream:
                _stream(notebook, call, arguments, arrived, told)
            elif count is None and arguments.in_loop:
                response: Response = repository.run(lambda: repository.infer_async(**call))
                return response
            elif count is None:
                return repository.infer(**call)
            elif arguments.in_loop:
                repository.run(together)
            else:
                for _ in range(count):
                    arrived.append(repository.infer(**call))
                    told.step()
    except BaseException as error:
        if count is not None or arguments.stream:
            notebook.assign(arguments.into, arrived)  # what came before Ctrl-C is not lost
        if isinstance(error, KeyboardInterrupt):
            raise CellInterrupted(_interrupted(arguments, len(arrived))) from None
        raise
    return arrived


def _stream(notebook: Notebook, call: Call, arguments: argparse.Namespace, arrived: Responses, told: Progress) -> None:
    """Send a request to a decoupled model, and show its responses as they arrive."""
    repository = bls.current_repository()
    table = LiveTable(notebook, arrived, quiet=arguments.quiet)

    def take(response: Response) -> None:
        table.take(response)
        told.step()

    async def walk() -> None:
        async for response in repository.stream_async(**call):
            take(response)

    arrived.running = True
    try:
        if arguments.in_loop:
            repository.run(walk)
        else:
            for response in repository.stream(**call):
                take(response)
        arrived.complete = True
    finally:
        arrived.running = False
        table.finish()


def _streams(notebook: Notebook, call: Call, arguments: argparse.Namespace) -> Streams:
    """Send many requests to a decoupled model: a stream after the other, or all at once in an event loop."""
    repository, count = bls.current_repository(), arguments.count
    arrived = Streams(Responses(stream=True) for _ in range(count))
    ended = 0

    async def one(stream: Responses) -> None:
        async for response in repository.stream_async(**call):
            stream.append(response)
        end(stream)

    async def together() -> None:
        await asyncio.gather(*map(one, arrived))

    def end(stream: Responses) -> None:
        nonlocal ended
        stream.complete = True
        ended += 1
        told.step()

    try:
        with progress(arguments.model, count, "stream") as told:
            if arguments.in_loop:
                repository.run(together)
                return arrived
            for stream in arrived:
                stream.extend(repository.stream(**call))
                end(stream)
    except BaseException as error:
        arrived[:] = [stream for stream in arrived if stream]
        notebook.assign(arguments.into, arrived)  # what came before Ctrl-C is not lost
        if isinstance(error, KeyboardInterrupt):
            state = f"{ended} of {count} streams had ended"
            raise CellInterrupted(f"interrupted: {state}; what was under way was cancelled") from None
        raise
    return arrived


def _interrupted(arguments: argparse.Namespace, arrived: int) -> str:
    if arguments.stream:
        state = f"{arrived} responses had arrived"
    elif arguments.count is None:
        return "interrupted while waiting for the response; the request was cancelled"
    elif arguments.in_loop:
        state = f"{arguments.count} requests were under way"
    else:
        state = f"{arrived} of {arguments.count} requests were answered"
    return f"interrupted: {state}; what was under way was cancelled"


def _debug_first_error(notebook: Notebook, result: Result) -> None:
    """Let ``%debug`` open where a model raised, if one did."""
    record = next((r.record.error for r in answers_of(result) if r.error is not None), None)
    failure = bls.current_repository().last_failure
    if record is not None and failure is not None and record.kind == type(failure).__name__:
        debug_later(notebook, failure)
        notebook.debugged = weakref.ref(result)


MAGIC = Magic(PARSER, bls_line, takes_inputs=True)
