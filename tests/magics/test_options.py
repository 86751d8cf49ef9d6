"""Options that are converted before the public API sees them."""

from __future__ import annotations

import argparse
from typing import Any

import pytest
from IPython.core.error import UsageError

from bls_notebook.magics.arguments import evaluate, expanded, parameters_of, sequence
from bls_notebook.magics.tritonmodel import PARSER, config_of
from bls_notebook.repository.config import parse_config


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", (7, 0)), ("7:start", (7, 1)), ("7:end", (7, 2)), ("7:start,end", (7, 3)),
        ("abc", ("abc", 0)), ("a:b:start", ("a:b", 1)), ("a:b", ("a:b", 0)),
    ],
)  # fmt: skip
def test_sequence(text: str, expected: tuple[int | str, int]) -> None:
    assert sequence(text) == expected


@pytest.mark.parametrize("text", ["", "0", ":start", "99999999999999999999999:start"])
def test_a_sequence_needs_an_id(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected an ID"):
        sequence(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("a=1", {"a": 1}),
        ("a=1,b='x, y',c=True", {"a": 1, "b": "x, y", "c": True}),
        ("a=n", {"a": 5}),
        ("{'a': n}", {"a": 5}),
        ("options", {"k": "v"}),
        ("dict(a=1, b=2)", {"a": 1, "b": 2}),
    ],
)
def test_parameters(text: str | None, expected: dict[str, Any] | None) -> None:
    assert parameters_of(text, {"n": 5, "options": {"k": "v"}}) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=1.5", "'a' is of type float"),
        ("a=[1]", "'a' is of type list"),
        ("{1: 2}", "1 is of type int"),
        ("n", "got 'n' of type int"),
        ("a=text", "name 'text' is not defined"),
        ("a=1,b", "expected a Python expression"),
    ],
)
def test_bad_parameters_get_one_line(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parameters_of(text, {"n": 5})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def config(line: str, variables: dict[str, Any] | None = None) -> Any:
    arguments = PARSER.parse([word.plain for word in PARSER.words_of(line)])
    return config_of(PARSER, arguments, variables or {})


def test_options_make_a_config_that_parses() -> None:
    made = config(
        'm --input IN FP32 [-1,3] --input "NAMES BYTES [ -1 ]" --output OUT TYPE_INT8 [] --max-batch-size 8 '
        "--instances 2 --kind cpu --decoupled"
    )
    message = parse_config(made, model="m")
    tensors = [(t.name, t.data_type, list(t.dims)) for t in (*message.input, *message.output)]
    assert tensors == [("IN", 11, [-1, 3]), ("NAMES", 13, [-1]), ("OUT", 6, [])]
    assert message.max_batch_size == 8
    assert [(g.count, g.kind) for g in message.instance_group] == [(2, 2)]
    assert message.model_transaction_policy.decoupled


def test_config_from_a_variable_or_a_file(tmp_path: Any) -> None:
    assert config("m --version 3") is None
    file = tmp_path / "other.pbtxt"
    file.write_text("max_batch_size: 3")
    assert config("m --config mine", {"mine": "max_batch_size: 2"}) == "max_batch_size: 2"
    assert config(f"m --config '{file}'") == "max_batch_size: 3"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "missing: MODEL"),
        ("m n", "unexpected argument 'n'"),
        ("m --config nowhere", "--config: got 'nowhere', expected a variable of the notebook or the path of a"),
        ("m --config x --instances 2", "cannot be combined with"),
        ("m --input IN FP32", "--input: got 'IN FP32', expected NAME TYPE [DIMS]"),
        ("m --output IN FP32 [1,-]", "--output: got the shape [1,-], expected whole numbers"),
        ("m --version 0", "--version: got '0', expected a whole number from 1"),
        ("m --instances two", "--instances: got 'two', expected a whole number from 1"),
        ("m --kind tpu", "--kind: invalid choice: 'tpu'"),
        ("m --instance 2", "did you mean --instances?"),
        ("m --frobnicate", "the options are --config, --decoupled"),
    ],
)
def test_bad_model_options_get_one_line(line: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        config(line, {"x": ""})
    assert message in str(caught.value)
    assert str(caught.value).startswith("%%tritonmodel: ")
    assert "\n" not in str(caught.value)


def test_an_expression_that_fails_gets_one_line_unless_it_is_in_a_function_of_the_user() -> None:
    with pytest.raises(UsageError, match=r"^here: 1/0: ZeroDivisionError: division by zero$"):
        evaluate("1/0", {}, "here")
    with pytest.raises(UsageError, match=r"^here: got '1 \+', expected a Python expression"):
        evaluate("1 +", {}, "here")

    def mine() -> None:
        raise ValueError("deep")

    with pytest.raises(ValueError, match="deep"):
        evaluate("mine()", {"mine": mine}, "here")


def test_words_are_expanded_as_in_other_magics() -> None:
    assert expanded("$name/{n + 1}", {"name": "m", "n": 2}) == "m/3"
    assert expanded("{missing}", {}) == "{missing}"
