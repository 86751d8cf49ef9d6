from __future__ import annotations

import gc

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.inspection.display import answering
from bls_notebook.inspection.records import Compared, ResponseView, TensorView


def test_a_response_a_slice_and_two(cells) -> None:
    cells.model()
    cells("answer = %bls times IN=range(100)")
    shown = cells("%blsinspect answer")
    assert (type(shown.value.record), "min 0 · max 198 · mean 99" in shown.text) == (ResponseView, True)
    part = cells('part = %blsinspect answer["OUT"] --at [2:4]\npart').value
    assert (type(part.record), part.record.tensor.shape) == (TensorView, (2,))
    assert cells.shell.user_ns["part"] is part
    both = cells("%blsinspect answer answer")
    assert (type(both.value.record), "equal" in both.text) == (Compared, True)


def test_without_a_value_it_is_the_last_response_if_anybody_has_it(cells) -> None:
    assert "there was no response yet" in str(cells("%blsinspect").error)
    cells.model()
    cells("answer = %bls times IN=range(50)")
    assert "OUT" in cells("%blsinspect").text
    cells("%reset -f")
    gc.collect()
    assert "or it was freed" in str(cells("%blsinspect").error)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nothing_of_that_name", "name 'nothing_of_that_name' is not defined"),
        ("None", "None is None, expected a VALUE; with -q, %bls returns None"),
        ("[1,2] --at [7]", "slice [7]: the tensor has the shape [2]"),
        ("[1] --rate 5", "got '5', expected a whole number from 100"),
        ("[1] [2] [3]", "unexpected argument"),
    ],
)
def test_wrong_blsinspect_lines_are_one_line(cells, line: str, said: str) -> None:
    assert said in str(cells(f"%blsinspect {line}").error)


def test_tensors_and_repositories_are_shown_by_the_last_line_of_a_cell(cells) -> None:
    cells.model()
    cells("answer = %bls times IN=range(100)")
    shown = cells('answer["OUT"]')
    assert "mean 99" in shown.text
    assert "bls-seen" in shown.html
    assert "times" in cells("import bls_notebook as bls\nbls.current_repository()").text
    assert cells('[answer["OUT"]]').text.startswith("[Tensor(")


def test_questions_of_a_widget_are_answered_and_never_raise() -> None:
    found = bls.inspect(np.arange(60.0).reshape(3, 4, 5))
    answer = answering(found, 100)
    html, state = answer({})
    assert ("59" in html, state["tensors"]) == (True, [["", [3, 4, 5]]])
    html, state = answer({"tensor": "", "at": "[1, :, 2]", "rate": 0, "number": "1"})
    assert ("slice [1, :, 2]" in html, state["at"], state["said"]) == (True, "[1, :, 2]", "")
    html, state = answer({"at": "[7]"})
    assert (html, state["said"].partition(" [3")[0]) == ("", "slice [7]: the tensor has the shape")
    assert answer({"at": "", "rate": "fast"})[1]["said"]
