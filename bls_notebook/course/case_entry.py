"""`case()` returns a case of the course: `CourseCase.load` loads it, `answer` and `check` judge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.random import default_rng  # numpy imports it on first use, which would be in the picture

import bls_notebook as bls
from bls_notebook.extending import host_of, operation
from bls_notebook.lifetimes.memory_recording import await_release
from bls_notebook.magics import Responses
from bls_notebook.records import BLSError, ModelRecord, Record
from bls_notebook.testing.claim_checks import Judgement
from bls_notebook.testing.claim_values import GivenAnswer, answer_of

from .case_text import CaseCause, CaseModel, arrays, read_case
from .puzzle_answers import difference, judge_copies, kept_sizes
from .puzzle_check import SAME, is_about_memory
from .puzzle_requests import LIMIT, NO_RESPONSE, running_code
from .second_look import (
    KEPT,
    ChangedCallee,
    LookedAt,
    by_time,
    growth,
    hides_slips,
    higher_peak,
    kept_more,
    left_after_errors,
    look,
    peek,
    second_look,
    source_of,
    times_of,
)

_TRIES = 3  # a busy machine may start requests too late for them to overlap


@dataclass(frozen=True, slots=True, repr=False)
class CaseCheck(Record):
    """The result of `CourseCase.check`: a judgement on the answers and on each claim; true if all hold."""

    number: int
    title: str
    seed: int
    judgements: tuple[Judgement, ...]

    @property
    def hint(self) -> str:
        """The hint of the first judgement that does not hold; empty if the case is solved."""
        return next((judgement.hint or judgement.seen for judgement in self.judgements if not judgement), "")

    def __bool__(self) -> bool:
        return all(self.judgements)


@dataclass(frozen=True, slots=True, repr=False)
class CourseCase(Record):
    """A pipeline that is slow, wrong or leaks for one reason.

    The ``story`` is the complaint, and ``model`` receives its requests. ``models`` are the pipeline with its fault,
    ``fixed`` without it. ``causes`` are the possible answers, ``cause`` is the right one. ``claims`` (see `bls.judge`)
    must hold after a fix. ``rounds`` describe the requests of the story, and others.
    """

    number: int
    title: str
    story: str
    model: str
    models: tuple[CaseModel, ...]
    fixed: tuple[CaseModel, ...]
    causes: tuple[CaseCause, ...]
    cause: str
    claims: tuple[str, ...]
    rounds: tuple[tuple[str, ...], ...]
    together: bool
    seed: int = 0

    @property
    def requests(self) -> tuple[dict[str, np.ndarray[Any, Any]], ...]:
        """The inputs of each request of the story."""
        return self._requests(0)

    def _requests(self, round_: int) -> tuple[dict[str, np.ndarray[Any, Any]], ...]:
        draw = default_rng([self.number, self.seed, round_])
        return tuple(arrays(spec, draw) for spec in self.rounds[round_])

    def load(self, repo: bls.ModelRepository | None = None) -> None:
        """Load the pipeline with its fault, by default into the current repository."""
        _define(repo or bls.current_repository(), self.models)

    @operation
    def fix(self, repo: bls.ModelRepository | None = None) -> list[ModelRecord]:
        """Load the pipeline with a fix; return the records of the changed models, which show the changes."""
        self.load(repo)
        changed = [after for before, after in zip(self.models, self.fixed, strict=True) if before != after]
        return _define(repo or bls.current_repository(), changed)

    @operation
    def send(self, repo: bls.ModelRepository | None = None) -> Responses:
        """Send the requests of the story, one after the other or, if the story says so, together."""
        return Responses(response for responses in self._send(repo, 0) for response in responses)

    def answer(self, cause: str) -> Judgement:
        """Judge a cause: true if it is the right one; if not, the hint says why the picture contradicts it.

        Raises
        ------
        BLSError
            The cause is none of `causes`.
        """
        chosen = next((option for option in self.causes if option.name == cause), None)
        if chosen is None:
            raise BLSError(f"cause: got {cause!r}, expected one of {', '.join(each.name for each in self.causes)}")
        holds = cause == self.cause
        return Judgement(f"cause == {cause}", holds, chosen.words if holds else chosen.meaning, chosen.words)

    @operation
    def check(self, repo: bls.ModelRepository | None = None) -> CaseCheck:
        """Judge the pipeline in a repository after a fix: its answers, and the claims, for the story and for others.

        Returns
        -------
        CaseCheck
            True if the fix works. The other requests, which the story does not show, have another size and other
            values.
        """
        try:
            judged = self._judged(repo, 0)
            if all(judged):
                judged = [*judged, self._judged_otherwise(repo)]
        except (FutureTimeoutError, asyncio.TimeoutError):  # one and the same since Python 3.11
            running = [f"{m.name}, {line}" for m in self.models if (line := running_code(f"/{m.name}"))]
            hint = "No code of a model is running. One may await something that never happens, or lack a final flag."
            hint = f"`execute` has not returned: it is at {' and '.join(running)}." if running else hint
            judged = [Judgement(SAME, False, NO_RESPONSE, hint)]
        return CaseCheck(self.number, self.title, self.seed, tuple(judged))

    def _judged_otherwise(self, repo: bls.ModelRepository | None) -> Judgement:
        """Judge other requests, and the same ones again: a model may have kept something of each."""
        others = self._judged(repo, 1)
        if all(others) and "nothing_left" in self.claims:
            for _ in range(_TRIES):  # a model may keep a request until the next one, or the one after
                others += self._judged(repo, 1, 1)
        wrong = next((judgement for judgement in others if not judgement), None)
        wrong = self._look_again(repo) if wrong is None else wrong
        if wrong is None:
            wrong = next((judgement for judgement in self._judged(repo, 1) if not judgement), None)
        if wrong is not None:
            return replace(wrong, claim=f"for other requests, {wrong.claim}")
        return Judgement("the same for other requests", True, f"{len(others)} of {len(others)} hold")

    def _look_again(self, repo: bls.ModelRepository | None) -> Judgement | None:
        """Compare the pipeline with the fixed one, while callees answer otherwise or fail, and by time and memory."""

        def looking(
            side: bls.ModelRepository | None, slip_of: str = ""
        ) -> Callable[[Mapping[str, ChangedCallee]], LookedAt]:
            return lambda callees: look(host_of(side), callees, lambda: _answers(self._send(side, 1)), slip_of)

        names = [model.name for model in self.models if model.name != self.model]
        found = peek(source_of(host_of(repo), [model.name for model in self.models]))
        if found is not None:
            return found
        with bls.ModelRepository() as fixed:
            _define(fixed, self.fixed)
            found = second_look(names, looking(repo), looking(fixed))
            if found is None:
                slipped = [looking(side, self.model)({}) for side in (repo, fixed)]
                found = hides_slips(slipped[0], names, slipped[1])
            if found is not None:
                return found
            if any(map(is_about_memory, self.claims)):
                found = self._memory_differs(repo, fixed)
                if found is not None:
                    return found
            return by_time(*(partial(times_of, partial(self._send, side, 1)) for side in (repo, fixed)))

    def _memory_differs(self, repo: bls.ModelRepository | None, fixed: bls.ModelRepository) -> Judgement | None:
        """Compare the peak of memory that is no tensor and, if nothing may be left, its growth."""
        own, reference = partial(self._send, repo, 1), partial(self._send, fixed, 1)
        found = higher_peak(own, reference)
        if found is not None:
            return found
        if "nothing_left" in self.claims:
            models = [model.name for model in self.models]
            callees = [name for name in models if name != self.model]
            found = left_after_errors(host_of(repo), callees, own)
            if found is not None:
                return found

            def grown(side: bls.ModelRepository | None, send: Callable[[], Sequence[object]]) -> int:
                return growth(host_of(side), models, lambda: len(send()), callees)

            hint = "The memory of a model grows with every request."
            return kept_more(partial(grown, repo, own), partial(grown, fixed, reference), KEPT, hint)
        return None

    def _judged(self, repo: bls.ModelRepository | None, round_: int, most: int = 0) -> list[Judgement]:
        for _ in range(_TRIES):
            judged = self._judged_once(repo, round_, most)
            if all(judgement or not judgement.claim.startswith("overlapped") for judgement in judged):
                break
        return judged

    def _judged_once(self, repo: bls.ModelRepository | None, round_: int, most: int) -> list[Judgement]:
        """Judge the requests of a round, or so many of them."""
        requests = self._requests(round_)[: most or None]
        sizes = {"n": len(next(iter(requests[0].values()))), "k": len(requests)}
        claims = [claim.format(**sizes) for claim in self.claims]
        expected = _expected(self.number, self.seed, round_)[: most or None]
        before: dict[str, list[int]] | None = None
        if "nothing_left" in claims and not most:
            self._send(repo, round_, most)
            before = kept_sizes(host_of(repo))
        with ExitStack() as recordings:
            profile = recordings.enter_context(bls.profile(name=self.title))
            memory = recordings.enter_context(bls.track_memory()) if any(map(is_about_memory, claims)) else None
            answers = _answers(self._send(repo, round_, most))
            if memory is not None and "nothing_left" in claims:
                await_release(memory)
        same = _same(answers, expected)
        if not same:
            return [same]
        records = {"%%blsprofile": profile.record, "%bls": sum(map(tuple, answers), ())}
        records |= {"%%blsmemory": replace(memory.record, kept=())} if memory else {}
        judged = [bls.judge(records, claim) for claim in claims]
        copies = None if before is None else judge_copies(before, host_of(repo), len(requests))
        return [same, *judged] if copies is None or not all(judged) else [same, copies]

    def _send(self, repo: bls.ModelRepository | None, round_: int, most: int = 0) -> list[list[bls.Response]]:
        host, requests = host_of(repo), self._requests(round_)[: most or None]
        is_stream = host.ready(self.model).decoupled
        if self.together:
            return asyncio.run(_send_together(host.repository, self.model, requests, is_stream))
        sent = (host.send(host.request(self.model, inputs), stream=is_stream).result(LIMIT) for inputs in requests)
        return [result if is_stream else [result] for result in sent]


async def _send_together(
    repository: bls.ModelRepository, model: str, requests: Sequence[dict[str, Any]], is_stream: bool
) -> list[list[bls.Response]]:
    """Send all requests before the first response can arrive, also on a busy machine."""

    async def responses(inputs: dict[str, Any]) -> list[bls.Response]:
        if is_stream:
            return [response async for response in repository.stream_async(model, inputs)]
        return [await repository.infer_async(model, inputs)]

    return await asyncio.wait_for(asyncio.gather(*map(responses, requests)), LIMIT)


def _answers(responses: Sequence[Sequence[bls.Response]]) -> list[list[GivenAnswer]]:
    return [[answer_of(response) for response in each] for each in responses]


def _same(answers: Sequence[Sequence[GivenAnswer]], expected: Sequence[Sequence[GivenAnswer]]) -> Judgement:
    for number, pair in enumerate(zip(answers, expected, strict=True), 1):
        judgement = difference(*pair)
        if judgement is not None:
            return replace(judgement, seen=f"request {number}: {judgement.seen}")
    return Judgement(SAME, True, f"{len(expected)} of {len(expected)} responses")


@cache
def _expected(number: int, seed: int, round_: int) -> list[list[GivenAnswer]]:
    """Return the answers of the fixed pipeline."""
    data = case(number, seed)
    with bls.ModelRepository() as repository:
        _define(repository, data.fixed)
        return _answers(data._send(repository, round_))


def _define(repository: bls.ModelRepository, models: Sequence[CaseModel]) -> list[ModelRecord]:
    for model in models:
        repository.set_config(model.name, model.config)  # also for a cell that defines the model without options
    return [repository.define(model.name, model.source) for model in models]


def case(number: int, seed: int = 0) -> CourseCase:
    """Return a case of the course by its number.

    Parameters
    ----------
    number : int
        From 1 to 10.
    seed : int
        Other seeds than 0 choose other names and numbers, and another model that is guilty.

    Raises
    ------
    BLSError
        No case has this number.

    Examples
    --------
    >>> case = bls.case(1)
    >>> case.load()
    >>> assert case.answer("queue")
    >>> check = case.check()
    """
    return CourseCase(**read_case(number, seed))
