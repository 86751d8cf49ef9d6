"""`ModelRepository.stub`: answers that a person gives, as `Answers` of a substitution, and the requests that came.

Guarantees: answers of a list are given in turn, each once, whatever threads ask; a delay ends when nobody
waits for the answer any more, or when the stub is over; an assertion that fails in a person's function is
raised at the end of ``with``.
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

from bls_notebook.engine.core.spec import ModelSpec
from bls_notebook.engine.errors import BLSError
from bls_notebook.engine.waiting.interrupts import Interrupted, may_be_interrupted
from bls_notebook.pb_utils.dtypes import from_bits
from bls_notebook.pb_utils.errors import TritonError
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.records.advice import nearest
from bls_notebook.records.errors import ErrorRecord
from bls_notebook.records.preview import preview
from bls_notebook.records.units import count
from bls_notebook.repository.catalog import Catalog, Config
from bls_notebook.repository.requests.inputs import made_tensors

from .call import MADE_UP, Answer, Call, Last, Waiter
from .substitution import Substitution

_EXPECTED = (
    "expected a mapping of output names to arrays, a function that takes the request, an error (TritonError, "
    "an exception or text), a list with one of these for each request in turn, a recording, or None for what "
    "the configuration declares"
)


@dataclass(frozen=True, eq=False, repr=False)
class StubCall(Call):
    """One request that a model received, as a test reads it.

    Its inputs are read-only arrays on the CPU: BYTES as objects of bytes, BF16 as float32.
    """

    inputs: Mapping[str, Any]

    @classmethod
    def of(cls, call: Call) -> StubCall:
        """Return a call as a test reads it."""
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
        """Name of the model that sent it; empty for a request from outside any model."""
        return self.chain[-1] if self.chain else ""

    @property
    def correlation_id(self) -> int | str:
        """The sequence that the request belongs to; 0 or "" for none."""
        return self.sequence[0]

    @property
    def flags(self) -> int:
        """Flags of the request, for the start and end of a sequence."""
        return self.sequence[1]

    def __repr__(self) -> str:
        inputs = ", ".join(f"{n} {a.dtype}{list(a.shape)} {preview(a, '')}" for n, a in self.inputs.items())
        parameters = f", parameters {dict(self.parameters)}" if self.parameters else ""
        return f"<StubCall of {self.model} by {self.caller or 'the test'}: {inputs or 'no inputs'}{parameters}>"


class ModelStub(Substitution):
    """A model whose requests are answered by something else; `ModelRepository.stub` makes it."""

    def __init__(
        self, catalog: Catalog, model: str, answer: object, delay: float, config: Config | None, clock: object
    ) -> None:
        self.model = model
        self._given = GivenAnswers(model, answer, delay, clock)
        configs = {} if config is None else {model: config}
        super().__init__(catalog, {model: self._given}, configs, check=self._given.check)

    @property
    def calls(self) -> tuple[StubCall, ...]:
        """The requests that it was asked to answer, in the order in which they were begun."""
        return tuple(map(StubCall.of, super().calls))

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        super().__exit__(kind, error, traceback)
        if error is None and self._given.failed:
            raise self._given.failed[0]

    def __repr__(self) -> str:
        return f"<ModelStub {self.model}: {count(len(self.calls), 'request')}>"


class GivenAnswers:
    """The answers of a stub as a person gave them; see `ModelRepository.stub`.

    ``needs_loop`` says whether a function is a coroutine or async generator function; ``failed`` are the assertions
    that failed in a function.
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
                raise BLSError(f"stub of {model!r}: an answer of the list: got {type(each).__name__}, {_EXPECTED}")
        if isinstance(delay, bool) or not isinstance(delay, (int, float)) or not 0 <= delay < float("inf"):
            raise BLSError(f"stub of {model!r}: delay: got {delay!r}, expected seconds, from 0 on")
        self._delay = delay
        self._clock = clock
        functions = [each for each in (self._turns or [self._answer]) if callable(each)]
        self.needs_loop = any(
            inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in functions
        )
        self._lock = threading.Lock()
        self._given = 0
        self.failed: list[BaseException] = []

    def check(self, name: str, spec: ModelSpec) -> None:
        """Refuse outputs that a model does not have, where they are known already."""
        for each in self._turns or [self._answer]:
            for output in each if isinstance(each, Mapping) else ():
                if output not in spec.outputs:
                    meant = nearest(str(output), spec.outputs)
                    raise BLSError(
                        f"stub of {name!r}: it has no output {output!r}, only "
                        f"{', '.join(map(repr, spec.outputs))}{f'; {meant!r} is meant?' if meant else ''}"
                    )

    async def answer(self, call: Call, wait: Waiter) -> AsyncIterator[Answer]:
        """Yield the answers to a call; without `needs_loop` nothing is awaited that could suspend."""
        if not wait.decoupled:
            if call.place == 0:
                await self._pause(wait)
            yield self._made(await self._asked(wait.request), wait)
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
            made = self._made(answer, wait)
            yield Last(made) if number == length else made

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
        answer = self._ask(request)
        return await answer if inspect.isawaitable(answer) else answer

    def _ask(self, request: InferenceRequest) -> Any:
        answer = self._answer if self._turns is None else self._next(self._turns)
        if callable(answer) and not _is_error_class(answer):
            answer = self._noting(answer, request)
        if _is_error_class(answer):
            answer = answer()
        if isinstance(answer, BaseException):
            raise answer.with_traceback(None)
        return answer

    def _many(self, answer: Any) -> Any:
        if answer is None:
            return [None] * _RESPONSES
        if _is_plain(answer) or not (isinstance(answer, Iterable) or hasattr(answer, "__aiter__")):
            return [answer]
        return self._watched(answer) if hasattr(answer, "__next__") else answer

    def _watched(self, answers: Iterator[Any]) -> Iterator[Any]:
        with self._watching():
            yield from answers

    def _made(self, answer: Any, wait: Waiter) -> InferenceResponse | Any:
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
                f"stub of {self.model!r}: an answer: got {type(answer).__name__}, expected a mapping of "
                "output names to arrays, an InferenceResponse or an error"
            )
        spec = wait.spec
        specs = None if spec is None else spec.outputs
        if spec is not None and self._canned(answer):
            answer = {name: _fitted(name, value, wait.request, spec) for name, value in answer.items()}
        return InferenceResponse(made_tensors(self.model, answer, specs, "output"))

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
        with self._watching():
            answer = function(request)
        return self._awaited(answer) if inspect.iscoroutine(answer) else answer

    async def _awaited(self, answer: Any) -> Any:
        with self._watching():
            return await answer

    @contextmanager
    def _watching(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            # What ends a function says nothing of the test; what test frameworks raise is no `Exception` either.
            if isinstance(error, AssertionError) or not isinstance(error, _NO_VERDICT):
                self.failed.append(error)
            raise

    def _canned(self, answer: Mapping[str, Any]) -> bool:
        return answer is self._answer or any(answer is each for each in self._turns or ())


_NO_VERDICT = (Exception, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError, Interrupted)
_RESPONSES = 3  # of a stream that the configuration gives


def _is_error_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _is_plain(value: object) -> bool:
    """Whether it is one answer, and nothing that answers are got from."""
    plain = (Mapping, str, TritonError, InferenceResponse, BaseException)
    return value is None or isinstance(value, plain) or _is_error_class(value)


def _fitted(name: str, value: Any, request: InferenceRequest, spec: ModelSpec) -> Any:
    """Return a canned array of one row for a request of several rows."""
    if not isinstance(value, np.ndarray) or spec.max_batch_size == 0:
        return value
    wanted = spec.outputs.get(name)
    rows = next((t._array.shape[0] for t in request._inputs if t._array.ndim), 1)
    if wanted is not None and value.ndim == len(wanted.shape) - 1:
        value = value[None]
    if wanted is not None and value.ndim == len(wanted.shape) and len(value) == 1 and rows != 1:
        value = np.repeat(value, rows, axis=0)
    return value


# They run code of tests.
for _function in (GivenAnswers.answer, GivenAnswers._noting, GivenAnswers._watched, GivenAnswers._wait):
    may_be_interrupted(_function.__code__)
