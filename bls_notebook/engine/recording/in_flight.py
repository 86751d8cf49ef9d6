"""What runs at this moment, for a profile that ends or is looked at meanwhile.

On the shortest ways through the engine a request is recorded when it is over. Those that are not over are
found by their instances. Guarantees: nothing is waited for; what ends just now may be missed by this, and is
then recorded by itself.
"""

from __future__ import annotations

from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.model import in_memory
from bls_notebook.observe.recording import Log

__all__ = ["record_running"]


def record_running(log: Log) -> None:
    """Record that the requests that run now are running."""
    for model in list(in_memory):
        for instance in (*model.instances, *model.leaving):
            execution = instance.holder
            if isinstance(execution, Execution) and execution.span and execution.started:
                request = execution.request
                if request is not None:  # on its caller's thread: nothing was recorded yet
                    log.begin(
                        execution.span,
                        0 if execution.parent is None else execution.parent.span,
                        model.seen,
                        request._kind,
                        request._options.request_id,
                        request._inputs,
                        request._arrived,
                        0,
                    )
                if request is not None or execution.tickets:
                    where = (instance.place, execution.thread, 1)
                    log.placed.extend((execution.span, *where, execution.started, 0))
