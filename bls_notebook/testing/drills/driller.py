"""`drill`: run a model while its callees fail, one fault after the other; `assert_survives`: a drill as a
test.
"""

from __future__ import annotations

import io
import logging
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, product
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import Any

from bls_notebook.engine.errors import BLSError
from bls_notebook.engine.logs import silenced
from bls_notebook.profiling.profiler import profile
from bls_notebook.records.advice import advised
from bls_notebook.records.errors import FrameRecord
from bls_notebook.records.progress import progress
from bls_notebook.records.visible_text import first_line, spoken
from bls_notebook.repository.host import load_again
from bls_notebook.repository.repository import ModelRepository, current_repository
from bls_notebook.repository.requests.inputs import tensors_of
from bls_notebook.testing.recording.recorder import record
from bls_notebook.testing.records.drilled import VERDICTS, Drilled, DrilledCase, Planted

from .callees import Callee, callees_of, named_in_code, sources_of
from .faults import IN_PAIRS, WELL, FailingAnswers, Fault, faults_named
from .judging import Case, Healthy, judge
from .leaks import COUNTED, Left, leaks, left_by, quick_collections, unanswered
from .outcomes import Outcome
from .saved_tests import TestFile
from .timed_request import Asker, DelayedResponse, UnstoppableError

TIMEOUT = 1.0
SLOW = 0.25  # seconds of a request that is not sent time and again
_RANK = {"good": 0, "open": 0, "odd": 1, "bad": 2}


def drill(
    model: str,
    inputs: Mapping[str, Any],
    *,
    faults: Iterable[str] | None = None,
    pairs: bool = False,
    timeout: float = TIMEOUT,
    repo: ModelRepository | None = None,
    save: str | Path | None = None,
    **options: Any,
) -> Drilled:
    """Find out what a model does while the models that it calls fail, stall, or answer nonsense.

    The request is sent once as it is, and the answers of every model that it reaches are kept. Then each of
    these in turn is stood in for by its own answers with a fault: an error, none at all, NaN, another shape.
    Its callers' code runs as it is. Nothing waits: a callee that stalls is let go as soon as it is known that
    its caller has no time limit, and clocks of event loops are put forward. A model that does not recover
    from a fault is loaded anew for the next one.

    Parameters
    ----------
    model : str
        A model that serves.
    inputs : mapping of str to array_like
        Of a request that is answered when all is well.
    faults : iterable of str, optional
        Names of faults, such as ``("error", "stall", "nan")``; all that there are by default.
    pairs : bool
        Whether to try two models at a time too. Told are the pairs that are worse than each of the two.
    timeout : float
        Seconds that an answer may take beside what it takes when all is well, and that a caller with a time
        limit of its own is given to reach it.
    repo : ModelRepository, optional
        By default the current one.
    save : str or Path, optional
        A file to write, such as ``tests/test_drill_x.py``: each fault that showed something as a test of its
        own, by `ModelRepository.stub`, which runs as it is.
    **options
        Of the request, as `ModelRepository.infer` takes them: ``parameters``, ``correlation_id``, ...

    Returns
    -------
    Drilled

    Raises
    ------
    BLSError
        The model does not serve, the request fails though nothing is wrong, or an argument makes no sense.

    Examples
    --------
    >>> found = bls.drill("digit_reader", {"IMAGE": image})
    >>> [case.said for case in found.of("bad")]
    """
    if not isinstance(timeout, (int, float)) or not (isfinite(timeout) and timeout > 0):
        raise BLSError(f"drill: timeout: got {timeout!r}, expected seconds, more than 0")
    wanted = faults_named(faults)
    repository = repo or current_repository()
    file = None if save is None else TestFile(Path(save))
    return Driller(Asker(repository, model, inputs, options, float(timeout)), file).run(wanted, pairs)


@dataclass(frozen=True)
class _Found:
    """What is known of a model when all is well."""

    healthy: Healthy
    callees: list[Callee]
    named: set[str]  # in the code, and not reached
    usual: Left
    recorded: bool  # it takes long, and answers the same where its callees answer from the recording


class Driller:
    """Drills one model; see `drill`."""

    def __init__(self, asker: Asker, file: TestFile | None = None) -> None:
        self.asker, self.file = asker, file
        self.repository = asker.repository
        self.server = asker.server
        self.model = asker.model
        self._stopped = ""

    def run(self, wanted: tuple[Fault, ...], pairs: bool) -> Drilled:
        """Try the faults of every model that the request reaches."""
        began = perf_counter()
        before = self.server.last_failure
        quiet = ExitStack()
        try:
            quiet.enter_context(quick_collections())
            quiet.enter_context(_unheard())
            found = self.look()
            single = [((each, fault),) for fault in wanted for each in found.callees if each.can(fault)]
            double = list(_pairs(found.callees, wanted)) if pairs else []
            cases = []
            with progress(f"drilling {self.model}", len(single) + len(double), "fault") as told:
                for planted in (*single, *double):
                    if self._stopped:
                        break
                    cases.append(self.case(found, planted))
                    told.step()
        finally:
            self.server.last_failure = before  # whatever failed here was meant to
            quiet.close()
        callees = [each.name for each in found.callees]
        drilled = Drilled(
            self.model, self._version(), tuple(callees), tuple(sorted(found.named)),
            _telling(cases), tuple(self._notes(found, len(double), cases)), perf_counter() - began,
            self.asker.timeout,
        )  # fmt: skip
        if self.file is not None:
            asker = self.asker
            inputs = {t.name(): t for t in tensors_of(self.model, asker.inputs, asker.spec)}
            self.file.write(drilled, self.repository, found.callees, inputs, asker.options, asker.decoupled)
        return drilled

    def _why(self, outcome: Outcome) -> str:
        if outcome.error is None:
            return "it is not answered; give a request that is"
        error = advised(outcome.error, self.asker.host.known)
        said = first_line(spoken(error.message), 1000)
        return f"{said}; {error.hint or 'give a request that is answered'}"

    def look(self) -> _Found:
        """Send the request as it is, and keep what models answer."""
        with (
            profile() as seen,
            record(tensors="all", limit=sys.maxsize) as recorder,
        ):  # a recording has no lines of code
            first = self.asker.ask()
            recording = recorder.recording
        if first.state != "answered" or first.error is not None:
            raise BLSError(f"drill: model {self.model!r} fails though nothing is wrong yet: {self._why(first)}")
        self.asker.usual = first.seconds
        usual, lives, outcomes = left_by(self.server, self.asker.ask)
        self.asker.usual = min(outcome.seconds for outcome in outcomes)
        varying = any(_values(outcome) != _values(first) for outcome in outcomes)
        callees = callees_of(self.model, recording, seen.record, self.server, lives)
        outputs = frozenset(name for each in callees for name in each.model.spec.outputs)
        batching = self.asker.spec.max_batch_size > 0
        healthy = Healthy(outcomes[-1], self.model, varying, batching, outputs)
        names = {self.model, *(each.name for each in callees)}
        recorded = self.asker.usual >= SLOW and not varying
        recorded = recorded and _values(self._ask_recorded(callees)) == _values(first)
        return _Found(healthy, callees, named_in_code(self.server, names) - names, usual, recorded)

    def case(self, found: _Found, planted: tuple[tuple[Callee, Fault], ...]) -> DrilledCase:
        """Have models misbehave, and say what comes of it."""
        began = perf_counter()
        faults = tuple(Planted(callee.name, fault.name) for callee, fault in planted)
        words: list[str] = []
        try:
            outcome = self._outcome(found, planted, words)
        except UnstoppableError as error:
            self._stopped = str(error)
            return DrilledCase(faults, "hang", str(error), seconds=perf_counter() - began)
        case = Case(tuple((callee.name, fault) for callee, fault in planted), tuple(words))
        verdict, said, at = judge(case, outcome, found.healthy, self._sources)
        if verdict not in ("hang", "not reached"):
            verdict, said = self._afterwards(found, verdict, said)
        if verdict == "spoilt":
            load_again(self.repository, self.model)  # there are more faults to try
        told = outcome.error
        return DrilledCase(
            faults, verdict, said, "" if told is None else told.message, at, planted[0][0].sent,
            sum(outcome.calls.values()), perf_counter() - began,
        )  # fmt: skip

    def _outcome(self, found: _Found, planted: tuple[tuple[Callee, Fault], ...], words: list[str]) -> Outcome:
        stalls = any(fault.kind == "stall" for _, fault in planted)
        hold = DelayedResponse() if stalls else None
        answers: dict[str, FailingAnswers | None] = {}
        for callee, fault in planted:
            if fault.name == "not-ready":
                answers[callee.name] = None
                words.append(f"'{callee.name}' is not ready")
                continue
            unload = partial(lambda name: substitution.unload(name), callee.name)
            failing = answers[callee.name] = _failing(callee, fault, hold or DelayedResponse(), unload)
            words += [failing.words, "Out of memory allocating"]

        def calls() -> dict[str, int]:
            counted = Counter(call.model for call in substitution.calls)
            return {name: 1 if each is None else counted[name] for name, each in answers.items()}

        with self.asker.host.substitute(answers) as substitution:
            before = self._asked(answers)
            outcome = self.asker.ask(hold, calls)
            after = self._asked(answers)
            left: tuple[str, ...] = ()
            if outcome.state != "stuck":
                names = [self.model, *(callee.name for callee in found.callees)]
                left = unanswered(self.server, names)
                again = self.asker.usual < SLOW and not any(fault.kind == "timing" for _, fault in planted)
                if hold is None and not left and again:
                    left = leaks(self.server, self.asker.ask, found.usual)
        usual = {each.name: each.asked for each in found.callees}
        more = [name for name in after if after[name] - before.get(name, 0) > usual.get(name, 0)]
        return replace(outcome, left=left, others=tuple(more))

    def _asked(self, failing: Collection[str]) -> dict[str, int]:
        """How many requests the models have had that do not misbehave."""
        counted = {}
        for name in self.server.names():
            if name in failing or name == self.model:
                continue
            model = self.server.find(name)
            if model is not None:
                counted[name] = sum(model.statistics.latest(0)[:2])
        return counted

    def _afterwards(self, found: _Found, verdict: str, said: str) -> tuple[str, str]:
        """Whether the model is as before once all is well again."""
        after = self._ask_recorded(found.callees) if found.recorded else self.asker.ask()
        if after.state != "answered":
            return "spoilt", f"afterwards it does not answer though nothing is wrong any more ({said})"
        if after.error is not None:
            why = first_line(after.error.message)
            return "spoilt", f"afterwards it fails though nothing is wrong any more: {why} ({said})"
        if not found.healthy.varying and _values(after) != _values(found.healthy.outcome):
            return "spoilt", f"afterwards its answer is another than before ({said})"
        return verdict, said

    def _ask_recorded(self, callees: list[Callee]) -> Outcome:
        """Send the request with every callee answering from the recording: what they take is left out."""
        answers = {callee.name: _failing(callee, WELL, DelayedResponse(), lambda: None) for callee in callees}
        with self.asker.host.substitute(answers):
            return self.asker.ask()

    def _version(self) -> int:
        found = self.server.find(self.model)
        return 0 if found is None else found.version

    def _sources(self, frame: FrameRecord) -> list[str]:
        """The file of a frame, as its lines."""
        for version in self.server.own(frame.model).values():
            for lines in sources_of(version):
                if all(n <= len(lines) and lines[n - 1] == text for n, text in frame.source):
                    return lines
        return []

    def _notes(self, found: _Found, pairs: int, cases: list[DrilledCase]) -> Iterator[str]:
        if not found.callees:
            yield f"with this request '{self.model}' calls no model: there is nothing to drill"
        if found.healthy.varying:
            yield "its answers differ from request to request, so that values cannot be compared"
        if found.usual.blocks >= COUNTED:
            each = found.usual.bytes // COUNTED
            yield f"when all is well, each request leaves {each:,} bytes behind: that is no leak of a fault"
        if found.callees and self.asker.usual >= SLOW:
            yield (
                f"a request takes {self.asker.usual:.2g} s: what each leaves in memory, which takes several, "
                "was not looked for"
            )
        if pairs:
            worse = len(_telling(cases)) - sum(len(case.faults) == 1 for case in cases)
            yield f"of {pairs} pairs of faults that were tried, {worse} told more than each of the two alone"
        if self._stopped:
            yield f"the drill ended early: {self._stopped}"


@contextmanager
def _unheard() -> Iterator[None]:
    """Have what models print and log go nowhere: they do so time and again."""
    before = logging.root.manager.disable
    with ExitStack() as stack:
        stack.enter_context(silenced())
        stack.enter_context(redirect_stdout(io.StringIO()))
        if sys.stderr is None or not sys.stderr.isatty():  # a terminal's has the line of progress
            stack.enter_context(redirect_stderr(io.StringIO()))
        logging.disable()
        try:
            yield
        finally:
            logging.disable(before)


def _failing(callee: Callee, fault: Fault, delay: DelayedResponse, unload: Callable[[], object]) -> FailingAnswers:
    return FailingAnswers(
        fault, callee.name, callee.answers, callee.batching, callee.on_gpu, callee.responses, delay, unload
    )


def _values(outcome: Outcome) -> list[Any]:
    return [answer.tensors for answer in outcome.answers]


def _pairs(
    callees: list[Callee], wanted: tuple[Fault, ...]
) -> Iterator[tuple[tuple[Callee, Fault], tuple[Callee, Fault]]]:
    few = [fault for fault in wanted if fault.name in IN_PAIRS]
    for first, second in combinations(callees, 2):
        for one, other in product(few, few):
            if first.can(one) and second.can(other):
                yield (first, one), (second, other)


def _telling(cases: list[DrilledCase]) -> tuple[DrilledCase, ...]:
    """The cases of one fault, and of the pairs those that are worse than each of their two."""
    worth = {case.faults[0]: _RANK[case.worth] for case in cases if len(case.faults) == 1}
    return tuple(
        case
        for case in cases
        if len(case.faults) == 1 or _RANK[case.worth] > max((worth.get(each, 0) for each in case.faults), default=0)
    )


BAD = tuple(verdict for verdict, worth in VERDICTS.items() if worth == "bad")


def assert_survives(model: str, inputs: Mapping[str, Any], *, refuse: Collection[str] = BAD, **options: Any) -> Drilled:
    """Assert that a model does nothing bad while the models that it calls misbehave.

    Parameters
    ----------
    model : str
    inputs : mapping of str to array_like
        Of a request that is answered when all is well.
    refuse : collection of str
        The verdicts that fail the test, such as ``("crash", "hang", "leak", "spoilt")``; by default all that
        are bad, ``rubbish`` among them.
    **options
        As of `drill`: ``faults``, ``pairs``, ``timeout``, ``repo``, ...

    Returns
    -------
    Drilled

    Raises
    ------
    AssertionError
        It does; the message has each such case, with the line of code.
    """
    __tracebackhide__ = True
    unknown = [verdict for verdict in refuse if verdict not in VERDICTS]
    if unknown:
        raise ValueError(f"refuse: got {unknown[0]!r}, expected verdicts: {', '.join(VERDICTS)}")
    found = drill(model, inputs, **options)
    told = []
    for case in found.cases:
        if case.verdict in refuse:
            at = case.at or case.sent
            where = f"\n    {at.file}:{at.line}: {at.code}" if at is not None else ""
            told.append(f"  {case.name}: {case.verdict}: {case.said}{where}")
    if told:
        raise AssertionError("\n".join([f"{model} does not survive {len(told)} of {len(found.cases)} faults:", *told]))
    return found
