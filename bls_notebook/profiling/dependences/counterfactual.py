"""Run a model with its real callees, then again with the recorded answers, some of them changed.

Guarantees: each run has a fresh instance, so members and globals of the model reach neither the next run nor the
serving model; only `record`, `profiled` and `ask` reach real callees; the output of replays is dropped; runs and their
time are limited, and a run that takes longer is cancelled.
"""

from __future__ import annotations

import contextlib
import io
import random
import re
import sys
import threading
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from bls_notebook.devices import device_of, to_cpu, to_gpu
from bls_notebook.engine import BLSError, Reshape, input_reshapes, output_reshapes
from bls_notebook.extending import Host
from bls_notebook.pb_utils.errors import TritonError
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.profiling.code_lines import CodeLine
from bls_notebook.profiling.records.verdicts import listed
from bls_notebook.profiling.resource_time import load_per_core
from bls_notebook.profiling.session import Session
from bls_notebook.profiling.sync_vs_async import Inputs, Workload
from bls_notebook.records import source_text
from bls_notebook.repository import (
    MADE_UP,
    Answer,
    Call,
    ModelRepository,
    Response,
    SourcePlace,
    Variant,
    VariantChange,
    Waiter,
)

from . import branches
from .branches import BESIDE, Branch, marked_source
from .evidence import OPTIONS, ObservedCall, RunDifference, difference
from .kept_state import KeptState, state_of
from .named_values import NamedValue, named_values, parameters_of
from .perturbation import CHANGES, ERROR, SUCCESS, KeptAnswer, KeptResponse, changed, content, equal, reach_of
from .schedule import below, callees

_Turn = Callable[[Iterable[tuple[int, int]]], tuple[int, int]]
RUNS, SECONDS = 100, 10.0  # limits of an analysis; a busy machine gets more time
_ORDER = 0.2  # seconds, at least, that an answer waits for the answers that preceded it in the recorded run
_UNANSWERED = 1.0  # seconds that a call which the model cancelled waits for that
_KEPT = "by the code, requests of {} have state in common, {}; reading it settles whether that changes an answer"
_MODULES = 50  # beside a model's file, at most, that are read
QUIET = 0.01  # seconds without a new call before a delayed answer is sent


class ExhaustedError(Exception):
    """The runs, or the time, are used up."""


@dataclass
class RecordedCall:
    """A call of the first run: its responses, order of events, seconds, and the axes of outputs with a free length."""

    call: Call
    sent: ObservedCall
    came: int
    decoupled: bool
    free: Mapping[str, Sequence[int]]
    first: int = 0
    ended: int = 0
    seconds: float = 0.0
    version: int = -1
    responses: KeptAnswer = ()

    @property
    def is_unanswered(self) -> bool:
        """Return whether the model went on without an answer: it cancelled the call, or ran into a time limit."""
        return not self.responses and not self.decoupled

    @property
    def settled(self) -> RecordedCall:
        """The call at this moment: its callee may still run although the model no longer waits for it."""
        first, ended = (sys.maxsize, sys.maxsize) if self.is_unanswered else (self.first, self.ended or sys.maxsize)
        return replace(self, first=first, ended=ended)


@dataclass
class ObservedRun:
    """A run: its calls, the recorded calls that answered them (by sending, by answer), pairs in flight, responses."""

    calls: list[ObservedCall] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)
    pairs: set[tuple[int, int]] = field(default_factory=set)
    responses: Sequence[KeptAnswer] = ()


class Runs(Workload):
    """Runs one model on the same requests, again and again; as a workload, with its real callees."""

    def __init__(self, repository: ModelRepository, model: str, inputs: list[Inputs]) -> None:
        super().__init__(repository, model, inputs)
        self.host, self.runs, self.asked = Host(repository), 0, 0
        self.recorded: list[RecordedCall] = []
        self.responses: list[KeptAnswer] = []
        self.named: tuple[NamedValue, ...] = ()
        self.branches: list[Branch] = []
        self._marked, self._uses = "", dict[int, set[int]]()
        self._states: dict[str, KeptState] = {}
        self.ends = float("inf")
        self._most = RUNS
        self._differences: dict[tuple[frozenset[int], int], RunDifference] = {}

    def record(self) -> Session:
        """Record the calls of a run with real callees; return the session of a second run."""
        recorder = _Recorder()
        with _same_chance(), self.variant() as fresh, fresh.serving():
            with self._substituted(recorder):
                self.responses = self._responses()
            session = self.sequential()
        self.recorded = [each.settled for each in sorted(recorder.recorded, key=lambda each: each.came)]
        if callees(session) != Counter(recorded.sent.model for recorded in self.recorded):
            with self.variant() as fresh, fresh.serving():  # the first run left state, such as a cache
                session = self.sequential()
        self._below = below(session)
        self._values = _values(self.recorded)
        text = self.source[0] if self.source is not None else ""
        self._reach = reach_of(text)
        beside = dict(self._beside())
        self._lines = {name: number * BESIDE for number, name in enumerate(beside, 1)}
        # With the numbers of the lines of a cell, as the calls have them.
        code = self.source[1].numbered(text) if self.source is not None else ""
        self._marked, self.branches, self._uses = marked_source(code, [*beside.values()])
        branches.REACHED.clear()
        self.named = named_values([text, *beside.values()], parameters_of(self.repository.config(self.model)))
        self.asked += 2 * len(self.recorded)
        self.allow(RUNS - self.runs)
        return session

    def _beside(self) -> Iterator[tuple[str, str]]:
        """Yield the names and texts of the modules beside the model's file."""
        model = self.host.ready(self.model)
        own = Path(model.directory, model.spec.config.default_model_filename or "model.py")
        for file in sorted(Path(model.directory).rglob("*.py"))[:_MODULES] if model.directory else ():
            with contextlib.suppress(OSError, SyntaxError, UnicodeError):
                if file != own:
                    yield file.name, source_text(file)

    def number_of(self, line: CodeLine | None) -> int | None:
        """Return the number of a line, which differs between the model's file and the modules beside it."""
        return None if line is None else line.line + self._lines.get(line.file, 0)

    @property
    def source(self) -> tuple[str, SourcePlace] | None:
        """The text of the model's file, and the place where it was written; None if it is not known."""
        model = self.host.ready(self.model)
        file = str(Path(model.directory, model.spec.config.default_model_filename or "model.py"))
        instances = (*model.instances, *model.passive)
        home: Any = next((i.modules for i in instances if i.modules is not None), None)
        if home is not None:
            written: tuple[str, SourcePlace] | None = home.written(file)
            return written
        if any(getattr(i.backend, "process", None) is not None for i in instances) and (text := source_text(file)):
            return text, self.host.source(self.model, loaded=True).place or SourcePlace(file, Path(file).name)
        return None

    def sequential(self, name: str = "as it is written") -> Session:
        """Run the version in service; `answers` are its responses."""
        self.runs, self.answers = self.runs + 1, list[KeptAnswer]()
        with _same_chance():
            return super().sequential(name)

    def gathered(self, name: str = "as it is written") -> Session:
        """Run the version in service with all requests at once; `answers` are its responses."""
        self.runs, self.answers = self.runs + 1, list[KeptAnswer]()
        with _same_chance():
            return super().gathered(name)

    @contextlib.contextmanager
    def as_batch(self, number: int) -> Iterator[None]:
        """Take so many requests within the block: the given ones in turn."""
        inputs, options = self.inputs, self.options
        self.inputs = [inputs[i % len(inputs)] for i in range(number)]
        self.options = [options[i % len(inputs)] for i in range(number)]
        try:
            yield
        finally:
            self.inputs, self.options = inputs, options

    def answered(self, response: Response) -> None:
        self.answers.append((_kept(response),))

    def uncalled(self) -> list[str]:
        """Return the models that the code names in texts and the requests did not call."""
        called = {recorded.sent.model for recorded in self.recorded} | {self.model}
        text = self.source[0] if self.source is not None else ""
        return [
            name
            for name in self.host.names()
            if name not in called and re.search(rf"""["']{re.escape(name)}["']""", text)
        ]

    def allow(self, runs: int) -> None:
        """Allow so many more runs from now."""
        self.seconds = SECONDS * load_per_core()
        self._most, self.ends = self.runs + runs, monotonic() + self.seconds

    def replay(
        self,
        answers: Mapping[int, KeptAnswer] = {},
        source: str = "",
        turn: _Turn | None = None,
        quiet: float = QUIET,
        prompt: Collection[int] = (),
    ) -> ObservedRun:
        """Run the model, or a changed `source`, with the recorded answers; `answers` replaces some, by number.

        With a `turn`, answers are delayed until no other call comes for `quiet` seconds (a busy machine gets more);
        it chooses the call that is answered next. `prompt` calls are answered at once.
        """
        if self.runs >= self._most or monotonic() >= self.ends:
            raise ExhaustedError
        player = _Player(self.recorded, answers, turn, quiet * load_per_core(), prompt)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            # Of changed values, and of coroutines that a program which fails halfway has never awaited.
            warnings.simplefilter("ignore")
            with _same_chance(), self.variant(source) as fresh, fresh.serving(), self._substituted(player):
                player.observed.responses = self._responses()
        return player.observed

    def changed(self, group: set[int], change: int) -> RunDifference:
        """Run once with one change of the answers to some calls, unless it alters none of them."""
        if (key := (frozenset(group), change)) not in self._differences:
            answers = {}
            for number in group:
                call, values = self.recorded[number], self._values[self.recorded[number].sent.model]
                new = changed(
                    call.responses, change, number, values, call.free, self._reach, self.named, call.decoupled
                )
                if new is not None:
                    answers[number] = new
            seen = self.compared(self.replay(answers, self._marked)) if answers else RunDifference({}, set())
            if change == CHANGES.index(ERROR):  # a call that is missing after an error proves no dependence
                seen = seen._replace(changed={n: names for n, names in seen.changed.items() if names})
            self._differences[key] = seen._replace(used=answers.keys())
        return self._differences[key]

    def marked(self) -> ObservedRun:
        """Run the model with the recorded answers, and with marks in its branches unless that changes what it does."""
        if self._marked:
            try:
                run = self.replay(source=self._marked)
                seen = self.compared(run)
                if not (seen.changed or seen.added) and equal(self.responses, run.responses):
                    return run
            except BLSError:
                pass  # it cannot be loaded
            self._marked, self.branches = "", []
        return self.replay()

    def unreached(self, earlier: int | None, later: int | None) -> str:
        """Say which branch on the answer of a call, by lines, no run reached before a later call; "" for none."""
        for branch in self.branches if earlier is not None else ():
            is_open = earlier in branch.sources and branch.number not in branches.REACHED
            if is_open and (later is None or branch.may_control(later)):
                return branch.words
        return ""

    def may_control(self, earlier: int | None, later: int | None) -> bool:
        """Return whether a branch on the answer of a call comes before a later one, by their lines."""
        after = (branch for branch in self.branches if earlier in branch.sources)
        return later is not None and any(branch.may_control(later) for branch in after)

    def kept_between(self, one: str, other: str) -> str:
        """Say which state, by their code, two callees have in common, or models that they call; "" for none.

        The caller may also read what the earlier one wrote, or write what the later one reads.
        """
        pairs = [(a, b) for a in sorted(self._below[one]) for b in sorted(self._below[other])]
        caller = [(a, self.model) for a, _ in pairs] + [(self.model, b) for _, b in pairs]
        for model, second in (*pairs, *dict.fromkeys(caller)):
            words = self._kept(model).own if model == second else self._kept(model).shared_with(self._kept(second))
            if (model, second) in pairs:
                words = words or self._kept(second).shared_with(self._kept(model))
            if words:
                return _KEPT.format(listed([f"`{name}`" for name in dict.fromkeys([model, second])]), words)
        return ""

    def _kept(self, model: str) -> KeptState:
        if model not in self._states:
            loaded = self.host.ready(model)
            is_python = not loaded.seen.remote and loaded.directory
            self._states[model] = state_of(Path(loaded.directory)) if is_python else KeptState()
        return self._states[model]

    def uses(self, earlier: int | None, later: int | None) -> bool:
        """Return whether the request of a call may be made of the answer of another one, by their lines."""
        return earlier is not None and later is not None and earlier in self._uses.get(later, ())

    def compared(self, run: ObservedRun) -> RunDifference:
        """Return how a run differs from the recorded one."""
        failed = {n for n, kept in enumerate(run.responses) if any(r.error is not None for r in kept)}
        return difference([recorded.sent for recorded in self.recorded], run.calls, failed)

    def variant(self, source: str = "", with_callees: bool = False) -> Variant:
        """Return an instance without any state, of the model or of a changed source; or also of its local callees."""
        changes = {self.model: VariantChange(source=source or None)}
        for name in {recorded.sent.model for recorded in self.recorded} if with_callees else ():
            if name != self.model and not self.host.ready(name).seen.remote:
                changes[name] = VariantChange()
        return self.host.variant(changes)

    def _substituted(self, answers: Any) -> Any:
        names = {row.name for row in self.repository.index() if row.state == "READY"} - {self.model}
        return self.host.substitute(dict.fromkeys(sorted(names), answers), concurrent=True)

    def _responses(self) -> list[KeptAnswer]:
        """Send the requests, one after the other; cancel one that is not answered in time."""
        self.runs += 1
        out = []
        for inputs, options in zip(self.inputs, self.options, strict=True):
            sent = self.host.send(self.host.request(self.model, inputs, **options), stream=self._decoupled)
            try:
                responses = sent.result(min(self.ends - monotonic(), threading.TIMEOUT_MAX))
            except FutureTimeoutError:
                raise ExhaustedError from None
            finally:
                sent.cancel()  # nothing happens if it is answered
            out.append(tuple(map(_kept, responses if self._decoupled else [responses])))
        return out


@contextlib.contextmanager
def _same_chance() -> Iterator[None]:
    """Give the generators that Python, NumPy and PyTorch share the same seed in each run; restore them afterwards."""
    torch, states = sys.modules.get("torch"), (random.getstate(), np.random.get_state())
    devices = range(torch.cuda.device_count()) if torch is not None and torch.cuda.is_initialized() else ()
    with contextlib.nullcontext() if torch is None else torch.random.fork_rng(devices):
        random.seed(0)
        np.random.seed(0)
        if torch is not None:
            torch.manual_seed(0)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


class _Recorder:
    """Passes calls to the real callees and records the answers."""

    def __init__(self) -> None:
        self.recorded: list[RecordedCall] = []
        self._events = count(1)

    def answer(self, call: Call, wait: Waiter) -> Iterator[Answer]:
        if len(call.chain) > 1:  # a callee's own call
            yield from wait.ask()
            return
        spec = wait.spec
        assert spec is not None
        batch = int(spec.max_batch_size > 0)
        free = {o.name: [n for n, size in enumerate(o.dims, batch) if size < 0] for o in spec.outputs.values()}
        version = wait.request._model_version
        recorded = RecordedCall(call, _sent(call, wait), next(self._events), spec.decoupled, free, version=version)
        self.recorded.append(recorded)
        began = monotonic()
        try:
            for response in wait.ask():
                recorded.responses += (_kept(response),)
                recorded.first = recorded.first or next(self._events)
                yield response
        finally:
            recorded.ended = next(self._events)
            recorded.first = recorded.first or recorded.ended
            recorded.seconds = monotonic() - began


class _Player:
    """Gives recorded answers, in the order in which they came."""

    def __init__(
        self,
        recorded: Sequence[RecordedCall],
        answers: Mapping[int, KeptAnswer],
        turn: _Turn | None,
        quiet: float,
        prompt: Collection[int],
    ) -> None:
        self.observed, self._lock = ObservedRun(), threading.Lock()
        self._recorded, self._answers, self._turn, self._quiet = recorded, answers, turn, quiet
        self._left, self._waiting, self._answering = set(range(len(recorded))), list[int](), 0
        self._latest, self._prompt = monotonic(), prompt

    def answer(self, call: Call, wait: Waiter) -> Iterator[Answer]:
        if len(call.chain) > 1:
            yield MADE_UP
            return
        sent, observed, recorded = _sent(call, wait), self.observed, self._recorded
        with self._lock:  # answered by the recorded call with equal inputs, else by one with the same key
            ranked = [
                (recorded[n].sent.inputs != sent.inputs, recorded[n].call.key != call.key, n)
                for n in self._left
                if recorded[n].sent[:2] == sent[:2]
            ]
            number, place = min(ranked)[-1] if ranked else -1, len(observed.calls)
            self._left.discard(number)
            observed.calls.append(sent)
            observed.numbers.append(number)
            observed.pairs |= {(other, place) for other in self._waiting}
            self._waiting.append(place)
            self._latest = monotonic()
        try:
            if self._turn is not None:
                wait.until(lambda: self._is_turn_of(place))
            elif number >= 0 and number not in self._prompt and recorded[number].is_unanswered:
                wait.until(lambda: False, _UNANSWERED)
            elif number >= 0 and number not in self._prompt:
                came, ended = recorded[number].came, recorded[number].ended
                before = (other.call.key for other in recorded if came < other.ended < ended)
                # The model may react only once the answer is late.
                wait.after(*before, seconds=max(_ORDER, 2 * recorded[number].seconds))
        finally:
            with self._lock:
                self._waiting.remove(place)
                self.observed.answered.append(number)
                self._answering += 1
        try:
            yield from self._responses(sent.model, number, place)
        finally:
            with self._lock:
                self._answering -= 1
                self._latest = monotonic()

    def _is_turn_of(self, place: int) -> bool:
        """Return whether a call is answered next; never before the last answer has been given completely."""
        assert self._turn is not None
        with self._lock:
            is_quiet = not self._answering and monotonic() - self._latest > self._quiet
            # By the recorded calls: calls that are sent together arrive in any order.
            return is_quiet and place == self._turn((self.observed.numbers[n], n) for n in self._waiting)[1]

    def _responses(self, model: str, number: int, place: int) -> Iterator[Answer]:
        recorded = self._recorded
        if number < 0:  # a new call is answered like the last one to its callee, so that loops end
            number = max((n for n, other in enumerate(recorded) if other.sent.model == model), default=-1)
            if number >= 0 and place > 2 * len(recorded) + 20 and place % 2:
                yield TritonError("the changed answers made the model send too many calls")
                return
        made_up = number < 0 or recorded[number].is_unanswered
        for kept in (SUCCESS,) if made_up else self._answers.get(number, recorded[number].responses):
            if kept is SUCCESS:
                yield MADE_UP
            else:
                yield _response(kept) if kept.error is None else TritonError(kept.error, kept.code)


def callee_states(runs: Runs) -> dict[str, str]:
    """Ask each callee two requests again: as before, after others, in reverse order, and as before; no sequences.

    Return the callees with "state" (their answers to equal requests differ after other requests), with "chance" (they
    differ at once) and "unasked" ones.
    """
    began, states, first = monotonic(), dict[str, str](), dict[int, KeptAnswer]()
    requests: defaultdict[str, dict[object, int]] = defaultdict(dict)
    for number, recorded in enumerate(runs.recorded):
        if not recorded.call.sequence[0]:
            requests[recorded.sent.model].setdefault(recorded.sent.inputs, number)
    chosen = sorted({choose(numbers.values()) for numbers in requests.values() for choose in (min, max)})
    if len(chosen) > 1:
        states.update(_common_states(runs, chosen, began + runs.seconds))
    for step, number in enumerate([*chosen, *chosen, *reversed(chosen), *chosen]):
        recorded, model = runs.recorded[number], runs.recorded[number].sent.model
        if monotonic() > began + runs.seconds:
            asked = {runs.recorded[n].sent.model for n in first}
            states.update(dict.fromkeys(requests.keys() - asked, "unasked"))
            break
        if len(chosen) <= step < 2 * len(chosen):
            _asked(runs, recorded, number)
            continue
        answer = _asked(runs, recorded)
        before = first.get(number, answer if recorded.is_unanswered else recorded.responses)
        if model not in states and not equal([answer], [before]):
            is_steady = equal([_asked(runs, recorded)], [answer])
            states[model] = "state" if is_steady or _counts(runs, recorded) else "chance"
        first.setdefault(number, answer)
    runs.ends += monotonic() - began
    return states


def _common_states(runs: Runs, chosen: Sequence[int], until: float) -> Iterator[tuple[str, str]]:
    """Yield the callees with state that others change: ask with new inputs in reverse order, then in order."""
    share, answers = 1 + random.random() / 7, dict[int, KeptAnswer]()
    for number in [*reversed(chosen), *chosen]:
        recorded = runs.recorded[number]
        if monotonic() > until:
            return
        answer = _asked(runs, recorded, number, share)
        is_other = not equal([answer], [answers.setdefault(number, answer)])
        if is_other and equal([_asked(runs, recorded, number, share)], [answer]):
            yield recorded.sent.model, "state"


def _counts(runs: Runs, recorded: RecordedCall) -> bool:
    """Return whether two new instances of a varying callee give equal answers: requests change it, not chance."""
    answers = list[list[KeptAnswer]]()
    with contextlib.suppress(BLSError):  # there may be no memory for another instance
        for _ in range(2):
            with runs.host.variant({recorded.call.model: VariantChange()}) as fresh, fresh.serving():
                answers.append([_asked(runs, recorded), _asked(runs, recorded)])
    return len(answers) == 2 and equal(*answers)


def _asked(runs: Runs, recorded: RecordedCall, salt: int | None = None, share: float = 0.0) -> KeptAnswer:
    """Send a recorded request again; with a salt, with other inputs, whose integers stay valid indices.

    With a `share`, real numbers are multiplied by it: equal inputs of several calls stay equal.
    """
    runs.asked += 1
    call, spec = recorded.call, runs.host.ready(recorded.call.model).spec
    back, there = output_reshapes(spec.inputs), input_reshapes(spec.outputs)
    inputs = _shaped({name: tensor.as_numpy() for name, tensor in call.inputs.items()}, back)
    for name, array in inputs.items() if salt is not None else ():
        if share and array.dtype.kind == "f":
            inputs[name] = (array * share + (share - 1)).astype(array.dtype)
            continue
        constant = array.dtype.kind in "iu" and array.size and array.min() == array.max()
        change = CHANGES.index("zeros") if constant else 0
        if other := changed((KeptResponse({"": array}),), change, salt or 0, {}, {}):
            inputs[name] = other[0].outputs[""]
    options: Any = {"outputs": list(call.outputs) or None, "parameters": dict(call.parameters) or None}
    options["version"] = recorded.version
    if recorded.decoupled:
        kept = tuple(map(_kept, runs.repository.stream(call.model, inputs, **options)))
        kept = tuple(one for one in kept if one.outputs or one.error is not None)  # no final flag alone
    else:
        kept = (_kept(runs.repository.infer(call.model, inputs, **options)),)
    return tuple(replace(one, outputs=_shaped(one.outputs, there)) for one in kept)


def _shaped(arrays: Mapping[str, Any], reshapes: Mapping[str, Reshape]) -> dict[str, Any]:
    """Return arrays with the shapes on the other side of a model's `reshape`."""
    shapes = {name: reshapes[name].of(a.shape) for name, a in arrays.items() if name in reshapes}
    return {name: a.reshape(shapes[name]) if shapes.get(name) is not None else a for name, a in arrays.items()}


def _sent(call: Call, wait: Waiter) -> ObservedCall:
    """Return a call with the contents of its inputs and options."""
    inputs: dict[str, object] = {name: content(tensor.as_numpy()) for name, tensor in call.inputs.items()}
    options = wait.request._model_version, call.outputs, sorted(call.parameters.items()), call.sequence, call.timeout
    inputs[OPTIONS] = repr(options)
    return ObservedCall(call.key[0], call.model, tuple(sorted(inputs.items())), call.key[2])


def _kept(response: Any) -> KeptResponse:
    """Return a model's or the notebook's response with its outputs copied."""
    response = getattr(response, "_response", response)
    outputs = {t._name: np.array(to_cpu(t._array), copy=True) for t in response._outputs}
    types = {t._name: (t._datatype, None if t.is_cpu() else device_of(t._array).index) for t in response._outputs}
    error = response._error
    if error is not None:
        return KeptResponse(outputs, error.message(), types, response._parameters, error.code())
    return KeptResponse(outputs, None, types, response._parameters)


def _response(kept: KeptResponse) -> InferenceResponse:
    tensors = []
    for name, array in kept.outputs.items():
        datatype, gpu = kept.types[name]
        tensors.append(Tensor._of(name, array.copy() if gpu is None else to_gpu(array, gpu), datatype))
    response = InferenceResponse(tensors)
    response._parameters = kept.parameters
    return response


def _values(recorded: Sequence[RecordedCall]) -> dict[str, dict[str, list[Any]]]:
    """Return the values of each output of each callee, as `perturbation.Seen` has them."""
    out: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for call in recorded:
        for name, array in (item for response in call.responses for item in response.outputs.items()):
            if array.size and array.dtype.kind in "iuO":
                is_text = array.dtype.kind == "O"
                out[call.sent.model][name] += array.reshape(-1)[:64].tolist() if is_text else [array.min(), array.max()]
    return out
