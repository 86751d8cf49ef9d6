"""The setting that `tune` found as configuration: fields of a model's config, and YAML for Model Analyzer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bls_notebook.engine.errors import BLSError
from bls_notebook.extending import Host
from bls_notebook.records.yaml_text import yaml_lines
from bls_notebook.repository.repository import ModelRepository
from bls_notebook.repository.substitution.variant import with_count

from .records.session import Session
from .records.tuning import ModelSetting, TunedModel
from .workload import Workload


def setting_of(repository: ModelRepository, name: str) -> ModelSetting:
    """Return how a model is configured."""
    config = repository.config(name)
    batching = config.dynamic_batching
    return ModelSetting(
        sum(group.count * max(1, len(group.gpus)) for group in config.instance_group),
        config.max_batch_size,
        config.HasField("dynamic_batching"),
        tuple(batching.preferred_batch_size),
        batching.max_queue_delay_microseconds,
    )


def group_as_written(repository: ModelRepository, name: str) -> str:
    """Return what a model's config.pbtxt says of its first instance group, but for the count; in one line."""
    from google.protobuf import text_format

    try:
        groups = Host(repository).source(name).parsed_config().instance_group
    except BLSError:  # the files are not there any more, or say something else
        return ""
    if not groups:
        return ""
    groups[0].ClearField("count")
    return str(text_format.MessageToString(groups[0], as_one_line=True)).strip()


def fields_of(repository: ModelRepository, model: TunedModel) -> dict[str, Any]:
    """Return the fields of a model's configuration that its setting changes, for `with_fields`."""
    now, found = model.now, model.found
    fields: dict[str, Any] = {}
    if found.count != now.count:
        fields |= with_count(repository, model.name, -(-found.count // model.devices))
    if replace(found, count=now.count) != now:
        fields["max_batch_size"] = found.max_batch_size
        fields["dynamic_batching"] = {
            "preferred_batch_size": list(found.preferred),
            "max_queue_delay_microseconds": found.delay,
        }
    return fields


def shapes_of(workload: Workload) -> list[str]:
    """Return the shapes of inputs that may have any, as Model Analyzer takes them: ``IN:3,224``."""
    config = workload.repository.config(workload.model)
    given = workload.inputs[0]
    first = 1 if config.max_batch_size > 0 else 0
    return [
        f"{each.name}:{','.join(map(str, _shape(given[each.name])[first:]))}"
        for each in config.input
        if -1 in each.dims and each.name in given
    ]


def _shape(value: Any) -> tuple[int, ...]:
    own = getattr(value, "shape", None)  # a tensor of pb_utils has a function
    return tuple(own() if callable(own) else np.shape(value))


_HEAD = """\
# For Model Analyzer, on a server with the models: model-analyzer profile -f THIS_FILE
# It measures the settings around those that were found here.
"""


def model_analyzer_yaml(
    session: Session, model: str, models: Sequence[TunedModel], requests: int, shapes: Sequence[str] = ()
) -> str:
    """Return a configuration of Model Analyzer as YAML, for a `model` that gets so many `requests` at once.

    A BLS model is searched together with those that it called in the session, around what was found for a
    server (`models`). ``shapes`` are ``INPUT:3,224`` for inputs of any length.
    """
    tuned = {each.name: each for each in models}
    called = list(dict.fromkeys(s.model for s in session.spans if s.model != model and s.model in tuned))
    root: dict[str, Any] = {}
    if shapes:
        root["perf_analyzer_flags"] = {"shape": list(shapes)}
    if model in tuned and tuned[model].kind == "KIND_CPU":
        root["cpu_only"] = True
    config: dict[str, Any] = {"model_repository": "/path/to/model_repository"}
    if called:
        # It takes no instance counts for the model itself then: it looks for them from 1 to the most.
        ensemble = any(m.name == model and m.scheduler == "ensemble" for m in session.models)
        counts = [tuned[model].on_server.count] if model in tuned else []
        config |= {
            "run_config_search_mode": "quick",
            "run_config_search_max_instance_count": max([2, *(2 * count for count in counts)]),
            "run_config_search_max_concurrency": max(requests, 1),
            "profile_models": {model: root} if root else [model],
            # As a list: where both are mappings, these take the place of the model above them.
            "ensemble_composing_models" if ensemble else "bls_composing_models": [
                {name: {"model_config_parameters": _parameters(tuned[name], several=False)}} for name in called
            ],
        }
    else:
        root = {
            "parameters": {"concurrency": [requests]},
            "model_config_parameters": _parameters(tuned[model], several=True),
            **root,
        }
        config |= {"run_config_search_disable": True, "profile_models": {model: root}}
    return _HEAD + "".join(f"{line}\n" for line in yaml_lines(config))


def _parameters(model: TunedModel, several: bool) -> dict[str, Any]:
    found = model.on_server
    count = -(-found.count // model.devices)
    counts = sorted({max(1, count - 1), count, count + 1})
    parameters: dict[str, Any] = {"instance_group": [{"kind": model.kind, "count": counts}]}
    if found.batches:
        # A list within a list is one value; without it, each would be tried by itself.
        batching: dict[str, Any] = {"preferred_batch_size": [list(found.preferred)]}
        if found.delay:
            delays = [0, found.delay] if several else [found.delay]
            batching["max_queue_delay_microseconds"] = delays
        parameters |= {"max_batch_size": [found.max_batch_size], "dynamic_batching": batching}
    return parameters
