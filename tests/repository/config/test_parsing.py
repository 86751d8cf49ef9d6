"""Parsing and writing keep everything; an error is one line that shows where and why."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bls_notebook.engine.errors import BLSError, ConfigError
from bls_notebook.repository.config import (
    ModelConfigMessage,
    complete,
    model_config_class,
    model_config_pb2,
    parse_config,
    parse_json,
    parse_pbtxt,
    protobuf_message,
    to_dict,
    to_json,
    to_pbtxt,
)
from bls_notebook.repository.config.protobuf_message import new_config
from tests.waiting import LIMIT

from .strategies import any_config

TEXT = """\
backend: "python"
max_batch_size: 8
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""


def as_text(value: object) -> object:
    if isinstance(value, dict):
        return {key: as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_text(item) for item in value]
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return value if isinstance(value, bool) else str(value)


@given(any_config())
def test_pbtxt_and_strict_json_read_back_as_the_same_message_and_json_is_protobufs(config: ModelConfigMessage) -> None:
    from google.protobuf import json_format

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert parse_pbtxt(to_pbtxt(config), model="m") == config
    assert (parse_json(to_json(config), model="m"), parse_json(to_dict(config), model="m")) == (config, config)
    assert json.loads(to_json(config), parse_constant=refuse) == to_dict(config)
    theirs = json_format.MessageToDict(
        config, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    assert as_text(to_dict(config)) == as_text(theirs)  # but for the form of numbers


def test_every_form_of_a_configuration_means_the_same_and_no_other_type_is_taken() -> None:
    message = parse_pbtxt(TEXT, model="m")
    for form in (TEXT, to_json(message), "\n " + to_json(message), to_dict(message), message):
        assert parse_config(form, model="m") == message
    assert parse_config(None, model="m") == new_config()
    parse_config(message, model="m").max_batch_size = 1
    assert message.max_batch_size == 8  # what was given is copied
    for other in (3, b"name: 'm'", ["name"]):
        with pytest.raises(ConfigError, match=f"got {type(other).__name__}, expected config.pbtxt text"):
            parse_config(other, model="m")


@pytest.mark.parametrize(
    ("line", "column", "reason"),
    [
        ("max_batch_sizes: 3", 1, "no field 'max_batch_sizes' in ModelConfig; did you mean 'max_batch_size'"),
        ("input [ { dtype: TYPE_FP32 } ]", 11, "no field 'dtype' in ModelInput; expected one of: name, data_t"),
        ("input [ { data_type: FP32 } ]", 22, "'FP32' is not a value of DataType; did you mean 'TYPE_FP32'?"),
        ("input [ { data_type: REAL } ]", 22, "'REAL' is not a value of DataType; expected one of: TYPE_INVALID"),
        ("instance_group { kind: KIND_TPU }", 24, "not a value of ModelInstanceGroup.Kind; did you mean 'KIND_GPU'"),
        ("max_batch_size: 2 max_batch_size: 3", 35, "'max_batch_size' is set twice; keep one"),
        ("dynamic_batching {} sequence_batching {}", 21, "'sequence_batching' and 'dynamic_batching' exclude"),
        ("nonsense: 1", 1, "there is no field 'nonsense' in ModelConfig; leave it out;"),
        ("max_batch_size: many", 17, "cannot parse integer: many"),
        ("max_batch_size: 99999999999", 17, "Value out of range: 99999999999"),
        ("max_batch_size 3", 16, 'Expected ":"'),
        ("name: 'it': ' 3", 11, "Expected identifier or number, got :"),
        ("name: 'it", 7, "String missing ending quote"),
    ],
)
def test_an_error_names_model_place_reason_and_line(line: str, column: int, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_pbtxt(f'backend: "python"\n  {line}  # here\n', model="m")
    message = str(caught.value)
    assert message.startswith(f"model 'm': config.pbtxt:2:{column + 2}: ")
    assert reason in message
    assert message.endswith(f"; the line is: {line}  # here")
    assert "\n" not in message
    assert message.count(f"{line}  # here") == 1


@pytest.mark.parametrize("text", ["instance_group [ { count: 2 ", "input {\n  name: 'IN'\n", "input ["])
def test_a_text_that_ends_too_early_says_so(text: str) -> None:
    with pytest.raises(ConfigError, match="is a brace, bracket or quote left open") as caught:
        parse_pbtxt(text, model="m")
    assert "\n" not in str(caught.value)


def test_unprintable_text_is_escaped_and_a_long_line_is_cut() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_pbtxt("backend: \x07 3\x1b[31m", model="m")
    assert str(caught.value).isprintable()
    assert "\\x1b[31m" in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        parse_pbtxt("nonsense: '" + "x" * 10_000 + "'", model="m")
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", r"config:1:2: not JSON: .*; the line is: \{"),
        ("", r"config:1:1: not JSON: Expecting value$"),
        ('{\n "a" 1\n}', r'config:2:6: not JSON: .*; the line is: "a" 1'),
        ("[]", "expected a JSON object with the fields of ModelConfig, got list"),
        ('backend: "python"', r"config:1:1: not JSON: .*; the line is: backend"),
        ('{"backends": 1}', "no field 'backends' in ModelConfig; did you mean 'backend'"),
        ('{"input": [{"data_type": "FP32"}]}', r"'FP32' is not a value of DataType \(at input\[0\].data_type\)"),
        ('{"max_batch_size": 4.5}', r"cannot parse integer: 4.5 \(at max_batch_size\)"),
        ('{"max_batch_size": "x"}', "max_batch_size|literal for int"),
        ('{"dynamic_batching": {}, "sequence_batching": {}}', "more than one choice of scheduling_choice"),
        ('{"parameters": {"a": "b"}}', r"\[a\]: expected an object with the fields of ModelParameter, got 'b'$"),
        ('{"input": [{"reshape": 3}]}', r"input\[0\].reshape: expected an object with the field.*, got 3$"),
        ('{"input": [{"name": 3}]}', r"input\[0\].name: expected text, got 3$"),
        ('{"parameters": {"a": null}}', r"parameters\[a\]: expected an object .*, got None$"),
        ('{"parameters": []}', "parameters"),
        ('{"max_batch_size": 1, "max_batch_size": 2}', "'max_batch_size' is set twice in one JSON object"),
        ('{"input": 3}', r"input\[0\]: expected an object with the fields of ModelInput, got 3"),
        ('{"parameters": [1]}', "config"),
        # The recorded server's JSON reader is lenient and takes these.
        ("{'backend': 'python'}", "config"),
        ('{"backend": "python",}', "config"),
        ('{"response_cache": {"enable": true, "enable": false}}', "set twice"),
        ('{"input": [null]}', "config"),
    ],
)
def test_a_json_error_names_model_place_and_reason(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        parse_json(text, model="m")
    assert str(caught.value).startswith("model 'm': config")
    assert "\n" not in str(caught.value)


def test_python_callers_may_give_tuples_and_numpy_numbers() -> None:
    config = parse_json(
        {
            "input": ({"name": "A", "data_type": "TYPE_FP32", "dims": (np.int64(4), -1)},),
            "max_batch_size": np.int32(3),
            "parameters": {"a": {"string_value": "b"}},
        },
        model="m",
    )
    assert (list(config.input[0].dims), config.max_batch_size) == ([4, -1], 3)
    assert config.parameters["a"].string_value == "b"


def test_names_of_json_without_quotes_are_read_as_the_server_reads_them() -> None:
    text = """{backend: "python", "parameters": {"a: b": {string_value: "c: \\"d: e"}},
               "sequence_batching": {direct : {"max_queue_delay_microseconds": 5}}}"""
    config = parse_json(text, model="m")
    assert (config.backend, config.parameters["a: b"].string_value) == ("python", 'c: "d: e')
    assert config.sequence_batching.direct.max_queue_delay_microseconds == 5


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


def test_an_unknown_enumerator_stays_a_number_and_text_readable() -> None:
    assert to_dict(parse_pbtxt("input { data_type: 99 }", model="m"))["input"][0]["data_type"] == 99
    text = to_pbtxt(parse_pbtxt('parameters { key: "naïve" value { string_value: "日本" } }', model="m"))
    assert ('key: "naïve"' in text, "日本" in text) == (True, True)


@example(0.3)
@example(0.1)
@given(st.floats(width=32))
def test_a_32_bit_number_is_written_as_short_as_it_reads_back(value: float) -> None:
    config = parse_pbtxt("sequence_batching { direct {} }", model="m")
    direct = config.sequence_batching.direct
    direct.minimum_slot_utilization = value
    written = to_dict(config)["sequence_batching"]["direct"]["minimum_slot_utilization"]
    if math.isnan(value):
        assert written == "NaN"
    elif math.isinf(value):
        assert written == ("Infinity" if value > 0 else "-Infinity")
    else:
        direct.minimum_slot_utilization = written
        assert direct.minimum_slot_utilization == np.float32(value)
        assert written == value or value not in (0.3, 0.1)  # a decimal stays as it was typed
        assert not isinstance(written, float) or not written.is_integer() or str(written) == "-0.0"


# tritonclient.grpc itself needs gRPC; the generated module is imported by its dotted name without it.
DOTTED = """
import importlib.util, sys, types
import tritonclient
package = types.ModuleType("tritonclient.grpc")
package.__path__ = [tritonclient.__path__[0] + "/grpc"]
sys.modules["tritonclient.grpc"] = package
import tritonclient.grpc.model_config_pb2 as dotted
"""


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stderr


def test_the_message_is_loaded_with_the_first_configuration_and_without_grpc() -> None:
    run("""
import sys
from bls_notebook.repository.config.protobuf_message import new_config
def loaded(*names):
    return [m for m in sys.modules if m.startswith(names)]
assert not loaded("google.protobuf", "tritonclient", "grpc")
new_config("m")
assert not loaded("tritonclient", "grpc")
""")


@pytest.mark.parametrize("dotted_first", [True, False])
def test_the_dotted_name_gives_the_same_class_in_either_order(dotted_first: bool) -> None:
    ours = "from bls_notebook.repository.config import model_config_pb2\nours = model_config_pb2()\n"
    check = (
        "assert dotted.ModelConfig is ours.ModelConfig\n"
        "message = dotted.ModelConfig(name='m', max_batch_size=3)\n"
        "assert ours.ModelConfig.FromString(message.SerializeToString()) == message\n"
    )
    run(DOTTED + ours + check if dotted_first else ours + DOTTED + check)


def test_all_threads_get_one_module_and_not_one_that_is_still_being_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf_message, "_module", None)
    half_done = type(sys)("tritonclient.grpc.model_config_pb2")
    monkeypatch.setitem(sys.modules, "tritonclient.grpc.model_config_pb2", half_done)
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: id(model_config_pb2()), range(64)))) == 1
    assert new_config("m").name == "m"


@pytest.mark.parametrize("stand_in", [None, type(sys)("tritonclient")], ids=["none", "without a spec"])
def test_a_stand_in_for_tritonclient_counts_as_none(monkeypatch: pytest.MonkeyPatch, stand_in: object) -> None:
    monkeypatch.setattr(protobuf_message, "_module", None)
    monkeypatch.setitem(sys.modules, "tritonclient", stand_in)
    monkeypatch.delitem(sys.modules, "tritonclient.grpc.model_config_pb2", raising=False)
    with pytest.raises(BLSError, match="pip install 'tritonclient") as caught:
        new_config()
    assert "\n" not in str(caught.value)


def test_a_protobuf_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    generated = tmp_path / "model_config_pb2.py"
    generated.write_text("raise RuntimeError('gencode 9.0.0\\nruntime 1.0.0')")
    monkeypatch.setattr(protobuf_message, "_module", None)
    monkeypatch.setattr(protobuf_message, "_generated_file", lambda: generated)
    monkeypatch.delitem(sys.modules, "tritonclient.grpc.model_config_pb2", raising=False)
    with pytest.raises(BLSError, match=r"gencode 9.0.0 runtime 1.0.0.*--upgrade protobuf") as caught:
        new_config()
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    assert isinstance(new_config("m"), model_config_class())


@pytest.mark.parametrize("text", ['{"', 'name: "'])
def test_a_configuration_is_not_larger_than_its_file_may_be(text: str) -> None:
    with pytest.raises(ConfigError, match=r"it has 5,000,00\d characters, expected at most 4,194,304"):
        parse_config(text + "x" * 5_000_000, model="m")
