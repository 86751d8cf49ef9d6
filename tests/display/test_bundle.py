"""Both forms together; no IPython; nothing that changes from run to run."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from bls_notebook.display import Display, render, render_config
from bls_notebook.records.repository import MessageRecord
from tests.display.samples import error, family, histogram, model, response, statistics, tensor

VALUES: list[Any] = [
    model(), response(), error(), MessageRecord("done"), [model()], [response()], [], [statistics()],
    [family(), histogram(), family(name="nv_own")],
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda v: type(v).__name__)
def test_both_forms_come_together(value: Any) -> None:
    bundle = render(value)._repr_mimebundle_(include=None, exclude=None)
    assert set(bundle) == {"text/plain", "text/html"}
    assert bundle["text/html"].startswith('<div class="bls-out mathjax_ignore tex2jax_ignore"><style>')
    assert str(render(value)) == bundle["text/plain"]


def test_jupyter_picks_the_bundle_up() -> None:
    formatters = pytest.importorskip("IPython.core.formatters")
    data, _ = formatters.DisplayFormatter().format(render(model()))
    assert data["text/html"] == render(model()).html


@pytest.mark.parametrize("value", VALUES, ids=lambda v: type(v).__name__)
def test_the_same_record_always_gives_the_same_text(value: Any) -> None:
    code = (
        "import sys; from tests.display.test_bundle import VALUES, render; "
        f"d = render(VALUES[{VALUES.index(value)}]); sys.stdout.buffer.write((d.text + d.html).encode())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.decode() == render(value).text + render(value).html


def test_sequences_are_told_apart() -> None:
    assert "1 model, 1 ready" in render([model()]).text
    assert "1 request ·" in render([response()]).text
    assert "first after" in render([response()], stream=True).text
    assert render([], stream=True).text == "no responses"


def test_what_an_empty_sequence_is_of() -> None:
    assert "no models are loaded" in render([], empty="StatisticsRecord").text
    assert render([], empty="FamilyRecord").text == "no metrics"


@pytest.mark.parametrize("value", [tensor(), [model(), response()], [tensor()], [statistics(), family()]])
def test_what_has_no_display_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=r"no display for .*; expected"):
        render(value)


def test_config_bundle() -> None:
    display = render_config("m", "name: 'm'")
    assert display == Display(display.text, display.html)
    assert display.text.endswith("name: 'm'")


def test_display_and_observe_import_nothing_heavy() -> None:
    code = (
        "import sys; import bls_notebook; before = set(sys.modules); import bls_notebook.display; "
        "heavy = {'IPython', 'numpy', 'matplotlib', 'ipywidgets', 'statistics'}; "
        "print(sorted(heavy & (set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"
