"""A second look at a model: whether it does the same as a reference if its callees answer otherwise, or fail.

A model that computes the answers itself, and calls for show, differs from the reference as soon as a callee's outputs
are changed. A model that ignores an error differs as soon as a callee fails.
"""

from __future__ import annotations

import ast
import gc
import os
import re
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from threading import Event
from time import perf_counter
from types import ModuleType
from typing import Any

import numpy as np

import bls_notebook as bls
from bls_notebook.devices import resident_bytes, return_free_memory
from bls_notebook.extending import Host
from bls_notebook.lifetimes.memory_recording import await_release
from bls_notebook.lifetimes.owners import reachable, roots_of
from bls_notebook.pb_utils import InferenceResponse, Tensor, TritonError
from bls_notebook.profiling.resource_time import thread_times
from bls_notebook.records import count, size
from bls_notebook.testing.claim_checks import Judgement
from bls_notebook.testing.claim_values import GivenAnswer

from .puzzle_answers import difference, error_line
from .puzzle_check import CALLEES

FILES = "memory in files"
AnswerLists = Sequence[list[GivenAnswer]]
KEPT = 1024  # bytes that a model may keep of a request, such as a few numbers
_STORED = _PEAK = 2**19  # bytes in files, and in copies, beyond the reference's
_RESIDENT = 2**16  # bytes for each request, which are no noise of the allocator
_LARGE = 2**23  # traced bytes
_LOOKS, _GROWTHS = 7, 3
_SLOWER, _NOISE = 1.15, 0.003  # times the reference's time, and seconds more
_TASK_GROUP = "error: unhandled errors in a TaskGroup"  # asyncio's words, not the model's
_TIMES = 10  # requests between two measurements of memory


class HeldCallee:
    """Give no response until it is released."""

    def __init__(self) -> None:
        self.release = Event()

    def answer(self, _: Any, wait: Any) -> Iterator[Any]:
        self.release.wait()
        yield from wait.ask()


class ChangedCallee:
    """Answers of a callee: the real ones with other values or, if it `fails`, errors.

    Or, with `code`, lines of Python compute them from the inputs. With `sender`, it fails for that model only.
    """

    def __init__(self, name: str, fails: bool = False, code: str = "", sender: str = "") -> None:
        self.change = name, fails, code, sender
        self.fails, self._error = fails, f"'{name}' is out of order" if fails else ""
        self._code, self._sender = code, sender
        self.stored = 0  # bytes in files that were open for writing, at most

    def answer(self, call: Any, wait: Any) -> Iterator[Any]:
        self.stored = max(self.stored, stored_bytes())
        if self._error and self._sender not in ("", *call.chain[-1:]):
            yield from wait.ask()
            return
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
        waves = 3 + 2 * np.sin(8 * np.log1p(np.abs(array)))  # in another order, also after a shift of the inputs
        return (array * waves + 1).astype(array.dtype)
    return array ^ ((array >= 16).astype(array.dtype) * 20 + 1).astype(array.dtype)  # in another order; digits stay


@dataclass(frozen=True)
class LookedAt:
    """The answers to some requests, the requests to callees and their senders, and the bytes that were in files."""

    answers: AnswerLists
    calls: Counter[str]
    senders: set[tuple[str, str]]
    stored: int = 0
    is_slip: bool = False  # the model's own code failed
    recovered: AnswerLists = field(default_factory=list)  # answers to the same requests after a callee failed


def look(
    host: Host, callees: Mapping[str, ChangedCallee], send: Callable[[], AnswerLists], slip_of: str = ""
) -> LookedAt:
    """Send requests while callees are changed; `slip_of` is a model whose own code fails."""
    with watched_files(), slips(host, slip_of) as slipped, host.substitute(callees) as substitution:
        answers = send()
        stored = max((callee.stored for callee in callees.values()), default=0)
    calls = substitution.calls
    senders = {(call.model, call.chain[-1]) for call in calls if call.chain}
    recovered = send() if any(callee.fails for callee in callees.values()) else []
    return LookedAt(answers, Counter(call.model for call in calls), senders, stored, bool(slipped), recovered)


def second_look(
    callees: Sequence[str],
    own: Callable[[Mapping[str, ChangedCallee]], LookedAt],
    reference: Callable[[Mapping[str, ChangedCallee]], LookedAt],
    faults: bool = True,
    counts: bool = True,
    remembers: bool = False,
) -> Judgement | None:
    """Compare a model with a reference while its callees are changed, and while each fails; None if they agree.

    A model that `remembers` requests may have words of its own after one has failed: they do not count.
    """
    mine, wanted = (run({name: ChangedCallee(name) for name in callees}) for run in (own, reference))
    found = first_difference(mine.answers, wanted.answers)
    if found is not None:
        seen = f"the answers differ from the reference's if {_named(callees)} answers otherwise: {found.seen}"
        hint = "Use the outputs of each call, for any values: your model must not do the work of a callee itself."
        return replace(found, claim=CALLEES, seen=seen, hint=hint)
    counts = counts and not any(map(_is_failed, wanted.answers))
    for name in callees if counts else ():
        if mine.calls[name] > wanted.calls[name]:
            seen = f"{count(mine.calls[name], 'request')} to {name}"
            hint = f"{count(wanted.calls[name], 'request')} to `{name}` would do: each occupies an instance."
            return Judgement(f"requests <= {wanted.calls[name]} of {name}", False, seen, hint)
    if mine.stored - wanted.stored > _STORED:
        hint = "A file takes as much room as a tensor; in /dev/shm or another mapped file it is memory."
        return Judgement(FILES, False, f"the model keeps {size(mine.stored - wanted.stored)} in files", hint)
    drills = [(name, sender) for name in callees for sender in _senders(name, wanted)] if faults else []
    for name, sender in drills:
        failing = {name: ChangedCallee(name, fails=True, sender=sender)}
        mine, wanted = (run(failing) for run in (own, reference))
        pairs = list(zip(mine.answers, wanted.answers, strict=True))
        pairs[1:] = [pair for pair in pairs[1:] if not (remembers and all(map(_is_failed, pair)))]
        found = first_difference(*zip(*pairs, strict=True))
        if found is None:
            found = first_difference(mine.recovered, wanted.recovered)
            if found is None:
                continue
            hint = f"`{name}` answers again, so your model must, too: keep what a callee answers, and never its error."
            return replace(found, claim=f"errors of {name}", seen=f"after an error of {name}: {found.seen}", hint=hint)
        fails = any(map(_is_failed, wanted.answers))
        is_passed_on = any(words in str(found.seen) for words in (_TASK_GROUP, f"'{name}' is out of order"))
        if not (fails and is_passed_on):
            hint = (
                f"If `{name}` fails, {f'`{sender}`' if sender else 'your model'} must fail with its words. {found.hint}"
            )
            seen = f"while {name} fails: {found.seen}"
            return replace(found, claim=f"errors of {name}", seen=seen, hint=hint if fails else found.hint)
    return None


def _is_failed(answers: Sequence[GivenAnswer]) -> bool:
    return any(answer.record.error for answer in answers)


def _senders(callee: str, seen: LookedAt) -> list[str]:
    """Return the models that call a callee if there are several, as one failure may hide another."""
    senders = sorted(sender for name, sender in seen.senders if name == callee)
    return senders if len(senders) > 1 else [""]


def _named(callees: Sequence[str]) -> str:
    return callees[0] if len(callees) == 1 else "a callee"


def first_difference(own: AnswerLists, reference: AnswerLists) -> Judgement | None:
    """Return a judgement on the first answers that differ; None if all agree."""
    found = (difference(*pair) for pair in zip(own, reference, strict=True))
    return next((judgement for judgement in found if judgement is not None), None)


_PEEK = re.compile(
    r"""\bsys(?:'\))?\.(?:modules|argv|orig_argv|gettrace)\b|\binspect\.(?:stack|currentframe)\b|from sys import \w+
    |\b(?:_getframe|_current_frames|f_back|extract_stack|walk_stack|get_objects|get_referrers|getppid|getenv)\b
    |\bos(?:'\))?\.environ\b|\btracemalloc\b|(?:import |from |')(?:bls_notebook|hypothesis)\b""",
    re.VERBOSE,
)


def source_of(host: Host, models: Sequence[str]) -> str:
    """Return the code of models."""
    homes = [instance.modules for model in models for instance in host.ready(model).instances]
    return "\n".join(line.rstrip("\n") for home in homes if home for lines in home.sources.values() for line in lines)


def peek(source: str) -> Judgement | None:
    """Return a judgement that fails if a model may recognize that it is being checked; None if not."""
    found = _PEEK.search(ast.unparse(ast.parse(source)))
    if found is None:
        return None
    hint = "A model must do the same wherever it runs: let it look at its requests only, not at its process."
    return Judgement("the same everywhere", False, f"the model uses `{found[0].strip()}`", hint)


SLIP = "a slip of the model itself"


class SlipError(Exception):
    """An error that only `except Exception` catches: a model may raise a ValueError, and catch it."""


@contextmanager
def slips(host: Host, model: str) -> Iterator[list[str]]:
    """Let a model's own code fail where it reads an input: `get_input_tensor_by_name` raises a `SlipError`.

    Yields what it raised, which is nothing if the model reads its inputs otherwise.
    """
    raised: list[str] = []

    def fail(*_: object, **__: object) -> None:
        raised.append(SLIP)
        raise SlipError(SLIP)

    name, undo = "get_input_tensor_by_name", []
    instances = host.ready(model).instances if model else ()
    homes = [instance.modules for instance in instances if instance.modules is not None]
    for module in {id(m): m for home in homes for own in home.modules.values() for m in vars(own).values()}.values():
        if isinstance(module, ModuleType) and module.__name__ == "triton_python_backend_utils":
            undo.append((module, getattr(module, name)))
            setattr(module, name, fail)
    try:
        yield raised
    finally:
        for module, real in undo:
            setattr(module, name, real)


def hides_slips(own: LookedAt, callees: Sequence[str], reference: LookedAt) -> Judgement | None:
    """Return a judgement that fails if a model hides an error of its own code, or blames a callee for it."""
    for mine, wanted in zip(own.answers, reference.answers, strict=True) if own.is_slip else ():
        lines = list(filter(None, map(error_line, mine)))
        if not any(SLIP in error_line(answer) for answer in wanted):
            continue
        blamed = next((name for name in callees for line in lines if re.search(rf"\b{name}\b", line)), "")
        if blamed or not lines:
            seen = f"an error in its own code is answered with: {lines[0] if lines else 'no error'}"
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
    """Return the bytes in the watched files, in open files without a name, and in shared memory of this process."""
    return sum(map(_size_of, _written or ())) + sum(_unnamed_files()) + sum(_mapped_shared_memory())


def _size_of(path: str) -> int:
    try:
        return os.path.getsize(path) if os.path.isfile(path) else 0
    except OSError:
        return 0


def _unnamed_files() -> Iterator[int]:
    with suppress(OSError):
        for file in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                if os.readlink(file).endswith(" (deleted)"):  # temporary files, and those of `memfd_create`
                    yield file.stat().st_size


def _mapped_shared_memory() -> Iterator[int]:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            for line in file:
                if re.search("/dev/shm/psm_|/dev/zero", line):  # of `multiprocessing.shared_memory` and `mmap`
                    first, last = line.split()[0].split("-")
                    yield int(last, 16) - int(first, 16)
    except OSError:
        return


def growth(host: Host, models: Sequence[str], send: Callable[[], int], callees: Sequence[str] = ()) -> int:
    """Return the bytes that models allocate and keep with each request, and write to files.

    `send` sends some requests and returns their number, and is called again while callees fail. The first `_TIMES` do
    not count: a model may allocate some memory once, or keep the latest requests.
    """
    instances = [instance for model in models for instance in host.ready(model).instances]
    files = {file for i in instances if i.modules is not None for file in i.modules.sources}
    filters = [tracemalloc.Filter(True, file, all_frames=True) for file in files]
    failing = {name: ChangedCallee(name, fails=True) for name in callees}

    def enough() -> int:
        number = 0
        while number < _TIMES:
            number += send()
        return number

    def sent() -> int:
        number = enough()
        if failing:
            with host.substitute(failing):
                enough()
        gc.collect()
        return number

    def own() -> int:
        return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(filters).traces)

    def sent_and_resident() -> tuple[int, int]:
        resident = _resident()
        number = sent()
        return number, (_resident() - resident) // number

    traced = tracemalloc.is_tracing()
    tracemalloc.start(5)
    try:
        with watched_files():
            sent()
            before, stored, total = 0, stored_bytes(), tracemalloc.get_traced_memory()[0]
            is_small = total < _LARGE  # a snapshot of many objects takes long
            before = own() if is_small else total
            number, resident = sent_and_resident()
            if resident > _RESIDENT:  # a leak grows again, the memory of the allocator does not
                again, more = sent_and_resident()
                number, resident = number + again, min(resident, more)
            after = own() if is_small else tracemalloc.get_traced_memory()[0]
            grown = (after - before + stored_bytes() - stored) // number
            return max(grown, resident) if resident > _RESIDENT else grown  # memory of libraries is not traced
    finally:
        if not traced:
            tracemalloc.stop()


def left_after_errors(host: Host, callees: Sequence[str], send: Callable[[], object]) -> Judgement | None:
    """Return a judgement that fails if a model keeps tensors of requests whose callees fail; None if not.

    Tensors without an owner do not count: the last exception keeps its frames.
    """
    with host.substitute({name: ChangedCallee(name, fails=True) for name in callees}), bls.track_memory() as memory:
        send()
        await_release(memory)
    owned = tuple(life for life in memory.record.lives if life.holders)
    left = bls.judge({"%%blsmemory": replace(memory.record, lives=owned, kept=())}, "nothing_left")
    return None if left else replace(left, seen=f"while a callee fails: {left.seen}")


def remembers_ended(host: Host, model: str, send: Callable[[], object]) -> Judgement | None:
    """Return a judgement that fails if a model's objects are more after each sequence; None if not.

    `send` sends whole sequences. A container gets room for several items at once, so it is seen to grow only if each
    step has four times the sequences of all before.
    """
    sizes = []
    for rounds in (2, 6, 24):
        for _ in range(rounds):
            send()
        owned = reachable(root for version in host.versions(model).values() for root in roots_of(version))
        sizes.append({owner().partition("[")[0]: sys.getsizeof(value) for value, owner in owned})
    for owner in sizes[-1]:
        first, second, last = (step.get(owner, 0) for step in sizes)
        if first < second < last:
            hint = "The model keeps something of each sequence: forget it at END."
            return Judgement("nothing_left", False, f"{size(last - first)} more after some sequences, in {owner}", hint)
    return None


def _resident() -> int:
    return_free_memory()
    return resident_bytes()


def _excess(own: Callable[[], int], reference: Callable[[], int], allowed: int) -> int:
    """Return how much more memory a model needs than the reference; 0 if that is not more than allowed.

    The measurements have to agree: a busy machine may make one larger.
    """
    more = 0
    for _ in range(_GROWTHS):
        more = own() - reference()
        if more <= allowed:
            return 0
    return more


def kept_more(own: Callable[[], int], reference: Callable[[], int], allowed: int, hint: str) -> Judgement | None:
    """Return a judgement that fails if a model's growth exceeds the reference's by more than allowed; None if not."""
    more = _excess(own, reference, allowed)
    return Judgement("nothing_left", False, f"{size(more)} more after each request", hint) if more else None


def higher_peak(own: Callable[[], object], reference: Callable[[], object]) -> Judgement | None:
    """Return a judgement that fails if requests need more memory that is no tensor than with the reference."""
    for peak, allowed in ((traced_peak, _PEAK), (_resident_peak, 4 * _PEAK)):
        more = _excess(partial(peak, own), partial(peak, reference), allowed)
        if more:
            seen = f"{size(more)} more in copies that are no tensors"
            return Judgement("peak", False, seen, "A copy takes as much memory as the tensor, wherever it is.")
    return None


def _resident_peak(send: Callable[[], object]) -> int:
    """Return the peak of the memory that a process gets while it sends requests; 0 where the system reports none."""
    before = _resident()
    try:
        Path("/proc/self/clear_refs").write_text("5", "utf-8")  # resets the peak
        send()
        peak = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text("utf-8"))
        return int(peak[1]) * 1024 - before if peak else 0
    except OSError:
        return 0


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


# Seconds of requests, and of the longest wait of a thread for a processor meanwhile.
RequestTimes = tuple[float, float]


def times_of(send: Callable[[], object]) -> RequestTimes:
    """Return the times of requests."""
    before, began = thread_times(), perf_counter()
    send()
    seconds, after = perf_counter() - began, thread_times()
    waits = [times.waited - (before[key].waited if key in before else 0) for key, times in after.items()]
    return seconds, max(waits, default=0) / 1e9


def slower(mine: RequestTimes, wanted: RequestTimes) -> Judgement | None:
    """Return a judgement that fails if a time is much longer than the reference's; None if not."""
    if mine[0] - mine[1] <= wanted[0] * _SLOWER + _NOISE:
        return None
    hint = "Something waits, or blocks the event loop, that need not: compare the timelines."
    return Judgement("time", False, f"{mine[0] * 1e3:.0f} ms, the reference solution {wanted[0] * 1e3:.0f} ms", hint)


def by_time(
    own: Callable[[], RequestTimes],
    reference: Callable[[], RequestTimes],
    *,
    judge: Callable[[RequestTimes, RequestTimes], Judgement | None] = slower,
) -> Judgement | None:
    """Judge the times of requests beside the reference's.

    The shortest of several tries counts: a busy machine only makes a try longer.
    """
    mine, wanted = own(), reference()
    for _ in range(_LOOKS):
        found = judge(mine, wanted)
        if found is None:
            return None
        mine, wanted = min(mine, own()), min(wanted, reference())
    return judge(mine, wanted)
