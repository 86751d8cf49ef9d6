"""What Triton refuses of `dynamic_batching` and `sequence_batching`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .proto import ModelConfigMessage, model_config_pb2

_VALUES = ("int32_false_true", "fp32_false_true", "bool_false_true")
_CORRELATION_TYPES = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")


def _of_preferred_sizes(config: ModelConfigMessage, sizes: Iterable[int], where: str) -> Iterator[str]:
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
    yield from _of_preferred_sizes(config, batching.preferred_batch_size, "dynamic_batching")
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


def sequence_batching_problems(config: ModelConfigMessage) -> Iterator[str]:
    """Yield control inputs and strategies that Triton refuses."""
    sequence = config.sequence_batching
    yield from _of_controls(sequence.control_input)
    if sequence.HasField("oldest"):
        sizes = sequence.oldest.preferred_batch_size
        yield from _of_preferred_sizes(config, sizes, "sequence_batching.oldest")
    utilization = sequence.direct.minimum_slot_utilization
    if utilization < 0.0 or utilization > 1.0:
        yield f"sequence_batching.direct.minimum_slot_utilization is {utilization:g}; it must be from 0 to 1"


def _of_controls(control_inputs: Any) -> Iterator[str]:
    kinds = model_config_pb2().ModelSequenceBatching.Control.Kind
    names: set[str] = set()
    seen: dict[str, str] = {}
    for control_input in control_inputs:
        name = control_input.name
        if not name:
            yield "a sequence_batching.control_input has no name; give it one"
        if name in names:
            yield f"control input '{name}' is listed twice; give each control input its own name"
        names.add(name)
        for control in control_input.control:
            if control.kind not in kinds.values():
                continue
            kind = kinds.Name(control.kind)
            if kind in seen:
                yield f"{kind} is given to control inputs '{seen[kind]}' and '{name}'; keep one"
            seen[kind] = name
            yield from _of_control(f"{kind} of control input '{name}'", kind, control)


def _of_control(who: str, kind: str, control: Any) -> Iterator[str]:
    given = [value for value in _VALUES if len(getattr(control, value))]
    if kind == "CONTROL_SEQUENCE_CORRID":
        if given:
            yield f"{who} takes no {given[0]}; give it a data_type instead"
        types = model_config_pb2().DataType
        named = (
            types.Name(control.data_type) if control.data_type in types.values() else str(control.data_type)
        )
        if named not in _CORRELATION_TYPES:
            yield f"{who} has data_type {named}; use one of {', '.join(_CORRELATION_TYPES)}"
        return
    if len(given) != 1:
        got = " and ".join(given) or "none of them"
        yield f"{who} needs exactly one of {', '.join(_VALUES)}; got {got}"
    values = list(getattr(control, given[0]))
    if len(values) != 2:
        yield f"{who}: {given[0]} is {values}; give two values, the one for false and the one for true"


def initial_state_problems(config: ModelConfigMessage, folder: Path | None) -> Iterator[str]:
    """Yield implicit states whose initial state does not fit them."""
    named: set[str] = set()
    for state in config.sequence_batching.state:
        who = f"sequence_batching.state '{state.input_name}'"
        if len(state.initial_state) > 1:
            yield f"{who} has {len(state.initial_state)} initial states; keep one of them"
        for initial in state.initial_state:
            yield from _of_initial_state(who, state, initial, folder)
            if state.input_name in named:
                yield f"{who} is listed twice; give each state its own input_name"
            named.add(state.input_name)


def _of_initial_state(who: str, state: Any, initial: Any, folder: Path | None) -> Iterator[str]:
    if initial.data_type != state.data_type:
        yield f"{who}: the data_type of its initial_state differs from its own; make them equal"
    if not initial.name:
        yield f"{who}: its initial_state has no name; give it one"
    state_dims, dims = list(state.dims), list(initial.dims)
    if len(dims) != len(state_dims) or any(
        d < 0 or s not in (-1, d) for d, s in zip(dims, state_dims, strict=True)
    ):
        yield (
            f"{who}: dims {dims} of its initial_state do not fit its dims {state_dims}; "
            "use as many, equal where fixed, and none of them -1"
        )
    choice = initial.WhichOneof("state_data")
    if choice is None:
        yield f"{who}: its initial_state has no data; set zero_data: true, or data_file"
    if choice == "data_file" and folder is not None:
        path = folder / "initial_state" / initial.data_file
        if not path.is_file():
            yield f"{who}: there is no file {path}; put the initial state there"
