"""What a person gives as the answers of a stub, made into responses.

Guarantees: answers of a list are given in turn, each once, whatever threads ask; a wait ends when nobody
waits for the answer any more, or when the stub is over.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bls_notebook.backends.stub.calls import StubCall
from bls_notebook.backends.stub.instance import pause
from bls_notebook.engine.core.spec import ModelSpec
from bls_notebook.engine.errors import BLSError
from bls_notebook.engine.waiting.ctrl_c import may_be_interrupted
from bls_notebook.engine.waiting.interrupt import Interrupted
from bls_notebook.pb_utils.errors import TritonError
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.records.advice.known import nearest
from bls_notebook.records.errors import ErrorRecord
from bls_notebook.repository.requests.inputs import made_tensors

_EXPECTED = (
    "expected a mapping of output names to arrays, a function that takes the request, an error (TritonError, "
    "an exception or text), a list with one of these for each request in turn, a recording, or None for what "
    "the configuration declares"
)


class GivenAnswers:
    """The answers of a stub as a person gave them (see `ModelRepository.stub`), and the requests that came.

    `spec_of` returns what is known of the model; None where it does not serve.
    """

    def __init__(
        self,
        model: str,
        answer: object,
        delay: float,
        clock: Any,
        spec_of: Callable[[], ModelSpec | None],
    ) -> None:
        self.model = model
        self._answer: Any = answer
        self._turns: Sequence[Any] | None = None
        if not _is_plain(answer):
            recorded = getattr(answer, "answer_of", None)
            if not callable(answer) and callable(recorded):
                self._answer = recorded(model)
            elif not callable(answer) and isinstance(answer, (list, tuple)):
                self._turns = list(answer)
            elif not callable(answer):
                raise BLSError(f"stub of {model!r}: answer: got {type(answer).__name__}, {_EXPECTED}")
        for each in self._turns or ():
            if not (_is_plain(each) or callable(each) or isinstance(each, Iterable)):
                raise BLSError(
                    f"stub of {model!r}: an answer of the list: got {type(each).__name__}, {_EXPECTED}"
                )
        if isinstance(delay, bool) or not isinstance(delay, (int, float)) or not 0 <= delay < float("inf"):
            raise BLSError(f"stub of {model!r}: delay: got {delay!r}, expected seconds, from 0 on")
        self._delay = delay
        self._wait: Callable[..., None] = pause if clock is None else clock.wait
        self._spec_of = spec_of
        self._spec: ModelSpec | None = None
        functions = [each for each in (self._turns or [self._answer]) if callable(each)]
        self.is_async = any(
            inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in functions
        )
        self._lock = threading.Lock()
        self._given = 0
        self.over = threading.Event()
        self.calls: list[StubCall] = []
        self.failed: list[BaseException] = []  # what a test found wrong in a function of its own

    def check(self, spec: ModelSpec) -> None:
        """Refuse outputs that a model does not have, where they are known already."""
        for each in self._turns or [self._answer]:
            for name in each if isinstance(each, Mapping) else ():
                if name not in spec.outputs:
                    meant = nearest(str(name), spec.outputs)
                    raise BLSError(
                        f"stub of {self.model!r}: it has no output {name!r}, only "
                        f"{', '.join(map(repr, spec.outputs))}{f'; {meant!r} is meant?' if meant else ''}"
                    )

    # -- what its instances ask for ------------------------------------------------------------------

    def note(self, call: StubCall) -> None:
        self.calls.append(call)

    def wait(self, requests: list[InferenceRequest]) -> None:
        """Wait as long as an answer takes, or until nobody waits for it any more."""
        if self._delay:
            self._wait(self._delay, lambda: self._ended(requests))

    async def wait_async(self, requests: list[InferenceRequest]) -> None:
        if self._delay:
            await asyncio.to_thread(self.wait, requests)

    def _ended(self, requests: list[InferenceRequest]) -> bool:
        return self.over.is_set() or all(request.is_cancelled() for request in requests)

    def ask(self, request: InferenceRequest) -> Any:
        """Return the answer to a request; raises where the answer is an exception."""
        answer = self._answer if self._turns is None else self._next(self._turns)
        if callable(answer) and not _is_error_class(answer):
            answer = self._noting(answer, request)
        if _is_error_class(answer):
            answer = answer()
        if isinstance(answer, BaseException):
            raise answer.with_traceback(None)
        return answer

    def many(self, answer: Any) -> Any:
        """Return the answers of a stream."""
        if answer is None:
            return [None] * _RESPONSES
        if _is_plain(answer) or not (isinstance(answer, Iterable) or hasattr(answer, "__aiter__")):
            return [answer]
        return self._watched(answer) if hasattr(answer, "__next__") else answer

    def _watched(self, answers: Iterator[Any]) -> Iterator[Any]:
        try:
            yield from answers
        except BaseException as error:
            self._fails(error)
            raise

    def response(self, answer: Any, request: InferenceRequest) -> InferenceResponse | None:
        """Return the response that an answer stands for; None for one that the configuration gives."""
        if answer is None:
            return None
        if isinstance(answer, InferenceResponse):
            return answer
        if isinstance(answer, str):
            answer = TritonError(answer)
            answer._origin = ErrorRecord(answer._message, "INTERNAL", (self.model,), stage="returned")
        if isinstance(answer, TritonError):
            return InferenceResponse([], answer)
        if _is_error_class(answer):
            answer = answer()
        if isinstance(answer, BaseException):
            raise answer.with_traceback(None)
        if not isinstance(answer, Mapping):
            raise BLSError(
                f"stub of {self.model!r}: an answer: got {type(answer).__name__}, expected a mapping of "
                "output names to arrays, an InferenceResponse or an error"
            )
        self._spec = self._spec_of() or self._spec
        specs = None if self._spec is None else self._spec.outputs
        if self._canned(answer):
            answer = {name: self._fitted(name, value, request) for name, value in answer.items()}
        return InferenceResponse(made_tensors(self.model, answer, specs, "output"))

    # ------------------------------------------------------------------------------------------------

    def _next(self, turns: Sequence[Any]) -> Any:
        with self._lock:
            number = self._given
            self._given += 1
        if number >= len(turns):
            raise BLSError(
                f"stub of {self.model!r}: request {number + 1} came, and only {len(turns)} answers were "
                "given; give one for each, or a function"
            )
        return turns[number]

    def _noting(self, function: Callable[[InferenceRequest], Any], request: InferenceRequest) -> Any:
        """Call a function of a test; what fails the test there is to fail it, whoever gets the answer."""
        try:
            answer = function(request)
        except BaseException as error:
            self._fails(error)
            raise
        return self._awaited(answer) if inspect.iscoroutine(answer) else answer

    async def _awaited(self, answer: Any) -> Any:
        try:
            return await answer
        except BaseException as error:
            self._fails(error)
            raise

    def _fails(self, error: BaseException) -> None:
        if isinstance(error, AssertionError) or not isinstance(error, _NO_VERDICT):
            self.failed.append(error)

    def _canned(self, answer: Mapping[str, Any]) -> bool:
        return answer is self._answer or any(answer is each for each in self._turns or ())

    def _fitted(self, name: str, value: Any, request: InferenceRequest) -> Any:
        """A canned array for a request of several rows, where it stands for one of them."""
        spec = self._spec
        if not isinstance(value, np.ndarray) or spec is None or spec.max_batch_size == 0:
            return value
        wanted = spec.outputs.get(name)
        rows = next((t._array.shape[0] for t in request._inputs if t._array.ndim), 1)
        if wanted is not None and value.ndim == len(wanted.shape) - 1:
            value = value[None]
        if wanted is not None and value.ndim == len(wanted.shape) and len(value) == 1 and rows != 1:
            value = np.repeat(value, rows, axis=0)
        return value


# What ends a function and says nothing of the test; what test frameworks raise are no `Exception` either.
_NO_VERDICT = (Exception, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, Interrupted)
_RESPONSES = 3  # of a stream that the configuration gives


def _is_error_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _is_plain(value: object) -> bool:
    """Whether it is one answer, and nothing that answers are got from."""
    plain = (Mapping, str, TritonError, InferenceResponse, BaseException)
    return value is None or isinstance(value, plain) or _is_error_class(value)


may_be_interrupted(pause.__code__, waits=True)
for _function in (GivenAnswers._noting, GivenAnswers._watched, GivenAnswers.wait):  # they run code of tests
    may_be_interrupted(_function.__code__)
