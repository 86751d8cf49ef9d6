"""Prove the sample models and the models of the course and the guides, and write the table of certificates.

    python docs/make_certificates.py [DOCUMENT ...]

The script copies each model definition in the notebooks and guides (also in exercises and solutions), serves all of
them and the samples with one real tritonserver, and sends the same requests to both sides: the documents' own, and
generated ones. The new table replaces the table in docs/evidence/conformance.md. With names (of documents, such as
02_decoupled_streams, or model_repository) the script only prints the table.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import bls_notebook as bls  # noqa: E402
from bls_notebook.display import render  # noqa: E402
from bls_notebook.records.units import ns  # noqa: E402
from bls_notebook.shipping.servers.server_programs import make_environment  # noqa: E402
from tests.conformance.documents import DOCUMENTS, SAMPLES, Definition, Proofs, collect, explanation, proofs  # noqa: E402

PAGE = ROOT / "docs" / "evidence" / "conformance.md"
BEGIN, END = "<!-- certificates -->\n", "<!-- end of certificates -->\n"
GENERATED = 50
FEWER = {"shared_memory": 8}  # its tensors have up to 200 MB
HEAD = (
    "| model | defined in | requests | same error on both | outcome | median here | on the server |\n"
    "| --- | --- | --- | --- | --- | --- | --- |\n"
)
# Requests for the models that read the callee's name from an input.
CALLEES: Mapping[str, Mapping[str, Any]] = {
    "bls_sync": {"MODEL_NAME": ["add_sub"], "INPUT0": [1, 2, 3, 4], "INPUT1": [5, 6, 7, 8]},
    "bls_async": {"MODEL_NAME": ["add_sub"], "INPUT0": [1, 2, 3, 4], "INPUT1": [5, 6, 7, 8]},
    "bls_decoupled_sync": {"MODEL_NAME": ["square_int32"], "IN": [3, 0, 2]},
    "bls_decoupled_async": {"MODEL_NAME": ["square_int32"], "IN": [3, 0, 2]},
}


def main(wanted: list[str]) -> None:
    """Prove all models, or those of the named documents."""
    warnings.simplefilter("ignore")  # NumPy warns about NaN and zeros in generated requests
    rows = []
    with tempfile.TemporaryDirectory(prefix="bls-notebook-certificates-") as temporary:
        documents = [name for name in wanted or DOCUMENTS if name != SAMPLES]
        folder, definitions = collect(Path(temporary), documents) if documents else (ROOT / SAMPLES, [])
        if not wanted or SAMPLES in wanted:
            names = sorted(path.name for path in (ROOT / SAMPLES).iterdir() if path.is_dir())
            samples = [Definition(name, SAMPLES, [CALLEES[name]] if name in CALLEES else [], name) for name in names]
            definitions = [*samples, *definitions]
        with proofs(folder, definitions, make_environment(requirements=["scikit-learn"])) as proven:
            for definition in definitions:
                rows.append(row(proven, definition))
                print(rows[-1], flush=True)
            proven.prover.server.stop(graceful=False)
    if not wanted:
        text = PAGE.read_text(encoding="utf-8")
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        PAGE.write_text(before + BEGIN + HEAD + "\n".join(rows) + "\n" + END + after, encoding="utf-8")


def row(proven: Proofs, definition: Definition) -> str:
    """Compare a model with the server; return its row of the table."""
    begin = f"| {definition.model} | {definition.document} |"
    try:
        found = proven.prove(definition, FEWER.get(definition.document, GENERATED))
    except bls.BLSError as error:
        return (
            f"{begin} | | not compared: {str(error).rstrip(';').partition(', which cannot run on a server')[0]} | | |"
        )
    print(render(found).text if not found.equal else "", end="", file=sys.stderr)
    outcome = "equal" if found.equal else "varies" if found.varies else "differs"
    if reason := explanation(found):
        outcome += f": {reason}"
    if found.equal and found.tolerance:
        outcome = f"equal within {found.tolerance:g}"
    times = f"{ns(found.here_ns)} | {ns(found.there_ns)}"
    return f"{begin} {found.requests} | {found.failed} | {outcome} | {times} |"


if __name__ == "__main__":
    main(sys.argv[1:])
