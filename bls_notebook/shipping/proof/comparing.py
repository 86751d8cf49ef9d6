"""The same requests to two places, one after the other, and what differs: of one model."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from bls_notebook.engine.core.spec import ModelSpec
from bls_notebook.pb_utils import Tensor
from bls_notebook.records.preview import tensor_record
from bls_notebook.records.progress import Progress
from bls_notebook.records.repository import TensorsCompared

from .answers import Allowed, Differences, ProofAnswer, differences
from .asked import ProofRequest, Steps
from .certificate import Certificate, Unequal
from .counts import grown
from .generating import Different, NotSteady, generate
from .places import Elsewhere, Here, There, flags_of, shown

_CORRELATIONS = itertools.count(1)
_KEPT = 64  # cases that are sent again, with other instance counts
_BATCHES = 16  # whose rows are asked for alone

Answered = tuple[list[list[ProofAnswer]], list[list[ProofAnswer]]]  # of each step of a case, here and there


class Comparing:
    """What is found out about one model."""

    def __init__(self, here: Here, there: There | Elsewhere, spec: ModelSpec, allowed: Allowed, told: Progress) -> None:
        self.spec = spec
        self.allowed = allowed
        self.told = told
        self.here, self.there = here, there
        self.asked = self.failed = self.alone = 0
        self.here_ns: list[int] = []
        self.there_ns: list[int] = []
        self.kept: list[Steps] = []  # those that were answered alike
        self.last: tuple[Steps, Differences] | None = None

    def run(
        self, begun: Certificate, cases: Sequence[Steps], number: int, words: list[str], counts: Sequence[int]
    ) -> Certificate:
        """Compare cases that are given, then generated ones, then all that shows more of the same."""
        before = self.here.counts(), self.there.counts()
        unequal = [_unequal(steps, found) for steps in cases if (found := self.differ(steps))]
        sent = self.asked
        if number:
            # what differs is not to be found once more
            given = [] if unequal else [request for steps in cases for request in steps]
            unequal += self._generated(begun.seed, number, given, words)
        generated = self.asked - sent
        notes: list[str] = []
        if self.failed == self.asked:
            notes.append("every request was refused, so that errors alone were compared: give inputs that it takes")
        if not unequal:
            unequal += self._rows_alone(notes)
        batches = self.spec.scheduler == "default"
        counted = () if self.there.lost or unequal else grown((self.here, self.there), before, batches)
        for count in counts:
            if not unequal:
                unequal += self._with_instances(count)
        return replace(
            begun, given=sent, generated=generated, failed=self.failed, alone=self.alone,
            here_ns=int(median(self.here_ns or [0])), there_ns=int(median(self.there_ns or [0])),
            unequal=tuple(unequal), counted=counted, instances=tuple(counts), notes=tuple(notes),
        )  # fmt: skip

    def _generated(self, seed: int, number: int, given: list[ProofRequest], words: list[str]) -> list[Unequal]:
        def check(steps: Steps) -> None:
            if found := self.differ(steps):
                self.last = steps, found
                raise _Lost if any(said.startswith("no answer") for said in found[0]) else Different

        try:
            if generate(self.spec, number, seed, check, given, words):
                return []
            steady = shrunk = True
        except NotSteady:
            steady = shrunk = False
        except _Lost:  # to make it smaller would start the server again each time
            steady, shrunk = True, False
        assert self.last is not None
        return [replace(_unequal(*self.last), shrunk=shrunk, steady=steady)]

    def differ(self, steps: Steps) -> Differences | None:
        """Send the requests of a case to both, and return what differs."""
        self.asked += 1
        here, there = self._ask(steps)
        found = self._differences(here, there)
        if found is None:
            self.failed += any(each.error is not None for answers in here for each in answers)
            if len(self.kept) < _KEPT:
                self.kept.append(steps)
        self.told.step()
        return found

    def _ask(self, steps: Steps) -> Answered:
        correlation = next(_CORRELATIONS)
        answers: Answered = ([], [])
        for number, request in enumerate(steps):
            more: dict[str, Any] = {}
            if self.spec.scheduler == "sequence":
                more = {"correlation_id": correlation, "flags": flags_of(number, len(steps))}
            for place, into, times in ((self.here, answers[0], self.here_ns), (self.there, answers[1], self.there_ns)):
                answered, took = place.ask(request, more)
                into.append(answered)
                times.append(took)
        return answers

    def _differences(self, here: list[list[ProofAnswer]], there: list[list[ProofAnswer]]) -> Differences | None:
        said: list[str] = []
        tensors: list[TensorsCompared] = []
        for number, (first, second) in enumerate(zip(here, there, strict=True)):
            words, unlike = differences(first, second, self.allowed)
            at = f"request {number} of the sequence: " if len(here) > 1 else ""
            said += [at + each for each in words]
            tensors += unlike
        return (tuple(said), tuple(tensors)) if said else None

    # --- the same rows alone and in a batch ---

    def _rows_alone(self, notes: list[str]) -> list[Unequal]:
        """Ask for the rows of batches by themselves; a server with a queue makes batches of its own."""
        if self.spec.max_batch_size < 2 or self.spec.decoupled or self.spec.scheduler == "sequence":
            return []
        batches = [steps[0] for steps in self.kept if _rows(steps[0]) > 1]
        unlike = 0
        for batch in batches[:_BATCHES]:
            whole = self._ask((batch,))[1][0][0]
            if whole.error is not None:
                continue
            for row in range(_rows(batch)):
                request = ProofRequest(dict(_cut(batch.inputs.values(), row)), batch.parameters)
                here, there = self._ask((request,))
                self.alone += 1
                if found := self._differences(here, there):
                    return [_unequal((request,), _said(f"row {row} of a batch, asked for alone: ", found))]
                unlike += bool(differences(there[0], [_row_of(whole, row)], self.allowed)[0])
        if unlike:
            notes.append(
                f"{unlike} of {self.alone} rows are answered otherwise alone than in a batch, on both sides: "
                "with a batching queue, what a request gets depends on what is asked beside it"
            )
        return []

    # --- several instances ---

    def _with_instances(self, count: int) -> list[Unequal]:
        """Send cases once more, side by side, to so many instances."""
        with self.here.with_instances(count), self.there.with_instances(count), ThreadPoolExecutor(2 * count) as pool:
            answered = list(pool.map(self._ask, self.kept))
        said = f"with {count} instance{'s' if count > 1 else ''}, requests side by side: "
        for steps, (here, there) in zip(self.kept, answered, strict=True):
            if found := self._differences(here, there):
                return [replace(_unequal(steps, _said(said, found)), shrunk=False)]
        return []


class _Lost(BaseException):
    """The server has died, or did not answer; no exception that hypothesis would look into."""


def _said(before: str, found: Differences) -> Differences:
    return tuple(before + each for each in found[0]), found[1]


def _unequal(steps: Steps, found: Differences) -> Unequal:
    tensors = tuple(tuple(tensor_record(t._name, t._datatype, t._array) for t in step) for step in shown(steps))
    return Unequal(found[0], tensors, found[1])


def _rows(request: ProofRequest) -> int:
    """How many rows a request has; 0 where its inputs have different numbers of them."""
    rows = {tensor._array.shape[0] if tensor._array.ndim else 0 for tensor in request.inputs.values()}
    return int(rows.pop()) if len(rows) == 1 else 0


def _cut(tensors: Iterable[Tensor], row: int) -> Iterable[tuple[str, Tensor]]:
    for tensor in tensors:
        array = np.ascontiguousarray(tensor._array[row : row + 1])
        yield tensor._name, Tensor._of(tensor._name, array, tensor._datatype)


def _row_of(whole: ProofAnswer, row: int) -> ProofAnswer:
    outputs = {
        name: replace(output, values=output.values[row : row + 1]) if output.values.ndim else output
        for name, output in whole.outputs.items()
    }
    return replace(whole, outputs=outputs)
