"""The dynamic batcher: queued requests of equal shapes run together (config `dynamic_batching`).

Guarantees: those of `BatchScheduler`; requests of a level of priority are taken in order, and no batch is
larger than max_batch_size; a request that waits longer than its queue policy allows is answered the moment
its time is up, whether an instance is free or not. What makes a batch is decided in `batch_queue`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.spec import ModelSpec
from bls_notebook.engine.error_messages import TIMEOUT_EXPIRED, queue_full
from bls_notebook.engine.failures import error_response
from bls_notebook.engine.inline import inline_call
from bls_notebook.engine.runner import Answers
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.threads import start_in_thread
from bls_notebook.pb_utils.errors import ErrorCode
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from .base import BatchScheduler
from .batch_queue import BatchQueue, BatchRules, QueuePolicy, Waiting, form
from .clock import Clock
from .ordering import Ordering

_DELAY = 1  # ModelQueuePolicy.TimeoutAction


def rows_in_batch(spec: ModelSpec, request: InferenceRequest) -> int:
    """Return how many rows of a batch a request takes; at least 1, as in Triton."""
    if spec.max_batch_size > 0:
        for tensor in request._inputs:
            declared = spec.inputs.get(tensor._name)
            if declared is None or not declared.is_shape_tensor:
                return max(1, int(tensor._array.shape[0]))
    return 1


class ShapeKey:
    """Tells which requests may share a batch: those of equal keys.

    Inputs of a fixed shape and ragged ones are not compared; of shape tensors the contents are. Where a
    model has optional inputs, the requests must have the same ones.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._compared = {
            name: tensor.is_shape_tensor
            for name, tensor in spec.inputs.items()
            if tensor.is_shape_tensor or (-1 in tensor.dims and not tensor.allow_ragged_batch)
        }
        self._first = 1 if spec.max_batch_size > 0 else 0
        self._names = any(tensor.optional for tensor in spec.inputs.values())

    def of(self, request: InferenceRequest) -> Hashable:
        """Return the key of a request."""
        parts: list[Any] = []
        for tensor in request._inputs:
            values = self._compared.get(tensor._name)
            if values is not None:
                shape = tensor._array.shape
                first = 0 if values else self._first
                parts.append((tensor._name, shape[first:], tensor._array.tobytes() if values else b""))
            elif self._names:
                parts.append((tensor._name, (), b""))
        return frozenset(parts)


def _policy(message: Any) -> QueuePolicy:
    return QueuePolicy(
        rejects=message.timeout_action != _DELAY,
        timeout=message.default_timeout_microseconds,
        override=message.allow_timeout_override,
        max_size=message.max_queue_size,
    )


class DynamicBatcher(BatchScheduler):
    """Dynamic batcher of one model version; see `BatchScheduler` for the parameters."""

    def __init__(
        self,
        model: LoadedModel,
        clock: Clock | None = None,
        start: Callable[[Callable[[], None]], None] = start_in_thread,
    ) -> None:
        super().__init__(model, clock, start)
        spec = model.spec
        config = spec.config.dynamic_batching
        self._rules = BatchRules(
            max_rows=max(1, spec.max_batch_size),
            preferred=frozenset(config.preferred_batch_size),
            delay=config.max_queue_delay_microseconds * 1000,
        )
        self._levels = config.priority_levels
        self._default_level = config.default_priority_level if self._levels else 0
        policies = {n: _policy(config.priority_queue_policy[n]) for n in config.priority_queue_policy}
        default = _policy(config.default_queue_policy)
        self._waiting = BatchQueue(default, policies if self._levels else None)
        self._key = ShapeKey(spec)
        self._ordering = Ordering() if config.preserve_ordering else None
        # Where a batch never waits for more, and no request can be late, one that is alone goes the shortest
        # way.
        timed = any(policy.timeout or policy.override for policy in (default, *policies.values()))
        if not (self._async or model.decoupled or self._ordering or self._rules.delay or timed):
            self.call = inline_call(model, self, self._look)  # type: ignore[assignment,method-assign]
        self._grows_at: int | None = None  # when a batch that waits for more need wait no longer

    def rule(self, rules: BatchRules) -> None:
        """Form batches by other rules from now on: for who measures some."""
        with self._lock:
            self._rules = rules

    def _accept(self, ticket: Ticket, now: int) -> InferenceResponse | None:
        request = ticket.request
        assert request is not None
        options = request._options
        level = options.priority if 0 < options.priority <= self._levels else self._default_level
        policy = self._waiting.policy(level)
        deadline = policy.deadline(options.timeout, now)
        entry = Waiting(ticket, rows_in_batch(self._model.spec, request), self._key.of(request), now, deadline)
        if not self._waiting.add(entry, level):
            return error_response(queue_full(self._model.name, options.request_id), ErrorCode.UNAVAILABLE)
        ticket.expires = deadline is not None and policy.rejects
        return None

    def _remove(self, ticket: Ticket) -> None:
        self._waiting.remove(ticket)

    def _pick(self, instance: Instance, now: int, take: bool, answers: Answers) -> list[Ticket]:
        self._waiting.put_back(now)
        plan = form(self._waiting, now, self._rules)
        self._grows_at = plan.wait_until
        if not plan.count:
            return []
        if not take:
            return [next(iter(self._waiting)).item]
        taken = self._waiting.take(plan.count)
        self._model.statistics.batch_ended(self._why(plan.ended, taken[0].key), len(self._waiting) > 0)
        batch = [entry.item for entry in taken]
        if self._ordering is not None:
            self._ordering.enrol(batch)
        return batch

    def _why(self, ended: str, key: Any) -> str:
        """Why a batch has no more requests; of a next one that differs, by which input."""
        if ended != "key":
            return ended
        one, other = ({name: rest for name, *rest in found} for found in (key, next(iter(self._waiting)).key))
        if one.keys() != other.keys():
            return "inputs"
        return f"shape:{next(name for name in one if one[name] != other[name])}"

    def _expire(self, now: int, answers: Answers) -> None:
        late = self._waiting.reject(now)
        self._leave([entry.item for entry in late])
        for entry in late:
            answers.append((entry.item, error_response(TIMEOUT_EXPIRED, ErrorCode.UNAVAILABLE)))

    def _wake_at(self, now: int) -> int | None:
        # Without a queue it is that of a batch that has been answered otherwise.
        grows_at = self._grows_at if self._idle and self._queue else None
        # Who is put back may leave a preferred size before it.
        put_back = None if grows_at is None else self._waiting.next_time(rejects=False)
        times = (self._waiting.next_time(rejects=True), grows_at, put_back)
        return min((t for t in times if t is not None), default=None)

    def _ordering_of(self, ticket: Ticket) -> Ordering | None:
        return self._ordering
