"""The models of a repository, as clients of an endpoint see them."""

from __future__ import annotations

from pathlib import Path

import bls_notebook as bls
from tests.network.endpoints.test_endpoint import ask, number, twice

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
