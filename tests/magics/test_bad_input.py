"""One clear message for each bad input; nothing is lost, and what was serving still serves."""

from __future__ import annotations

import pytest
from IPython.core.error import UsageError

import bls_notebook as bls

BAD_CELLS = {
    "a syntax error": ("%%tritonmodel times\nclass TritonPythonModel:\n    x = = 1", bls.ModelLoadError, "SyntaxError"),
    "no class": ("%%tritonmodel times\nx = 1", bls.ModelLoadError, "TritonPythonModel"),
    "a failing import": ("%%tritonmodel times\nimport no_such_module", bls.ModelLoadError, "no_such_module"),
    "an exit": ("%%tritonmodel times\nimport sys\nsys.exit(3)", bls.ModelLoadError, "SystemExit"),
    "a bad config": ("%%tritonconfig times\ninput [ {", bls.ConfigError, "config"),
}


@pytest.mark.parametrize("kind", BAD_CELLS)
def test_a_bad_cell_leaves_the_old_version_serving_if_there_is_one(cells, kind: str) -> None:
    cell, error, words = BAD_CELLS[kind]
    alone = cells(cell)
    assert not alone.success
    assert "stays in service" not in alone.text
    cells("%tritonrepo clear")
    cells.model(factor=3)
    failed = cells(cell)
    assert not failed.success
    assert isinstance(failed.error, error)
    assert words in failed.text
    assert "version 1 of 'times' stays in service" in failed.text
    assert len(failed.outputs) == 1  # one display, in both forms, and nothing else
    assert set(failed.bundles[0]) == {"text/plain", "text/html"}
    assert "Traceback (most recent call last)" not in failed.stdout + failed.stderr
    assert cells("%bls times IN=[1]").value["OUT"].as_numpy().tolist() == [3]
    assert cells("%tritonrepo reload times").success


@pytest.mark.parametrize(
    "cell", ["%%tritonmodel ../a\nx = 1", "%%tritonconfig a/../b\nmax_batch_size: 1", "%tritonrepo load ../a"]
)
def test_a_name_that_leads_elsewhere(cells, cell: str) -> None:
    failed = cells(cell)
    assert isinstance(failed.error, bls.InvalidNameError)
    assert "cannot be used: it contains '/'" in " ".join(failed.text.split())
    assert bls.current_repository().index() == []


@pytest.mark.parametrize("line", ["%bls nope IN=[1]", "%tritonrepo reload nope", "%tritonrepo config nope"])
def test_an_unknown_model(cells, line: str) -> None:
    cells.model()
    failed = cells(line)
    assert isinstance(failed.error, bls.ModelNotFoundError)
    assert "'nope'" in failed.text
    assert not failed.stderr
    failed = cells("%bls times IN=['x']")
    assert isinstance(failed.error, bls.BLSError)
    assert "input 'IN'" in failed.text


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%bls -q", "%bls: missing: MODEL."),
        ("%tritonrepo connect grpc://[::1", "%tritonrepo connect: [ is never closed in 'grpc://[::1'."),
        ("%bls times IN=nothing", "%bls: input IN: nothing: NameError: name 'nothing' is not defined"),
        ("%bls times IN=[1] -n 0", "%bls: -n: got '0', expected a whole number from 1."),
        ("%%bls --into a.b\n1", "%%bls: --into: got 'a.b', expected a variable name"),
        ("%bls times IN=[1] --timeout 5000", "%bls: --timeout: got '5000', expected a time with its unit"),
        ("%bls counter N=[1]", "%bls: model 'counter' is decoupled"),
        ("%%bls times\n1", "%%bls: unexpected argument 'times'."),
        ("%%tritonmodel\nx = 1", "%%tritonmodel: missing: MODEL."),
        ("%%tritonconfig\nx: 1", "%%tritonconfig: missing: MODEL."),
        ("%tritonrepo lod", "%tritonrepo: unknown verb 'lod' (did you mean load?); the verbs are list,"),
        ("%tritonrepo load", "%tritonrepo load: expected model names, or --all."),
        ("%tritonrepo config", "%tritonrepo config: missing: MODEL. %tritonrepo? shows the help."),
    ],
)
def test_a_bad_argument_gets_one_line(cells, cell: str, message: str) -> None:
    cells.model()
    cells.stream()
    failed = cells(cell)
    assert type(failed.error) is UsageError
    assert failed.stderr.startswith("UsageError: " + message)
    assert failed.stderr.count("\n") == 1
    assert not failed.stdout
