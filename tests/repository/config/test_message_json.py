"""The JSON of `initialize`, where it is not simply protobuf's. The recorded cases hold the rest."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.repository.config import ModelConfigMessage, complete, parse_pbtxt, to_dict, to_json, to_pbtxt

from .strategies import any_config


def test_the_text_is_that_of_the_server() -> None:
    text = """
        backend: "python"
        input { name: "IN" data_type: TYPE_FP32 dims: 1 }
        output { name: "OUT" data_type: TYPE_FP32 dims: 1 }
    """
    assert to_json(complete(parse_pbtxt(text, model="plain"), model="plain")) == (
        '{"name":"plain","platform":"","backend":"python","runtime":"","version_policy":{"latest":'
        '{"num_versions":1}},"max_batch_size":0,"input":[{"name":"IN","data_type":"TYPE_FP32","format":'
        '"FORMAT_NONE","dims":[1],"is_shape_tensor":false,"allow_ragged_batch":false,"optional":false,'
        '"is_non_linear_format_io":false}],"output":[{"name":"OUT","data_type":"TYPE_FP32","dims":[1],'
        '"label_filename":"","is_shape_tensor":false,"is_non_linear_format_io":false}],"batch_input":[],'
        '"batch_output":[],"optimization":{"priority":"PRIORITY_DEFAULT","input_pinned_memory":{"enable":'
        'true},"output_pinned_memory":{"enable":true},"gather_kernel_buffer_threshold":0,"eager_batching":'
        'false},"instance_group":[{"name":"plain","kind":"KIND_CPU","count":1,"gpus":[],'
        '"secondary_devices":[],"profile":[],"passive":false,"host_policy":""}],"default_model_filename":'
        '"model.py","cc_model_filenames":{},"metric_tags":{},"parameters":{},"model_warmup":[]}'
    )


@given(any_config())
def test_it_agrees_with_protobufs_own_json_but_for_the_form_of_numbers(config: ModelConfigMessage) -> None:
    from google.protobuf import json_format

    theirs = json_format.MessageToDict(
        config, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    assert as_text(to_dict(config)) == as_text(theirs)


def as_text(value: object) -> object:
    if isinstance(value, dict):
        return {key: as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_text(item) for item in value]
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return value if isinstance(value, bool) else str(value)


@given(any_config())
def test_the_text_is_strict_json(config: ModelConfigMessage) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert json.loads(to_json(config), parse_constant=refuse) == to_dict(config)


@given(st.floats(width=32))
def test_a_32_bit_number_is_written_as_short_as_it_reads_back(value: float) -> None:
    config = parse_pbtxt("sequence_batching { direct {} }", model="m")
    config.sequence_batching.direct.minimum_slot_utilization = value
    written = to_dict(config)["sequence_batching"]["direct"]["minimum_slot_utilization"]
    if math.isnan(value):
        assert written == "NaN"
    elif math.isinf(value):
        assert written == ("Infinity" if value > 0 else "-Infinity")
    else:
        config.sequence_batching.direct.minimum_slot_utilization = written
        assert config.sequence_batching.direct.minimum_slot_utilization == value
        assert not isinstance(written, float) or not written.is_integer() or str(written) == "-0.0"


@pytest.mark.parametrize("utilization", [0.3, 0.1, 0.5, 0.7])
def test_a_decimal_stays_as_it_was_typed(utilization: float) -> None:
    config = parse_pbtxt(f"sequence_batching {{ direct {{ minimum_slot_utilization: {utilization} }} }}", model="m")
    assert to_dict(config)["sequence_batching"]["direct"]["minimum_slot_utilization"] == utilization


def test_an_enumerator_that_is_not_known_stays_a_number() -> None:
    assert to_dict(parse_pbtxt("input { data_type: 99 }", model="m"))["input"][0]["data_type"] == 99


def test_pbtxt_keeps_text_readable() -> None:
    config = parse_pbtxt('parameters { key: "naïve" value { string_value: "日本" } }', model="m")
    assert 'key: "naïve"' in to_pbtxt(config)
    assert "日本" in to_pbtxt(config)
