"""The models of a repository, as clients of an endpoint see them."""

from __future__ import annotations

from pathlib import Path

import pytest

import bls_notebook as bls
from bls_notebook.network.endpoints.served_models import version_of
from bls_notebook.network.kserve.errors import ProtocolError
from tests.network.endpoints.test_endpoint import ask, number, twice

TENSORS = (
    'input [{ name: "X" data_type: TYPE_INT32 dims: [-1] }] output [{ name: "Y" data_type: TYPE_INT32 dims: [-1] }]\n'
)
# Recorded from tritonserver 2.51: the rest of a row of the index after a failed load; None if there is no row.
FAILED: dict[str, tuple[str, dict[str, str] | None]] = {
    "a field that is unknown": ("nonsense: 3\n", {}),
    "a reshape of another size": (
        'input [{ name: "Z" data_type: TYPE_INT32 dims: [2] reshape { shape: [3] } }]\n',
        {"reason": "Invalid argument: model input 'Z' has different size for dims and reshape for m"},
    ),
    "a shape tensor": (
        'input [{ name: "Z" data_type: TYPE_INT32 dims: [2] is_shape_tensor: true }]\n',
        {"reason": "Invalid argument: shape tensors are only supported for TensorRT platform for m"},
    ),
    "no backend": (
        'backend: "pyton"\n',
        {
            "reason": "Invalid argument: unable to find backend library for backend 'pyton', try specifying runtime on "
            "the model configuration."
        },
    ),
    "no version": ("version_policy { specific { versions: [7] } }\n", None),
}
KINDS = (("input", "X"), ("output", "Y"))


def test_a_server_is_ready_if_an_ensemble_has_lost_its_step() -> None:
    maps = 'input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" }'
    step = f'step {{ model_name: "twice" model_version: -1 {maps} }}'
    tensors = "".join(f'{kind} [{{ name: "{name}" data_type: TYPE_INT32 dims: [-1] }}]\n' for kind, name in KINDS)
    with bls.ModelRepository() as repo, bls.endpoint(repo) as endpoint:
        repo.define("twice", twice())
        repo.define("chain", "", f'platform: "ensemble"\n{tensors}ensemble_scheduling {{ {step} }}')
        assert ask(endpoint, "/v2/models/chain/infer", number())[0] == 200
        assert ask(endpoint, "/v2/repository/models/twice/unload", {})[0] == 200
        assert ask(endpoint, "/v2/models/chain/infer", number())[0] == 404
        assert ask(endpoint, "/v2/health/ready")[0] == 200


def test_a_configuration_has_the_instances_in_service(tmp_path: Path) -> None:
    (tmp_path / "twice" / "1").mkdir(parents=True)
    (tmp_path / "twice" / "1" / "model.py").write_text(twice())
    with bls.ModelRepository(tmp_path) as repo, bls.endpoint(repo) as endpoint:
        for count in (2, 1):
            repo.load("twice", {"backend": "python", "instance_group": [{"count": count, "kind": "KIND_CPU"}]})
            groups = ask(endpoint, "/v2/models/twice/config")[1]["instance_group"]
            assert [group["count"] for group in groups] == [count]


@pytest.mark.parametrize("case", FAILED)
def test_the_index_after_a_failed_load(tmp_path: Path, case: str) -> None:
    wrong, expected = FAILED[case]
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.py").write_text(twice())
    (tmp_path / "m" / "config.pbtxt").write_text(TENSORS + wrong)
    state = {"version": "1", "state": "UNAVAILABLE"} if expected else {}
    with bls.ModelRepository(tmp_path) as repo, bls.endpoint(repo) as endpoint:
        assert ask(endpoint, "/v2/repository/models/m/load", {})[0] != 200
        rows = ask(endpoint, "/v2/repository/index", {})[1]
    assert rows == ([] if expected is None else [{"name": "m", **state, **expected}])


# Recorded from tritonserver 2.51, over gRPC: the number that it reads, or its error.
VERSIONS: dict[str, int | str] = {
    "": -1, "1": 1, "01": 1, "+1": 1, " 1": 1, "1x": 1, "1.0": 1, "0": 0,
    "-1": "invalid model version specified '-1' , version should be an integral value > 0",
    "x": "failed to get model version from specified version string 'x' (details: stol), version should be an "
    "integral value > 0",
    "9" * 20: f"failed to get model version from specified version string '{'9' * 20}' (details: stol), version should "
    "be an integral value > 0",
}  # fmt: skip


@pytest.mark.parametrize("text", VERSIONS)
def test_versions(text: str) -> None:
    expected = VERSIONS[text]
    if isinstance(expected, int):
        assert version_of(text) == expected
    else:
        with pytest.raises(ProtocolError) as caught:
            version_of(text)
        assert caught.value.message == expected


@pytest.mark.parametrize(("path", "status"), [("t", 200), ("%74", 404), ("t/versions/%31", 404), ("t/versions/0", 404)])
def test_paths_are_not_unquoted(path: str, status: int) -> None:
    with bls.ModelRepository() as repo, bls.endpoint(repo) as endpoint:
        repo.define("t", twice())
        assert ask(endpoint, f"/v2/models/{path}/infer", number())[0] == status
