"""`ModelRepository.stub`: a substitution with the user's answers, which records the requests.

Guarantees: answers of a list are used in order, each once, on any threads. A delay ends when the request is cancelled
or the stub is over. An assertion that fails in the user's function is raised at the end of the ``with`` block.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from bls_notebook.engine.core.model_spec import ModelSpec
from bls_notebook.engine.errors import BLSError
from bls_notebook.engine.waiting.interrupts import Interrupted
from bls_notebook.pb_utils.dtypes import from_bits
from bls_notebook.pb_utils.errors import TritonError
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.records.advice import nearest
from bls_notebook.records.errors import ErrorRecord
from bls_notebook.records.responses import preview
from bls_notebook.records.units import count
from bls_notebook.repository.catalog import Catalog, Config
from bls_notebook.repository.requests.inputs import made_tensors

from .call import MADE_UP, Answer, Call, Last, Waiter
from .substitution import Substitution

_EXPECTED = (
    "expected a mapping of output names to arrays, a function that takes the request, an error (TritonError, "
    "an exception or text), a list with one of these for each request in turn, a recording, or None for outputs "
    "made up from the configuration"
)


@dataclass(frozen=True, eq=False, repr=False)
class StubCall(Call):
    """One request that a stub received.

    Its inputs are read-only arrays on the CPU: BYTES with elements of type bytes, BF16 as float32.
    """

    inputs: Mapping[str, Any]

    @classmethod
    def of(cls, call: Call) -> StubCall:
        """Convert a call, with arrays in place of tensors."""
        arrays = {}
        for name, tensor in call.inputs.items():
            array: Any = tensor._array
            if tensor._datatype == "BF16":
                array = from_bits(array)
                array.flags.writeable = False
            arrays[name] = array
        return cls(**{**vars(call), "inputs": arrays})

    @property
    def caller(self) -> str:
        """Name of the model that sent the request; empty for a request from outside any model."""
        return self.chain[-1] if self.chain else ""

    @property
    def correlation_id(self) -> int | str:
        """Correlation ID of the request's sequence; 0 or "" for none."""
        return self.sequence[0]

    @property
    def flags(self) -> int:
        """Flags of the request: start and end of a sequence."""
        return self.sequence[1]

    def __repr__(self) -> str:
        inputs = ", ".join(f"{n} {a.dtype}{list(a.shape)} {preview(a, '')}" for n, a in self.inputs.items())
        parameters = f", parameters {dict(self.parameters)}" if self.parameters else ""
        return f"<StubCall of {self.model} by {self.caller or 'the test'}: {inputs or 'no inputs'}{parameters}>"


class ModelStub(Substitution):
    """A model with stubbed answers; returned by `ModelRepository.stub`."""

    def __init__(
        self, catalog: Catalog, model: str, answer: object, delay: float, config: Config | None, clock: object
    ) -> None:
        self.model = model
        self._given_answers = GivenAnswers(model, answer, delay, clock)
        configs = {} if config is None else {model: config}
        super().__init__(catalog, {model: self._given_answers}, configs=configs, check=self._given_answers.check)

    @property
    def calls(self) -> tuple[StubCall, ...]:
        """The requests that the stub received, in the order of execution."""
        return tuple(map(StubCall.of, super().calls))

    def _leave(self) -> None:
        super()._leave()
        if self._given_answers.failed and not self._raised:
            raise self._given_answers.failed[0]

    def __repr__(self) -> str:
        return f"<ModelStub {self.model}: {count(len(self.calls), 'request')}>"


class GivenAnswers:
    """The user's answers of a stub; see `ModelRepository.stub`.

    ``needs_loop`` says whether an answer is a coroutine function or an async generator function. ``failed`` has the
    assertions that failed in a function.
    """

    def __init__(self, model: str, answer: object, delay: float, clock: Any) -> None:
        self.model = model
        self._answer: Any = answer
        self._turns: Sequence[Any] | None = None
        recorded = getattr(answer, "answer_of", None)
        if not _is_plain(answer) and not callable(answer):
            if callable(recorded):
                self._answer = recorded(model)
            elif isinstance(answer, (list, tuple)):
                self._turns = list(answer)
            else:
                raise BLSError(f"stub of {model!r}: answer: got {type(answer).__name__}, {_EXPECTED}")
        for each in self._turns or ():
            if not (_is_plain(each) or callable(each) or isinstance(each, Iterable)):
                raise BLSError(
                    f"stub of {model!r}: answer: an item of the list: got {type(each).__name__}, {_EXPECTED}"
                )
        if isinstance(delay, bool) or not isinstance(delay, (int, float)) or not 0 <= delay < float("inf"):
            raise BLSError(f"stub of {model!r}: delay: got {delay!r}, expected seconds, at least 0")
        self._delay = delay
        self._clock = clock
        functions = [each for each in (self._turns or [self._answer]) if callable(each)]
        self.needs_loop = any(
            inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in functions
        )
        self._lock = threading.Lock()
        self._next_turn = 0
        self.failed: list[BaseException] = []

    def check(self, name: str, spec: ModelSpec) -> None:
        """Reject answers with outputs that the model does not have, as far as they are known before a request."""
        for each in self._turns or [self._answer]:
            for output in each if isinstance(each, Mapping) else ():
                if output not in spec.outputs:
                    similar = nearest(str(output), spec.outputs)
                    raise BLSError(
                        f"stub of {name!r}: the model has no output {output!r}; expected "
                        f"{', '.join(map(repr, spec.outputs))}{f'; did you mean {similar!r}?' if similar else ''}"
                    )

    async def answer(self, call: Call, wait: Waiter) -> AsyncIterator[Answer]:
        """Yield the answers to a call. Without `needs_loop`, no `await` suspends."""
        if not wait.decoupled:
            if call.place == 0:
                await self._pause(wait)
            yield self._response_of(await self._asked(wait.request), wait)
            return
        answers = self._many(await self._asked(wait.request))
        length = len(answers) if hasattr(answers, "__len__") else None
        in_loop = hasattr(answers, "__aiter__")
        iterator: Any = aiter(answers) if in_loop else iter(answers)
        number = 0
        while length is None or number < length:
            await self._pause(wait)
            try:
                answer = await anext(iterator) if in_loop else next(iterator)
            except (StopIteration, StopAsyncIteration):
                return
            number += 1
            response = self._response_of(answer, wait)
            yield Last(response) if number == length else response

    async def _pause(self, wait: Waiter) -> None:
        if self._delay and self.needs_loop:
            await asyncio.to_thread(self._wait, wait)
        elif self._delay:
            self._wait(wait)

    def _wait(self, wait: Waiter) -> None:
        if self._clock is None:
            wait.sleep(self._delay)
        else:
            self._clock.wait(self._delay, wait.ended)

    async def _asked(self, request: InferenceRequest) -> Any:
        answer = self._answer if self._turns is None else self._next(self._turns)
        if callable(answer) and not _is_error_class(answer):
            answer = self._call(answer, request)
        return await answer if inspect.isawaitable(answer) else answer

    def _many(self, answer: Any) -> Any:
        if answer is None:
            return [None] * _RESPONSES
        if _is_plain(answer) or not (isinstance(answer, Iterable) or hasattr(answer, "__aiter__")):
            return [answer]
        return self._iterated(answer) if hasattr(answer, "__next__") else answer

    def _iterated(self, answers: Iterator[Any]) -> Iterator[Any]:
        with self._noting_failures():
            yield from answers

    def _response_of(self, answer: Any, wait: Waiter) -> InferenceResponse | Any:
        if answer is None:
            return MADE_UP
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
                f"stub of {self.model!r}: answer: got {type(answer).__name__}, expected a mapping of "
                "output names to arrays, an InferenceResponse or an error"
            )
        spec = wait.spec
        specs = None if spec is None else spec.outputs
        if spec is not None and any(answer is each for each in self._turns or [self._answer]):  # not from a function
            answer = {name: _fitted(name, value, wait.request, spec) for name, value in answer.items()}
        return InferenceResponse(made_tensors(self.model, answer, specs, "output"))

    def _next(self, turns: Sequence[Any]) -> Any:
        with self._lock:
            number = self._next_turn
            self._next_turn += 1
        if number >= len(turns):
            raise BLSError(
                f"stub of {self.model!r}: got request {number + 1}, but the list has only {len(turns)} answers; "
                "give one for each request, or a function"
            )
        return turns[number]

    def _call(self, function: Callable[[InferenceRequest], Any], request: InferenceRequest) -> Any:
        """Call the user's function; a failed assertion in it fails the test, not only the request."""
        with self._noting_failures():
            answer = function(request)
        return self._awaited(answer) if inspect.iscoroutine(answer) else answer

    async def _awaited(self, answer: Any) -> Any:
        with self._noting_failures():
            return await answer

    @contextmanager
    def _noting_failures(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            # Test frameworks fail a test with an AssertionError or with a BaseException that is no Exception.
            if isinstance(error, AssertionError) or not isinstance(error, _NO_VERDICT):
                self.failed.append(error)
            raise


_NO_VERDICT = (Exception, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, Interrupted)
_RESPONSES = 3  # of a decoupled model with made-up answers


def _is_error_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _is_plain(value: object) -> bool:
    """Return whether a value is a single answer, as opposed to a function or a collection of answers."""
    plain = (Mapping, str, TritonError, InferenceResponse, BaseException)
    return value is None or isinstance(value, plain) or _is_error_class(value)


def _fitted(name: str, value: Any, request: InferenceRequest, spec: ModelSpec) -> Any:
    """Repeat a given array of one row for a request of several rows."""
    if not isinstance(value, np.ndarray) or spec.max_batch_size == 0:
        return value
    output = spec.outputs.get(name)
    rows = next((t._array.shape[0] for t in request._inputs if t._array.ndim), 1)
    if output is not None and value.ndim == len(output.shape) - 1:
        value = value[None]
    if output is not None and value.ndim == len(output.shape) and len(value) == 1 and rows != 1:
        value = np.repeat(value, rows, axis=0)
    return value
