"""`LoadedModel`: one version of a model, loaded and serving.

Guarantees: it serves from when it is made until `close`; `close` answers what is in flight first and
finalizes every instance exactly once; what a `finalize` raises is logged, never lost and never
in the way of the others.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .output_check import OutputCheck
from .scheduler import Scheduler
from .schedulers import scheduler_for
from .validate import RequestCheck

if TYPE_CHECKING:
    from bls_notebook.engine.spec import ModelSpec

    from .instance import Instance
    from .server import Server
    from .ticket import Ticket

__all__ = ["LoadedModel", "Statistics"]

log = logging.getLogger("bls_notebook")


@dataclass
class Statistics:
    """Counts of executions; times in nanoseconds."""

    success_count: int = 0
    success_ns: int = 0
    fail_count: int = 0
    fail_ns: int = 0


class LoadedModel:
    """One model version in service.

    Parameters
    ----------
    server : Server
    spec : ModelSpec
        Of the completed configuration.
    version : int
    directory : str
        Folder of the version, where model.py is.
    instances : sequence of Instance
        At least one.
    """

    def __init__(
        self,
        server: Server,
        spec: ModelSpec,
        version: int,
        directory: str,
        instances: Sequence[Instance],
    ) -> None:
        self.server = server
        self.spec = spec
        self.name = spec.name
        self.version = version
        self.directory = directory
        self.instances = tuple(instances)
        self.decoupled = spec.decoupled
        self.declared = frozenset(spec.outputs)
        self.output_names = tuple(spec.outputs)
        self.check = RequestCheck(spec)
        self.outputs = OutputCheck(spec, server.strict)
        self.statistics = Statistics()
        self.closed = threading.Event()
        self.scheduler: Scheduler = scheduler_for(self)

    def count(self, nanoseconds: int, failed: bool) -> None:
        """Count one execution; the scheduler's lock is held."""
        statistics = self.statistics
        if failed:
            statistics.fail_count += 1
            statistics.fail_ns += nanoseconds
        else:
            statistics.success_count += 1
            statistics.success_ns += nanoseconds

    def settled(self, ticket: Ticket) -> None:
        """A request has been answered."""
        self.scheduler.settled(ticket)

    def ready(self) -> bool:
        """Whether it serves, and every instance says that it is ready."""
        return not self.closed.is_set() and all(i.backend.ready() for i in self.instances)

    def close(self) -> None:
        """Accept no more requests; finalize once the last one is answered. Does not wait."""
        self.scheduler.close(self._finalize)

    def _finalize(self) -> None:
        for instance in self.instances:
            try:
                instance.close()
            except Exception as error:
                log.error("finalize of %s raised %s: %s", instance.name, type(error).__name__, error)
        self.closed.set()
