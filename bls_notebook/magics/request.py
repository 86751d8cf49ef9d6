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
from bls_notebook.commands import add_options, whole_number
from bls_notebook.display import Display
from bls_notebook.progress import Progress, progress

from .arguments import Parser, RequestLine, Variables, help_text, identifier, parameters_of, read_line, sequence
from .cell_errors import CellInterrupted, debug_later, fail_on, in_model, reported
from .magic import Magic
from .notebook import Notebook
from .overview import overview
from .result_lists import Responses, Streams, responses_in

FIRST_AFTER = 0.25  # seconds; a shorter stream is displayed once, when it ends
BETWEEN = 0.1  # seconds between updates


class LiveTable:
    """Displays the responses of a stream while they arrive, unless `quiet`."""

    def __init__(self, notebook: Notebook, responses: Responses, quiet: bool, bar: Progress) -> None:
        self._notebook, self._responses, self._bar = notebook, responses, bar
        self._shows = notebook.has_kernel and not quiet
        self._id = ""
        self._next = monotonic() + FIRST_AFTER

    def __enter__(self) -> LiveTable:
        self._responses.running = True
        return self

    def take(self, responses: Responses, response: Response) -> None:
        """Add a response, and update the display if the last update is long enough ago."""
        responses.append(response)
        if self._shows and monotonic() >= self._next:
            self._update()
            self._next = monotonic() + BETWEEN
        self._bar.step()

    def __exit__(self, *error: object) -> None:
        self._responses.running = False
        if self._id:  # partly displayed: complete it, and the cell's value need not be displayed again
            self._update()
            self._responses.shown_in = self._notebook.cell_number

    def _update(self) -> None:
        is_shown = bool(self._id)
        self._id = self._id or uuid.uuid4().hex
        self._notebook.publish(self._notebook.draw(self._responses), self._id, update=is_shown)


Call = dict[str, Any]
Result = Response | Responses | Streams

PARSER = Parser("%bls", *help_text(__file__, "%bls"))
PARSER.usage = "%(prog)s MODEL [INPUT=EXPRESSION ...] [options]"
_add = PARSER.add_argument
_add("--async", dest="in_loop", action="store_true", help="send asynchronously; with -n, all requests at once")
_add("--version", type=whole_number(1), default=-1, metavar="N", help="version of the model (default: the newest)")
_add("-n", dest="count", type=whole_number(1), metavar="N", help="send N requests, one by one unless --async")
add_options(PARSER, __file__, "%bls", identifier=identifier, sequence=sequence)


def bls_line(notebook: Notebook, line: str, cell: str, variables: Variables) -> Result | Display | None:
    """Send one or more requests to a model; without arguments, list everything that a notebook offers."""
    if not line:
        return overview()
    read = read_line(PARSER, line, variables)
    arguments = PARSER.parse(read.words)
    call = _call(read, arguments, variables)
    with reported(notebook):
        # Check first: these messages are clearer than Triton's for a missing or decoupled model.
        model = bls.current_repository().record(arguments.model)
        if model.decoupled and not arguments.stream:
            PARSER.error(f"model {model.name!r} is decoupled and sends any number of responses; add --stream")
        result = _send(notebook, call, arguments)
    _debug_first_error(notebook, result)
    notebook.assign(arguments.into, result)
    notebook.answered(result)
    if not arguments.quiet or arguments.into:
        notebook.remember(result)
    errors = [response.record.error for response in responses_in(result) if response.error is not None]
    messages = [error.message for error in errors if error is not None]
    is_shown = getattr(result, "shown_in", None) == notebook.cell_number
    fail_on(notebook, messages, errors[0] if is_shown and errors else result)
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
    """Send one request, a stream, or many requests: one after the other, or at once in an event loop."""
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
        notebook.assign(arguments.into, arrived if streams is None else streams)  # keep responses after Ctrl-C
        if isinstance(error, KeyboardInterrupt):
            raise CellInterrupted(f"interrupted{in_model(error)}: {state}; running requests were cancelled") from None
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
    except KeyboardInterrupt as error:
        where = in_model(error) or " while waiting for the response"
        raise CellInterrupted(f"interrupted{where}; the request was cancelled") from None


def _stream(
    call: Call, in_loop: bool, streams: Sequence[Responses], take: Callable[[Responses, Response], None],
    ended: Callable[[], None],
) -> None:  # fmt: skip
    """Send one request per stream to a decoupled model; `take` adds a response to its stream."""
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
        return f"{arguments.count} requests were running"
    return f"{len(arrived)} of {arguments.count} requests were answered"


def _debug_first_error(notebook: Notebook, result: Result) -> None:
    """Make ``%debug`` open in the frame that raised the first error, if a model of this process raised it."""
    record = next((r.record.error for r in responses_in(result) if r.error is not None), None)
    failure = bls.current_repository().last_failure
    if record is not None and failure is not None and record.kind == type(failure).__name__:
        debug_later(notebook, failure)
        notebook.debugged = weakref.ref(result)


MAGIC = Magic(PARSER, bls_line, takes_inputs=True)
