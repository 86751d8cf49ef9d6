"""`Session`: what a profile recorded, with what can be computed from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bls_notebook.observe.records.profiles.spans import (
    SCHEMA,
    Mark,
    ModelSeen,
    NamedMark,
    SessionData,
    Source,
    Span,
)

if TYPE_CHECKING:
    from bls_notebook.observe.analysis.call_graph import CallGraph
    from bls_notebook.observe.analysis.critical_path import Step
    from bls_notebook.observe.analysis.difference import Difference
    from bls_notebook.observe.analysis.session_statistics import Level, SessionStatistics

__all__ = [
    "SCHEMA", "Mark", "ModelSeen", "NamedMark", "Session", "SessionAnalysis", "Source", "Span",
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
        """Return the session's figures: wall, busy, queued, overlap, per model and per instance."""
        from bls_notebook.observe.analysis.session_statistics import session_statistics

        return session_statistics(self.record)

    def concurrency(self) -> tuple[Level, ...]:
        """Return how many requests were worked on, and how many waited, from moment to moment."""
        from bls_notebook.observe.analysis.session_statistics import concurrency

        return concurrency(self.record)

    def critical_path(self) -> tuple[Step, ...]:
        """Return what the wall time was spent on, step by step: a faster step makes the whole faster."""
        from bls_notebook.observe.analysis.critical_path import critical_path

        return critical_path(self.record)

    def graph(self) -> CallGraph:
        """Return who called whom, as it was seen."""
        from bls_notebook.observe.analysis.call_graph import call_graph

        return call_graph(self.record)

    def diff(self, after: SessionAnalysis) -> Difference:
        """Compare with a later session of the same workload.

        Parameters
        ----------
        after : Session, or what has one as `record`
        """
        from bls_notebook.observe.analysis.difference import difference

        return difference(self.record, after.record)

    def save(self, path: str | Path) -> Path:
        """Write the session to a file; what its name ends with says how.

        Parameters
        ----------
        path : str or Path
            ``.json`` and ``.json.gz`` can be read again by `load_session`; ``.pftrace`` and
            ``.perfetto-trace`` are for ui.perfetto.dev (need the package `perfetto`), ``.trace.json`` is
            for chrome://tracing, ``.csv`` for tables.

        Returns
        -------
        Path

        Raises
        ------
        BLSError
            Another ending, it cannot be written, or the package `perfetto` is needed and not there.
        """
        from bls_notebook.observe.export import save_session

        return save_session(self.record, path)


@dataclass(frozen=True, slots=True, repr=False)
class Session(SessionData, SessionAnalysis):
    """Everything that happened while a profile was on.

    ``began`` is the wall-clock time (ISO 8601, UTC), ``wall`` the length in nanoseconds; ``spans`` are in
    the order of ``sent``; ``dropped`` counts the spans that did not fit into the limit. ``marks`` are those
    of `bls.mark`; ``sources`` have the code that sent and served the requests, as it was. ``unbatched`` has a
    line for each model that takes batches and got hardly any: why.
    """

    @property
    def record(self) -> Session:
        """The session itself: functions take it, or what has one."""
        return self


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
        It cannot be read, is no session, or is one of a newer schema.
    """
    from bls_notebook.observe.export.session_json import read_session

    return read_session(path, Session)
