"""Run a replacement of a puzzle's model next to the reference solution, compare, and judge the constraints."""

from __future__ import annotations

import difflib
import io
import re
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass, replace
from typing import Any

import bls_notebook as bls
from bls_notebook.lifetimes.records import Lifetimes
from bls_notebook.profiling.records.session import Session
from bls_notebook.profiling.records.spans import NamedMark, Span
from bls_notebook.records.errors import BLSError
from bls_notebook.records.visible_text import first_line
from bls_notebook.testing.claim_checks import Judgement
from bls_notebook.testing.claim_values import Answer
from bls_notebook.testing.recorded_calls import longest_chain

from .puzzle_check import SAME, PuzzleCheck, is_about_memory
from .puzzle_requests import NO_RESPONSE, Case, NoAnswerError, Side, difference, find_smallest, request_words, summary
from .puzzle_text import PuzzleData, case_of

_PRINTED = 2_000  # characters
_DELAYS = (0.01, 0.03, 0.1)  # seconds of a callee; a busy machine needs the longer ones to show an order


@dataclass(frozen=True)
class _Run:
    """What was recorded from a case."""

    session: Session
    lifetimes: Lifetimes
    answers: list[list[Answer]]

    def records(self) -> dict[str, Any]:
        flat = tuple(answer for answers in self.answers for answer in answers)
        return {"%%blsprofile": self.session, "%%blsmemory": self.lifetimes, "%bls": flat}

    def difference(self, other: _Run) -> tuple[str, str, str]:
        """Return the first difference from other answers, as `puzzle_requests.difference`."""
        found = (difference(*pair) for pair in zip(self.answers, other.answers, strict=True))
        return next((each for each in found if each[0]), ("", "", ""))


def run(puzzle: PuzzleData, source: str) -> PuzzleCheck:
    """Judge a replacement. This runs its code here: `puzzle_worker` does so in another process."""
    if any("cupy" in text for text in (puzzle.naive.source, *(callee.source for callee in puzzle.callees))):
        bls.simulate_gpus(1)
    result = PuzzleCheck(
        puzzle.name, puzzle.title, puzzle.seed, (), lines_changed=_changed(puzzle, source), source=source
    )
    try:
        answered = _compare(puzzle, source, result)
        if answered.judgements and not answered.request:
            return answered
        return _judge(puzzle, source, answered)
    except NoAnswerError as error:
        return replace(result, judgements=(_no_answer(puzzle, str(error)),))
    except BLSError as error:
        return replace(result, judgements=(Judgement("the model loads", False, *_words_of(error)),))


def _words_of(error: BLSError) -> tuple[str, str]:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return first_line(lines[0], 200), lines[-1].strip() if len(lines) > 1 else "Repair this error first."


def _no_answer(puzzle: PuzzleData, where: str) -> Judgement:
    hint = "No code of the model is running. It may await something that never happens."
    if where:
        hint = f"`execute` has not returned: it is at {puzzle.naive.name}, {where}."
    elif puzzle.naive.is_decoupled:
        hint = "No code of the model is running. It may not have sent the final flag, which each request needs."
    return Judgement(SAME, False, NO_RESPONSE, hint)


def _changed(puzzle: PuzzleData, source: str) -> int:
    """Return the number of lines that differ from the naive model."""
    before, after = ([line.strip() for line in text.splitlines()] for text in (puzzle.naive.source, source))
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return sum(max(b - a, d - c) for kind, a, b, c, d in blocks if kind != "equal")


def _compare(puzzle: PuzzleData, source: str, result: PuzzleCheck) -> PuzzleCheck:
    """Compare the answers to generated cases and to the measured ones; describe the smallest difference."""
    smallest: list[Case] = []
    described = result

    def afresh(case: Case) -> PuzzleCheck | None:
        """Send a case without the state that earlier requests left behind."""
        with Side(puzzle, puzzle.solution) as reference, Side(puzzle, source) as own:
            return _described(puzzle, result, case, own.answers(case), reference.answers(case))

    with Side(puzzle, puzzle.solution) as reference, Side(puzzle, source) as own:

        def differs(case: Case) -> bool:
            nonlocal described
            if "sequence" in case[0]:
                found = afresh(case)
            else:
                found = _described(puzzle, result, case, own.answers(case), reference.answers(case))
            if found is not None:
                smallest[:], described = [case], found
            return found is not None

        if not find_smallest(puzzle, differs):
            any(differs(case_of(text)) for text in puzzle.measured)
    return (afresh(smallest[0]) if smallest else None) or described


def _described(
    puzzle: PuzzleData, result: PuzzleCheck, case: Case, got: list[list[Answer]], expected: list[list[Answer]]
) -> PuzzleCheck | None:
    """Return a result with the first difference between the answers to a case; None if they agree."""
    for number, pair in enumerate(zip(got, expected, strict=True), 1):
        seen, hint, code = difference(*pair)
        if seen:
            request = "; ".join(map(request_words, case)) + f" (number {number} differs)" * (len(case) > 1)
            if len(case) > 1 and sorted(map(summary, got)) == sorted(map(summary, expected)):
                hint = "The responses are those of other requests: they must be in the order of the requests."
            hint = " ".join(filter(None, (hint, puzzle.hint)))
            return replace(
                result, judgements=(Judgement(SAME, False, seen, hint, (("code", code),)),),
                request=request, got=summary(pair[0]), expected=summary(pair[1]),
            )  # fmt: skip
    return None


def _measure(puzzle: PuzzleData, source: str, case: Case, seconds: float, name: str) -> _Run:
    memory, remembers = bls.track_memory(name=name), any(map(is_about_memory, puzzle.constraints))
    profile = bls.profile(name=name)
    with Side(puzzle, source, seconds) as side, profile:
        with memory if remembers else nullcontext():
            answers = side.answers(case)
        side.close()  # waits for open calls, such as cancelled ones
    session = profile.record
    ended = max((span.ended for span in session.spans), default=session.wall)
    return _Run(replace(session, wall=ended), memory.record if remembers else Lifetimes(), answers)


def _judge(puzzle: PuzzleData, source: str, result: PuzzleCheck) -> PuzzleCheck:
    """Judge the constraints for each measured case; the picture is of the first violation, or of the last case."""
    judged: list[Judgement] = []
    for case in map(case_of, puzzle.measured):
        printed, before = io.StringIO(), None
        for seconds in _DELAYS:
            reference = _measure(puzzle, puzzle.solution, case, seconds, "reference solution")
            printed.truncate(0)
            with redirect_stdout(printed):
                own = _measure(puzzle, source, case, seconds, f"your {puzzle.naive.name}")
            claims = [_resolved(claim, reference.session) for claim in puzzle.constraints]
            judged = [bls.judge(own.records(), claim) for claim in claims]
            # The model must not do the work of a callee itself.
            used = dict.fromkeys(span.model for span in reference.session.spans if span.parent)
            judged += [call for name in used if not (call := bls.judge(own.records(), f"called {name}"))]
            seen, hint, code = own.difference(reference)
            outcome = [str(judgement.seen) for judgement in judged if not judgement], seen
            if outcome in (([], ""), before) or result.judgements:  # a busy machine hardly errs twice in the same way
                break
            before = outcome
        violated = next((judgement.claim for judgement in judged if not judgement), "")
        result = replace(
            result, sessions=(_marked(own.session, violated), reference.session), violated=violated,
            memory=(own.lifetimes, reference.lifetimes), printed=printed.getvalue()[:_PRINTED],
            waits=len(longest_chain(own.session, puzzle.naive.name)),
        )  # fmt: skip
        if seen and not result.judgements:
            hint = f"The answers depend on the order in which responses arrive. {hint}"
            result = replace(result, judgements=(Judgement(SAME, False, seen, hint, (("code", code),)),))
        if violated or result.judgements:
            break
    first = result.judgements or (Judgement(SAME, True, "for every generated request"),)
    return replace(result, judgements=(*first, *judged))


def _resolved(claim: str, reference: Session) -> str:
    """Return a claim with the number of requests that the reference solution needs in place of the word `needed`."""
    match = re.fullmatch(r"requests (\S+) needed of (\S+)", claim)
    if match is None:
        return claim
    return claim.replace("needed", str(sum(span.model == match[2] for span in reference.spans)))


def _marked(session: Session, claim: str) -> Session:
    """Return a session with marks at the requests that violate a claim."""
    if not claim or is_about_memory(claim):
        return session
    words = claim.split()
    model = words[words.index("of") + 1] if "of" in words else ""
    spans: Sequence[Span] = [span for span in session.spans if model in ("", span.model)]
    marks = [(span.sent, words[0], span.id) for span in spans[:1]]
    if words[0] == "waits":
        chain = longest_chain(session, model, "until" in words)
        marks = [(span.sent, f"wait {number}", span.id) for number, span in enumerate(chain, 1)]
    elif words[0] == "requests":
        most = int(words[2])
        marks = [(span.sent, f"request {number}", span.id) for number, span in enumerate(spans, 1) if number > most]
    elif words[0] == "moved":
        marks = [(span.sent, f"{span.crossings} moved", span.id) for span in spans if span.crossings]
    elif words[0] == "cancelled":
        marks = [(span.ended, "not cancelled", span.id) for span in spans if span.parent and span.state == "ok"]
    elif words[0] == "overlapped":
        marks = [(span.started, f"alone: {number}", span.id) for number, span in enumerate(spans[:4], 1)]
    return replace(session, marks=(*session.marks, *(NamedMark(*mark) for mark in marks)))
