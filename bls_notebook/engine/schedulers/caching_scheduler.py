"""The response cache in front of a model's scheduler.

Guarantees: a cached response needs no instance and no queue; only complete responses without an error are cached.
Decoupled and sequence models have no cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from time import perf_counter_ns

from bls_notebook.engine import observer
from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.response_cache import CacheKey
from bls_notebook.engine.core.scheduler import Scheduler
from bls_notebook.engine.error_responses import with_warnings
from bls_notebook.engine.observer import Observed
from bls_notebook.engine.tensors.outputs import placed
from bls_notebook.engine.ticket import Ticket
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

_numbers = itertools.count(1)


class CachingScheduler:
    """The repository's response cache in front of another scheduler."""

    def __init__(self, model: LoadedModel, inner: Scheduler) -> None:
        self._model = model
        self._inner = inner
        self.withdraw, self.settled, self.resize = inner.withdraw, inner.settled, inner.resize
        self._cache = model.server.cache
        self._number = next(_numbers)

    def call(self, parent: Execution, request: InferenceRequest) -> InferenceResponse:
        parent.note_blocking(self._model.name)
        begun = perf_counter_ns()
        if not self._cache.takes(request):
            box = [request]
            del request
            return self._inner.call(parent, box.pop())
        key = self._cache.key(self._number, request)
        requested = request._requested
        found = self._cache.lookup(key, requested)
        looked = perf_counter_ns() - begun
        if found is not None:
            self._hit(begun + looked - request._arrived, looked)
            if request._observed is not None and (watching := observer.active) is not None:
                watching.sent(self._model, parent, request, perf_counter_ns())
                watching.answered(request._observed, found)
            return self._response(found, requested, request._observed, parent)
        box = [request]
        del request  # with a reference here, its tensors would be copied
        response = self._inner.call(parent, box.pop())
        self._keep(key, requested, looked, response)
        return response

    def submit(self, ticket: Ticket) -> None:
        request = ticket.request
        if request is None or not self._cache.takes(request):
            del request
            self._inner.submit(ticket)
            return
        begun = perf_counter_ns()
        key = self._cache.key(self._number, request)
        found = self._cache.lookup(key, ticket.requested)
        looked = perf_counter_ns() - begun
        if found is None:
            ticket.keep = partial(self._keep, key, ticket.requested, looked)
            del request
            self._inner.submit(ticket)
            return
        self._hit(begun + looked - ticket.arrived, looked)
        ticket.request = None
        ticket.outside = True
        ticket.finish(self._response(found, ticket.requested, ticket.observed, ticket.parent))

    def _response(
        self, found: InferenceResponse, requested: tuple[str, ...], observed: Observed | None, parent: Execution | None
    ) -> InferenceResponse:
        response = placed(found, requested, observed)
        if observed is not None and (watching := observer.active) is not None:
            watching.marked(observed, "cached")
            watching.returned(observed, response._outputs, response._outputs, "")
        return with_warnings(response, self._model, None, parent)

    def _hit(self, request_ns: int, lookup_ns: int) -> None:
        self._cache.timed(lookup_ns, 0)
        self._model.statistics.hit(request_ns, lookup_ns)

    def _keep(self, key: CacheKey, requested: tuple[str, ...], looked: int, response: InferenceResponse) -> None:
        if response._error is not None:
            return
        begun = perf_counter_ns()
        self._cache.insert(key, requested, response)
        took = perf_counter_ns() - begun
        self._cache.timed(looked, took)
        self._model.statistics.miss(looked + took)

    @property
    def pending(self) -> int:
        return self._inner.pending

    def close(self, on_drained: Callable[[], None]) -> None:
        def drained() -> None:
            self._cache.forget(self._number)
            on_drained()

        self._inner.close(drained)
