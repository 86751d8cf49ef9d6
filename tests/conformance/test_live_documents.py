"""The models that notebooks of the course and guides define, with the documents' own requests, on one real server."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator

import pytest

import bls_notebook as bls
from bls_notebook.display import render
from bls_notebook.shipping.servers.server_programs import ServerEnvironment
from tests.conformance.conftest import ROOT
from tests.conformance.documents import DOCUMENTS, FOUND, Proofs, explanation, proofs

pytestmark = [pytest.mark.extra, pytest.mark.triton, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
# Definitions that a server without a GPU cannot run, that call a stub, or that show what hangs it.
NOT_COMPARED = {
    ("04_memory_lifetimes", "mended"): "No module named 'cupy'",
    ("07_errors_and_deadlocks", "ink"): "wait forever",
    ("12_somebody_elses_pipeline", "find_wheels"): "is a stub",
    ("12_somebody_elses_pipeline", "read_wheel"): "CUDA",
    ("14_to_production", "blank"): "notebook variable 'images'",
    ("existing_repository", "page"): "model 'scorer' is a stub",
    ("existing_repository", "scorer"): "is a stub",
    ("hangs_and_crashes", "again"): "wait forever",
    ("hangs_and_crashes", "endless"): "wait forever",
    ("hangs_and_crashes", "forgetful"): "wait forever",
}


@pytest.fixture(scope="module")
def all_proofs(
    request: pytest.FixtureRequest, environment: ServerEnvironment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proofs]:
    """Of the documents whose tests run."""
    folder = tmp_path_factory.mktemp("documents")
    wanted: list[str] = [item.callspec.params["document"] for item in request.node.session.items
                         if item.path == request.path and isinstance(item, pytest.Function)]  # fmt: skip
    command = [sys.executable, "-m", "tests.conformance.documents", str(folder), *wanted]
    subprocess.run(command, cwd=ROOT, check=True)  # cells leave threads and settings
    with proofs(*pickle.loads((folder / FOUND).read_bytes()), environment) as found:
        yield found
        found.prover.server.stop(graceful=False)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_models_of_a_document_answer_as_on_a_server(all_proofs: Proofs, document: str) -> None:
    definitions = [each for each in all_proofs.definitions if each.document == document]
    assert definitions
    for definition in definitions:
        try:
            found = all_proofs.prove(definition, generate=4)
        except bls.BLSError as error:
            if NOT_COMPARED.get((document, definition.model), "?") not in str(error):
                raise
        else:
            assert found.equal or explanation(found), render(found).text
