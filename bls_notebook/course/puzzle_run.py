"""Run a replacement of a puzzle's model next to the reference solution, compare, and judge the constraints."""

from __future__ import annotations

import ast
import difflib
import io
import re
import tracemalloc
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import bls_notebook as bls
from bls_notebook.lifetimes.memory_recording import await_release
from bls_notebook.lifetimes.records import Lifetimes
from bls_notebook.profiling.records.spans import NamedMark, Span
from bls_notebook.profiling.session import Session
from bls_notebook.records import BLSError, count, first_line, size
from bls_notebook.testing.claim_checks import Judgement
from bls_notebook.testing.claim_values import GivenAnswer
from bls_notebook.testing.recorded_calls import longest_chain

from .puzzle_answers import FAILED, difference, error_line, judge_copies, kept_sizes, summary
from .puzzle_check import SAME, PuzzleCheck, is_about_memory
from .puzzle_requests import (
    NO_RESPONSE,
    NoAnswerError,
    PuzzleCase,
    Side,
    find_smallest,
    largest_case,
    lost_errors,
    request_words,
)
from .puzzle_text import PuzzleData, case_of
from .second_look import (
    KEPT,
    ChangedCallee,
    HeldCallee,
    LookedAt,
    by_time,
    growth,
    hides_slips,
    higher_peak,
    kept_more,
    left_after_errors,
    look,
    peek,
    remembers_ended,
    second_look,
    times_of,
)

_PRINTED = 2_000  # characters
_COPIES = 5 * 2**20  # bytes beyond the reference solution's, which is more than most temporary arrays
_DELAYS = (0.01, 0.03, 0.1)  # seconds of a callee; a busy machine needs the longer ones to show an order


@dataclass(frozen=True)
class _Run:
    """What was recorded from a case."""

    session: Session
    lifetimes: Lifetimes
    answers: list[list[GivenAnswer]]
    peak: int  # bytes of Python's memory
    copies: Judgement | None
    lost: list[str]  # errors of `execute` that came too late for a response

    def records(self) -> dict[str, Any]:
        flat = tuple(answer for answers in self.answers for answer in answers)
        return {"%%blsprofile": self.session, "%%blsmemory": self.lifetimes, "%bls": flat}

    def difference(self, other: _Run) -> Judgement | None:
        """Return the first difference from other answers, as `difference`."""
        found = (difference(*pair) for pair in zip(self.answers, other.answers, strict=True))
        return next((judgement for judgement in found if judgement is not None), None)


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
        if answered.judgements:
            answered = replace(answered, judgements=(_with_slips(puzzle, source, answered.judgements[0]),))
        judged = _judge(puzzle, source, answered)
        again = _look_again(puzzle, source) if judged.solved else None
        return judged if again is None else replace(judged, judgements=(*judged.judgements, again))
    except NoAnswerError as error:
        return replace(result, judgements=(_no_answer(puzzle, str(error)),))
    except BLSError as error:
        return replace(result, judgements=(Judgement("the model loads", False, *_words_of(error, source)),))


def _look_again(puzzle: PuzzleData, source: str) -> Judgement | None:
    """Return a judgement that fails if the model differs from the reference under other conditions."""

    def looking(text: str, slip: bool = False) -> Callable[[Mapping[str, ChangedCallee]], LookedAt]:
        def run(callees: Mapping[str, ChangedCallee]) -> LookedAt:
            with Side(puzzle, text) as side:
                send = partial(_all_answers, side, cases)
                return look(side.host, callees, send, puzzle.naive.name if slip else "")

        return run

    cases = [*map(case_of, puzzle.measured), *largest_case(puzzle.requests)]
    names = [callee.name for callee in puzzle.callees]
    if puzzle.naive.is_decoupled and (line := _empty_response(source)):
        hint = f"Line {line}: a response without outputs is one that clients receive. End the stream by the flag alone."
        return Judgement(SAME, False, "an extra response without outputs", hint)
    is_drilled = "no drill" not in puzzle.requests
    counts = "abandoned == 1" not in puzzle.constraints  # a call may be left alone before it is sent
    found = peek(source)
    if found is not None:
        return found
    remembers = "sequence" in puzzle.naive.signature
    found = second_look(names, looking(source), looking(puzzle.solution), is_drilled, counts, remembers)
    if found is None and not counts:
        waits = (_waits_for(puzzle, source, name, cases) for name in names)
        found = next((judgement for judgement in waits if judgement is not None), None)
    if found is None and names:
        own, wanted = (looking(text, slip=True)({}) for text in (source, puzzle.solution))
        found = hides_slips(own, names, wanted)
    if found is None and remembers:
        with Side(puzzle, source) as side:
            found = remembers_ended(side.host, puzzle.naive.name, _repeated(puzzle, side))
    if found is None and "nothing_left" in puzzle.constraints:
        with Side(puzzle, source) as side:
            found = left_after_errors(side.host, names, _repeated(puzzle, side))
    if found is None and "nothing_left" in puzzle.constraints:
        hint = "The memory of the model grows with every request. Keep what you need of it, such as a number."
        own_bytes, reference = (partial(_growth, puzzle, text) for text in (source, puzzle.solution))
        found = kept_more(own_bytes, reference, KEPT, hint)
    if found is None and any(claim.startswith("peak") for claim in puzzle.constraints):
        with Side(puzzle, source) as mine, Side(puzzle, puzzle.solution) as right:
            found = higher_peak(*(partial(_all_answers, side, cases) for side in (mine, right)))
    if found is None and is_drilled:
        found = _slower(puzzle, source, cases)
    return found


def _waits_for(puzzle: PuzzleData, source: str, name: str, cases: Sequence[PuzzleCase]) -> Judgement | None:
    """Return a judgement that fails if the model gives no response while a callee gives none."""
    held = HeldCallee()
    try:
        with Side(puzzle, source) as side, side.host.substitute({name: held}):
            try:
                _all_answers(side, cases)
            finally:
                held.release.set()
    except NoAnswerError:
        hint = f"Take the first response, whichever it is: `{name}` may be the slow one for any request."
        return Judgement("abandoned == 1", False, f"no response while {name} gives none", hint)
    return None


def _slower(puzzle: PuzzleData, source: str, cases: Sequence[PuzzleCase]) -> Judgement | None:
    """Return a judgement that fails if the cases take longer than with the reference while each callee works."""
    with Side(puzzle, source, _DELAYS[0]) as own, Side(puzzle, puzzle.solution, _DELAYS[0]) as reference:
        return by_time(*(partial(times_of, partial(_all_answers, side, cases)) for side in (own, reference)))


def _all_answers(side: Side, cases: Sequence[PuzzleCase]) -> list[list[GivenAnswer]]:
    return [each for case in cases for each in side.answers(case)]


def _empty_response(source: str) -> int:
    """Return the line that makes a response without outputs and without an error; 0 for none.

    Here the engine, as a caller by BLS on a server, sees no difference between it and the final flag alone.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("InferenceResponse"):
            values = [*node.args, *(word.value for word in node.keywords)]
            if all(isinstance(value, (ast.List, ast.Tuple)) and not value.elts for value in values):
                return node.lineno
    return 0


def _growth(puzzle: PuzzleData, source: str) -> int:
    with Side(puzzle, source) as side:
        names = [callee.name for callee in puzzle.callees]
        return growth(side.host, [puzzle.naive.name], _repeated(puzzle, side), names)


def _repeated(puzzle: PuzzleData, side: Side) -> Callable[[], int]:
    """Return a function that sends the same requests each time, and returns their number."""
    case: PuzzleCase = case_of(puzzle.measured[0])

    def send() -> int:
        for request in case:  # sequences have new IDs
            if "sequence" in request:
                request["sequence"] += len(case)
        return len(side.answers(case))

    return send


def _words_of(error: BLSError, source: str) -> tuple[str, str]:
    """Return the first line of an error, and the line of the model that it names, or its last line."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    place, texts = re.search(r"model\.py line (\d+)", lines[0]), source.splitlines()
    if place and int(place[1]) <= len(texts):
        return first_line(lines[0], 200), f"Line {place[1]}: `{first_line(texts[int(place[1]) - 1].strip(), 200)}`"
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
    smallest: list[PuzzleCase] = []
    described = result

    with Side(puzzle, puzzle.solution) as reference, Side(puzzle, source) as own:

        def differs(case: PuzzleCase) -> bool:
            nonlocal described
            if "sequence" in case[0]:
                own.forget()
            found = _described(puzzle, result, case, own.answers(case), reference.answers(case))
            if found is not None:
                smallest[:], described = [case], found
            return found is not None

        if not find_smallest(puzzle, differs):
            any(differs(case_of(text)) for text in puzzle.measured)
    # Earlier requests may have left a state: prefer a case that differs without it.
    for case in (*smallest, *map(case_of, puzzle.measured)) if smallest else ():
        with Side(puzzle, puzzle.solution) as reference, Side(puzzle, source) as own:
            found = _described(puzzle, result, case, own.answers(case), reference.answers(case))
        if found is not None:
            return found
    why = "A new model answers this right: the difference comes from earlier requests, or from chance."
    return replace(described, judgements=tuple(replace(j, hint=f"{j.hint} {why}") for j in described.judgements))


def _described(
    puzzle: PuzzleData,
    result: PuzzleCheck,
    case: PuzzleCase,
    got: list[list[GivenAnswer]],
    expected: list[list[GivenAnswer]],
) -> PuzzleCheck | None:
    """Return a result with the first difference between the answers to a case; None if they agree."""
    for number, pair in enumerate(zip(got, expected, strict=True), 1):
        judgement = difference(*pair)
        judgement = _invented(case[number - 1], *pair) if judgement is None else judgement
        if judgement is not None:
            request = "; ".join(map(request_words, case)) + (f" (number {number} differs)" if len(case) > 1 else "")
            if len(case) > 1 and sorted(map(summary, got)) == sorted(map(summary, expected)):
                hint = "The responses are those of other requests: they must be in the order of the requests."
                judgement = replace(judgement, hint=hint)
            return replace(
                result, judgements=(_explained(puzzle, judgement, pair[1]),),
                request=request, got=summary(pair[0]), expected=summary(pair[1]),
            )  # fmt: skip
    return None


def _invented(request: dict[str, Any], got: list[GivenAnswer], expected: list[GivenAnswer]) -> Judgement | None:
    """Return a judgement on an error that names a number which neither the request nor the callee's error has."""
    for mine, wanted in zip(got, expected, strict=False):
        known = re.findall(r"\d+", f"{error_line(wanted)} {request_words(request)}")
        made_up = [number for number in re.findall(r"\d+", error_line(mine)) if number not in known and len(number) > 1]
        if error_line(wanted) and made_up:
            hint = f"{made_up[0]} is in no error of a callee: pass on the callee's own words: {error_line(wanted)}"
            return Judgement(SAME, False, f"error: {error_line(mine)}", hint)
    return None


def _with_slips(puzzle: PuzzleData, source: str, judgement: Judgement) -> Judgement:
    """Return a judgement that also names errors of the code that are certain without running it."""
    with Side(puzzle, source) as side:
        findings = bls.check(puzzle.naive.name, repo=side.host.repository).findings
    certain = [f for f in findings if f.severity == "error" and not f.code.startswith("callee")]
    steps = [("in the code", f"{finding.what}. {finding.mend}") for finding in certain]
    return replace(judgement, steps=(*judgement.steps, *steps))


def _explained(puzzle: PuzzleData, judgement: Judgement, expected: list[GivenAnswer]) -> Judgement:
    """Return a judgement with the puzzle's hint, if that is about its observation."""
    text = f"{judgement.seen} {judgement.hint} expected {summary(expected)}"
    is_about = puzzle.hint and re.search(puzzle.hint_pattern, text)
    return replace(judgement, hint=f"{judgement.hint} {puzzle.hint}") if is_about else judgement


def _measure(puzzle: PuzzleData, source: str, case: PuzzleCase, seconds: float, name: str) -> _Run:
    memory, remembers = bls.track_memory(name=name), any(map(is_about_memory, puzzle.constraints))
    profile, keeps = bls.profile(name=name), "nothing_left" in puzzle.constraints
    with Side(puzzle, source, seconds) as side, ExitStack() as recordings:
        before: dict[str, list[int]] = {}
        if keeps:
            side.answers(case)
            before = kept_sizes(side.host)
        recordings.enter_context(profile)
        lost = recordings.enter_context(lost_errors())
        with memory if remembers else nullcontext():
            if remembers:
                tracemalloc.start()
            try:
                answers = side.answers(case)
                peak = tracemalloc.get_traced_memory()[1]
                if keeps:
                    await_release(memory)
            finally:
                tracemalloc.stop()
        copies = judge_copies(before, side.host, len(case)) if keeps else None
        side.finish()
    session = profile.record
    ended = max((span.ended for span in session.spans), default=session.wall)
    lifetimes = replace(memory.record, kept=()) if remembers else Lifetimes()  # `judge_copies` is about kept memory
    return _Run(replace(session, wall=ended), lifetimes, answers, peak, copies, lost)


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
            judged, differs = _judgements(puzzle, own, reference), own.difference(reference)
            outcome = [str(judgement.seen) for judgement in judged if not judgement], getattr(differs, "seen", "")
            if outcome in (([], ""), before) or result.judgements:  # a busy machine hardly errs twice in the same way
                break
            before = outcome
        if differs is not None and differs.seen == FAILED:
            judged = []  # about calls that the error prevented
        violated = next((judgement.claim for judgement in judged if not judgement), "")
        result = replace(
            result, sessions=(_marked(own.session, violated), reference.session), violated=violated,
            memory=(own.lifetimes, reference.lifetimes), printed=printed.getvalue()[:_PRINTED],
            waits=len(longest_chain(own.session, puzzle.naive.name)),
        )  # fmt: skip
        if differs is not None and not result.judgements:
            hint = f"The answers change if the callees take longer. {differs.hint}"
            result = replace(result, judgements=(replace(differs, hint=hint),))
        if violated or result.judgements:
            break
    first = result.judgements or (Judgement(SAME, True, "for every generated request"),)
    return replace(result, judgements=(*first, *judged))


def _judgements(puzzle: PuzzleData, own: _Run, reference: _Run) -> list[Judgement]:
    """Return a judgement on each constraint, and one on each rule of all puzzles that the model breaks."""
    judged = [bls.judge(own.records(), _resolved(claim, reference.session)) for claim in puzzle.constraints]
    for number, judgement in enumerate(judged):
        if judgement and judgement.claim == "nothing_left" and own.copies is not None:
            judged[number] = own.copies
        if judgement and judgement.claim.startswith("peak") and own.peak - reference.peak > _COPIES:
            seen = f"{judgement.seen}, and NumPy arrays of {size(own.peak - reference.peak)} that are no tensors"
            judged[number] = replace(judgement, holds=False, seen=seen, hint="A copy takes as much memory as a tensor.")
    rule = ": your model must not do the work of a callee itself" if own.difference(reference) is None else ""
    for name, number in Counter(span.model for span in reference.session.spans if span.parent).items():
        hint = f"Send {count(number, 'request')} to `{name}`{rule}."
        call = bls.judge(own.records(), f"requests >= {number} of {name}")
        judged += [] if call else [replace(call, hint=hint)]
    if own.lost:
        seen = "`execute` raised an exception that no caller sees"
        wrong = Judgement("no exception", False, seen, f"It came after the end of the response: {own.lost[0]}")
        judged.append(_explained(puzzle, wrong, []))
    return judged


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
