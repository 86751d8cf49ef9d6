"""With the setting `raise_errors` an error response fails its cell, and the frontend is sent an error."""

from __future__ import annotations

import pytest

from bls_notebook.magics.cell_errors import FailedRequest

BODY = """%%bls
import numpy as np, triton_python_backend_utils as pb_utils
tensor = pb_utils.Tensor("IN", np.array([-1], np.float32))
request = pb_utils.InferenceRequest(model_name="times", requested_output_names=["OUT"], inputs=[tensor])
"""
SYNC = BODY + "response = request.exec()"
AWAITED = BODY + "response = await request.async_exec()"
MAGICS = {
    "%bls times IN=[-1]": 1,
    "answer = %bls times IN=[-1] -q": 1,
    "%bls times IN=[-1] -n 3 --into answer": 3,
    "%bls times IN=[-1] -n 2 --async": 2,
    SYNC: 1,
    AWAITED: 1,
    SYNC.replace("%%bls", "%%blsprofile"): 1,
    SYNC.replace("%%bls", "%%blsmemory"): 1,
    "%blsprofile times IN=[-1] -n 1 --repeat 1": 1,
}


def test_a_cell_with_an_error_response_fails_only_with_it_and_shows_the_same(cells) -> None:
    cells.model()
    assert all(cells(cell).success for cell in MAGICS)
    cells("%config BLSNotebook.raise_errors = True")
    for cell, count in MAGICS.items():
        outcome = cells(cell)
        assert isinstance(outcome.error, FailedRequest), cell
        assert "negative" in outcome.text
        assert (f"{count} requests failed" in str(outcome.error)) == (count > 1)
        assert outcome.stdout.count("FailedRequest: ") == 1
    assert "answer" in cells.shell.user_ns


def test_what_succeeds_and_what_the_code_takes_care_of(cells) -> None:
    cells.model()
    cells("%config BLSNotebook.raise_errors = True")
    assert cells("%bls times IN=[1]").success
    assert cells(SYNC.replace("[-1]", "[1]")).success
    caught = cells("try:\n    %bls times IN=[-1]\nexcept Exception as error:\n    print('caught', error)")
    assert caught.success
    assert "caught" in caught.stdout


def test_a_definition_that_fails_is_an_error_for_programs_too(cells) -> None:
    assert not cells("%%tritonmodel broken\nx = = 1").stdout
    cells("%config BLSNotebook.raise_errors = True")
    assert "ModelLoadError: " in cells("%%tritonmodel broken\nx = = 1").stdout
    with pytest.raises(AssertionError):
        assert cells("%tritonrepo load nosuch").success
