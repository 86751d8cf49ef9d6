"""What Triton refuses of `dynamic_batching`."""

from __future__ import annotations

from collections.abc import Iterable

from .proto import ModelConfigMessage, model_config_pb2
from .refuse import refuse

__all__ = ["validate_dynamic_batching", "validate_preferred_sizes"]


def validate_preferred_sizes(config: ModelConfigMessage, sizes: Iterable[int], where: str) -> None:
    """Raise where a preferred batch size is not in 1 .. max_batch_size."""
    for size in sizes:
        if not 0 < size <= config.max_batch_size:
            limit = (
                f"use sizes from 1 to max_batch_size ({config.max_batch_size})"
                if config.max_batch_size > 0
                else "the model does not batch: set max_batch_size, or leave the sizes out"
            )
            refuse(config, f"{where}.preferred_batch_size has {size}; {limit}")


def validate_dynamic_batching(config: ModelConfigMessage) -> None:
    """Raise for preferred sizes, priorities and queue policies that Triton refuses."""
    batching = config.dynamic_batching
    validate_preferred_sizes(config, batching.preferred_batch_size, "dynamic_batching")
    levels = batching.priority_levels
    if levels:
        if not 1 <= batching.default_priority_level <= levels:
            refuse(
                config,
                f"dynamic_batching.default_priority_level is {batching.default_priority_level}; "
                f"with priority_levels: {levels} it must be from 1 to {levels}",
            )
        for level in batching.priority_queue_policy:
            if not 1 <= level <= levels:
                refuse(
                    config,
                    f"dynamic_batching.priority_queue_policy has a policy for level {level}; "
                    f"with priority_levels: {levels} the levels are 1 to {levels}",
                )
    if batching.preserve_ordering:
        _validate_ordered(config)


def _validate_ordered(config: ModelConfigMessage) -> None:
    batching = config.dynamic_batching
    if batching.priority_levels > 1:
        refuse(
            config,
            f"dynamic_batching.preserve_ordering allows one priority level, got {batching.priority_levels}; "
            "leave one of the two out",
        )
    delay = model_config_pb2().ModelQueuePolicy.DELAY
    policies = [batching.default_queue_policy]
    policies += [batching.priority_queue_policy[level] for level in batching.priority_queue_policy]
    for policy in policies:
        if policy.timeout_action == delay and policy.default_timeout_microseconds:
            refuse(
                config,
                "dynamic_batching.preserve_ordering does not go with a queue policy that delays requests; "
                "use timeout_action: REJECT, or leave one of the two out",
            )
