"""`compare(overlap=True)`: a model as it is written, and with its `exec` calls sent ahead; are answers equal?

Guarantees: the model is as it was afterwards, also on an error and on Ctrl-C. Runs in which a call failed, or
that answered otherwise than the model as it is written, prove nothing, and are told.
"""

from __future__ import annotations

from dataclasses import replace

from bls_notebook.engine.errors import BLSError
from bls_notebook.engine.overlap.ahead import Ahead, running_ahead
from bls_notebook.repository.repository import ModelRepository

from .analysis.overlap import (
    WORTH,
    could_overlap,
    ghosts,
    more_instances,
    overlapped_wall,
    proof,
    same_calls,
    what_overlaps,
)
from .analysis.queue_simulation import batches_seen
from .changing import code_to_write, proven
from .recording.processor_time import gil_share_of, sample_clocks
from .records.comparison import Measured, MeasuredSetting
from .records.overlap import Overlap
from .records.program import Program
from .sequential import Sequential, failed
from .workload import LEAST, Inputs, Run, Workload, measure


def overlap(
    repository: ModelRepository, model: str, inputs: list[Inputs], repeat: int | None, apply: bool = False
) -> Overlap:
    """Measure a model as it is written, record its program, and prove what sending its calls ahead brings.

    Where there is a gain, the code to write is made too; with `apply` it is run, and proven.
    """
    if repository.record(model).decoupled:
        raise BLSError(
            f"compare: overlap: model {model!r} is decoupled: it answers while it runs, so its calls cannot "
            "be sent ahead; compare without overlap"
        )
    workload = _Workload(repository, model, inputs)
    workload.told.total = 2 * (2 + (repeat or LEAST))
    with workload.told:
        found = _overlap(workload, repeat)
    if found.problem or found.predicted < WORTH:
        return found
    code = code_to_write(repository, model, found.programs)
    if apply and code.source:
        code = proven(workload, code, found.predicted, repeat)
    return replace(found, code=code)


def _overlap(workload: _Workload, repeat: int | None) -> Overlap:
    written = workload.sequential()
    problem = failed(workload.answers)
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
    gil_share = -1.0 if warmed.failed else gil_share_of(sample_clocks(workload.sequential))
    setting = measure(workload, 0, repeat, gil_share, warmed)
    return _result(workload, setting, written, programs, workload.problem or setting.problem)


def _result(
    workload: _Workload,
    setting: MeasuredSetting | None,
    written: Run,
    programs: tuple[Program, ...],
    problem: str,
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
    roots = [span.id for span in session.spans if not span.parent]
    # How long a batch takes is only known where one has been served.
    batches = batches_seen(setting.gathered) if setting is not None else None
    wall = overlapped_wall(session, programs, measured, None, batches) if programs else session.wall
    predicted = max(1.0, session.wall / wall)
    speedup = 0.0 if problem or setting is None else measured.speedup
    return Overlap(
        model=workload.model,
        requests=workload.count,
        rounds=0 if setting is None else len(setting.gathered_walls),
        sentence=what_overlaps(session, programs) if programs else "",
        advice=more_instances(session, programs, measured, batches) if programs and not problem else "",
        proof=proof(measured, predicted, speedup, problem, bool(batches)),
        predicted=predicted,
        speedup=speedup,
        relative_error=measured.relative_error,
        equal=not problem,
        problem=problem,
        kept=tuple(workload.how.kept),
        written=replace(session, ghosts=ghosts(session, dict(zip(roots, programs, strict=False)))),
        ahead=session if setting is None else setting.gathered,
        measured=measured,
        programs=programs,
    )


class _Workload(Sequential):
    """Requests one after the other: to the model as it is written, and with its calls sent ahead."""

    def __init__(self, repository: ModelRepository, model: str, inputs: list[Inputs]) -> None:
        super().__init__(repository, model, inputs)
        self.how = Ahead()
        self.lazy_arrays = True

    def gathered(self) -> Run:
        run = self.run(Ahead(lazy_arrays=self.lazy_arrays))
        found = next(iter(self.how.spoilt), "") or self.differs()
        self.problem = self.problem or found  # one round is enough
        return run

    def programs(self) -> tuple[tuple[Program, ...], str]:
        """Return what the model does with its answers, and why that is not known."""
        self.run(Ahead(ahead=False, lazy_arrays=self.lazy_arrays))
        differs = self.differs()
        problem = f"its answers are not the same from run to run: {differs}" if differs else ""
        return tuple(self.how.programs), next(iter(self.how.spoilt), "") or problem

    def run(self, how: Ahead) -> Run:
        self.answers, self.how = [], how
        models = [m for m in self.repository._server.serving(self.model).values() if not m.decoupled]
        with running_ahead(models, how):
            return Workload.sequential(self, "calls sent ahead" if how.ahead else "as it is written")
