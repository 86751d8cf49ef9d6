"""Remedies name magics in a notebook, calls in a script and commands in a shell."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook.devices.registry import why_no_gpu
from bls_notebook.records.advice import Known, advised
from bls_notebook.records.errors import ErrorRecord
from bls_notebook.records.remedy_words import ACTIONS, Remedy, on_surface, remedy
from bls_notebook.repository.config.templates import fill_templates, open_reason

MAGIC = re.compile(r"%%?(?:bls|triton|config|env|pip|reset)")
MESSAGES = (
    "Model 'a' is not ready", "model 'a' must specify a non-zero or non-empty correlation ID",
    "Model a is using the decoupled.", "BLS is only supported during the 'execute' function",
    "Non-decoupled model cannot send more than one response", "No CUDA GPUs are available",
)  # fmt: skip


@pytest.mark.parametrize("kind", ACTIONS)
def test_an_action_suits_each_surface_and_quotes_its_facts(kind: str) -> None:
    hostile = "a'; rm -rf ~ {load}"
    action = remedy(f"{{{kind}}}", name=hostile, model=hostile, folder=hostile)
    for surface in "python", "shell", "notebook":
        with on_surface(surface):
            text = str(action)
        assert text
        assert surface == "notebook" or not MAGIC.search(text)
        assert "rm -rf" not in text.replace(repr(hostile), "").replace(shlex.quote(hostile), "")


def test_a_notebook_is_told_no_name_that_only_scripts_have() -> None:
    """A notebook with the extension has neither `repo` nor `bls`, unless the user assigns them."""
    names = {kind: [*words, words[0]][1] for kind, words in ACTIONS.items()}
    literals = r"Remedy\(\s*f?([\"']).*?\1,\s*f?([\"'])(.*?)\2\)"
    for file in Path(bls.__file__).parent.rglob("*.py"):
        names |= {f"{file}:{m.start()}": m[3] for m in re.finditer(literals, file.read_text("utf-8"))}
    assert len(names) > len(ACTIONS)
    assert {kind: text for kind, text in names.items() if re.search(r"\b(repo|bls|np)\.\w+\(", text)} == {}


@pytest.mark.parametrize("message", MESSAGES)
def test_a_saved_remedy_suits_the_surface_that_shows_it(message: str) -> None:
    with on_surface("notebook"):
        saved = json.dumps(advised(ErrorRecord(message, "", ("a",)), Known()).to_dict())
        record = ErrorRecord.from_dict(json.loads(saved))
        assert MAGIC.search(str(record.hint)) or "--decoupled" in str(record.hint)
        assert str(record.hint) in " ".join(str(record).split())
    for surface in "python", "shell":
        with on_surface(surface):
            assert not MAGIC.search(str(record))
            assert "--" not in str(record.hint)
    assert ErrorRecord.from_dict({"message": message, "hint": "`as before`"}).hint == "`as before`"


def test_texts_of_models_are_not_parsed() -> None:
    said = "{load} {nobody} {{ } %s"
    assert remedy("a {said}", said=said) == f"a {said}"
    inner = remedy("{said}: {load}", said=said, name="{define}")
    assert str(remedy("({inner}){{}}", inner=inner)) == f"({said}: `repo.load('{{define}}')`){{}}"
    assert str(remedy("{action}", action=Remedy("x"))) == "x"


def test_messages_suit_the_surface() -> None:
    open_templates = fill_templates("max_batch_size: ${n}", model="m").unread
    assert str(remedy("{load}", name="page")) == "`repo.load('page')`"
    assert "bls.ModelRepository('FOLDER', fill={'n': '8'})`, or let `bls.try_" in open_reason(open_templates)
    assert "%" not in why_no_gpu()
    with on_surface("notebook"):
        assert str(remedy("{load}", name="page")) == "`%tritonrepo load page`"
        assert "`%tritonrepo use FOLDER --fill n=8`, or let `%tritonrepo try FOLDER`" in open_reason(open_templates)
        with on_surface("shell"):
            assert "let `python -m bls_notebook try FOLDER`" in open_reason(open_templates)


def test_errors_and_printed_results_of_scripts() -> None:
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


def test_the_core_writes_no_magic_outside_of_actions() -> None:
    package = Path(bls.__file__).parent
    folders = ("backends", "devices", "display", "engine", "records", "repository")
    lines = [
        line.strip()
        for folder in folders
        for file in sorted((package / folder).rglob("*.py"))
        if file.name != "remedy_words.py"
        for line in file.read_text("utf-8").splitlines()
        if MAGIC.search(re.sub("``.*?``", "", line))
    ]
    assert [line.partition(" FOLDER")[0] for line in lines] == ['f"`%tritonrepo use']
