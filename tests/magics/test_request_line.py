from __future__ import annotations

import pytest
from IPython.core.error import UsageError

from bls_notebook.magics.arguments import read_line
from bls_notebook.magics.request import PARSER


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
    ],
)
def test_a_line_is_read(line: str, words: list[str], inputs: dict[str, str]) -> None:
    read = read_line(PARSER, line, {"model": "m"})
    assert (read.words, read.inputs) == (words, inputs)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("m x", "%bls: got 'x', expected INPUT=expression, such as INPUT0=[1, 2]. %bls? shows the help."),
        ("m A=", "%bls: input 'A' has no value, expected A=expression. %bls? shows the help."),
        ("m A=1 A=2", "%bls: input 'A' is given twice. %bls? shows the help."),
        ("m A=[1", "%bls: [ is never closed in 'A=[1'. %bls? shows the help."),
        ("m --output X", "%bls: unknown option '--output'; did you mean --outputs? %bls? shows the help."),
        ("m --into", "%bls: --into needs a value. %bls? shows the help."),
    ],
)
def test_a_bad_line_gets_one_line(line: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_line(PARSER, line, {})
    assert str(caught.value) == message
