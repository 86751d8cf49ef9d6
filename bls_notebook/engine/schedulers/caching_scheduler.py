"""The response cache in front of a model's scheduler.

Guarantees: a cached response needs no instance and no queue. It has a warning if it belongs to another request or an
earlier load of the model, or lacks what Triton does not cache. As in Triton, errors of a model are cached, but not
those of its queue or of an ensemble. Decoupled and sequence models have no cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from time import perf_counter_ns

from bls_notebook.engine import observer
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.response_cache import CacheEntry, CacheKey, Shapes
from bls_notebook.engine.core.scheduler import Scheduler
from bls_notebook.engine.error_responses import was_run, with_warnings
from bls_notebook.engine.tensors.outputs import placed
from bls_notebook.engine.ticket import Ticket
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.records.visible_text import first_line

from .lifecycle import Submitting

_loads = itertools.count(1)
_MOST_ERROR = 300  # characters of an error in a warning


class CachingScheduler(Submitting):
    """The repository's response cache in front of another scheduler."""

    def __init__(self, model: LoadedModel, inner: Scheduler) -> None:
        self._model = model
        self._inner = inner
        self.withdraw, self.drop_cancelled = inner.withdraw, inner.drop_cancelled
        self.settled, self.resize = inner.settled, inner.resize
        self._cache = model.server.cache
        self._load = next(_loads)
        self._scope: Hashable = self._load

    def share(self, scope: Hashable) -> None:
        """Share responses with other loads of the model, before it serves; they stay when this load ends."""
        self._scope = scope

    def submit(self, ticket: Ticket) -> None:
        request = ticket.request
        if request is None or not self._cache.takes(request):
            del request
            self._inner.submit(ticket)
            return
        begun = perf_counter_ns()
        key, shapes = self._cache.key(self._scope, request)
        found = self._cache.lookup(key)
        looked = perf_counter_ns() - begun
        if found is None:
            ticket.keep = partial(self._keep, key, shapes, looked)
            del request
            self._inner.submit(ticket)
            return
        self._cache.timed(looked, 0)
        self._model.statistics.hit(begun + looked - ticket.arrived, looked)
        ticket.request = None
        ticket.outside = True
        ticket.finish(self._response(found, shapes, ticket))

    def _response(self, found: CacheEntry, shapes: Shapes, ticket: Ticket) -> InferenceResponse:
        faults = [
            f"model '{self._model.name}': answered from its response cache{fault}"
            for fault in self._faults(found, shapes, ticket.requested)
        ]
        found.response._parameters = "{}"
        found.response._warnings += tuple(faults)
        response = placed(found.response, ticket.requested, ticket.observed)
        if ticket.observed is not None and (watching := observer.active) is not None:
            watching.marked(ticket.observed, "cached")
            watching.returned(ticket.observed, response._outputs, response._outputs, "")
        return with_warnings(response, self._model, None, ticket.parent)

    def _faults(self, found: CacheEntry, shapes: Shapes, requested: tuple[str, ...]) -> Iterator[str]:
        """Yield what is wrong with a cached response, as it would be on a server."""
        response = found.response
        if found.load != self._load:
            yield (
                " with a response from before the model was loaded again: Triton keeps responses until it ends; use "
                "another version number, or restart the server"
            )
        if found.shapes != shapes:
            first = ", ".join(f"{name} {list(shape)}" for name, shape in found.shapes)
            yield f" with the response to another request, with {first}: Triton compares bytes and no shapes"
        outputs = {tensor._name for tensor in response._outputs}
        if found.error:
            error = first_line(found.error, _MOST_ERROR)
            yield (
                f" without outputs and without an error, because the first equal request failed ({error}), and Triton "
                "caches errors as empty responses; disable response_cache, or report errors in an output"
            )
        elif not outputs.issuperset(requested) or not outputs.issubset(requested):
            names = ", ".join(sorted(outputs)) or "none"
            yield f" with the outputs of the first equal request ({names}): Triton does not compare requested outputs"
        if response._parameters != "{}" and self._model.spec.scheduler != "ensemble":  # it names the sequence, always
            yield " without the response's parameters, which Triton does not cache"

    def _keep(self, key: CacheKey, shapes: Shapes, looked: int, response: InferenceResponse) -> None:
        error = response._error
        if error is not None and (self._model.spec.scheduler == "ensemble" or not was_run(response, self._model)):
            return
        begun = perf_counter_ns()
        words = "" if error is None else error._message or "an error without a message"
        added = self._cache.insert(key, CacheEntry(response, shapes, self._load, words))
        took = perf_counter_ns() - begun
        self._cache.timed(looked, took)
        if added:
            self._model.statistics.miss(looked + took)

    @property
    def pending(self) -> int:
        return self._inner.pending

    def close(self, on_drained: Callable[[], None]) -> None:
        def drained() -> None:
            self._cache.forget(self._load)  # does nothing if it shares its responses
            on_drained()

        self._inner.close(drained)
