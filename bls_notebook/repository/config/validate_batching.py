"""What Triton refuses of `dynamic_batching`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .proto import ModelConfigMessage, model_config_pb2

__all__ = ["dynamic_batching_problems", "preferred_size_problems"]


def preferred_size_problems(config: ModelConfigMessage, sizes: Iterable[int], where: str) -> Iterator[str]:
    """Yield the preferred batch sizes that are not in 1 .. max_batch_size."""
    for size in sizes:
        if not 0 < size <= config.max_batch_size:
            limit = (
                f"use sizes from 1 to max_batch_size ({config.max_batch_size})"
                if config.max_batch_size > 0
                else "the model does not batch: set max_batch_size, or leave the sizes out"
            )
            yield f"{where}.preferred_batch_size has {size}; {limit}"


def dynamic_batching_problems(config: ModelConfigMessage) -> Iterator[str]:
    """Yield preferred sizes, priorities and queue policies that Triton refuses."""
    batching = config.dynamic_batching
    yield from preferred_size_problems(config, batching.preferred_batch_size, "dynamic_batching")
    levels = batching.priority_levels
    if levels and not 1 <= batching.default_priority_level <= levels:
        yield (
            f"dynamic_batching.default_priority_level is {batching.default_priority_level}; "
            f"with priority_levels: {levels} it must be from 1 to {levels}"
        )
    for level in batching.priority_queue_policy if levels else ():
        if not 1 <= level <= levels:
            yield (
                f"dynamic_batching.priority_queue_policy has a policy for level {level}; "
                f"with priority_levels: {levels} the levels are 1 to {levels}"
            )
    if not batching.preserve_ordering:
        return
    if levels > 1:
        yield (
            f"dynamic_batching.preserve_ordering allows one priority level, got {levels}; "
            "leave one of the two out"
        )
    delay = model_config_pb2().ModelQueuePolicy.DELAY
    for policy in batching.default_queue_policy, *batching.priority_queue_policy.values():
        if policy.timeout_action == delay and policy.default_timeout_microseconds:
            yield (
                "dynamic_batching.preserve_ordering does not go with a queue policy that delays requests; "
                "use timeout_action: REJECT, or leave one of the two out"
            )
