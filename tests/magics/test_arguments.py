"""Lines of magics: their words, inputs and options, which are converted before the public API sees them."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.error import UsageError

from bls_notebook.capabilities import registry
from bls_notebook.completion.magic_lines import magic_line, suggest
from bls_notebook.magics.arguments import UnfinishedError, evaluate, parameters_of, read_line, split_words
from bls_notebook.magics.magic import parser_of
from bls_notebook.magics.tritonmodel import config_of
from bls_notebook.operations import OperationSpec, sequence
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


@pytest.mark.parametrize("text", ["", "0", "7:", ":start", "99999999999999999999999:start"])
def test_a_sequence_needs_an_id(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected an ID"):
        sequence(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": 1}),
        ("a=1,b='x, y',c=True", {"a": 1, "b": "x, y", "c": True}),
        ("a=n", {"a": 5}),
        ("{'a': n}", {"a": 5}),
        ("options", {"k": "v"}),
        ("dict(a=1, b=2)", {"a": 1, "b": 2}),
    ],
)
def test_parameters(text: str, expected: dict[str, Any]) -> None:
    assert parameters_of(text, {"n": 5, "options": {"k": "v"}}, "%bls") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=1.5", "'a' is of type float"),
        ("a=[1]", "'a' is of type list"),
        ("{1: 2}", "1 is of type int"),
        ("n", "object is not iterable"),
        ("a=text", "name 'text' is not defined"),
        ("a=1,b", "expected a Python expression"),
    ],
)
def test_bad_parameters_get_one_line(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parameters_of(text, {"n": 5}, "%bls")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def config(line: str, variables: dict[str, Any] | None = None) -> Any:
    return config_of(parser_of("%%tritonmodel")[0].parse(line, {}), variables or {})


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
        ('m --input "A FP32 [1]; B FP32 [1]"', "such as IN FP32 [-1,3]; one --input for each tensor"),
        ("m --output IN FP32 [1,-]", "--output: got the shape [1,-], expected whole numbers"),
        ("m --version 0", "--version: got '0', expected a whole number from 1"),
        ("m --instances two", "--instances: got 'two', expected a whole number from 1"),
        ("m --kind tpu", "--kind: invalid choice: 'tpu'"),
        ("m --instance 2", "did you mean --instances?"),
        ("m --frobnicate", "the options are --config, --decoupled"),
    ],
)
def test_bad_model_options_get_one_line(cells, line: str, message: str) -> None:
    shown = cells(f"%%tritonmodel {line}\npass").stderr
    assert message in shown
    assert shown.startswith("UsageError: %%tritonmodel: ")
    assert shown.count("\n") == 1


def test_an_expression_that_fails_gets_one_line_unless_it_is_in_a_function_of_the_user() -> None:
    with pytest.raises(UsageError, match=r"^here: 1/0: ZeroDivisionError: division by zero$"):
        evaluate("1/0", {}, "here")
    with pytest.raises(UsageError, match=r"^here: got '1 \+', expected a Python expression"):
        evaluate("1 +", {}, "here")

    def mine() -> None:
        raise ValueError("deep")

    with pytest.raises(ValueError, match="deep"):
        evaluate("mine()", {"mine": mine}, "here")


@pytest.mark.parametrize(
    ("line", "words", "inputs"),
    [
        ("m", ["m"], {}),
        ("m A=1", ["m"], {"A": "1"}),
        ("m A=[1, 2, 3] B=np.ones(3)", ["m"], {"A": "[1, 2, 3]", "B": "np.ones(3)"}),
        ("m A=a + b B=c", ["m"], {"A": "a + b", "B": "c"}),
        ("m A= a - 1 --async", ["m", "--async"], {"A": "a - 1"}),
        ("m A=a -1", ["m"], {"A": "a -1"}),
        ("m A=a -b", ["m"], {"A": "a -b"}),
        ("m A=x==y B=1", ["m"], {"A": "x==y", "B": "1"}),
        ("m A=x if y == 2 else z", ["m"], {"A": "x if y == 2 else z"}),
        ("m A=f(k=1, j=2)", ["m"], {"A": "f(k=1, j=2)"}),
        ('m A="--stream B=2"', ["m"], {"A": '"--stream B=2"'}),
        ("--async m A=1 -n 3", ["--async", "m", "-n3"], {"A": "1"}),
        ("-n5 m", ["-n5", "m"], {}),
        ("m --outputs A,B X=1", ["m", "--outputs=A,B"], {"X": "1"}),
        ("m --outputs A, B X=1", ["m", "--outputs=A,B"], {"X": "1"}),
        ("m --outputs=A X=1", ["m", "--outputs=A"], {"X": "1"}),
        ("m input/0:0=1 dense.1=2", ["m"], {"input/0:0": "1", "dense.1": "2"}),
        ("m --parameters a=1,b='x y' X=2", ["m", "--parameters=a=1,b='x y'"], {"X": "2"}),
        ("m --parameters {'a': 1} X=2", ["m", "--parameters={'a': 1}"], {"X": "2"}),
        ("$model X={'a': 1}['a']", ["m"], {"X": "{'a': 1}['a']"}),
        ("{model} -n {2 + 1}", ["m", "-n3"], {}),
        ("{missing}", ["{missing}"], {}),
    ],
)
def test_a_line_is_read(line: str, words: list[str], inputs: dict[str, str]) -> None:
    read = read_line(parser_of("%bls")[0], line, {"model": "m"})
    assert (read.words, read.inputs) == (words, inputs)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("m x", "%bls: got 'x', expected INPUT=expression, such as INPUT0=[1, 2]. %bls? shows the help."),
        ("m A=", "%bls: input 'A' has no value, expected A=expression. %bls? shows the help."),
        ("m A=1 A=2", "%bls: input 'A' is given twice. %bls? shows the help."),
        ("m A=[1", "%bls: [ is never closed in 'A=[1'. %bls? shows the help."),
        ("m --output X", "%bls: unknown option '--output'; did you mean --outputs? %bls? shows the help."),
        ("m --device", "%bls: --device needs a value. %bls? shows the help."),
    ],
)
def test_a_bad_line_gets_one_line(line: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_line(parser_of("%bls")[0], line, {})
    assert str(caught.value) == message


def texts(line: str) -> list[str]:
    return [word.text for word in split_words(line)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        ("  \t ", []),
        ("a b", ["a", "b"]),
        ("A=[1, 2, 3] B=f(x, y)", ["A=[1, 2, 3]", "B=f(x, y)"]),
        ('A="one two" B=\'it "is"\'', ['A="one two"', "B='it \"is\"'"]),
        (r'A="a \" b" c', [r'A="a \" b"', "c"]),
        ('A="""a " b""" c', ['A="""a " b"""', "c"]),
        ("A={'x': [1, ')']} z", ["A={'x': [1, ')']}", "z"]),
        ("A=x[1: 2][ 0 ]  b", ["A=x[1: 2][ 0 ]", "b"]),
        ("a) b", ["a)", "b"]),
    ],
)
def test_spaces_inside_quotes_and_brackets_do_not_split(line: str, words: list[str]) -> None:
    assert texts(line) == words


@pytest.mark.parametrize(
    ("line", "opener", "start"), [("a B=[1", "[", 2), ("'x", "'", 0), ('A="""x"', '"""', 0), ("(]", "(", 0)]
)
def test_unclosed_quotes_and_brackets_are_named(line: str, opener: str, start: int) -> None:
    with pytest.raises(UnfinishedError) as caught:
        split_words(line)
    assert (caught.value.opener, caught.value.start) == (opener, start)


def test_plain_takes_quotes_off_only_around_the_whole_word() -> None:
    plain = [word.plain for word in split_words("""'a b' "c" 'a'b'c' x'y' ''""")]
    assert plain == ["a b", "c", "'a'b'c'", "x'y'", ""]


@given(st.text(alphabet="ab =[](){}'\"\\,\t", max_size=30))
def test_words_and_the_spaces_between_make_up_the_line(line: str) -> None:
    try:
        words = split_words(line)
    except UnfinishedError:
        return
    assert all(line[w.start : w.end] == w.text for w in words)
    edges = [0, *(edge for w in words for edge in (w.start, w.end)), len(line)]
    gaps = [line[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)]
    assert all(not gap.strip() for gap in gaps)
    assert all(gaps[1:-1])


def parsers() -> Iterator[argparse.ArgumentParser]:
    """Yield the parser of each magic, verb and command."""
    for name in registry().keys("magics"):
        yield parser_of(name)[0]
    for name in registry().keys("verbs"):
        yield parser_of("%tritonrepo", name)[0]
    for name in registry().keys("commands"):
        operation: OperationSpec = registry().load("commands", name)
        parser = argparse.ArgumentParser(f"python -m bls_notebook {name}", description=operation.help)
        operation.add_options(parser, "shell")
        yield parser


def test_an_option_takes_the_same_value_everywhere() -> None:
    forms: dict[str, set[object]] = defaultdict(set)
    for parser in parsers():
        for action in parser._actions:
            for option in action.option_strings:
                metavar = str(action.metavar).removesuffix(",...")  # a list where several can be given
                forms[option].add((metavar, action.nargs == 0))
    del forms["--for"]  # what an export is for is a place, what a check is for is a release
    assert {option: found for option, found in forms.items() if len(found) > 1} == {}


def test_a_name_that_stands_alone_is_of_a_variable_and_a_model_is_called_model() -> None:
    for parser in parsers():
        for action in parser._actions:
            words = "variable" in str(action.help)
            assert (action.metavar == "NAME") <= words, (parser.prog, action.option_strings, action.help)
            if action.dest in ("model", "models"):
                assert action.metavar in (None, "MODEL"), parser.prog


def test_options_in_completions_are_those_of_the_parsers() -> None:
    for name in registry().keys("verbs"):
        line = magic_line(f"%tritonrepo {name} --", first_line=True)
        assert line is not None
        found = suggest(line, [], {})
        assert found is not None
        options = parser_of("%tritonrepo", name)[0].options
        assert set(found[1]) == {option for option in options if option.startswith("--")}
