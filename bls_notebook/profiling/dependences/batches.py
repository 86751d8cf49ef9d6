"""Requests of a batch are independent: whether a model serves them one by one, and the program that gathers them."""

from __future__ import annotations

import ast
from dataclasses import replace

from bls_notebook.profiling.analysis.request_loop import RequestLoop, request_loop
from bls_notebook.profiling.analysis.workload_simulation import SimulatedWorkload
from bls_notebook.profiling.records.comparison import Measured, failures
from bls_notebook.profiling.records.verdicts import time_of, times
from bls_notebook.repository.source import numbered_change

from .counterfactual import Runs
from .proof import unchanged
from .records import CodeChange, Overlap
from .schedule import WORTH

_REQUESTS = 4  # of a batch, at least
_GATHER = "return await asyncio.gather(*[self.serve(request) for request in requests])"


def with_batch(runs: Runs, overlap: Overlap) -> Overlap:
    """Return the result with the gain of gathering the requests of a batch, if that is larger than the present one."""
    config = runs.repository.config(runs.model)
    if overlap.problem or not config.HasField("dynamic_batching") or config.max_batch_size < 2:
        return overlap
    number = max(len(runs.inputs), min(_REQUESTS, config.max_batch_size))
    with runs.as_batch(number):
        sequential, gathered = runs.sequential(), runs.gathered()
    runs.asked += 2 * len(runs.recorded) * number // len(runs.inputs)
    if failures(sequential) or failures(gathered):
        return overlap
    measured = Measured(number, sequential.wall, gathered.wall, cores=gathered.cores or 1)
    simulation = SimulatedWorkload(sequential, gathered, measured)
    key, changed = simulation.batch_in_turn, simulation.with_gathered_batches
    if key is None or key[0] != runs.model or changed is None:
        return overlap
    now, then = (measured.sequential / each.speedup_of("") for each in (simulation, changed))
    if now / then < max(WORTH, overlap.predicted):
        return overlap
    models = sorted({call.model for call in overlap.calls})
    if doubts := [words for a in models for b in models if (words := runs.kept_between(a, b))]:
        note = f"Whether the requests of a batch may be served together is unknown: {doubts[0]}."
        if overlap.together:
            return replace(overlap, notes=(note, *overlap.notes))
        return replace(overlap, outcome="unknown", sentence=note, notes=(overlap.sentence, *overlap.notes))
    loop = request_loop(gathered, *key)
    at = f" (line {loop.line})" if loop is not None else ""
    gain = f"{time_of(then)} instead of {time_of(now)} for {number} requests ({times(now / then)}×)"
    sentence = (
        f"`{runs.model}` serves the requests of a batch one after the other{at}, and requests of a batch are "
        f"independent: gathered, predicted {gain}."
    )
    return replace(
        overlap, outcome="independent", sentence=sentence, predicted=now / then, batch=number, written=gathered,
        calls=tuple(replace(call, span=0) for call in overlap.calls),
        code=overlap.code if loop is None else _code(runs, loop), notes=(overlap.sentence, *overlap.notes),
    )  # fmt: skip


def _code(runs: Runs, loop: RequestLoop) -> CodeChange:
    by_hand = replace(unchanged(runs), template=loop.changed or _GATHER)
    text, place = ("", None) if runs.source is None else runs.source
    before = 0 if place is None else place.line - 1  # lines of a cell before the source
    source = gathered_source(text, loop._replace(line=loop.line - before, end=loop.end - before))
    if place is None or not source:
        return replace(by_hand, reason=by_hand.reason or "the body of the loop has to become a coroutine first")
    return replace(by_hand, template="", source=source, change=numbered_change(text, source, place.line))


def gathered_source(text: str, loop: RequestLoop) -> str:
    """Return a source whose loop gathers its requests; empty if the loop has no simple form there."""
    lines = text.splitlines(keepends=True)
    if not loop.changed or not any(loop.text in line for line in lines[loop.line - 1 : loop.line]):
        return ""
    indent = lines[loop.line - 1].partition(loop.text)[0]
    lines[loop.line - 1 : loop.end] = [f"{indent}{loop.changed}\n"]
    if loop.to_import:
        body = ast.parse(text).body
        first = next((n for n in body if isinstance(n, ast.Import)), None)
        lines.insert((first or body[0]).lineno - 1, f"{loop.to_import}\n")
    return "".join(lines)
