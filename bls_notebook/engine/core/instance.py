"""`Instance`: the unit of concurrency of a model version, and its `is_ready`.

At most one `execute` runs in an instance at a time (except the async `execute` of a decoupled model). `holder` is the
execution that occupies the instance, None while it is idle; guarded by the scheduler's lock. A sync `execute` runs on
the instance's `home`, an async one in its `loop`, which has its own thread.

Guarantees of readiness: the result comes within `READY_SECONDS`, even if `is_ready` never returns. Concurrent callers
share one call of `is_ready`. A model without `is_ready` costs nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, TimeoutError
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from bls_notebook.backends.protocol import BackendInstance
from bls_notebook.engine.exception_text import describe
from bls_notebook.engine.waiting.busy_code import report_if_busy
from bls_notebook.engine.waiting.event_loops import ModelLoop
from bls_notebook.engine.waiting.home_threads import HomeThread
from bls_notebook.engine.waiting.worker_threads import start_in_thread
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.records.models import ModelSeen, RecordedInstance

from .model_spec import InstanceSpec

_making = threading.Lock()


def _closed(requests: list[InferenceRequest]) -> Any:
    raise RuntimeError("the model's instance has been finalized")


class Instance:
    """One instance of a model version; `gpu` is its CUDA GPU, -1 for none, `device` its label in displays."""

    __slots__ = (
        "__weakref__", "_finalizing", "_home", "_loop", "backend", "device", "execute", "gpu", "holder", "is_async",
        "limited", "modules", "name", "place", "serve", "serving", "spec",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        backend: BackendInstance,
        device: str = "cpu",
        gpu: int = -1,
        spec: InstanceSpec | None = None,
        home: HomeThread | None = None,
    ) -> None:
        self.name = name
        self.spec = InstanceSpec(name, "CPU", 0) if spec is None else spec
        self.device = device
        self.place = RecordedInstance(ModelSeen(""), name, device, None)  # for profiles; see `LoadedModel.be`
        self.gpu = gpu
        self.backend = backend
        self.execute = backend.execute
        self.is_async = backend.is_async
        self.holder: Any = None  # an `Execution`; before it exists, a `Ticket`, or while it is staged, `limited`
        self.limited: Any = None  # its `LimitedInstance`, if rates are limited
        self.modules: Any = None  # `ModelHome` of its modules, if it has any
        self.serving: set[Any] = set()  # begun tickets without a final response, if there may be several
        self.serve: Any = None  # does the work of its home; set by its model's scheduler
        self._finalizing: Any = None  # the step
        self._home = home
        self._loop: ModelLoop | None = None

    @property
    def home(self) -> HomeThread:
        """The thread of its sync code; a substitute's starts on first use."""
        if self._home is None:
            with _making:
                if self._home is None:
                    self._home = HomeThread(self.name, self.backend)
                    self._home.serve = self.serve
        return self._home

    def served_by(self, serve: Callable[[Any], None]) -> None:
        """Let a function do the work that is posted to the home."""
        self.serve = serve
        if self._home is not None:
            self._home.serve = serve

    @property
    def loop(self) -> ModelLoop:
        """The instance's event loop with its own thread, started on first use."""
        if self._loop is None:
            with _making:  # several threads may begin requests of a decoupled model at once
                if self._loop is None:
                    if self.execute is _closed:
                        _closed([])
                    self._loop = ModelLoop(self.name, self.modules)
        return self._loop

    @property
    def loop_thread(self) -> int:
        """Ident of the loop's thread; 0 without a loop."""
        return 0 if self._loop is None else self._loop.thread

    @property
    def only_execution(self) -> Any:
        """The execution that the instance runs or whose response it owes; None if there are none or several."""
        running = {self.holder, *(ticket.execution for ticket in list(self.serving))}
        running.update(list(self.loop.executions) if self.loop_thread else ())
        running -= {None}
        return running.pop() if len(running) == 1 else None

    def close(self, then: Callable[[BaseException | None], None]) -> None:
        """Finalize the model's instance at its home, which releases its memory at once, and stop its threads.

        `then` is called with the exception of `finalize`, or None, on the home's thread.
        """

        def finalized(step: Any) -> None:
            with _making:
                self.execute = _closed
            if self._loop is not None:
                self._loop.stop()
            if self.limited is not None:
                self.limited.limiter.unregister(self.limited)
            error, step.error = step.error, None
            then(error)

        home = self.home
        self._finalizing = home.begin("finalize", then=finalized)
        home.stop()

    def interrupt_finalize(self) -> None:
        """Interrupt the model's `finalize`, if it runs."""
        if self._finalizing is not None:
            self.home.interrupt(self._finalizing)
            report_if_busy(self._finalizing, "finalize")


READY_SECONDS = 5.0

log = logging.getLogger("bls_notebook")
_lock = threading.Lock()
_open: WeakKeyDictionary[Instance, Future[bool]] = WeakKeyDictionary()  # calls of `is_ready` that have not returned


def is_ready(instance: Instance) -> bool:
    """Return whether an instance's model is ready; False if its `is_ready` does not return in time."""
    if not getattr(instance.backend, "asks_ready", False):
        return instance.backend.ready()
    with _lock:
        answer = _open.get(instance)
        if answer is None:
            answer = _open[instance] = Future()
            start_in_thread(partial(_ask, instance, answer))
    try:
        return answer.result(READY_SECONDS)
    except TimeoutError:
        log.warning("is_ready of %s did not answer within %g s", instance.name, READY_SECONDS)
        return False


def _ask(instance: Instance, answer: Future[bool]) -> None:
    ready = False
    try:
        ready = instance.backend.ready()
    except BaseException as error:
        log.warning("is_ready of %s raised %s", instance.name, describe(error).message)
    finally:
        with _lock:
            _open.pop(instance, None)
        answer.set_result(ready)
