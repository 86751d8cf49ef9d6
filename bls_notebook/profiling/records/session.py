"""`Session`: what a profile recorded, with what can be computed from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bls_notebook.records.base import Record

from .spans import SCHEMA, Mark, ModelSeen, NamedMark, SessionData, Source, Span

if TYPE_CHECKING:
    from bls_notebook.profiling.analysis.call_graph import CallGraph
    from bls_notebook.profiling.analysis.critical_path import Step
    from bls_notebook.profiling.analysis.difference import Difference
    from bls_notebook.profiling.analysis.session_statistics import SessionStatistics

    from .verdicts import Verdict

__all__ = [
    "SCHEMA", "Mark", "ModelSeen", "NamedMark", "Session", "SessionAnalysis", "SideBySide", "Source", "Span",
    "load_session",
]  # fmt: skip


class SessionAnalysis:
    """What a session answers; for those that have one, as `record`."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def record(self) -> Session:
            """The session."""

    def statistics(self) -> SessionStatistics:
        """Return the session's figures: wall, busy, queued, overlap, per model."""
        from bls_notebook.profiling.analysis.session_statistics import session_statistics

        return session_statistics(self.record)

    def critical_path(self) -> tuple[Step, ...]:
        """Return what the wall time was spent on, step by step: a faster step makes the whole faster."""
        from bls_notebook.profiling.analysis.critical_path import critical_path

        return critical_path(self.record)

    def verdict(self) -> Verdict:
        """Return what the requests waited for, in a sentence, and what would make them faster."""
        from bls_notebook.profiling.analysis.cell_verdict import cell_verdict

        return cell_verdict(self.record)

    def graph(self) -> CallGraph:
        """Return who called whom, as it was seen."""
        from bls_notebook.profiling.analysis.call_graph import call_graph

        return call_graph(self.record)

    def diff(self, after: SessionAnalysis) -> Difference:
        """Compare with a later session of the same workload.

        Parameters
        ----------
        after : Session, or what has one as `record`
        """
        from bls_notebook.profiling.analysis.difference import difference

        return difference(self.record, after.record)

    def beside(self, after: SessionAnalysis) -> SideBySide:
        """Put a later session below this one, on one axis of time; with what changed.

        Parameters
        ----------
        after : Session, or what has one as `record`
        """
        return SideBySide(self.record, after.record)

    def save(self, path: str | Path) -> Path:
        """Write the session to a file; what its name ends with says how.

        Parameters
        ----------
        path : str or Path
            ``.json`` and ``.json.gz`` can be read again by `bls.load`; ``.trace.json`` is for
            ui.perfetto.dev and chrome://tracing.

        Returns
        -------
        Path

        Raises
        ------
        BLSError
            Another ending, or it cannot be written.
        """
        from bls_notebook.profiling.session_files import save_session

        return save_session(self.record, path)


@dataclass(frozen=True, slots=True, repr=False)
class Session(SessionData, SessionAnalysis):
    """Everything that happened while a profile was on.

    ``began`` is the wall-clock time (ISO 8601, UTC), ``wall`` the length in nanoseconds; ``spans`` are in
    the order of ``sent``; ``dropped`` counts the spans that did not fit into the limit. ``marks`` are those
    of `bls.mark`; ``sources`` have the code that sent and served the requests, as it was. ``ghosts`` say
    where calls could have been, ``lock`` when Python's lock was held for long. ``cpu`` is the processor time
    that the process had, of so many ``cores``, and ``cpu_waited`` what its threads waited for processors,
    all together (ns); 0 where that is not known. ``unbatched`` has a line for each model that takes batches
    and got hardly any: why. ``sender`` is who sent what no model did: the notebook, or the clients of a
    server whose trace this is; ``notes`` say what such a trace leaves open.
    """

    @property
    def record(self) -> Session:
        """The session itself: functions take it, or what has one."""
        return self


@dataclass(frozen=True, slots=True, repr=False)
class SideBySide(Record):
    """Two sessions of the same work, to be seen on one axis of time; `diff` has the figures."""

    before: Session
    after: Session

    def diff(self) -> Difference:
        """Return what changed from the one to the other."""
        return self.before.diff(self.after)


def load_session(path: str | Path) -> Session:
    """Read a session that `Session.save` wrote as ``.json`` or ``.json.gz``.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Session
        It can be drawn and compared without the models.

    Raises
    ------
    BLSError
        It cannot be read, is no session, or is one of another schema.
    """
    from bls_notebook.profiling.session_files import read_session

    return read_session(path, Session)
