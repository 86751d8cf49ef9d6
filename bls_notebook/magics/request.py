"""``%bls``: send a request to a model; a stream's table grows while responses arrive."""

from __future__ import annotations

import argparse
import asyncio
import uuid
import weakref
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import bls_notebook as bls
from bls_notebook import Response
from bls_notebook.progress import Progress, progress

from .arguments import (
    Parser,
    RequestLine,
    Variables,
    identifier,
    names,
    parameters_of,
    read_line,
    seconds,
    sequence,
    whole_number,
)
from .cell_errors import CellInterrupted, debug_later, fail_on, reported
from .magic import Magic
from .notebook import Notebook
from .result_lists import Responses, Streams, answers_of

# A stream that is over sooner is shown once, at its end.
FIRST_AFTER = 0.25
BETWEEN = 0.1


class LiveTable:
    """Shows the responses of a stream while they arrive, unless that is to be quiet."""

    def __init__(self, notebook: Notebook, responses: Responses, quiet: bool, bar: Progress) -> None:
        self._notebook, self._responses, self._bar = notebook, responses, bar
        self._shows = notebook.has_kernel and not quiet
        self._id = ""
        self._next = monotonic() + FIRST_AFTER

    def __enter__(self) -> LiveTable:
        self._responses.running = True
        return self

    def take(self, responses: Responses, response: Response) -> None:
        """Add a response and show it, unless the last update was a moment ago."""
        responses.append(response)
        if self._shows and monotonic() >= self._next:
            self._update()
            self._next = monotonic() + BETWEEN
        self._bar.step()

    def __exit__(self, *error: object) -> None:
        self._responses.running = False
        if self._id:  # a part is shown: complete it, and the cell need not show it again
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
    if count is None and not arguments.stream:
        return _send_one(call, arguments)
    arrived = Responses(stream=arguments.stream)
    streams = Streams(Responses(stream=True) for _ in range(count)) if arguments.stream and count else None
    unit = "stream" if streams is not None else "response" if arguments.stream else "request"

    async def one() -> Response:
        response = await repository.infer_async(**call)
        bar.step()
        return response

    async def together() -> None:
        arrived.extend(await asyncio.gather(*(one() for _ in range(count))))

    try:
        with progress(arguments.model, count or 0, unit) as bar:
            if streams is not None:
                _stream(call, arguments.in_loop, streams, list.append, bar.step)
            elif arguments.stream:
                with LiveTable(notebook, arrived, arguments.quiet, bar) as table:
                    _stream(call, arguments.in_loop, [arrived], table.take, lambda: None)
            elif arguments.in_loop:
                repository.run(together)
            else:
                for _ in range(count):
                    arrived.append(repository.infer(**call))
                    bar.step()
    except BaseException as error:
        state = _state(arguments, arrived, streams)
        if streams is not None:
            streams[:] = [stream for stream in streams if stream]
        notebook.assign(arguments.into, arrived if streams is None else streams)  # Ctrl-C loses no response
        if isinstance(error, KeyboardInterrupt):
            raise CellInterrupted(f"interrupted: {state}; what was under way was cancelled") from None
        raise
    return arrived if streams is None else streams


def _send_one(call: Call, arguments: argparse.Namespace) -> Response:
    repository = bls.current_repository()
    try:
        with progress(arguments.model, 0, "request"):
            if arguments.in_loop:
                response: Response = repository.run(lambda: repository.infer_async(**call))
                return response
            return repository.infer(**call)
    except KeyboardInterrupt:
        words = "interrupted while waiting for the response; the request was cancelled"
        raise CellInterrupted(words) from None


def _stream(
    call: Call, in_loop: bool, streams: Sequence[Responses], take: Callable[[Responses, Response], None],
    ended: Callable[[], None],
) -> None:  # fmt: skip
    """Send a request for each stream to a decoupled model; `take` puts a response into its stream."""
    repository = bls.current_repository()

    async def one(stream: Responses) -> None:
        async for response in repository.stream_async(**call):
            take(stream, response)
        stream.complete = True
        ended()

    async def together() -> None:
        await asyncio.gather(*map(one, streams))

    if in_loop:
        repository.run(together)
        return
    for stream in streams:
        for response in repository.stream(**call):
            take(stream, response)
        stream.complete = True
        ended()


def _state(arguments: argparse.Namespace, arrived: Responses, streams: Streams | None) -> str:
    if streams is not None:
        return f"{sum(stream.complete for stream in streams)} of {arguments.count} streams had ended"
    if arguments.stream:
        return f"{len(arrived)} responses had arrived"
    if arguments.in_loop:
        return f"{arguments.count} requests were under way"
    return f"{len(arrived)} of {arguments.count} requests were answered"


def _debug_first_error(notebook: Notebook, result: Result) -> None:
    """Let ``%debug`` open where a model raised, if one did."""
    record = next((r.record.error for r in answers_of(result) if r.error is not None), None)
    failure = bls.current_repository().last_failure
    if record is not None and failure is not None and record.kind == type(failure).__name__:
        debug_later(notebook, failure)
        notebook.debugged = weakref.ref(result)


MAGIC = Magic(PARSER, bls_line, takes_inputs=True)
