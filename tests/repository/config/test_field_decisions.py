"""No field of a configuration is without effect in silence: each is honored, rejected, or named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bls_notebook as bls
from bls_notebook.engine.errors import ConfigError
from bls_notebook.repository.config import complete, model_config_class, new_config, parse_pbtxt, validate
from bls_notebook.repository.config.field_decisions import decisions, idle_fields
from tests.checking.conftest import CONFIG, model, write

Nested = tuple[Any, ...]  # field descriptors, outermost first


def fields(message: Any, path: Nested = ()) -> Iterator[tuple[str, Nested]]:
    """Yield the fields of ModelConfig with their names in fields.json, to the depth of the decisions."""
    for field in message.fields:
        name, nested = f"{message.full_name}.{field.name}", field.message_type
        if nested is not None and nested.GetOptions().map_entry:
            nested = nested.fields_by_name["value"].message_type
        yield name, (*path, field)
        if nested is not None and decisions()["fields"].get(name) == "honored":
            yield from fields(nested, (*path, field))


FIELDS = dict(fields(model_config_class().DESCRIPTOR))


def set_field(message: Any, path: Nested) -> None:
    field, *rest = path
    part, kind = getattr(message, field.name), field.message_type
    if kind is None:
        value = {field.CPPTYPE_STRING: "x", field.CPPTYPE_BOOL: True}.get(field.cpp_type, 1)
        part.append(value) if field.is_repeated else setattr(message, field.name, value)
        return
    if kind.GetOptions().map_entry:
        key = "x" if kind.fields_by_name["key"].cpp_type == field.CPPTYPE_STRING else 1
        if kind.fields_by_name["value"].message_type is None:
            part[key] = "y"
            return
        part = part[key]
    elif field.is_repeated:
        part = part.add()
    part.SetInParent()
    if rest:
        set_field(part, tuple(rest))


def test_each_field_has_a_decision_and_those_without_effect_are_found() -> None:
    assert FIELDS.keys() == decisions()["fields"].keys()
    for name, path in FIELDS.items():
        decision = decisions()["fields"][name]
        for backend in ("python", "onnxruntime", "pytorch", "ensemble"):
            config = new_config("m")
            config.backend = backend
            set_field(config, path)
            idle = isinstance(decision, dict) and bool({backend, "*"} & decision.keys())
            dotted = ".".join(field.name for field in path)
            assert [found.path for found in idle_fields(config)] == [dotted] * idle, (name, backend)


@pytest.mark.parametrize("name", [name for name, decision in decisions()["fields"].items() if decision == "rejected"])
def test_rejected_fields_are_refused(name: str) -> None:
    config = parse_pbtxt(CONFIG, model="m")
    target = new_config()
    set_field(target, FIELDS[name])
    for part in ("input", "output"):
        if getattr(target, part):  # the field belongs to a tensor that is valid otherwise
            getattr(config, part)[0].MergeFrom(getattr(target, part)[0])
            target.ClearField(part)
    config.MergeFrom(target)
    with pytest.raises(ConfigError):
        validate(complete(config, model="m"))


def test_the_parameters_of_the_python_backend() -> None:
    for name, value in ("FORCE_CPU_ONLY_INPUT_TENSORS", "perhaps"), ("TRITON_BATCH_STRATEGY_PATH", "x.so"):
        config = parse_pbtxt(CONFIG + f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}', model="m")
        with pytest.raises(ConfigError, match=name):
            validate(complete(config, model="m"))


def test_the_load_and_the_check_name_them(tmp_path: Path) -> None:
    limited = """platform: "ensemble"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling {
  max_inflight_requests: 1
  step [ { model_name: "a" model_version: -1 input_map { key: "IN" value: "IN" }
           output_map { key: "OUT" value: "OUT" } } ]
}
"""
    environment = 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "/env.tar.gz" } }\n'
    pinned = "optimization { input_pinned_memory { enable: true } output_pinned_memory { enable: false } }\n"
    files = {"both/config.pbtxt": limited, "both/1/": "", **model("a", CONFIG + environment + pinned)}
    (tmp_path / "both" / "1").mkdir(parents=True)
    files.pop("both/1/")
    with bls.ModelRepository(write(tmp_path, files)) as repo:
        (warning,) = repo.load("both").warnings
        of_a = repo.load("a").warnings
        found = [(f.model, f.code, f.severity, f.line) for f in bls.check(repo=repo).findings]
    assert warning.startswith("config.pbtxt: ensemble_scheduling.max_inflight_requests has no effect here.")
    assert [w.split()[1] for w in of_a] == ["optimization.output_pinned_memory", "parameters.EXECUTION_ENV_PATH"]
    assert found == [("a", "field-idle", "note", 5), ("a", "field-idle", "note", 4), ("both", "field-idle", "note", 5)]
