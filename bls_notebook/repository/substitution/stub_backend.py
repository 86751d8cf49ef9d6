"""The backend of stubs and substitutes: instances whose responses are made up or come from `Answers`.

Guarantees: every request gets a response, whatever the answers do. If one answer of a batch fails, the other requests
keep theirs. Calls that arrive after the end of the substitution get an error.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import nullcontext, suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from time import monotonic, sleep
from typing import Any

from bls_notebook.backends.processes.backend import ProcessModel
from bls_notebook.backends.protocol import BackendInstance, BackendModel, VersionFiles
from bls_notebook.engine.waiting.worker_threads import start_in_thread
from bls_notebook.pb_utils.errors import TritonError, TritonModelException
from bls_notebook.pb_utils.model_config import ModelConfig
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import TRITONSERVER_RESPONSE_COMPLETE_FINAL as FINAL
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.records.visible_text import first_line
from bls_notebook.repository.source.model_source import Stub

from .call import (
    ASK,
    MADE_UP,
    Answer,
    Answers,
    Call,
    CallKey,
    CallPath,
    CallProgress,
    Last,
    Waiter,
    call_of,
    is_null,
    key_of_request,
)  # fmt: skip
from .made_up_responses import MadeUpResponses

log = logging.getLogger("bls_notebook")
_SLICE = 0.05  # seconds until an interrupt ends a wait
_STREAM = ("stream", "streaming")  # inputs of vLLM and TensorRT-LLM: without a true value, there is one response


class StubModel:
    """One version of a stubbed model."""

    def __init__(self, stub: Stub, files: VersionFiles) -> None:
        self._stub = stub
        self._own: BackendModel | None = None
        if stub.asks is not None:
            try:
                self._own = stub.asks(files)
            except (Exception, SystemExit) as error:
                log.debug("model '%s' cannot be opened to complete its configuration: %s", files.name, error)

    @property
    def auto_complete_config(self) -> Callable[[ModelConfig], ModelConfig] | None:
        """The real model's function; None if it has none or could not be opened."""
        own = None if self._own is None else self._own.auto_complete_config
        if own is None:
            return None

        def complete(config: ModelConfig) -> ModelConfig:
            before = json.dumps(config.as_dict())
            try:
                return own(config)
            except (Exception, SystemExit) as error:
                log.warning("auto_complete_config failed: %s", first_line(str(error)))
                return ModelConfig(before)

        return complete

    def make_instance(self, arguments: dict[str, str]) -> BackendInstance:
        own, self._own = self._own, None
        if isinstance(own, ProcessModel):
            own.close()
        if self._stub.make is not None:
            return self._stub.make(arguments)
        return StubInstance(json.loads(arguments["model_config"]), self._stub)


class StubInstance:
    """One instance of a stub, with made-up responses; `config` is the completed configuration's JSON form."""

    is_async = False

    def __init__(self, config: dict[str, Any], stub: Stub) -> None:
        self._name: str = config["name"]
        self._stub = stub
        self._decoupled = bool(config.get("model_transaction_policy", {}).get("decoupled"))
        self._made_up = MadeUpResponses(config, stub)
        self._can_stream = any(tensor["name"] in _STREAM for tensor in config.get("input", ()))

    def execute(self, requests: list[InferenceRequest]) -> list[InferenceResponse] | None:
        if self._stub.seconds:
            pause(self._stub.seconds)
        if not self._decoupled:
            return [self._made_up.response(request) for request in requests]
        for request in requests:
            self._stream(request)
        return None

    def finalize(self) -> None:
        """There is nothing to release."""

    def ready(self) -> bool:
        return True

    def _stream(self, request: InferenceRequest) -> None:
        sender = request.get_response_sender()
        last = max(1, self._stub.responses) - 1 if not self._can_stream or _asks_for_stream(request) else 0
        for number in range(last + 1):
            response = self._made_up.response(request, number)
            if number == last or response.has_error():
                sender.send(response, flags=FINAL)
                return
            sender.send(response)
            if sender.is_cancelled():
                break
        sender.send(flags=FINAL)


def _asks_for_stream(request: InferenceRequest) -> bool:
    tensors = [tensor for tensor in request.inputs() if tensor.name() in _STREAM]
    return any(tensor.is_cpu() and tensor.as_numpy().any() for tensor in tensors)


def pause(seconds: float) -> None:
    """Sleep in short steps, so that an interrupt ends the wait soon on any thread."""
    until = monotonic() + seconds
    while (left := until - monotonic()) > 0:
        sleep(min(left, _SLICE))


@dataclass(frozen=True)
class AnswerSource:
    """The answers of one substituted model, shared by its instances.

    `key_of` makes a call's key relative to the start of the substitution. Calls are appended to `calls`. With
    `concurrent`, an answer does not occupy its instance.
    """

    answers: Answers
    progress: CallProgress
    key_of: Callable[[CallKey | None], CallPath]
    calls: list[Call]
    concurrent: bool

    @property
    def needs_loop(self) -> bool:
        """Return whether the answers need an event loop: `answers.needs_loop`, else whether they are async."""
        needs_loop = getattr(self.answers, "needs_loop", None)
        return inspect.isasyncgenfunction(self.answers.answer) if needs_loop is None else bool(needs_loop)


class SubstituteInstance(StubInstance):
    """One instance of a substituted model."""

    def __init__(self, arguments: Mapping[str, str], source: AnswerSource) -> None:
        super().__init__(json.loads(arguments["model_config"]), Stub())
        self._answers_from = source
        self._instance, self._version = arguments["model_instance_name"], int(arguments["model_version"])
        self.is_async = source.needs_loop and not source.concurrent
        if self.is_async:
            self.execute = self._execute  # type: ignore[method-assign,assignment]
        elif source.concurrent:
            self.execute = self._begin  # type: ignore[method-assign]

    def execute(self, requests: list[InferenceRequest]) -> list[InferenceResponse] | None:
        returned: list[InferenceResponse] | None = _run(self._execute(requests))
        return returned

    async def _execute(self, requests: list[InferenceRequest]) -> list[InferenceResponse] | None:
        calls = self._calls(requests)
        if self._decoupled:
            for request, call in zip(requests, calls, strict=True):
                await self._send_all(request, call, requests)
            return None
        return [await self._one(request, call, requests) for request, call in zip(requests, calls, strict=True)]

    def _calls(self, requests: list[InferenceRequest]) -> list[Call | None]:
        """Record the requests as calls; None for a request that a sequence batcher created to fill a slot."""
        calls: list[Call | None] = []
        where = self._name, self._version, self._instance
        count = sum(not is_null(request) for request in requests)
        for request in requests:
            call = None
            if not is_null(request):
                key = self._answers_from.key_of(key_of_request(request))
                call = call_of(request, key, where, count, len(calls) - calls.count(None))
                self._answers_from.calls.append(call)
            calls.append(call)
        return calls

    async def _answers(
        self, request: InferenceRequest, call: Call, batch: list[InferenceRequest]
    ) -> AsyncIterator[tuple[InferenceResponse, bool]]:
        """Yield responses, each with a flag: whether the final flag is sent with it."""
        progress = self._answers_from.progress
        if progress.over:
            problem = f"the substitution of '{self._name}' is over; send the request while it lasts"
            yield InferenceResponse([], TritonError(problem)), True
            return
        wait = Waiter(progress, request, batch, self._name, self._decoupled)
        answers: Any = self._answers_from.answers.answer(call, wait)
        in_loop = hasattr(answers, "__anext__")
        if not in_loop:
            answers = iter(answers)
        number = 0
        try:
            while True:
                try:
                    answer = await anext(answers) if in_loop else next(answers)
                except (StopIteration, StopAsyncIteration):
                    return
                if answer is ASK:
                    asked = wait.ask_with_flags()
                    if self._answers_from.needs_loop:
                        asked = iter(await asyncio.to_thread(list, asked))
                    for response, final in asked:
                        yield response, final
                        number += 1
                    continue
                is_last = isinstance(answer, Last)
                content = answer.answer if isinstance(answer, Last) else answer
                response = self._response(content, request, number)
                if content is not MADE_UP and not wait.asked:
                    response._warnings = (*response._warnings, *self._made_up.mark)
                yield response, is_last
                number += 1
        finally:
            if in_loop:
                await answers.aclose()
            elif hasattr(answers, "close"):
                answers.close()

    def _response(self, answer: Answer, request: InferenceRequest, number: int) -> InferenceResponse:
        if answer is MADE_UP:
            return self._made_up.response(request, number)
        if isinstance(answer, TritonError):
            answer = InferenceResponse([], answer)
        if not isinstance(answer, InferenceResponse):
            raise TypeError(
                f"substitute of {self._name!r}: got {type(answer).__name__}, expected an InferenceResponse, "
                "a TritonError, MADE_UP or ASK"
            )
        return answer

    async def _one(
        self, request: InferenceRequest, call: Call | None, batch: list[InferenceRequest]
    ) -> InferenceResponse:
        if call is None:
            return self._made_up.response(request)
        with nullcontext() if self._answers_from.concurrent else self._answers_from.progress.answering(call.key):
            try:
                answers = [answer async for answer in self._answers(request, call, batch)]
                if len(answers) != 1:
                    raise ValueError(f"substitute of {self._name!r}: got {len(answers)} answers, expected one")
                return answers[0][0]
            except Exception as error:
                if len(batch) == 1 and not self._answers_from.concurrent:
                    raise
                return self._failed(error)

    def _failed(self, error: Exception) -> InferenceResponse:
        response = InferenceResponse([], TritonError(f"{type(error).__name__}: {first_line(str(error))}"))
        response._warnings = self._made_up.mark
        return response

    async def _send_all(self, request: InferenceRequest, call: Call | None, batch: list[InferenceRequest]) -> None:
        sender = request.get_response_sender()
        if call is None:
            sender.send(self._made_up.response(request), flags=FINAL)
            return
        answers = self._answers(request, call, batch)
        last: InferenceResponse | None = None
        try:
            async for response, final in answers:
                if final:
                    last = response
                    break
                sender.send(response)
                if request.is_cancelled():
                    break
            with self._answers_from.progress.answering(call.key):
                is_flag_alone = last is None or (not last._outputs and last._error is None)
                sender.send(None if is_flag_alone else last, flags=FINAL)
        finally:
            await answers.aclose()  # type: ignore[attr-defined]

    def _begin(self, requests: list[InferenceRequest]) -> None:
        for request, call in zip(requests, self._calls(requests), strict=True):
            assert call is not None  # only a sequence batcher fills slots
            request.get_response_sender()  # before the request leaves `execute`
            start_in_thread(partial(copy_context().run, partial(self._serve, [request], call)))

    def _serve(self, requests: list[InferenceRequest], call: Call) -> None:
        run = asyncio.run if self._answers_from.needs_loop else _run
        with suppress(TritonModelException):  # the request was cancelled, and is answered
            run(self._serve_one(requests.pop(), call))

    async def _serve_one(self, request: InferenceRequest, call: Call) -> None:
        sender = request.get_response_sender()
        if not self._decoupled:
            response = await self._one(request, call, [request])
            with self._answers_from.progress.answering(call.key):
                sender.send(response, flags=FINAL)
            return
        try:
            await self._send_all(request, call, [request])
        except Exception as error:
            sender.send(self._failed(error), flags=FINAL)


def _run(coroutine: Any) -> Any:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("the answers need an event loop")
