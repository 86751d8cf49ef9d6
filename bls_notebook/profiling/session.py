"""`Session`: the record of a profile, with its analyses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bls_notebook.profiling.records.spans import SCHEMA, Mark, ModelSeen, NamedMark, SessionData, Source, Span
from bls_notebook.records import Printable, RecordFile, ending_of, write_file

if TYPE_CHECKING:
    from bls_notebook.profiling.analysis.call_graph import CallGraph
    from bls_notebook.profiling.analysis.critical_path import Step
    from bls_notebook.profiling.analysis.session_statistics import SessionStatistics
    from bls_notebook.profiling.records.line_times import ModelLines
    from bls_notebook.profiling.records.verdicts import Verdict

__all__ = ["SCHEMA", "Mark", "ModelSeen", "NamedMark", "Session", "SessionAnalysis", "Source", "Span", "load_session"]


class SessionAnalysis(Printable):
    """The analyses of a session, for every class with a session as its `record`."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def record(self) -> Session:
            """The session."""

    def statistics(self) -> SessionStatistics:
        """Return the session's figures: wall time, busy, queued, overlap, and a row for each model."""
        from bls_notebook.profiling.analysis.session_statistics import session_statistics

        return session_statistics(self.record)

    def critical_path(self) -> tuple[Step, ...]:
        """Return the steps that bounded the wall time, in order: a faster step makes the session shorter."""
        from bls_notebook.profiling.analysis.critical_path import critical_path

        return critical_path(self.record)

    def verdict(self) -> Verdict:
        """Return the verdict: a sentence that names the cause of the requests' waits, and advice."""
        from bls_notebook.profiling.analysis.verdict import verdict
        from bls_notebook.profiling.analysis.verdict_evidence import session_evidence

        return verdict(session_evidence(self.record))

    def lines(self) -> tuple[ModelLines, ...]:
        """Return the time by line of each model's `execute` and helpers, from samples, most time first."""
        from bls_notebook.profiling.analysis.line_times import model_lines

        return model_lines(self.record)

    def graph(self) -> CallGraph:
        """Return the call graph: the recorded calls from model to model."""
        from bls_notebook.profiling.analysis.call_graph import call_graph

        return call_graph(self.record)

    def save(self, path: str | Path) -> Path:
        """Write the session to a file: ``.json`` or ``.json.gz`` for `bls.open_file`.

        ``.trace.json`` is for ui.perfetto.dev and chrome://tracing.
        """
        file = Path(path)
        ending = ending_of(file, (".trace.json", ".json", ".json.gz"), "session", "use .json to load it again")
        if ending != ".trace.json":
            return _FILE.save(self.record, file)
        from bls_notebook.profiling.chrome_trace import chrome_trace

        return write_file(file, chrome_trace(self.record).encode(), "session")


@dataclass(frozen=True, slots=True, repr=False)
class Session(SessionData, SessionAnalysis):
    """The requests of a profile, with the code, the waits and the processor time around them.

    ``began`` is the wall-clock time (ISO 8601, UTC), ``wall`` the length in nanoseconds; ``spans`` are in
    the order of ``sent``; ``dropped`` counts the spans beyond the limit. ``marks`` are the moments named by
    `bls.mark`; ``sources`` are the texts of the code that sent and served the requests. ``ghosts`` are the
    times at which calls could have run, ``lock`` the times at which a thread held the GIL while others wanted
    it. ``cpu`` is the processor time of the process and its ``workers``, which may use ``cores`` processors, and
    ``cpu_waited`` the time that their threads waited for a processor, summed (ns); 0 if unknown. ``unbatched``
    has a line for each batching model whose requests mostly ran alone: the reason. ``sender`` names the sender of
    requests that no model sent: the notebook, or the clients of a server if this is its trace; ``notes`` list the
    facts that such a trace lacks, or that were not recorded. ``stacks`` are lines of code that called each other,
    and ``samples`` the executions that were seen there. ``others`` is the processor time that other programs used
    (ns); -1 if unknown. ``held`` is the time with a request under way and the GIL held, by samples (ns). ``beside``
    is the part of ``cpu`` that threads of libraries such as BLAS used; neither has their busy waits.
    """

    @property
    def record(self) -> Session:
        """The session itself, as of a `Profile`."""
        return self


_FILE = RecordFile(Session, "bls_notebook.session", SCHEMA, "a session", "session")
load_session = _FILE.load
