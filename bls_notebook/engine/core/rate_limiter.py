"""`RateLimiter`: shares resources among the instances of all models, as Triton's option ``--rate-limit``.

An instance that has work is *staged*. The first staged instance, the one with the lowest product of executions and
priority, gets its resources once they are free, and runs.

As on the server, each event (an instance is staged, or has run) lets at most one instance run, nothing overtakes the
first staged instance, and equal instances have the order of the server's heap. No lock is held while `start` runs.
Mirrors core/src/rate_limiter.cc.
"""

from __future__ import annotations

import heapq
import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bls_notebook.engine.errors import BLSError, ConfigError

Resource = tuple[int, str]  # device and name
GLOBAL, EVERY = -2, -1  # devices of resources that all devices share, and of counts for each device
log = logging.getLogger("bls_notebook")
_FIRST_EXECUTIONS = 2  # Triton counts `initialize` and the warm-up


def rate_limiter(mode: str, options: Iterable[str]) -> RateLimiter | None:
    """Return the rate limiter for Triton's options `--rate-limit` and `--rate-limit-resource`; None for ``off``."""
    if mode not in ("off", "execution_count"):
        raise BLSError(f"rate_limit: got {mode!r}, expected 'off' or 'execution_count'")
    counts = parsed_resources(options)
    return RateLimiter(counts) if mode == "execution_count" else None


def parsed_resources(options: Iterable[str]) -> dict[Resource, int]:
    """Return the counts in texts such as ``R1:4`` and ``R2:5:0``; of equal resources, the smaller count."""
    counts: dict[Resource, int] = {}
    for option in [options] if isinstance(options, str) else options:
        name, *numbers = str(option).split(":")
        try:
            count, device = map(int, [*numbers, str(EVERY)][:2] if len(numbers) < 3 else ())
        except ValueError:
            raise BLSError(
                f"rate_limit_resources: got {option!r}, expected <name>:<count> or <name>:<count>:<device>, as in R1:4"
            ) from None
        counts[device, name] = min(count, counts.get((device, name), count))
    return counts


class LimitedInstance:
    """The rate limiter's side of an instance; the `holder` of the instance while it is staged."""

    __slots__ = ("executions", "instance", "limiter", "priority", "resources", "start")

    def __init__(self, limiter: RateLimiter, resources: Mapping[Resource, int], priority: int) -> None:
        self.limiter = limiter
        self.resources = resources
        self.priority = max(priority, 1)
        self.executions = _FIRST_EXECUTIONS
        self.instance: Any = None
        self.start: Callable[[], None] | None = None  # while it is staged

    @property
    def scaled_priority(self) -> int:
        return self.executions * self.priority

    def __lt__(self, other: LimitedInstance) -> bool:
        return self.scaled_priority < other.scaled_priority


class RateLimiter:
    """The resources of a server, and its instances; `counts` are those of `--rate-limit-resource`.

    Without any, there is as much of a resource as the instance that needs most of it needs.
    """

    def __init__(self, counts: Mapping[Resource, int]) -> None:
        self._counts = counts
        self._lock = threading.Lock()
        self._instances: set[LimitedInstance] = set()
        self._staged: list[LimitedInstance] = []  # a heap
        self._running: set[LimitedInstance] = set()
        self._used: Counter[Resource] = Counter()

    @property
    def options(self) -> list[str]:
        """The options of a tritonserver with the same rate limiter."""
        resources = [
            f"--rate-limit-resource={name}:{count}" + f":{device}" * (device != EVERY)
            for (device, name), count in self._counts.items()
        ]
        return ["--rate-limit=execution_count", *resources]

    def register(self, model: str, config: Any, device: int) -> LimitedInstance:
        """Add an instance with a `ModelRateLimiter`; ConfigError if it could never run."""
        resources = {(GLOBAL if getattr(r, "global") else device, r.name): r.count for r in config.resources}
        instance = LimitedInstance(self, resources, config.priority)
        with self._lock:
            self._instances.add(instance)
            problem, remedy = self._problem(instance)
            if problem:
                self._instances.remove(instance)
        if problem:
            error = ConfigError(f"model {model!r}: instance_group.rate_limiter: {problem} {remedy}")
            error.reason = f"Invalid argument: {problem}"
            raise error
        self._log_limits()
        return instance

    def unregister(self, instance: LimitedInstance) -> None:
        """Remove an instance, and let another one run with its resources."""
        with self._lock:
            self._instances.discard(instance)
            if instance in self._staged:
                self._staged.remove(instance)
                heapq.heapify(self._staged)
            self._give_back(instance)
        self._log_limits()
        self.attempt()

    def _log_limits(self) -> None:
        """Log how much of each resource there is, in the words, and with the escapes, of the server."""
        if log.isEnabledFor(logging.DEBUG):
            with self._lock:
                resources = sorted({resource for each in self._instances for resource in each.resources})
                rows = [
                    f"\tDevice: {'GLOBAL' if device == GLOBAL else device}\n"
                    f"\t\tResource: {name}\t Count: {self._limit((device, name))}\n"
                    for device, name in resources
                ]
            log.debug("%s", json.dumps("".join(["\nMax Resource Map===>\n", *rows])))

    def stage(self, instance: LimitedInstance, start: Callable[[], None]) -> None:
        """Call `start` once the instance may run."""
        with self._lock:
            instance.start = start
            instance.instance.holder = instance
            heapq.heappush(self._staged, instance)
        self.attempt()

    def release(self, instance: LimitedInstance) -> None:
        """Take back what an instance that has run held; the caller stages it again if it has work, then `attempt`."""
        with self._lock:
            if self._give_back(instance):
                instance.executions += 1

    def attempt(self) -> None:
        """Let the first staged instance run if its resources are free."""
        with self._lock:
            if not self._staged or self._lacking(self._staged[0]):
                return
            instance = heapq.heappop(self._staged)
            self._used.update(instance.resources)
            self._running.add(instance)
            start, instance.start = instance.start, None
        if start is not None:
            start()

    def blockers(self, instance: LimitedInstance) -> list[Any]:
        """Return what holds the instances of which any must move before a staged one can run; empty if it runs."""
        with self._lock:
            if instance.start is None:
                return []
            first = self._staged[0]
            if first is not instance:
                return [first]
            lacking = self._lacking(instance)
            return [i.instance.holder for i in self._running if not lacking or lacking & i.resources.keys()]

    def _give_back(self, instance: LimitedInstance) -> bool:
        """Free the resources of an instance, if it runs; lock held."""
        if instance not in self._running:
            return False
        self._running.remove(instance)
        self._used.subtract(instance.resources)
        return True

    def _lacking(self, instance: LimitedInstance) -> set[Resource]:
        return {r for r, count in instance.resources.items() if self._used[r] + count > self._limit(r)}

    def _limit(self, resource: Resource) -> int:
        """Return how much of a resource there is; lock held."""
        if not self._counts:
            return max((i.resources.get(resource, 0) for i in self._instances), default=0)
        device, name = resource
        devices = {device for device, _ in self._counts} if device == GLOBAL else (device, EVERY)
        return max(self._counts.get((each, name), 0) for each in devices)

    def _problem(self, instance: LimitedInstance) -> tuple[str, str]:
        """Return Triton's error for a new instance, and a remedy; two empty texts for none. Lock held."""
        for resource, count in sorted(instance.resources.items()):
            if (limit := self._limit(resource)) < count:
                return (
                    f'Resource count for "{resource[1]}" is limited to {limit} which will prevent scheduling of one or '
                    f"more model instances, the minimum required count is {count}",
                    f"(raise it in rate_limit_resources: '{resource[1]}:{count}')",
                )
        needed = {resource for each in self._instances for resource in each.resources}
        shared = {name for device, name in needed if device == GLOBAL}
        for name in sorted(name for device, name in needed if device != GLOBAL and name in shared):
            return (
                f'Resource "{name}" is present as both global and device-specific resource in the model configuration.',
                "(give one of the two another name)",
            )
        return "", ""
