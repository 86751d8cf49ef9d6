"""The instances of a substituted model: each request is answered by `Answers`.

Guarantees: every request is answered, whatever the answers do; if one answer of a batch fails, the other
requests keep theirs; calls that arrive after the substitution is over get an error.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

from bls_notebook.backends.stub.calls import is_null
from bls_notebook.backends.stub.how import Stub
from bls_notebook.backends.stub.instance import StubInstance
from bls_notebook.engine.waiting.ctrl_c import may_be_interrupted
from bls_notebook.engine.waiting.threads import start_in_thread
from bls_notebook.pb_utils.errors import TritonError, TritonModelException
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.sender import TRITONSERVER_RESPONSE_COMPLETE_FINAL as FINAL
from bls_notebook.records.visible import first_line

from .call import ASK, MADE_UP, Answer, Answers, Call, Last, call_of
from .waiter import CallProgress, Waiter


@dataclass(frozen=True)
class Substitute:
    """What the instances of one substituted model share.

    `record` keeps a call and gives it its key, relative to the beginning of the substitution. With
    `concurrent` an answer does not occupy the instance.
    """

    answers: Answers
    progress: CallProgress
    record: Callable[[Any, Callable[[Any], Call]], Call]
    concurrent: bool

    @property
    def is_async(self) -> bool:
        return inspect.isasyncgenfunction(self.answers.answer)


@dataclass
class _Given:
    """One answer of a generator, as a response; `final` if the final flag goes with it."""

    response: InferenceResponse
    final: bool = False


class SubstituteInstance(StubInstance):
    """One instance of a substituted model."""

    def __init__(self, arguments: Mapping[str, str], substitute: Substitute) -> None:
        super().__init__(json.loads(arguments["model_config"]), Stub())
        self._substitute = substitute
        self._instance, self._version = arguments["model_instance_name"], int(arguments["model_version"])
        self.is_async = substitute.is_async and not substitute.concurrent
        if self.is_async:
            self.execute = self._execute  # type: ignore[method-assign,assignment]
        elif substitute.concurrent:
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
        return [
            await self._one(request, call, requests) for request, call in zip(requests, calls, strict=True)
        ]

    def _calls(self, requests: list[InferenceRequest]) -> list[Call | None]:
        """Record the requests; None for one that a sequence batcher made to fill a slot."""
        calls: list[Call | None] = []
        count = sum(not is_null(request) for request in requests)
        for request in requests:
            if is_null(request):
                calls.append(None)
                continue
            place = len(calls) - calls.count(None)

            def made(key: Any, request: InferenceRequest = request, place: int = place) -> Call:
                return call_of(request, key, self._name, self._version, self._instance, count, place)

            calls.append(self._substitute.record(getattr(request, "_call_key", None), made))
        return calls

    # -- the answers of one request ------------------------------------------------------------------

    async def _answers(
        self, request: InferenceRequest, call: Call, batch: list[InferenceRequest]
    ) -> AsyncIterator[_Given]:
        progress = self._substitute.progress
        if progress.over:
            problem = f"the substitution of '{self._name}' is over; the request came too late"
            yield _Given(InferenceResponse([], TritonError(problem)), True)
            return
        wait = Waiter(progress, request, batch, self._name)
        answers: Any = self._substitute.answers.answer(call, wait)
        in_loop = hasattr(answers, "__anext__")
        if not in_loop:
            answers = iter(answers)
        number = 0
        try:
            while True:
                try:
                    answer = await anext(answers) if in_loop else _next(answers)
                except (StopIteration, StopAsyncIteration):
                    return
                if answer is ASK:
                    asked = wait.ask_with_flags()
                    if self.is_async:
                        asked = iter(await asyncio.to_thread(list, asked))
                    for response, final in asked:
                        yield _Given(response, final)
                        number += 1
                    continue
                last = isinstance(answer, Last)
                given = answer.answer if isinstance(answer, Last) else answer
                response = self._response(given, request, number)
                if given is not MADE_UP and not wait.asked:
                    response._warnings = (*response._warnings, *self._mark)
                yield _Given(response, last)
                number += 1
        finally:
            if in_loop:
                await answers.aclose()
            elif hasattr(answers, "close"):
                answers.close()

    def _response(self, answer: Answer, request: InferenceRequest, number: int) -> InferenceResponse:
        if answer is MADE_UP:
            return self._answer(request, number)
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
        """The answer of a model that is not decoupled."""
        if call is None:
            return self._answer(request, 0)
        with nullcontext() if self._substitute.concurrent else self._substitute.progress.answering(call.key):
            try:
                given = [each async for each in self._answers(request, call, batch)]
                if len(given) != 1:
                    raise ValueError(f"substitute of {self._name!r}: got {len(given)} answers, expected one")
                return given.pop().response
            except Exception as error:
                if len(batch) == 1 and not self._substitute.concurrent:
                    raise
                return self._failed(error)

    def _failed(self, error: Exception) -> InferenceResponse:
        response = InferenceResponse([], TritonError(f"{type(error).__name__}: {first_line(str(error))}"))
        response._warnings = self._mark
        return response

    async def _send_all(
        self, request: InferenceRequest, call: Call | None, batch: list[InferenceRequest]
    ) -> None:
        """Send the answers of a decoupled model as they come."""
        sender = request.get_response_sender()
        if call is None:
            sender.send(self._answer(request, 0), flags=FINAL)
            return
        answers = self._answers(request, call, batch)
        last: InferenceResponse | None = None
        try:
            async for given in answers:
                if given.final:
                    last = given.response
                    break
                sender.send(given.response)
                if request.is_cancelled():
                    break
            with self._substitute.progress.answering(call.key):
                sender.send(None if last is None or _is_flag_alone(last) else last, flags=FINAL)
        finally:
            await answers.aclose()  # type: ignore[attr-defined]

    # -- answers that do not occupy the instance ---------------------------------------------------------

    def _begin(self, requests: list[InferenceRequest]) -> None:
        for request, call in zip(requests, self._calls(requests), strict=True):
            assert call is not None  # only a sequence batcher fills slots
            request.get_response_sender()  # before the request leaves `execute`
            job = partial(self._serve, [request], call)
            start_in_thread(partial(copy_context().run, job))

    def _serve(self, requests: list[InferenceRequest], call: Call) -> None:
        run = asyncio.run if self._substitute.is_async else _run
        with suppress(TritonModelException):  # the request was cancelled, and is answered
            run(self._serve_one(requests.pop(), call))

    async def _serve_one(self, request: InferenceRequest, call: Call) -> None:
        sender = request.get_response_sender()
        if not self._decoupled:
            response = await self._one(request, call, [request])
            with self._substitute.progress.answering(call.key):
                sender.send(response, flags=FINAL)
            return
        try:
            await self._send_all(request, call, [request])
        except Exception as error:
            sender.send(self._failed(error), flags=FINAL)


def _is_flag_alone(response: InferenceResponse) -> bool:
    return not response._outputs and response._error is None


def _run(coroutine: Any) -> Any:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("answers that need an event loop, in none")


def _next(answers: Iterator[Answer]) -> Answer:
    return next(answers)


for _function in (_next, SubstituteInstance._answers):  # they run code of others
    may_be_interrupted(_function.__code__)
