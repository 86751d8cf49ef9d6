"""Hypothesis strategies: any ModelConfig, and ones that Triton accepts."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from bls_notebook.repository.config import ModelConfigMessage
from bls_notebook.repository.config.protobuf_message import new_config

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
RANGES = {
    "CPPTYPE_INT32": (-(2**31), 2**31 - 1),
    "CPPTYPE_INT64": (-(2**63), 2**63 - 1),
    "CPPTYPE_UINT32": (0, 2**32 - 1),
    "CPPTYPE_UINT64": (0, 2**64 - 1),
}


@st.composite
def any_config(draw: st.DrawFn) -> ModelConfigMessage:
    """Return a message with a few fields set to anything of their type, sensible or not."""
    message = new_config()
    _fill(draw, message, depth=0)
    return message


def _fill(draw: st.DrawFn, message: Any, depth: int) -> None:
    fields = list(message.DESCRIPTOR.fields)
    if not fields:
        return
    for field in draw(st.lists(st.sampled_from(fields), max_size=4 if depth else 6, unique=True)):
        if depth > 3 and field.message_type is not None:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _fill_map(draw, message, field, depth)
        elif field.is_repeated:
            items = getattr(message, field.name)
            for _ in range(draw(st.integers(0, 2))):
                if field.message_type is not None:
                    _fill(draw, items.add(), depth + 1)
                else:
                    items.append(draw(_scalar(field)))
        elif field.message_type is not None:
            nested = getattr(message, field.name)
            nested.SetInParent()
            _fill(draw, nested, depth + 1)
        else:
            setattr(message, field.name, draw(_scalar(field)))


def _fill_map(draw: st.DrawFn, message: Any, field: Any, depth: int) -> None:
    entry = field.message_type.fields_by_name
    for _ in range(draw(st.integers(0, 2))):
        key = draw(_scalar(entry["key"]))
        if entry["value"].message_type is not None:
            _fill(draw, getattr(message, field.name)[key], depth + 1)
        else:
            getattr(message, field.name)[key] = draw(_scalar(entry["value"]))


def _scalar(field: Any) -> st.SearchStrategy[Any]:
    if field.enum_type is not None:
        return st.sampled_from([value.number for value in field.enum_type.values])
    if field.cpp_type == field.CPPTYPE_BOOL:
        return st.booleans()
    if field.cpp_type == field.CPPTYPE_STRING:
        return TEXT
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return st.floats(width=32, allow_nan=False)
    low, high = next(r for name, r in RANGES.items() if field.cpp_type == getattr(field, name))
    return st.integers(low, high)


TENSOR_TYPES = [
    *("TYPE_BOOL", "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64", "TYPE_INT8", "TYPE_INT16"),
    *("TYPE_INT32", "TYPE_INT64", "TYPE_FP16", "TYPE_FP32", "TYPE_FP64", "TYPE_STRING", "TYPE_BF16"),
]
DIMS = st.lists(st.one_of(st.just(-1), st.integers(1, 9)), min_size=1, max_size=4)


@st.composite
def good_config(draw: st.DrawFn) -> ModelConfigMessage:
    """Return the configuration of a Python model that loads on a machine without GPU."""
    config = new_config()
    config.backend = draw(st.sampled_from(["", "python"]))
    config.max_batch_size = draw(st.integers(0, 16))
    for number in range(draw(st.integers(0, 3))):
        tensor = config.input.add(name=f"IN{number}", optional=draw(st.booleans()))
        tensor.data_type = (
            tensor.DESCRIPTOR.fields_by_name["data_type"]
            .enum_type.values_by_name[draw(st.sampled_from(TENSOR_TYPES))]
            .number
        )
        tensor.dims.extend(draw(DIMS))
        if draw(st.booleans()):
            tensor.reshape.shape.extend([1, *tensor.dims])
    for _ in range(draw(st.integers(0, 3))):
        config.instance_group.add(count=draw(st.integers(-1, 3)), kind=draw(st.sampled_from([0, 2, 3])))
    scheduler = draw(st.sampled_from(["", "dynamic", "direct", "oldest"]))
    if scheduler == "dynamic":
        config.dynamic_batching.max_queue_delay_microseconds = draw(st.integers(0, 2**64 - 1))
    elif scheduler:
        getattr(config.sequence_batching, scheduler).max_queue_delay_microseconds = draw(st.integers(0, 9))
    return config
