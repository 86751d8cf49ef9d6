"""An instance of a stub whose answers somebody gives: by functions, as they are, or as errors.

Guarantees: every request is answered; a wait ends with the requests that it is for; of a batch, a request
whose answer fails leaves the others theirs. A request alone fails as where a model's `execute` raises.
"""

from __future__ import annotations

import inspect
from typing import Any

from bls_notebook.pb_utils.errors import TritonError
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.sender import TRITONSERVER_RESPONSE_COMPLETE_FINAL as FINAL
from bls_notebook.records.visible import first_line

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
            self.execute = self._execute  # type: ignore[method-assign,assignment]

    def execute(self, requests: list[InferenceRequest]) -> list[InferenceResponse] | None:
        try:
            self._execute(requests).send(None)
        except StopIteration as ended:
            answered: list[InferenceResponse] | None = ended.value
            return answered
        raise AssertionError("answers that need no loop wait in none")

    async def _execute(self, requests: list[InferenceRequest]) -> list[InferenceResponse] | None:
        asked = [request for request in requests if not is_null(request)]
        for request in asked:
            self._answers.note(call_of(request, self._name, self._version, self._instance, len(asked)))
        if self._decoupled:
            for request in requests:
                await self._walk(request)
            return None
        if asked:
            await self._wait(asked)
        return [await self._one(request, len(requests) == 1) for request in requests]

    async def _wait(self, requests: list[InferenceRequest]) -> None:
        if self.is_async:
            await self._answers.wait_async(requests)
        else:
            self._answers.wait(requests)

    async def _asked(self, request: InferenceRequest) -> Any:
        answer = self._answers.ask(request)
        return await answer if inspect.isawaitable(answer) else answer

    # -- one answer ----------------------------------------------------------------------------------

    async def _one(self, request: InferenceRequest, alone: bool) -> InferenceResponse:
        if is_null(request):
            return self._answer(request, 0)
        try:
            return self._marked(await self._asked(request), request)
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

    async def _walk(self, request: InferenceRequest) -> None:
        """Send responses as they come; the final flag goes with the last one where it is known to be that."""
        answers = self._answers.many(await self._asked(request))
        count = len(answers) if hasattr(answers, "__len__") else None
        in_loop = hasattr(answers, "__aiter__")
        each: Any = aiter(answers) if in_loop else iter(answers)
        sender = request.get_response_sender()
        number = 0
        while count is None or number < count:
            await self._wait([request])
            try:
                answer = await anext(each) if in_loop else next(each)
            except (StopIteration, StopAsyncIteration):
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
