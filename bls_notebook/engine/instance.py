"""`Instance`: the unit of concurrency of a model version.

At most one `execute` runs in an instance at a time (async `execute` of a decoupled model apart). `holder`
is who occupies it, None while it is idle; it is written under the scheduler's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bls_notebook.backends.protocol import BackendInstance

from .loops import ModelLoop

if TYPE_CHECKING:
    from .execution import Execution
    from .ticket import Ticket

__all__ = ["Instance"]


class Instance:
    """One instance of a model version.

    Parameters
    ----------
    name : str
        As Triton names it, such as ``add_sub_0``.
    backend : BackendInstance
        Executes requests.
    device : str
        Where it is, as it is shown: ``cpu``, ``gpu:0``, ``gpu:0 (simulated)``.
    gpu : int
        Number of the CUDA GPU that it is on; -1 for none.
    """

    __slots__ = ("__weakref__", "_loop", "backend", "device", "execute", "gpu", "holder", "is_async", "name")

    def __init__(self, name: str, backend: BackendInstance, device: str = "cpu", gpu: int = -1) -> None:
        self.name = name
        self.device = device
        self.gpu = gpu
        self.backend = backend
        self.execute = backend.execute
        self.is_async = backend.is_async
        self.holder: Execution | Ticket | None = None
        self._loop: ModelLoop | None = None

    @property
    def loop(self) -> ModelLoop:
        """The instance's own event loop, in a thread of its own; started when first used."""
        if self._loop is None:
            self._loop = ModelLoop(self.name)
        return self._loop

    @property
    def loop_thread(self) -> int:
        """Identity of the thread of its loop; 0 while it has none."""
        return 0 if self._loop is None else self._loop.thread

    @property
    def load(self) -> int:
        """How many executions share the instance's loop."""
        return 0 if self._loop is None else len(self._loop.executions)

    def close(self) -> None:
        """Finalize the model's instance and stop its loop."""
        try:
            self.backend.finalize()
        finally:
            if self._loop is not None:
                self._loop.stop()
                self._loop = None
