"""A model as it is now: its instances, what it keeps, who calls whom, its configuration, its source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.errors import BLSError
from bls_notebook.extending import Host
from bls_notebook.lifetimes.owners import roots_of
from bls_notebook.repository.loading.ensembles import members_of
from bls_notebook.repository.loading.loader import read_config
from bls_notebook.repository.statistics import statistics_record_of

from .held import held_by
from .model_view import InstanceNow, ModelView, Setting
from .settings import settings

LONGEST = 200_000  # characters of a source that is shown
NAMED = 12  # of what it holds


def model_view(repository: Any, name: str) -> ModelView:
    """Return what there is to say of the newest version of a model that serves."""
    record = repository.record(name)
    host = Host(repository)
    model = host.ready(name)
    file, source = _source(model)
    held = held_by(roots_of(model))
    running = [
        (other.name, holder.parent)
        for each in host.names()
        for other in host.versions(each).values()
        for holder in [instance.holder for instance in other.instances]
        if isinstance(holder, Execution)
    ]
    instances = [_now(instance, False, running) for instance in model.instances]
    instances += [_now(instance, True, running) for instance in model.passive]
    return ModelView(
        model=record,
        instances=tuple(instances),
        queued=model.scheduler.pending,
        statistics=statistics_record_of(model),
        held=tuple(held[:NAMED]),
        held_bytes=sum(each.bytes for each in held),
        error=model.last_error,
        calls=tuple(sorted(_callees(model))),
        callers=tuple(sorted(_callers(host, name))),
        settings=_settings(host, model),
        file=file,
        source=source,
    )


def _source(model: LoadedModel) -> tuple[str, str]:
    name = model.spec.filename or "model.py"
    file = Path(model.directory, name)
    if not model.spec.in_python or file.suffix != ".py":
        return "", ""
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            text = opened.read(LONGEST + 1)
    except OSError:
        return "", ""
    return name, text if len(text) <= LONGEST else f"{text[:LONGEST]}\n# … and more"


def _settings(host: Host, model: LoadedModel) -> tuple[Setting, ...]:
    if model.seen.remote:  # as its server has it
        return settings(model.spec.config, model.spec.config, model.spec.config)
    try:
        source = host.source(model.name)
        written = source.parsed_config()
        return settings(written, read_config(source), model.spec.config)
    except (BLSError, OSError):  # its files have changed, or gone
        return settings(type(model.spec.config)(), type(model.spec.config)(), model.spec.config)


def _callees(model: LoadedModel) -> set[str]:
    return {*model.calls, *filter(None, members_of(model.spec.config))}


def _callers(host: Host, name: str) -> Iterator[str]:
    for other in host.names():
        if any(name in _callees(model) for model in host.versions(other).values()):
            yield other


def _now(instance: Instance, passive: bool, running: list[tuple[str, Any]]) -> InstanceNow:
    """What an instance does; `running` are models, each with who sent what it runs."""
    holder, device = instance.holder, instance.device
    execution = holder if isinstance(holder, Execution) else None
    if holder is None and not instance.serving:
        return InstanceNow(instance.name, device, "passive" if passive else "idle")
    if execution is None:
        tickets = [holder] if holder is not None else list(instance.serving)
        begun = [t.queued_at for t in tickets if t.queued_at]
        sender = tickets[0].parent if tickets else None
        return InstanceNow(instance.name, device, "busy", _since(min(begun, default=0)), _name(sender))
    waits = dict.fromkeys(ticket.model.name for ticket in list(execution._children or ()))
    waits |= dict.fromkeys(name for name, sender in running if sender is execution)
    return InstanceNow(
        instance.name, device, "busy", _since(execution.started), _name(execution.parent), tuple(waits)
    )


def _since(started: int) -> float | None:
    return max(0, perf_counter_ns() - started) / 1e9 if started else None


def _name(sender: Any) -> str:
    return sender.model_name if sender is not None else "notebook"
