"""``%bls``: send a request to a model; a stream's table grows while responses arrive."""

from __future__ import annotations

import asyncio
import uuid
import weakref
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import bls_notebook as bls
from bls_notebook import Response
from bls_notebook.backends.protocol import DIED, ModelError
from bls_notebook.display import Display
from bls_notebook.operations import (
    PARAMETERS,
    QUIET,
    SEQUENCE,
    OperationSpec,
    flag,
    names,
    option,
    timeout,
    whole_number,
)
from bls_notebook.progress import Progress, progress

from .arguments import read_line
from .cell_errors import CellInterrupted, debug_later, fail_on, in_model
from .magic import MagicCall
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


Result = Response | Responses | Streams


def _bls(call: MagicCall, model: str = "", **options: Any) -> Result | Display:
    """Send one or more requests to a model; without arguments, list everything that a notebook offers."""
    if not model:
        if call.line:
            call.error("missing: MODEL")
        return overview()
    notebook, stream = call.notebook, options.get("stream", False)
    # Check first: these messages are clearer than Triton's for a missing or decoupled model.
    record = bls.current_repository().model(model)
    if record.decoupled and not stream:
        call.error(f"model {record.name!r} is decoupled and sends any number of responses; add --stream")
    if "timeout" in options:
        options["timeout"] = round(options["timeout"] * 1_000_000)  # microseconds
    result = _send(call, name=model, **options)
    for response in responses_in(result):
        if response.error is not None:
            response.sent_as(read_line(call.parser, call.line, call.variables).inputs)
    _debug_first_error(notebook, result)
    notebook.answered(result)
    if not call.quiet:
        notebook.remember(result)
    errors = [response.record.error for response in responses_in(result) if response.error is not None]
    messages = [error.message for error in errors if error is not None]
    is_shown = getattr(result, "shown_in", None) == notebook.cell_number
    fail_on(notebook, messages, errors[0] if is_shown and errors else result)
    if messages:
        notebook.say_once(call.line, "An error response does not stop 'Run All'.", STOP_RUN_ALL)
    return result


STOP_RUN_ALL = "%config BLSNotebook.raise_errors = True makes its cell stop it (said once)"

BLS = OperationSpec(
    """Send a request to a model and return its response. With -n or --stream, return a list of responses; with both,
    a list of streams. INPUT=EXPRESSION sets an input by its name; the expression can use the notebook's variables.
    Arrays are sent unchanged; lists, numbers and text are converted to the data type in the model's configuration.
    With more than 20 requests, -n shows median, p90, a histogram and, from 100 requests on, p99. If the responses of
    a stream are pieces of text, the display joins them, and the list's text() returns the joined text. An error
    response is displayed, not raised (unless %config BLSNotebook.raise_errors = True); %debug then opens in the frame
    of the model that failed. After Ctrl-C, the variable _interrupted has the responses that arrived. To send requests
    from code, use a %%bls cell. Guide: docs/guides/async_and_decoupled.md.""",
    options=(
        flag("--async", "send asynchronously; with -n, all requests at once", dest="in_loop"),
        option("--version", "N", "version of the model (default: the newest)", whole_number(1)),
        option("-n", "N", "send N requests, one by one unless --async", whole_number(1), dest="number"),
        option("model", "MODEL", "the model's name", nargs="?", state="READY"),
        option("--outputs", "OUTPUT,...", "request only these outputs (default: all)", names),
        option("--device", "DEVICE", "preferred device of the outputs: cpu, gpu:0", dest="preferred_memory"),
        flag("--stream", "collect all responses of a decoupled model"),
        timeout("longest wait in the queue, such as 5ms, if the queue policy has allow_timeout_override"),
        SEQUENCE,
        PARAMETERS,
        flag("--trace", "start a trace, which the model reads with request.trace()"),
        option("--request-id", "ID", "request ID, any text"),
        QUIET,
    ),
    examples="""
    %bls add_sub INPUT0=[1, 2, 3] INPUT1=np.ones(3)
    answer = %bls add_sub INPUT0=a INPUT1=a + b --outputs OUTPUT0
    %bls square_int32 IN=[4] --stream
    %bls square_int32 IN=[4] --stream -n 50
    answers = %bls add_sub INPUT0=a INPUT1=b -n 64 --async
    %bls counter IN=[1] --sequence 7:start
    """,
    usage="MODEL [INPUT=EXPRESSION ...] [options]",
    form="inputs",
    notebook=_bls,
)


def _send(
    call: MagicCall, number: int | None = None, stream: bool = False, in_loop: bool = False, **sent: Any
) -> Result:
    """Send one request, a stream, or many requests: one after the other, or at once in an event loop."""
    repository = bls.current_repository()
    if number is None and not stream:
        return _send_one(sent, in_loop)
    arrived = Responses(stream=stream)
    streams = Streams(Responses(stream=True) for _ in range(number)) if stream and number else None
    unit = "stream" if streams is not None else "response" if stream else "request"

    async def one() -> Response:
        response = await repository.infer_async(**sent)
        bar.step()
        return response

    async def together() -> None:
        arrived.extend(await asyncio.gather(*(one() for _ in range(number or 0))))

    try:
        with progress(sent["name"], number or 0, unit) as bar:
            if streams is not None:
                _stream(sent, in_loop, streams, list.append, bar.step)
            elif stream:
                with LiveTable(call.notebook, arrived, call.quiet, bar) as table:
                    _stream(sent, in_loop, [arrived], table.take, lambda: None)
            elif in_loop:
                repository.run(together)
            else:
                for _ in range(number or 0):
                    arrived.append(repository.infer(**sent))
                    bar.step()
    except KeyboardInterrupt as error:
        if streams is not None:
            state = f"{sum(stream.complete for stream in streams)} of {number} streams had ended"
            streams[:] = [stream for stream in streams if stream]
        elif stream:
            state = f"{len(arrived)} responses had arrived"
        else:
            answered = "were running" if in_loop else "were answered"
            state = f"{number if in_loop else f'{len(arrived)} of {number}'} requests {answered}"
        call.notebook.assign("_interrupted", arrived if streams is None else streams)
        raise CellInterrupted(f"interrupted{in_model(error)}: {state}; running requests were cancelled") from None
    return arrived if streams is None else streams


def _send_one(sent: dict[str, Any], in_loop: bool) -> Response:
    repository = bls.current_repository()
    try:
        with progress(sent["name"], 0, "request"):
            if in_loop:
                response: Response = repository.run(lambda: repository.infer_async(**sent))
                return response
            return repository.infer(**sent)
    except KeyboardInterrupt as error:
        where = in_model(error) or " while waiting for the response"
        raise CellInterrupted(f"interrupted{where}; the request was cancelled") from None


def _stream(
    sent: dict[str, Any], in_loop: bool, streams: Sequence[Responses], take: Callable[[Responses, Response], None],
    ended: Callable[[], None],
) -> None:  # fmt: skip
    """Send one request per stream to a decoupled model; `take` adds a response to its stream."""
    repository = bls.current_repository()

    async def one(stream: Responses) -> None:
        async for response in repository.stream_async(**sent):
            take(stream, response)
        stream.complete = True
        ended()

    async def together() -> None:
        await asyncio.gather(*map(one, streams))

    if in_loop:
        repository.run(together)
        return
    for stream in streams:
        for response in repository.stream(**sent):
            take(stream, response)
        stream.complete = True
        ended()


def _debug_first_error(notebook: Notebook, result: Result) -> None:
    """Make ``%debug`` open in the frame that raised the first error, if a model of this process raised it."""
    record = next((r.record.error for r in responses_in(result) if r.error is not None), None)
    failure = bls.current_repository().last_failure
    if record is None or failure is None:
        return
    notebook.debugged_process = isinstance(failure, ModelError)
    if isinstance(failure, ModelError):
        if record.kind == failure.kind != DIED:
            notebook.debugged = weakref.ref(result)
    elif record.kind == type(failure).__name__:
        debug_later(notebook, failure)
        notebook.debugged = weakref.ref(result)
