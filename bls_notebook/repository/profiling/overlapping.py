"""`compare(overlap=True)`: a model as it is written, and with its `exec` calls sent ahead; are answers equal?

Guarantees: the model is as it was afterwards, also on an error and on Ctrl-C. Runs in which a call failed, or
that answered otherwise than the model as it is written, prove nothing, and are told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bls_notebook.engine.errors import BLSError
from bls_notebook.engine.overlap.ahead import Ahead, running_ahead
from bls_notebook.engine.recording.processor_time import held_part
from bls_notebook.observe.analysis.overlap import (
    could_overlap,
    ghosts,
    more_instances,
    overlapped_wall,
    proof,
    same_calls,
    what_overlaps,
)
from bls_notebook.observe.records.profiles.comparison import Measured, Setting
from bls_notebook.observe.records.profiles.overlap import Overlap
from bls_notebook.observe.records.profiles.program import Program
from bls_notebook.observe.visible import first_line
from bls_notebook.repository.repository import ModelRepository
from bls_notebook.repository.requests.response import Response

from .measuring import LEAST, Inputs, Run, Workload, measure


def overlap(repository: ModelRepository, model: str, inputs: list[Inputs], repeat: int | None) -> Overlap:
    """Measure a model as it is written, record its program, and prove what sending its calls ahead brings."""
    if repository.record(model).decoupled:
        raise BLSError(
            f"compare: overlap: model {model!r} is decoupled: it answers while it runs, so its calls cannot "
            "be sent ahead; compare without overlap"
        )
    workload = _Workload(repository, model, inputs)
    workload.told.total = 2 * (2 + (repeat or LEAST))
    with workload.told:
        return _overlap(workload, repeat)


def _overlap(workload: _Workload, repeat: int | None) -> Overlap:
    written = workload.sequential()
    problem = _failed(workload.answers)
    if problem:
        return _result(workload, None, written, (), f"as it is written, {problem}")
    # Where code in C gets an array that is not there yet: once more, with arrays waited for when asked for.
    programs: tuple[Program, ...] = ()
    for workload.lazy_arrays in (True, False):
        programs, found = workload.programs()
        if not found and any(map(could_overlap, programs)):
            workload.problem = ""
            workload.gathered()
            found = workload.problem
        if not workload.how.raised:
            problem = found
            break
        problem = problem or found
    if problem or not any(map(could_overlap, programs)):
        return _result(workload, None, written, programs, problem)
    warmed = workload.both()
    gil_share = -1.0 if warmed.failed else held_part(workload.sequential)
    setting = measure(workload, 0, repeat, gil_share, warmed)
    return _result(workload, setting, written, programs, workload.problem or setting.problem)


def _result(
    workload: _Workload, setting: Setting | None, written: Run, programs: tuple[Program, ...], problem: str
) -> Overlap:
    session = written.session if setting is None else setting.sequential
    measured = setting.measured if setting else Measured(workload.count, session.wall, session.wall)
    if not same_calls(session, programs):
        kept = next(iter(workload.how.kept), "")
        other = f"{kept}, and its other calls are not judged beside that" if kept else ""
        problem = (
            problem
            or other
            or f"`{workload.model}` sent calls from other threads, or not the same in every run"
        )
        programs = ()
    wall = overlapped_wall(session, programs, measured) if programs else session.wall
    predicted = max(1.0, session.wall / wall)
    speedup = 0.0 if problem or setting is None else measured.speedup
    return Overlap(
        model=workload.model,
        requests=workload.count,
        rounds=0 if setting is None else len(setting.gathered_walls),
        sentence=what_overlaps(session, programs) if programs else "",
        advice=more_instances(session, programs, measured) if programs and not problem else "",
        proof=proof(measured, predicted, speedup, problem),
        predicted=predicted,
        speedup=speedup,
        relative_error=measured.relative_error,
        equal=not problem,
        problem=problem,
        kept=tuple(workload.how.kept),
        written=replace(session, ghosts=ghosts(session, programs)) if programs else session,
        ahead=session if setting is None else setting.gathered,
        measured=measured,
        programs=programs,
    )


class _Workload(Workload):
    """Requests one after the other: to the model as it is written, and with its calls sent ahead."""

    def __init__(self, repository: ModelRepository, model: str, inputs: list[Inputs]) -> None:
        super().__init__(repository, model, inputs)
        self.answers: list[Response] = []
        self.how = Ahead()
        self.lazy_arrays = True
        self.problem = ""
        self._expected: list[Response] = []

    def answered(self, response: Response) -> None:
        """Keep an answer."""
        self.answers.append(response)

    def sequential(self, name: str = "as it is written") -> Run:
        """Run the model as it is written."""
        self.answers = []
        run = super().sequential(name)
        self._expected = self.answers
        return run

    def gathered(self) -> Run:
        """Run it with its calls sent ahead."""
        run = self.run(Ahead(lazy_arrays=self.lazy_arrays))
        found = next(iter(self.how.spoilt), "") or _differs(self._expected, self.answers)
        self.problem = self.problem or found  # one round is enough
        return run

    def programs(self) -> tuple[tuple[Program, ...], str]:
        """Return what the model does with its answers, and why that is not known."""
        self.run(Ahead(ahead=False, lazy_arrays=self.lazy_arrays))
        differs = _differs(self._expected, self.answers)
        problem = f"its answers are not the same from run to run: {differs}" if differs else ""
        return tuple(self.how.programs), next(iter(self.how.spoilt), "") or problem

    def run(self, how: Ahead) -> Run:
        """Run it in some way."""
        self.answers, self.how = [], how
        models = [m for m in self.repository._server.serving(self.model).values() if not m.decoupled]
        with running_ahead(models, how):
            return super().sequential("calls sent ahead" if how.ahead else "as it is written")


def _failed(answers: Sequence[Response]) -> str:
    error = next((each.error for each in answers if each.error is not None), None)
    return "" if error is None else f"a request fails: {first_line(error.message())}"


def _differs(expected: Sequence[Response], found: Sequence[Response]) -> str:
    """Say where answers are not the same, bit for bit; empty where they are."""
    for number, (one, other) in enumerate(zip(expected, found, strict=True), start=1):
        where = f"request {number}: " if len(expected) > 1 else ""
        if (one.error is None) != (other.error is None):
            error = one.error or other.error
            assert error is not None
            way = "as it is written" if one.error else "with its calls sent ahead"
            return f"{where}{way}: {first_line(error.message())}"
        tensors = [{t.name(): t for t in each.output_tensors()} for each in (one, other)]
        if tensors[0].keys() != tensors[1].keys():
            return f"{where}outputs {sorted(tensors[0])} and {sorted(tensors[1])}"
        for name, tensor in tensors[0].items():
            if not _same(tensor._array, tensors[1][name]._array):
                return (
                    f"{where}output {name!r} is not the same: models share something that no tensor shows, "
                    "or draw random numbers"
                )
    return ""


def _same(one: Any, other: Any) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if isinstance(one, np.ndarray) and one.dtype != object:
        return bool(one.tobytes() == other.tobytes())
    return bool((one == other).all())
