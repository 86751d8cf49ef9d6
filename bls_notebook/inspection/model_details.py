"""Details of a loaded model: instances, callers and callees, source, each setting's origin, and the memory
that it keeps.

A setting comes from the author's config.pbtxt, from the model's `auto_complete_config`, from Triton, or is a
default. The memory consists of arrays and large texts reachable from the model's attributes and its modules'
variables. The search for it (`lifetimes.owners`) is bounded, and never calls code of the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from google.protobuf.json_format import MessageToDict

from bls_notebook.engine import BLSError, Execution, Instance, LoadedModel
from bls_notebook.extending import Host
from bls_notebook.lifetimes.kept_memory import memory_of_workers, process_bytes
from bls_notebook.lifetimes.kept_sizes import named_memory
from bls_notebook.lifetimes.owner_search import search_of_memory
from bls_notebook.lifetimes.owners import roots_of
from bls_notebook.records import source_text
from bls_notebook.repository import members_of, read_config, statistics_record_of
from bls_notebook.repository.config import ModelConfigMessage, to_dict

from .records import ConfigSetting, InstanceNow, KeptMemory, ModelView, ProcessNow

LONGEST = 200_000  # characters of a source that are shown
NAMED = 12  # the largest arrays, which are listed by name


def model_view(repository: Any, name: str) -> ModelView:
    """Return a view of the newest loaded version of a model."""
    record = repository.model(name)
    host = Host(repository)
    model = host.ready(name)
    file, source = _source(model)
    held, held_bytes = named_memory(search_of_memory(roots_of(model)), NAMED)
    workers = memory_of_workers([model], NAMED)
    for memory in filter(None, workers.values()):
        held, held_bytes = [*held, *map(tuple, memory["named"])], held_bytes + memory["bytes"]
    held.sort(key=lambda each: -each[1])
    versions = {each: host.versions(each).values() for each in host.names()}
    running = [
        (other.name, holder.parent)
        for others in versions.values()
        for other in others
        for holder in [instance.holder for instance in other.instances]
        if isinstance(holder, Execution)
    ]
    instances = [_instance_now(instance, False, running) for instance in model.instances]
    instances += [_instance_now(instance, True, running) for instance in model.passive]
    return ModelView(
        model=record,
        instances=tuple(instances),
        queued=model.scheduler.pending,
        statistics=statistics_record_of(model),
        held=tuple(KeptMemory(*each) for each in held[:NAMED]),
        held_bytes=held_bytes,
        processes=tuple(
            ProcessNow(instance, pid, process_bytes(pid), memory is not None)
            for (instance, pid), memory in workers.items()
        ),
        error=model.last_error,
        calls=tuple(sorted(_callees(model))),
        callers=tuple(sorted(each for each, others in versions.items() if any(name in _callees(o) for o in others))),
        settings=_settings(host, model),
        file=file,
        source=source,
    )


def _source(model: LoadedModel) -> tuple[str, str]:
    name = model.spec.filename or "model.py"
    file = Path(model.directory, name)
    if not model.spec.in_python or file.suffix != ".py":
        return "", ""
    text = source_text(file)
    return name if text else "", text if len(text) <= LONGEST else f"{text[:LONGEST]}\n# … and more"


def _settings(host: Host, model: LoadedModel) -> tuple[ConfigSetting, ...]:
    if model.seen.remote:  # only its server knows the origins
        return config_settings(model.spec.config, model.spec.config, model.spec.config)
    try:
        source = host.source(model.name)
        return config_settings(source.parsed_config(), read_config(source), model.spec.config)
    except (BLSError, OSError):  # its files were changed or deleted
        return config_settings(type(model.spec.config)(), type(model.spec.config)(), model.spec.config)


def _callees(model: LoadedModel) -> set[str]:
    return {*model.calls, *filter(None, members_of(model.spec.config))}


def _instance_now(instance: Instance, passive: bool, running: list[tuple[str, Any]]) -> InstanceNow:
    """Describe an instance; `running` has each busy model with its caller."""
    holder, device = instance.holder, instance.device
    execution = holder if isinstance(holder, Execution) else None
    if holder is None and not instance.serving:
        return InstanceNow(instance.name, device, "passive" if passive else "idle")
    if holder is not None and holder is instance.limited:
        return InstanceNow(instance.name, device, "staged")
    if execution is None:
        tickets = [holder] if holder is not None else list(instance.serving)
        begun = [t.queued_at for t in tickets if t.queued_at]
        sender = tickets[0].parent if tickets else None
        return InstanceNow(instance.name, device, "busy", _since(min(begun, default=0)), _sender_name(sender))
    waits = dict.fromkeys(ticket.model.name for ticket in list(execution._children or ()))
    waits |= dict.fromkeys(name for name, sender in running if sender is execution)
    return InstanceNow(
        instance.name, device, "busy", _since(execution.started), _sender_name(execution.parent), tuple(waits)
    )


def _since(started: int) -> float | None:
    return max(0, perf_counter_ns() - started) / 1e9 if started else None


def _sender_name(sender: Any) -> str:
    return sender.model_name if sender is not None else "notebook"


_NAMED = ("input", "output")  # lists whose items are identified by name


def config_settings(
    written: ModelConfigMessage, by_triton: ModelConfigMessage, completed: ModelConfigMessage
) -> tuple[ConfigSetting, ...]:
    """Return every field of a completed configuration.

    `written` is the author's configuration, `by_triton` adds what Triton completes without the model; any
    further field comes from `auto_complete_config`.
    """
    author, triton, completed_fields = (
        dict(_fields(MessageToDict(message, preserving_proto_field_name=True)))
        for message in (written, by_triton, completed)
    )
    values = dict(_fields(to_dict(completed)))
    settings = [
        ConfigSetting(
            path, values.pop(path, "{}"), "author" if path in author else "Triton" if path in triton else "model"
        )
        for path in completed_fields
    ]
    return (*settings, *(ConfigSetting(path, value, "default") for path, value in values.items()))


def _fields(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and value of each field of a configuration in JSON."""
    if isinstance(value, dict) and value:
        for key, inside in value.items():
            in_map = path in ("parameters", "metric_tags", "cc_model_filenames")
            yield from _fields(inside, f"{path}[{key}]" if in_map else f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for i, item in enumerate(value):
            yield from _fields(item, f"{path}[{item['name'] if path in _NAMED else i}]")
    else:
        yield path, json.dumps(value, ensure_ascii=False)
