"""An instance of a stub whose answers somebody gives: by functions, as they are, or as errors.

Guarantees: every request is answered; a wait ends with the requests that it is for; of a batch, a request
whose answer fails leaves the others theirs. A request alone fails as where a model's `execute` raises.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

from bls_notebook.observe.visible import first_line
from bls_notebook.pb_utils.errors import TritonError
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.sender import TRITONSERVER_RESPONSE_COMPLETE_FINAL as FINAL

from .calls import call_of, is_null
from .how import Stub
from .instance import StubInstance


class AnsweringInstance(StubInstance):
    def __init__(self, config: dict[str, Any], stub: Stub, answers: Any, name: str, version: int) -> None:
        super().__init__(config, stub)
        self._answers = answers
        self._version = version
        self._instance = name
        self.is_async = answers.is_async
        if self.is_async:
            self.execute = self._execute_async  # type: ignore[method-assign,assignment]

    def execute(self, requests: list[InferenceRequest]) -> list[InferenceResponse] | None:
        asked = self._note(requests)
        if asked and not self._decoupled:
            self._answers.wait(asked)
        alone = len(requests) == 1
        if not self._decoupled:
            return [self._one(request, alone) for request in requests]
        for request in requests:
            self._walk(request)
        return None

    async def _execute_async(self, requests: list[InferenceRequest]) -> list[InferenceResponse] | None:
        asked = self._note(requests)
        if asked and not self._decoupled:
            await self._answers.wait_async(asked)
        alone = len(requests) == 1
        if not self._decoupled:
            return [await self._one_async(request, alone) for request in requests]
        for request in requests:
            await self._walk_async(request)
        return None

    def _note(self, requests: list[InferenceRequest]) -> list[InferenceRequest]:
        asked = [request for request in requests if not is_null(request)]
        for request in asked:
            self._answers.note(call_of(request, self._name, self._version, self._instance, len(asked)))
        return asked

    # -- one answer ----------------------------------------------------------------------------------

    def _one(self, request: InferenceRequest, alone: bool) -> InferenceResponse:
        if is_null(request):
            return self._answer(request, 0)
        try:
            return self._marked(self._answers.ask(request), request)
        except Exception as error:
            if alone:
                raise
            return self._failed(error)

    async def _one_async(self, request: InferenceRequest, alone: bool) -> InferenceResponse:
        if is_null(request):
            return self._answer(request, 0)
        try:
            answer = self._answers.ask(request)
            return self._marked(await answer if inspect.isawaitable(answer) else answer, request)
        except Exception as error:
            if alone:
                raise
            return self._failed(error)

    def _marked(self, answer: Any, request: InferenceRequest, number: int = 0) -> InferenceResponse:
        response: InferenceResponse | None = self._answers.response(answer, request)
        if response is None:
            return self._answer(request, number)
        response._warnings = (*response._warnings, *self._mark)
        return response

    def _failed(self, error: Exception) -> InferenceResponse:
        response = InferenceResponse([], TritonError(f"{type(error).__name__}: {first_line(str(error))}"))
        response._warnings = self._mark
        return response

    # -- streams -------------------------------------------------------------------------------------

    def _walk(self, request: InferenceRequest) -> None:
        answers = self._answers.many(self._answers.ask(request))
        self._send_all(request, answers, len(answers) if hasattr(answers, "__len__") else None)

    def _send_all(self, request: InferenceRequest, answers: Any, count: int | None) -> None:
        """Send responses as they come; the final flag goes with the last one where it is known to be that."""
        sender = request.get_response_sender()
        each: Iterator[Any] = iter(answers)
        number = 0
        while count is None or number < count:
            self._answers.wait([request])
            try:
                answer = next(each)
            except StopIteration:
                break
            response = self._marked(answer, request, number)
            number += 1
            if number == count:
                sender.send(response, flags=FINAL)
                return
            sender.send(response)
            if request.is_cancelled():
                break
        sender.send(flags=FINAL)

    async def _walk_async(self, request: InferenceRequest) -> None:
        answer = self._answers.ask(request)
        answers = self._answers.many(await answer if inspect.isawaitable(answer) else answer)
        if not hasattr(answers, "__aiter__"):
            answers = _later(iter(answers))
        sender = request.get_response_sender()
        number = 0
        await self._answers.wait_async([request])
        async for each in answers:
            sender.send(self._marked(each, request, number))
            number += 1
            if request.is_cancelled():
                break
            await self._answers.wait_async([request])
        sender.send(flags=FINAL)


async def _later(answers: Iterator[Any]) -> AsyncIterator[Any]:
    for each in answers:
        yield each
