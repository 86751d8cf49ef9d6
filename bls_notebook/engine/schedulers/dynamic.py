"""The dynamic batcher: queued requests of equal shapes run together (config `dynamic_batching`).

`form` and `BatchQueue` decide which requests make a batch. They use no locks, threads or clock (times are arguments,
in nanoseconds). Mirrors core/src/dynamic_batch_scheduler.cc and scheduler_utils.cc.

Guarantees, besides those of `BatchScheduler`: requests of one priority level are taken in order. No batch is larger
than max_batch_size. A request that waits longer than its queue policy allows is rejected at that moment, even if no
instance is idle.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from bls_notebook.engine.batch_runner import PendingAnswers
from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.model_spec import ModelSpec
from bls_notebook.engine.error_responses import error_response
from bls_notebook.engine.errors import of_request
from bls_notebook.engine.home_call import home_call
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.clock import Clock
from bls_notebook.pb_utils.errors import ErrorCode
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse

from .batch_scheduler import WORK, BatchScheduler, Ordering


@dataclass(frozen=True)
class BatchRules:
    """The rules for forming batches; sizes are rows."""

    max_rows: int  # 1 for a model that does not batch
    preferred: frozenset[int] = frozenset()  # sizes that run at once
    delay: int = 0  # ns that a request may wait for others to make a preferred size

    @property
    def largest(self) -> int:
        return max(self.preferred, default=0)


@dataclass(frozen=True)
class QueuePolicy:
    """The queue policy of one priority level."""

    rejects: bool = True  # whether expired requests are rejected; else they go to the end of their level
    timeout: int = 0  # microseconds in the queue; 0 for no limit
    override: bool = False  # whether a request may set a shorter timeout
    max_size: int = 0  # 0 for no limit

    def deadline(self, requested: int, now: int) -> int | None:
        """Return the time (ns) when a request that arrives now expires, or None.

        A timeout of 1 expires at once, because on the real server a request is in the queue for at least 1 µs. A policy
        without a timeout ignores the request's timeout.
        """
        timeout = self.timeout
        if self.override and 0 < requested < timeout:
            timeout = requested
        return None if timeout == 0 else now + (timeout - 1) * 1000


@dataclass(eq=False)
class Waiting:
    """One request in the queue."""

    item: Any
    rows: int  # at least 1
    key: Any  # only requests with equal keys share a batch
    since: int
    deadline: int | None = None


@dataclass(frozen=True)
class Plan:
    """Run the first `count` requests of a queue, or decide again at `wait_until`.

    `ended` is the reason why no more run: the next request has another key (``key``) or too many rows (``rows``), the
    queue is empty (``queue``), none came during the delay (``delay``), or the size is a preferred (``preferred``) or
    the largest one (``full``).
    """

    count: int
    wait_until: int | None = None
    ended: str = field(default="", compare=False)


def form(waiting: Iterable[Any], now: int, rules: BatchRules) -> Plan:
    """Return how many requests, in order of service, an idle instance should run now.

    `waiting` are `Waiting` objects, or others with `rows`, `key` and `since`.

    The first rule that applies: the longest prefix with a preferred size; the prefix before a request that exceeds the
    largest preferred size; the longest prefix that fits, if it cannot grow, need not wait, or has waited for the
    delay; else none. After the delay, preferred sizes have no effect.
    """
    rows = count = best = 0
    oldest = 0
    key: Hashable = None
    ended = "queue"
    for entry in waiting:
        if count == 0:
            key, oldest = entry.key, entry.since
        else:
            if best == 0 and rows + entry.rows > rules.largest:
                best = count
            if rows + entry.rows > rules.max_rows:
                ended = "rows" if rows < rules.max_rows else "full"
                break
            if entry.key != key:
                ended = "key"
                break
            oldest = min(oldest, entry.since)
        rows += entry.rows
        count += 1
        if rows in rules.preferred:
            best = count
    if count == 0:
        return Plan(0)
    late = rules.delay > 0 and now - oldest >= rules.delay
    if best and not late:
        ended = "full" if rows >= rules.max_rows else ended if best == count and ended != "queue" else "preferred"
        return Plan(best, ended=ended)
    if late and ended == "queue":
        ended = "delay"
    if ended != "queue" or rules.delay == 0 or rows >= rules.largest:
        return Plan(count, ended="full" if rows >= rules.max_rows else ended)
    return Plan(0, oldest + rules.delay)


@dataclass
class _Level:
    policy: QueuePolicy
    fresh: list[Waiting] = field(default_factory=list)
    delayed: list[Waiting] = field(default_factory=list)
    soonest: int | None = None  # before this time, no request of `fresh` expires

    def __len__(self) -> int:
        return len(self.fresh) + len(self.delayed)

    def add(self, entry: Waiting) -> None:
        self.fresh.append(entry)
        if entry.deadline is not None and (self.soonest is None or entry.deadline < self.soonest):
            self.soonest = entry.deadline

    def late(self, now: int) -> list[Waiting]:
        """Remove and return expired requests."""
        if self.soonest is None or now < self.soonest:
            return []
        late = [e for e in self.fresh if e.deadline is not None and now >= e.deadline]
        if late:
            self.fresh = [e for e in self.fresh if e.deadline is None or now < e.deadline]
        self.soonest = min((e.deadline for e in self.fresh if e.deadline is not None), default=None)
        return late


class BatchQueue:
    """Requests that wait for a batch, by priority level; level 1 comes before level 2."""

    def __init__(self, default: QueuePolicy | None = None, policies: dict[int, QueuePolicy] | None = None):
        self._default = default or QueuePolicy()
        self._policies = policies or {}
        self._levels: dict[int, _Level] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Waiting]:
        """Iterate in the order of service."""
        for level in self._ordered():
            yield from level.fresh
            yield from level.delayed

    def _ordered(self) -> list[_Level]:
        if len(self._levels) == 1:
            return list(self._levels.values())
        return [level for _, level in sorted(self._levels.items(), key=lambda pair: pair[0])]

    def policy(self, level: int) -> QueuePolicy:
        return self._policies.get(level, self._default)

    def add(self, entry: Waiting, level: int = 0) -> bool:
        """Queue a request; False if its level is full."""
        queue = self._levels.get(level)
        if queue is None:
            queue = self._levels[level] = _Level(self.policy(level))
        if 0 < queue.policy.max_size <= len(queue):
            return False
        queue.add(entry)
        self._length += 1
        return True

    def take(self, count: int) -> list[Waiting]:
        taken = list(islice(self, count))
        left = count
        for level in self._ordered():
            for part in (level.fresh, level.delayed):
                gone = min(left, len(part))
                del part[:gone]
                left -= gone
        self._length -= len(taken)
        return taken

    def remove(self, item: Any) -> bool:
        for level in self._levels.values():
            for part in (level.fresh, level.delayed):
                for entry in part:
                    if entry.item is item:
                        part.remove(entry)
                        self._length -= 1
                        return True
        return False

    def put_back(self, now: int) -> None:
        """Move expired requests to the end of their level, in levels that do not reject them."""
        for level in self._levels.values():
            if not level.policy.rejects:
                level.delayed += level.late(now)

    def reject(self, now: int) -> list[Waiting]:
        """Remove and return expired requests, in levels that reject them."""
        out = [e for level in self._levels.values() if level.policy.rejects for e in level.late(now)]
        self._length -= len(out)
        return out

    def next_time(self, *, rejects: bool) -> int | None:
        """Return the time of the next call of `reject` or `put_back` that may have an effect; None for never."""
        times = (level.soonest for level in self._levels.values() if level.policy.rejects is rejects)
        return min((t for t in times if t is not None), default=None)


_DELAY = 1  # ModelQueuePolicy.TimeoutAction


def rows_in_batch(spec: ModelSpec, request: InferenceRequest) -> int:
    """Return the rows that a request takes in a batch; at least 1, as in Triton."""
    if spec.max_batch_size > 0:
        for tensor in request._inputs:
            declared = spec.inputs.get(tensor._name)
            if declared is None or not declared.is_shape_tensor:
                return max(1, int(tensor._array.shape[0]))
    return 1


class ShapeKey:
    """Computes keys of requests: requests with equal keys may share a batch.

    A key contains the shapes of inputs with varying sizes, unless they are ragged, and the content of shape tensors. In
    models with optional inputs, it also contains the names of the inputs.
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

    def __init__(self, model: LoadedModel, clock: Clock | None = None, rules: BatchRules | None = None) -> None:
        super().__init__(model, clock)
        spec = model.spec
        config = spec.config.dynamic_batching
        self._rules = rules or BatchRules(
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
        # Without a delay and timeouts, a request that is alone can run at once.
        timed = any(policy.timeout or policy.override for policy in (default, *policies.values()))
        self._prefetches = not (timed or default.max_size or self._levels or self._rules.delay)
        if not (self._limiter or self._async or model.decoupled or self._ordering or self._rules.delay or timed):
            self.call, self._run = home_call(model, self, self._runner)  # type: ignore[assignment, method-assign]
        self._grows_at: int | None = None  # end of the delay of the waiting batch

    def _serve(self, instance: Instance, work: Any) -> None:
        if work is not WORK:  # a request that was given to an idle instance
            if not self._run(instance, work):
                self._runner.run(instance, (work,), partial(self._free, instance))
            self._look()
        else:
            super()._serve(instance, work)

    def rule(self, rules: BatchRules) -> None:
        """Replace the rules, which profiling does to compare them."""
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
            return error_response(
                of_request(self._model.name, options.request_id, "Exceeds maximum queue size"), ErrorCode.UNAVAILABLE
            )
        ticket.expires = deadline is not None and policy.rejects
        return None

    def drop_cancelled(self, ticket: Ticket) -> bool:
        """Drop a waiting request, unless the server's batcher would have prefetched it.

        While all instances are busy, that prefetches two batches for each instance: what it has prefetched runs. A
        queue with timeouts, priorities or a size limit, or one that waits for larger batches, prefetches nothing.
        """
        if self._prefetches:
            with self._lock:
                next_ones = islice(self._waiting, 0 if self._idle else 2 * self._count)
                if any(entry.item is ticket for entry in next_ones):
                    return False
        return self.withdraw(ticket)

    def _most_asked(self) -> int:
        """With a rate limiter, an instance for each batch, as the server, which fills one batch before the next."""
        if self._limiter is None:
            return len(self._queue)
        batches = -(-sum(entry.rows for entry in self._waiting) // self._rules.max_rows)
        return min(batches, len(self._queue)) - len(self._asked)

    def _remove(self, ticket: Ticket) -> None:
        self._waiting.remove(ticket)

    def _pick(self, instance: Instance, now: int, take: bool, answers: PendingAnswers) -> list[Ticket]:
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
        """Return the reason why a batch has no more requests; for a different key, with the input that differs."""
        if ended != "key":
            return ended
        ours, following = ({name: rest for name, *rest in k} for k in (key, next(iter(self._waiting)).key))
        if ours.keys() != following.keys():
            return "inputs"
        return f"shape:{next(name for name in ours if ours[name] != following[name])}"

    def _expire(self, now: int, answers: PendingAnswers) -> None:
        late = self._waiting.reject(now)
        self._leave([entry.item for entry in late])
        for entry in late:
            answers.append((entry.item, error_response("Request timeout expired", ErrorCode.UNAVAILABLE)))

    def _wake_at(self, now: int) -> int | None:
        # With an empty queue, the time belongs to requests that were withdrawn.
        grows_at = self._grows_at if self._idle and self._queue else None
        # Moving an expired request to the end may leave a prefix with a preferred size.
        put_back = None if grows_at is None else self._waiting.next_time(rejects=False)
        times = (self._waiting.next_time(rejects=True), grows_at, put_back)
        return min((t for t in times if t is not None), default=None)

    def _ordering_of(self, ticket: Ticket) -> Ordering | None:
        return self._ordering


class OneByOne(DynamicBatcher):
    """The default scheduler with a rate limiter: each request is a batch."""

    _keeps_cancelled = True

    def __init__(self, model: LoadedModel) -> None:
        super().__init__(model, rules=BatchRules(1))

    def drop_cancelled(self, ticket: Ticket) -> bool:
        """Keep a cancelled request, as the server's default scheduler does."""
        return False
