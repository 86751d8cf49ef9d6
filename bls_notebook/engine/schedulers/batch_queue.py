"""The dynamic batcher's queue, and the rules by which a batch is formed of it.

Pure: no locks, no threads, no clock (time is an argument, in nanoseconds). `form` is a function of what
waits, in order, and of the time. `BatchQueue` keeps what waits in levels of priority: a level's requests in
the order in which they came, then those that its policy has put back because they waited too long.

The rules are those of core/src/dynamic_batch_scheduler.cc and scheduler_utils.cc.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol


@dataclass(frozen=True)
class BatchRules:
    """How batches are formed.

    `max_rows`: the most rows of a batch; 1 for a model that does not batch. `preferred`: sizes, in rows, that
    are run at once. `delay`: how long a request may wait for others to make a preferred size, in nanoseconds.
    """

    max_rows: int
    preferred: frozenset[int] = frozenset()
    delay: int = 0

    @property
    def largest(self) -> int:
        """The largest preferred size."""
        return max(self.preferred, default=0)


@dataclass(frozen=True)
class QueuePolicy:
    """What happens to the requests of one level of priority.

    `rejects`: whether a request that waited too long is answered with an error; otherwise it is put back
        behind the others of its level.
    `timeout`: how long a request may wait, in microseconds; 0 for ever.
    `override`: whether a request may ask for a shorter timeout.
    `max_size`: how many may wait; 0 for any number.
    """

    rejects: bool = True
    timeout: int = 0
    override: bool = False
    max_size: int = 0

    def deadline(self, requested: int, now: int) -> int | None:
        """Return when a request that comes now has waited too long; None for never.

        The way through the queue counts as the first microsecond, so a timeout of 1 always expires, as
        on the real server. Without a timeout of its own a policy ignores that of the request.
        """
        timeout = self.timeout
        if self.override and 0 < requested < timeout:
            timeout = requested
        return None if timeout == 0 else now + (timeout - 1) * 1000


@dataclass(eq=False)
class Waiting:
    """One request in the queue.

    `item`: what waits.
    `rows`: at least 1.
    `key`: requests of different keys are never in one batch.
    `since`: when it came.
    `deadline`: when it has waited too long.
    """

    item: Any
    rows: int
    key: Any
    since: int
    deadline: int | None = None


@dataclass(frozen=True)
class Plan:
    """What to do with a queue: run its first `count` requests, or look again at `wait_until`.

    `ended` is why no more of them run: the next has another key (``key``) or too many rows (``rows``), there
    is no next (``queue``), or none came in time (``delay``), the size is preferred (``preferred``), or it is
    the largest (``full``).
    """

    count: int
    wait_until: int | None = None
    ended: str = field(default="", compare=False)


class Waits(Protocol):
    """What `form` needs to know of what waits: see `Waiting`."""

    @property
    def rows(self) -> int: ...
    @property
    def key(self) -> Hashable: ...
    @property
    def since(self) -> int: ...


def form(waiting: Iterable[Waits], now: int, rules: BatchRules) -> Plan:
    """Return which requests an idle instance should run now.

    `waiting`: in the order in which they are to be served. Returns Plan: `count` is the length of a prefix of
    the queue. It is, first of these that applies: the longest prefix of a preferred size; where the next
    request would go beyond the largest preferred size, the prefix before it; the longest prefix that fits, if
    it cannot grow, need not wait or has waited for `delay`; else 0. After the delay a preferred size is not
    held out for any more.
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
    soonest: int | None = None  # no request of `fresh` has waited too long before then

    def __len__(self) -> int:
        return len(self.fresh) + len(self.delayed)

    def add(self, entry: Waiting) -> None:
        self.fresh.append(entry)
        if entry.deadline is not None and (self.soonest is None or entry.deadline < self.soonest):
            self.soonest = entry.deadline

    def late(self, now: int) -> list[Waiting]:
        """Remove and return those that waited too long."""
        if self.soonest is None or now < self.soonest:
            return []
        late = [e for e in self.fresh if e.deadline is not None and now >= e.deadline]
        if late:
            self.fresh = [e for e in self.fresh if e.deadline is None or now < e.deadline]
        self.soonest = min((e.deadline for e in self.fresh if e.deadline is not None), default=None)
        return late


class BatchQueue:
    """What waits for a batch, by priority.

    `policies`: policies of levels that have their own. Level 1 comes before level 2.
    """

    def __init__(self, default: QueuePolicy | None = None, policies: dict[int, QueuePolicy] | None = None):
        self._default = default or QueuePolicy()
        self._policies = policies or {}
        self._levels: dict[int, _Level] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Waiting]:
        """Walk what waits, in the order in which it is to be served."""
        for level in self._ordered():
            yield from level.fresh
            yield from level.delayed

    def _ordered(self) -> list[_Level]:
        if len(self._levels) == 1:
            return list(self._levels.values())
        return [level for _, level in sorted(self._levels.items(), key=lambda pair: pair[0])]

    def policy(self, level: int) -> QueuePolicy:
        """Return the policy of a level."""
        return self._policies.get(level, self._default)

    def add(self, entry: Waiting, level: int = 0) -> bool:
        """Queue a request; False where its level is full."""
        found = self._levels.get(level)
        if found is None:
            found = self._levels[level] = _Level(self.policy(level))
        if 0 < found.policy.max_size <= len(found):
            return False
        found.add(entry)
        self._length += 1
        return True

    def take(self, count: int) -> list[Waiting]:
        """Remove and return the first `count`."""
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
        """Remove the request of an item; False where it does not wait."""
        for level in self._levels.values():
            for part in (level.fresh, level.delayed):
                for entry in part:
                    if entry.item is item:
                        part.remove(entry)
                        self._length -= 1
                        return True
        return False

    def put_back(self, now: int) -> None:
        """Put those that waited too long behind the others, where that is their level's policy."""
        for level in self._levels.values():
            if not level.policy.rejects:
                level.delayed += level.late(now)

    def reject(self, now: int) -> list[Waiting]:
        """Remove and return those that waited too long, where that is their level's policy."""
        out = [e for level in self._levels.values() if level.policy.rejects for e in level.late(now)]
        self._length -= len(out)
        return out

    def next_time(self, *, rejects: bool) -> int | None:
        """Return a time before which `reject` or `put_back` finds nothing; None for never."""
        times = (level.soonest for level in self._levels.values() if level.policy.rejects is rejects)
        return min((t for t in times if t is not None), default=None)
