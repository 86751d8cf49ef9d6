"""What exports and proofs say of themselves."""

from __future__ import annotations

from dataclasses import replace

from bls_notebook.display import render
from bls_notebook.shipping.records import Exported, ExportedModel
from tests.display.samples import certificate

TEXT = """\
../ship  2 models · 3 KiB
  model   backend   from    files  calls
  detect  python    models      2
  pages   ensemble  a cell      1  detect
requirements.txt: numpy<2 · needs about 2 MiB of /dev/shm on a server · README.md: how to serve,
test and measure the models
  warning: pages calls gone, which is not loaded here and was left out: load it and export again, or
           make sure that the server has it
  warning: model 'pages', 1/model.py, line 2: `foo` is not installed here: copy it into the model's
           folder, or, if it is a package, add that to requirements.txt"""


def test_the_text() -> None:
    models = (
        ExportedModel("detect", backend="python", source="models", files=2, bytes=2048),
        ExportedModel("pages", source="cell", files=1, bytes=1024, calls=("detect",), absent=("gone",)),
    )
    record = Exported("../ship", models, ("numpy<2",), (("pages", "1/model.py, line 2", "foo", ""),), 2 << 20)
    assert render(record).text == TEXT
    assert record.entries == ("pages",)


def test_a_proof_of_failing_requests_only_says_so() -> None:
    equal = certificate(unequal=(), failed=1)
    assert render(equal).text.startswith("✓ a answers as the server does: 2 requests, equal bit by bit")
    assert render(replace(equal, failed=2)).text.startswith(
        "! a fails as the server does: 2 requests, equal bit by bit"
    )
