"""Messages name magics in a notebook, and Python calls in a script."""

from __future__ import annotations

from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook.devices.registry import SWITCH
from bls_notebook.records import base as script_messages
from bls_notebook.records.advice import Known, advised, ask_for
from bls_notebook.records.errors import ErrorRecord
from bls_notebook.repository.config.templates import fill_templates, open_reason

WORDS = {
    SWITCH: "simulate one with bls.simulate_gpus(1), or BLS_NOTEBOOK_SIMULATED_GPUS=1 in the environment",
    ask_for("page"): "load it first: `repo.load('page')`",
    "call `%blsprofile page … --overlap`": "call `bls.overlap('page', inputs)`",
    open_reason(
        fill_templates("max_batch_size: ${n}", model="m").unread
    ): "a template is not filled: ${n}; give values "
    "with `bls.ModelRepository('FOLDER', fill={...})`: n=8, or let `bls.try_repository('FOLDER')` choose",
    "100% of `a`": "100% of `a`",
}
MESSAGES = (
    "Model 'a' is not ready", "model 'a' must specify a non-zero or non-empty correlation ID",
    "Model a is using the decoupled.", "BLS is only supported during the 'execute' function",
    "Non-decoupled model cannot send more than one response", "No CUDA GPUs are available",
)  # fmt: skip


def test_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [*WORDS, *(advised(ErrorRecord(message, "", ("a",)), Known()).hint for message in MESSAGES)]
    assert [script_messages.suited(text) for text in WORDS] == list(WORDS.values())
    for text in texts:
        assert text
        assert not {word for word in script_messages.suited(text).split() if word.lstrip("`('").startswith("%")}, text
    monkeypatch.setattr(script_messages, "shells", [object()])
    assert [script_messages.suited(text) for text in texts] == texts


def test_errors_and_printed_results(tmp_path: Path) -> None:
    with bls.ModelRepository() as repo, bls.ModelRepository() as other:
        printed = str(repo.infer("page", {"X": [1]}))
        with pytest.raises(bls.ModelNotFoundError) as missing:
            repo.config("page")
        other.define("page", "class TritonPythonModel:\n    def execute(self, requests): return []")
        with pytest.raises(
            bls.ModelNotFoundError, match="another repository of this process serves it: pass that one, `repo="
        ) as away:
            bls.compare("page", {}, repo=repo)
        with pytest.raises(bls.ModelNotFoundError, match="another repository of this process serves it"):
            bls.check("page", repo=repo)
    for text in printed, str(missing.value), str(away.value):
        assert "%" not in text
    assert "repo.define('page', source)" in printed
    assert str(bls.ModelRepository().index()).startswith("no models: define one with repo.define(")
