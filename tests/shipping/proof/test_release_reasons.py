"""Differences from a server that its release explains."""

from __future__ import annotations

import pytest

from bls_notebook.shipping.proof.release_reasons import release_reasons
from bls_notebook.shipping.records import Unequal

READY = "here: Failed to check model readiness: ..., message: Request for unknown model: 'b' is not found"
CASES = [
    (READY, "24.10", "is_model_ready of a model that is not loaded changed in 26.07"),
    (READY, "26.08", ""),
    (
        "an error only on the server: TypeError: __init__(): incompatible constructor arguments. The following "
        "argument types are supported:",
        "24.12",
        "25.02",
    ),
    ("error code: gRPC status NOT_FOUND here, INTERNAL on the server", "25.03", "25.04"),
    ("error code: gRPC status NOT_FOUND here, UNKNOWN on the server", "25.03", ""),
    ("on the server: unexpected number of string elements 2 for inference input 'ID'", "24.10", "25.01"),
    ("output 'OUT': 1.0 here, 2.0 on the server", "24.10", ""),
    (READY, "", ""),
]


@pytest.mark.parametrize(("line", "release", "reason"), CASES)
def test_a_difference_that_the_release_explains_is_named(line: str, release: str, reason: str) -> None:
    reasons = list(release_reasons([Unequal((line,))], release, calls=True))
    assert len(reasons) == bool(reason)
    assert all(reason in each and "not the model" in each for each in reasons)
