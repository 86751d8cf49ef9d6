"""Both forms together; no IPython; nothing that changes from run to run."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.display import render
from bls_notebook.records.messages import MessageRecord
from tests.display.samples import error, family, histogram, model, response, statistics, tensor
from tests.repository.models import TEXT, saying

VALUES: list[Any] = [
    model(), response(), error(), MessageRecord("done"), [model()], [response()], [], [statistics()],
    [family(), histogram(), family(name="nv_own")],
]  # fmt: skip


def forms() -> str:
    return "".join(display.text + display.html for display in map(render, VALUES))


def test_both_forms_come_together() -> None:
    for value in VALUES:
        bundle = render(value)._repr_mimebundle_(include=None, exclude=None)
        assert set(bundle) == {"text/plain", "text/html"}
        assert bundle["text/html"].startswith('<div class="bls-out mathjax_ignore tex2jax_ignore"><style>')
        assert str(render(value)) == bundle["text/plain"]


def test_print_shows_the_text_of_results() -> None:
    assert str(model()) == render(model()).text
    assert str(tensor()) == repr(tensor())  # no display
    with bls.ModelRepository() as repo:
        repo.define("m", saying("1"), TEXT)
        recording, memory = bls.profile(name="two"), bls.track_memory()
        assert str(memory) == repr(memory)  # nothing is recorded yet
        with recording, memory:
            answer = repo.infer("m", {})
        for result in (answer, recording, recording.record, memory, bls.check(repo=repo), bls.inspect(answer)):
            assert str(result).partition("\n")[0].strip()
            assert not str(result).startswith("<")
        assert str(recording) == render(recording.record).text


def test_jupyter_picks_the_bundle_up() -> None:
    formatters = pytest.importorskip("IPython.core.formatters")
    data, _ = formatters.DisplayFormatter().format(render(model()))
    assert data["text/html"] == render(model()).html


def test_the_same_records_give_the_same_text_in_every_process() -> None:
    code = "import sys; from tests.display.test_mime_bundle import forms; sys.stdout.buffer.write(forms().encode())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.decode() == forms()


@pytest.mark.parametrize("value", [tensor(), [model(), response()], [tensor()], [statistics(), family()]])
def test_values_without_a_display_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=r"no display for .*; expected"):
        render(value)
