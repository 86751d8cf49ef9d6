"""A second look at a model: whether it does the same as a reference if its callees answer otherwise, or fail.

A model that computes the answers itself, and calls for show, differs from the reference as soon as a callee's outputs
are changed. A model that ignores an error differs as soon as a callee fails.
"""

from __future__ import annotations

import gc
import os
import re
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from time import perf_counter
from types import ModuleType
from typing import Any

import numpy as np

from bls_notebook.extending import Host
from bls_notebook.pb_utils import InferenceResponse, Tensor, TritonError
from bls_notebook.records import count, size
from bls_notebook.testing.claim_checks import Judgement
from bls_notebook.testing.claim_values import GivenAnswer

from .puzzle_answers import difference, error_line
from .puzzle_check import CALLEES

FILES = "memory in files"
AnswerLists = list[list[GivenAnswer]]
KEPT = 1024  # bytes that a model may keep of a request, such as a few numbers
_STORED = 2**19  # bytes in files beyond the reference's
_LARGE = 2**23  # traced bytes
_LOOKS, _GROWTHS = 8, 3
_SLOWER, _NOISE = 1.15, 0.003  # times the reference's time, and seconds more
TIMES = 10  # requests between two measurements of memory


class ChangedCallee:
    """Answers of a callee: the real ones with other values or, if it `fails`, errors.

    Or, with `code`, lines of Python compute them from the inputs.
    """

    def __init__(self, name: str, fails: bool = False, code: str = "") -> None:
        self.change = name, fails, code
        self._error = f"'{name}' is out of order" if fails else ""
        self._code = code
        self.stored = 0  # bytes in files that were open for writing, at most

    def answer(self, call: Any, wait: Any) -> Iterator[Any]:
        self.stored = max(self.stored, stored_bytes())
        if self._error:
            yield TritonError(self._error)
            return
        if self._code:
            arrays = {name: tensor._array for name, tensor in call.inputs.items()}
            exec(self._code, {"np": np}, arrays)
            yield InferenceResponse([Tensor(name, arrays[name]) for name in call.outputs])
            return
        for response in wait.ask():
            yield marked(response)


def marked(response: InferenceResponse) -> InferenceResponse:
    """Return a response with other values of the same types and shapes, or with other words of its error."""
    if response.has_error():
        error = response.error()
        return InferenceResponse(error=TritonError(f"changed: {error.message()}", error.code()))
    tensors = response.output_tensors()
    return InferenceResponse([Tensor._of(t._name, _other(t._array, t._datatype), t._datatype) for t in tensors])


def _other(array: Any, datatype: str) -> Any:
    if datatype == "BYTES":
        if array.size > 1:
            return np.roll(array, 1)
        return np.array([b"~" + text for text in array.flat], object).reshape(array.shape)
    if datatype in ("BOOL", "BF16"):
        return array ^ array.dtype.type(1)
    array = array[..., ::-1] if array.ndim > 1 else array  # not across a batch, which a model may split
    if array.dtype.kind == "f":
        return array + array.dtype.type(1)
    return array ^ ((array >= 16).astype(array.dtype) * 20 + 1).astype(array.dtype)  # in another order; digits stay


@dataclass(frozen=True)
class LookedAt:
    """The answers to some requests, the number of requests to each callee, and the bytes that were in files."""

    answers: AnswerLists
    calls: Counter[str]
    stored: int = 0


def look(host: Host, callees: Mapping[str, ChangedCallee], send: Callable[[], AnswerLists]) -> LookedAt:
    """Send requests while callees are changed."""
    with watched_files(), host.substitute(callees) as substitution:
        answers = send()
        stored = max((callee.stored for callee in callees.values()), default=0)
    return LookedAt(answers, Counter(call.model for call in substitution.calls), stored)


def second_look(
    callees: Sequence[str],
    own: Callable[[Mapping[str, ChangedCallee]], LookedAt],
    reference: Callable[[Mapping[str, ChangedCallee]], LookedAt],
    faults: bool = True,
    counts: bool = True,
) -> Judgement | None:
    """Compare a model with a reference while its callees are changed, and while each fails; None if they agree."""
    mine, wanted = (run({name: ChangedCallee(name) for name in callees}) for run in (own, reference))
    found = first_difference(mine.answers, wanted.answers)
    if found is not None:
        seen = f"the answers differ from the reference's if {_named(callees)} answers otherwise: {found.seen}"
        hint = "Use the outputs of each call, for any values: your model must not do the work of a callee itself."
        return replace(found, claim=CALLEES, seen=seen, hint=hint)
    counts = counts and not any(answer.record.error for each in wanted.answers for answer in each)
    for name in callees if counts else ():
        if mine.calls[name] > wanted.calls[name]:
            seen = f"{count(mine.calls[name], 'request')} to {name}"
            hint = f"{count(wanted.calls[name], 'request')} to `{name}` would do: each occupies an instance."
            return Judgement(f"requests <= {wanted.calls[name]} of {name}", False, seen, hint)
    if mine.stored - wanted.stored > _STORED:
        hint = "A file takes as much room as a tensor; in /dev/shm or another mapped file it is memory."
        return Judgement(FILES, False, f"the model keeps {size(mine.stored - wanted.stored)} in files", hint)
    for name in callees if faults else ():
        mine, wanted = (run({name: ChangedCallee(name, fails=True)}) for run in (own, reference))
        found = first_difference(mine.answers, wanted.answers)
        if found is not None:
            fails = any(answer.record.error for each in wanted.answers for answer in each)
            hint = f"If `{name}` fails, your model must fail with its words. {found.hint}" if fails else found.hint
            return replace(found, claim=f"errors of {name}", seen=f"while {name} fails: {found.seen}", hint=hint)
    return None


def _named(callees: Sequence[str]) -> str:
    return callees[0] if len(callees) == 1 else "a callee"


def first_difference(own: AnswerLists, reference: AnswerLists) -> Judgement | None:
    """Return a judgement on the first answers that differ; None if all agree."""
    found = (difference(*pair) for pair in zip(own, reference, strict=True))
    return next((judgement for judgement in found if judgement is not None), None)


SLIP = "a slip of the model itself"


@contextmanager
def slips(host: Host, model: str) -> Iterator[None]:
    """Let a model's own code fail where it reads an input: `get_input_tensor_by_name` raises a ValueError."""

    def fail(*_: object, **__: object) -> None:
        raise ValueError(SLIP)

    name, undo = "get_input_tensor_by_name", []
    homes = [instance.modules for instance in host.ready(model).instances if instance.modules is not None]
    for module in {id(m): m for home in homes for own in home.modules.values() for m in vars(own).values()}.values():
        if isinstance(module, ModuleType) and module.__name__ == "triton_python_backend_utils":
            undo.append((module, getattr(module, name)))
            setattr(module, name, fail)
    try:
        yield
    finally:
        for module, real in undo:
            setattr(module, name, real)


def hides_slips(answers: AnswerLists, callees: Sequence[str], reference: AnswerLists) -> Judgement | None:
    """Return a judgement that fails if a model hides an error of its own code, or blames a callee for it."""
    for mine, wanted in zip(answers, reference, strict=True):
        lines = list(filter(None, map(error_line, mine)))
        if not any(SLIP in error_line(answer) for answer in wanted):
            continue
        blamed = next((name for name in callees for line in lines if re.search(rf"\b{name}\b", line)), "")
        if blamed or not lines:
            seen = f"a ValueError in its own code is answered with: {lines[0] if lines else 'no error'}"
            hint = f"`{blamed}` was not even called." if blamed else "The client takes a wrong answer for a right one."
            return Judgement("errors of its own", False, seen, f"{hint} Catch only the errors that you expect.")
    return None


_written: set[str] | None = None  # paths of files that this process opened for writing, while they are watched


@cache
def _watch() -> None:
    """Note the files that are opened for writing; an audit hook cannot be removed."""

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if _written is None or event != "open":
            return
        path, _, flags = arguments
        if isinstance(path, (str, bytes)) and isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR):
            _written.add(os.fsdecode(path))

    sys.addaudithook(note)


@contextmanager
def watched_files() -> Iterator[None]:
    """Let `stored_bytes` know the files that are opened for writing in this block."""
    global _written
    _watch()
    _written = set()
    try:
        yield
    finally:
        _written = None


def stored_bytes() -> int:
    """Return the bytes in the watched files, and in shared memory that this process maps."""
    return sum(map(_size_of, _written or ())) + sum(_mapped_shared_memory())


def _size_of(path: str) -> int:
    try:
        return os.path.getsize(path) if os.path.isfile(path) else 0
    except OSError:
        return 0


def _mapped_shared_memory() -> Iterator[int]:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            for line in file:
                if "/dev/shm/psm_" in line:  # of `multiprocessing.shared_memory`
                    first, last = line.split()[0].split("-")
                    yield int(last, 16) - int(first, 16)
    except OSError:
        return


def growth(host: Host, models: Sequence[str], send: Callable[[], int], times: int = TIMES) -> int:
    """Return the bytes that models allocate and keep with each request, and write to files.

    `send` sends some requests and returns their number. The first `times` do not count: a model may allocate some
    memory once, or keep the latest requests. A measurement varies by some hundred bytes, so a limit of a few bytes for
    each request needs many.
    """
    instances = [instance for model in models for instance in host.ready(model).instances]
    files = {file for i in instances if i.modules is not None for file in i.modules.sources}
    filters = [tracemalloc.Filter(True, file, all_frames=True) for file in files]

    def sent() -> int:
        number = 0
        while number < times:
            number += send()
        gc.collect()
        return number

    def own() -> int:
        return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(filters).traces)

    traced = tracemalloc.is_tracing()
    tracemalloc.start(5)
    try:
        with watched_files():
            sent()
            before, stored, total = 0, stored_bytes(), tracemalloc.get_traced_memory()[0]
            is_small = total < _LARGE  # a snapshot of many objects takes long
            before = own() if is_small else total
            number = sent()
            after = own() if is_small else tracemalloc.get_traced_memory()[0]
            return (after - before + stored_bytes() - stored) // number
    finally:
        if not traced:
            tracemalloc.stop()


def kept_more(own: Callable[[], int], reference: Callable[[], int], allowed: int, hint: str) -> Judgement | None:
    """Return a judgement that fails if a model's growth exceeds the reference's by more than allowed; None if not.

    The measurements have to agree: a busy machine may make one larger.
    """
    more = 0
    for _ in range(_GROWTHS):
        more = own() - reference()
        if more <= allowed:
            return None
    return Judgement("nothing_left", False, f"{size(more)} more after each request", hint)


def traced_peak(send: Callable[[], object]) -> int:
    """Return the peak of the memory that Python code allocates while it sends requests."""
    traced = tracemalloc.is_tracing()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        send()  # a model may keep memory of earlier requests
        tracemalloc.reset_peak()
        send()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        if not traced:
            tracemalloc.stop()


def slower_than(own: Callable[[], object], reference: Callable[[], object]) -> Judgement | None:
    """Return a judgement that fails if requests take much longer than with the reference; None if not.

    The shortest of several tries counts: a busy machine only makes a try longer.
    """
    times = ([], [])  # type: tuple[list[float], list[float]]
    found = None
    for _ in range(_LOOKS):
        for send, seconds in zip((own, reference), times, strict=True):
            began = perf_counter()
            send()
            seconds.append(perf_counter() - began)
        found = slower(*map(min, times))
        if found is None:
            return None
    return found


def slower(mine: float, wanted: float) -> Judgement | None:
    """Return a judgement that fails if a time is much longer than the reference's; None if not."""
    if mine <= wanted * _SLOWER + _NOISE:
        return None
    hint = "Something waits, or blocks the event loop, that need not: compare the timelines."
    return Judgement("time", False, f"{mine * 1e3:.0f} ms, the reference solution {wanted * 1e3:.0f} ms", hint)
