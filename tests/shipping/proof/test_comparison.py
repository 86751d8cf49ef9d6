"""Two answers held against each other, without a server."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook.shipping.proof import targets
from bls_notebook.shipping.proof.comparison import Allowed, Output, ProofAnswer, differences
from bls_notebook.shipping.records import Certificate, ModelCounts
from tests.repository.models import ECHO, ECHOES

NAN, ZERO = np.float32("nan"), np.float32(0)
OTHER_NAN = np.array([0x7FC12345], np.uint32).view(np.float32)


def one(values: Any, datatype: str = "FP32", **more: Any) -> list[ProofAnswer]:
    array = np.array(values, object if datatype == "BYTES" else np.float32)
    return [ProofAnswer({"OUT": Output(datatype, array)}, **more)]


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (one([1, NAN]), one([1, NAN])),
        (one([b"a", b""], "BYTES"), one([b"a", b""], "BYTES")),
        (one([]), one([])),
        ([ProofAnswer(error="no", status="INTERNAL")], [ProofAnswer(error="[request id: 7] no", status="INTERNAL")]),
        ([], []),
    ],
)
def test_equal(here: list[ProofAnswer], there: list[ProofAnswer]) -> None:
    assert differences(here, there) == ((), (), None)


@pytest.mark.parametrize(
    ("here", "there", "words"),
    [
        (one([1, 2]), one([1, 3]), "output 'OUT': 1 of 2 elements differ"),
        (one([ZERO]), one([-ZERO]), "output 'OUT': 1 of 1 elements differ (zeros of different signs)"),
        (one([NAN]), one(OTHER_NAN), "output 'OUT': 1 of 1 elements differ (NaN of different bits)"),
        (one([NAN]), one([-NAN]), "output 'OUT': 1 of 1 elements differ (NaN of different bits)"),
        (one([NAN]), one([1]), "output 'OUT': 1 of 1 elements differ"),
        (one([1]), one([1], "BF16"), "output 'OUT': FP32 here, BF16 on the server"),
        (one([1]), one([[1]]), "output 'OUT': shape [1] here, [1, 1] on the server"),
        (one([b"a"], "BYTES"), one([b"b"], "BYTES"), "output 'OUT': 1 of 1 elements differ"),
        (one([1]), [ProofAnswer()], "output 'OUT' is only here"),
        (one([1]), one([1], version=2), "answered by version 0 here, 2 on the server"),
        (one([1]), one([1], parameters={"a": 1}), "parameters: {} here, {'a': 1} on the server"),
        (one([1]), [ProofAnswer(error="no")], "an error only on the server: no"),
        ([ProofAnswer(error="x\na")], [ProofAnswer(error="x\nb")], "errors: 'a' here, 'b' on the server"),
        ([ProofAnswer(error="a", status="UNKNOWN")], [ProofAnswer(error="a", status="INTERNAL")],
         "error code: gRPC status UNKNOWN here, INTERNAL on the server"),
        (one([1]) * 2, one([1]), "2 responses here, 1 on the server"),
        (one([1]), [ProofAnswer(error="gone", lost=True)], "no answer from the server: gone"),
    ],
)  # fmt: skip
def test_unequal(here: list[ProofAnswer], there: list[ProofAnswer], words: str) -> None:
    assert differences(here, there)[0] == (words,)


def test_the_tolerance_applies_to_every_element() -> None:
    here, there = one([1, np.inf]), one([1, 1])
    for allowed in (Allowed(0.5), Allowed(0.0, 1000), Allowed(0.5, 1000)):
        assert differences(here, there, allowed)[0]
    assert not differences(one([1, 2]), one([1, 2.1]), Allowed(0.1))[0]


@pytest.mark.parametrize(
    ("first", "second", "values"),
    [([ZERO], [-ZERO], ("0.0", "-0.0")), ([NAN], OTHER_NAN, ("nan (0x7fc00000)", "nan (0x7fc12345)"))],
)
def test_values_that_print_alike_are_shown_with_their_bits(first: Any, second: Any, values: tuple[str, str]) -> None:
    (tensors,) = differences(one(first), one(second))[1]
    assert (tensors.differing, tensors.values) == (1, values)
    for allowed in (Allowed(1e-6), Allowed(0.0, 1)):
        assert not differences(one(first), one(second), allowed)[0]


def test_equal_numbers_of_other_types_differ_only_by_type() -> None:
    doubles = [ProofAnswer({"OUT": Output("FP64", np.array([0.5]))})]
    assert differences(one([0.5]), doubles) == (("output 'OUT': FP32 here, FP64 on the server",), (), None)
    (tensors,) = differences(one([0.1]), [ProofAnswer({"OUT": Output("FP64", np.array([0.1]))})])[1]
    assert tensors.values == ("0.1 (0x3dcccccd)", "0.1 (0x3fb999999999999a)")


def test_executions_of_a_callee_with_a_batcher_depend_on_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_COUNT_SECONDS", 0.0)
    names = ("plain", "batched")
    before, here, there = (dict.fromkeys(names, counts) for counts in ((0,) * 4, (4, 0, 4, 1), (4, 0, 4, 4)))
    with bls.ModelRepository() as repository:
        repository.define("plain", ECHOES, ECHO)
        repository.define("batched", ECHOES, f"{ECHO} max_batch_size: 8 dynamic_batching {{ }}")
        sides: Any = [SimpleNamespace(repository=repository, counts=lambda c=c: c) for c in (here, there)]
        counted = targets.compare_counts(*sides, (before, before), True)
    assert {each.model: each.equal for each in counted} == {"plain": False, "batched": True}


def test_failed_requests_of_ensembles_may_count_twice() -> None:
    here, there = (1, 2, 1, 1), (1, 4, 1, 1)
    assert ModelCounts("a", here, there, ensemble=True).equal
    assert not ModelCounts("a", here, there).equal
    assert not ModelCounts("a", here, (1, 5, 1, 1), ensemble=True).equal


def test_a_certificate_knows_the_files_of_its_export(samples: bls.ModelRepository, tmp_path: Path) -> None:
    bls.export(tmp_path / "e", "add_sub", repo=samples)
    (config,) = (tmp_path / "e").rglob("add_sub/config.pbtxt")
    folder = config.parents[1]
    files = [path for path in sorted(config.parent.rglob("*")) if path.is_file()]
    hashes = tuple((path.relative_to(folder).as_posix(), sha256(path.read_bytes()).hexdigest()) for path in files)
    certificate = Certificate.from_dict(Certificate("add_sub", given=1, files=hashes).to_dict())
    with pytest.raises(ValueError, match=r"Certificate\.equal: got False, but its other fields say True"):
        Certificate.from_dict({**certificate.to_dict(), "equal": False})
    assert bls.verify(certificate, tmp_path / "e").equal
    assert bls.verify(certificate, folder).equal
    files[0].write_text("changed")
    files[1].rename(files[1].with_name("other"))
    verified = bls.verify(certificate, tmp_path / "e")
    names = [path.relative_to(folder).as_posix() for path in files]
    other = files[1].with_name("other").relative_to(folder).as_posix()
    assert (verified.changed, verified.missing, verified.added) == ((names[0],), (names[1],), (other,))
    assert f"missing: {names[1]}" in str(verified)
    with pytest.raises(bls.BLSError, match="no hashes"):
        bls.verify(Certificate("m"), tmp_path)
