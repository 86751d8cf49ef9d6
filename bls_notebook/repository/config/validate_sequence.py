"""What Triton refuses of `sequence_batching`: controls, strategies, initial states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .proto import ModelConfigMessage, model_config_pb2
from .refuse import refuse
from .validate_batching import validate_preferred_sizes

__all__ = ["validate_initial_states", "validate_sequence_batching"]

_VALUES = ("int32_false_true", "fp32_false_true", "bool_false_true")
_CORRELATION_TYPES = ("TYPE_UINT64", "TYPE_INT64", "TYPE_UINT32", "TYPE_INT32", "TYPE_STRING")


def validate_sequence_batching(config: ModelConfigMessage) -> None:
    """Raise for control inputs and strategies that Triton refuses."""
    sequence = config.sequence_batching
    _validate_controls(config)
    if sequence.HasField("oldest"):
        validate_preferred_sizes(config, sequence.oldest.preferred_batch_size, "sequence_batching.oldest")
    if sequence.HasField("direct"):
        utilization = sequence.direct.minimum_slot_utilization
        if utilization < 0.0 or utilization > 1.0:
            refuse(
                config,
                f"sequence_batching.direct.minimum_slot_utilization is {utilization:g}; "
                "it must be from 0 to 1",
            )


def _validate_controls(config: ModelConfigMessage) -> None:
    kinds = model_config_pb2().ModelSequenceBatching.Control.Kind
    names: set[str] = set()
    seen: dict[int, str] = {}
    for control_input in config.sequence_batching.control_input:
        name = control_input.name
        if not name:
            refuse(config, "a sequence_batching.control_input has no name; give it one")
        if name in names:
            refuse(config, f"control input '{name}' is listed twice; give each control input its own name")
        names.add(name)
        for control in control_input.control:
            if control.kind not in kinds.values():
                continue
            kind = kinds.Name(control.kind)
            if control.kind in seen:
                refuse(
                    config,
                    f"{kind} is given to control inputs '{seen[control.kind]}' and '{name}'; keep one",
                )
            seen[control.kind] = name
            if kind == "CONTROL_SEQUENCE_CORRID":
                _validate_correlation_id(config, name, control)
            else:
                _validate_boolean(config, name, kind, control)


def _validate_boolean(config: ModelConfigMessage, name: str, kind: str, control: Any) -> None:
    given = [value for value in _VALUES if len(getattr(control, value))]
    if len(given) != 1:
        got = " and ".join(given) or "none of them"
        refuse(
            config,
            f"{kind} of control input '{name}' needs exactly one of {', '.join(_VALUES)}; got {got}",
        )
    values = list(getattr(control, given[0]))
    if len(values) != 2:
        refuse(
            config,
            f"{kind} of control input '{name}': {given[0]} is {values}; "
            "give two values, the one for false and the one for true",
        )


def _validate_correlation_id(config: ModelConfigMessage, name: str, control: Any) -> None:
    who = f"CONTROL_SEQUENCE_CORRID of control input '{name}'"
    given = [value for value in _VALUES if len(getattr(control, value))]
    if given:
        refuse(config, f"{who} takes no {given[0]}; give it a data_type instead")
    types = model_config_pb2().DataType
    named = types.Name(control.data_type) if control.data_type in types.values() else str(control.data_type)
    if named not in _CORRELATION_TYPES:
        refuse(config, f"{who} has data_type {named}; use one of {', '.join(_CORRELATION_TYPES)}")


def validate_initial_states(config: ModelConfigMessage, folder: Path | None) -> None:
    """Raise for implicit states whose initial state does not fit them."""
    named: set[str] = set()
    for state in config.sequence_batching.state:
        who = f"sequence_batching.state '{state.input_name}'"
        if len(state.initial_state) > 1:
            refuse(config, f"{who} has {len(state.initial_state)} initial states; keep one of them")
        for initial in state.initial_state:
            _validate_initial_state(config, who, state, initial, folder)
            if state.input_name in named:
                refuse(config, f"{who} is listed twice; give each state its own input_name")
            named.add(state.input_name)


def _validate_initial_state(
    config: ModelConfigMessage, who: str, state: Any, initial: Any, folder: Path | None
) -> None:
    if initial.data_type != state.data_type:
        refuse(config, f"{who}: the data_type of its initial_state differs from its own; make them equal")
    if not initial.name:
        refuse(config, f"{who}: its initial_state has no name; give it one")
    state_dims, dims = list(state.dims), list(initial.dims)
    fits = len(dims) == len(state_dims) and all(
        d >= 0 and s in (-1, d) for d, s in zip(dims, state_dims, strict=True)
    )
    if not fits:
        refuse(
            config,
            f"{who}: dims {dims} of its initial_state do not fit its dims {state_dims}; "
            "use as many, equal where fixed, and none of them -1",
        )
    choice = initial.WhichOneof("state_data")
    if choice is None:
        refuse(config, f"{who}: its initial_state has no data; set zero_data: true, or data_file")
    if choice == "data_file" and folder is not None:
        path = folder / "initial_state" / initial.data_file
        if not path.is_file():
            refuse(config, f"{who}: there is no file {path}; put the initial state there")
