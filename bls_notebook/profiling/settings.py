"""How models are configured: what a search may change, and what changes it in a configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bls_notebook.engine.errors import BLSError
from bls_notebook.repository.instance_counts import with_count
from bls_notebook.repository.repository import ModelRepository

from .measuring import Workload
from .records.tuning import ModelSetting, TunedModel


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
        sources = [source for source, _ in repository._catalog.sources(name) if source.name == name]
        groups = sources[0].parsed_config().instance_group
    except (BLSError, IndexError):  # the files are not there any more, or say something else
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
