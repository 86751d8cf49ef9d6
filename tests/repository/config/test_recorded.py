"""Every configuration of recorded.json ends as it did on the real server: the same JSON, or a refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bls_notebook import pb_utils
from bls_notebook.engine.errors import ConfigError
from bls_notebook.repository.config import (
    ModelConfigMessage,
    auto_complete,
    complete,
    model_spec,
    new_config,
    parse_json,
    parse_pbtxt,
    pick_versions,
    to_json,
    validate,
)

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())
CASES: dict[str, dict[str, Any]] = RECORDED["cases"]
# Fields of the message that are newer than the server that was recorded.
NEWER = {"ensemble_scheduling": {"max_inflight_requests"}}


def model_class(source: str) -> type:
    namespace: dict[str, Any] = {"pb_utils": pb_utils}
    exec("class TritonPythonModel:\n    " + (source or "pass"), namespace)
    made: type = namespace["TritonPythonModel"]
    return made


def load(name: str, case: dict[str, Any]) -> ModelConfigMessage:
    if "json" in case:
        config = parse_json(case["json"], model=name)
    elif "pbtxt" in case:
        config = parse_pbtxt(case["pbtxt"], model=name)
    else:
        config = new_config()
    config = complete(config, model=name, files=case.get("files", ["model.py", "other.py"]))
    versions = [int(version) for version in case.get("versions", ["1"])]
    if not pick_versions(config, versions):
        raise ConfigError(f"model '{name}': its version policy picks none of {versions}")
    if config.backend == "python":
        config = auto_complete(config, model_class(case.get("auto_complete", "")))
    validate(config)
    return config


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "expected" in case])
def test_accepted_as_recorded(name: str) -> None:
    case = CASES[name]
    config = load(name, case)
    got = json.loads(to_json(config))
    wanted = {**RECORDED["base"], "name": name, **case["expected"]}
    wanted = {key: value for key, value in wanted.items() if value is not None}
    for group in wanted["instance_group"]:
        if group["name"] in ("", "_0", "_1"):
            group = wanted["instance_group"] = [{**g, "name": name + g["name"]} for g in wanted["instance_group"]]
            break
    for key, fields in NEWER.items():
        for newer in fields:
            got.get(key, {}).pop(newer, None)
    assert got == wanted
    if "instances" in case:
        own = ("_0", "_1", "_2")
        recorded = [(name + n if n.startswith(own) else n, kind, device) for n, kind, device in case["instances"]]
        made = [(i.name, i.kind, i.device_id) for i in model_spec(config).instances]
        assert sorted(made) == sorted(recorded)
    if "loaded" in case:
        assert pick_versions(config, map(int, case["versions"])) == case["loaded"]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.get("refused")])
def test_refused_as_recorded(name: str) -> None:
    with pytest.raises((ConfigError, ValueError, TypeError)) as caught:
        load(name, CASES[name])
    message = str(caught.value)
    assert "\n" not in message
    if isinstance(caught.value, ConfigError):
        assert message.startswith(f"model '{name}': ")
