from __future__ import annotations

import threading

import pytest

BODY = """\
%%bls
import numpy as np
import triton_python_backend_utils as pb_utils

def request(value):
    return pb_utils.InferenceRequest(
        model_name="times", requested_output_names=["OUT"],
        inputs=[pb_utils.Tensor("IN", np.array([value], np.float32))])

"""


def test_top_level_await(cells) -> None:
    cells.model()
    shown = cells(
        BODY
        + """
import asyncio
responses = await asyncio.gather(*(request(n).async_exec() for n in range(4)))
print("in", __import__("threading").current_thread().name)
[float(r.output_tensors()[0].as_numpy()[0]) for r in responses]
"""
    )
    assert shown.value == [0.0, 2.0, 4.0, 6.0]
    assert threading.current_thread().name not in shown.stdout
    assert cells("len(responses)").value == 4

    assert cells(BODY + "(await request(2).async_exec()).has_error()").value is False
    assert cells(BODY + "r = await request(2).async_exec()\n7").value == 7


def test_variables_are_the_notebooks(cells) -> None:
    assert isinstance(cells("%%bls\nimaginary").error, NameError)
    cells("before = 5")
    cells("%%bls\nafter = before + 1")
    assert cells("after").value == 6
    assert cells("%%bls --into value\n1 + 1").value == 2
    assert cells("value").value == 2
    assert cells("%%bls\n1 + 1;").value is None
    assert cells("%%bls\nx = 1").value is None
    assert cells("%%bls\n\n").success
    assert cells("%%bls\n# nothing").success


def test_a_traceback_begins_at_the_cell_and_counts_its_lines(cells) -> None:
    for await_it in ("", "import asyncio; await asyncio.sleep(0)"):
        failed = cells(f"%%bls\nfirst = 1\n{await_it}\ndef f():\n    return first / 0\nf()")
        assert isinstance(failed.error, ZeroDivisionError)
        assert "return first / 0" in failed.stdout
        assert ", line 6" in failed.stdout
        assert ", line 5" in failed.stdout
        for internal in ("bls_notebook", "run_cell_magic", "engine"):
            assert internal not in failed.stdout


def test_a_syntax_error_shows_the_line(cells) -> None:
    failed = cells("%%bls\nx = 1\ny = = 2")
    assert not failed.success
    assert "y = = 2" in failed.stdout
    assert ", line 3" in failed.stdout
    assert "SyntaxError" in failed.stdout
    assert "bls_notebook" not in failed.stdout


def test_errors_of_the_api_keep_their_traceback_to_the_line_of_the_caller(cells) -> None:
    for magic in ("%%bls\n", ""):
        failed = cells(f"{magic}import bls_notebook as bls\nbls.current_repository().load('nope')")
        assert "ModelNotFoundError" in failed.stdout
        assert "bls.current_repository().load('nope')" in failed.stdout
        assert "Traceback" in failed.stdout
    failed = cells("import bls_notebook as bls\nbls.connect('http://127.0.0.1:1', timeout=1)")
    assert "bls.connect('http://127.0.0.1:1', timeout=1)" in failed.stdout
    assert "BLSError: connect: http://127.0.0.1:1: no answer" in failed.stdout
    assert "connecting.py" not in failed.stdout
    assert "direct cause" not in failed.stdout


def test_a_stream_comes_whole_inside_the_body(cells) -> None:
    cells.stream()
    for magic in ("%%bls", "%%blsprofile -q", "%%blsmemory -q"):
        came = cells(f"{magic}\nanswers = %bls counter N=[3] --stream\nanswers").value
        assert [response["OUT"].as_numpy().item() for response in came] == [0, 1, 2]
        awaited = "[r async for r in bls.current_repository().stream_async('counter', {'N': [3]})]"
        assert len(cells(f"{magic}\nimport bls_notebook as bls\n{awaited}").value) == 3


@pytest.mark.parametrize("magic", ["%%bls", "%%blscheck requests == 1", "%%blsprofile -q"])
def test_a_failed_request_shows_how_to_fix_it(cells, magic: str) -> None:
    cells.model()
    wrong = BODY.replace('"IN"', '"in"').replace("%%bls", magic, 1)
    for end in (
        "request(4).exec().has_error()",
        "request(4).exec().output_tensors()[0]",
        "await request(4).async_exec()",
        "__import__('bls_notebook').current_repository().infer('times', {'in': [4]}).stubs",
    ):
        shown = cells(wrong + end)
        assert "a request to 'times' failed" in shown.text
        assert "how to fix: did you mean `IN`?" in " ".join(shown.text.split()), shown.text


def test_a_cell_has_the_names_of_an_execute_and_a_failed_one_leaves_no_value(cells) -> None:
    assert cells("%%bls --into names\n[pb_utils.__name__, requests]").value[1] == []
    assert not {"pb_utils", "requests"} & set(cells.shell.user_ns)
    failed = cells("%%bls --into names\npb_utils.Tensor('X', [1, 2])")
    assert "how to fix: create a tensor from a NumPy array" in " ".join(failed.text.split())
    assert "names" not in cells.shell.user_ns


def test_save_writes_a_page_and_refuses_unknown_endings(cells, tmp_path) -> None:
    cells(f"%%blsmemory --save {tmp_path}/page.html -q\n1")
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    for magic in "%%blsmemory", "%%blsprofile":
        shown = cells(f"{magic} --save {tmp_path}/page.txt -q\nran = 1")
        assert "page.txt', expected a name that ends with .json or .json.gz or .html" in " ".join(shown.stderr.split())
    assert "ran" not in cells.shell.user_ns  # refused before any work
