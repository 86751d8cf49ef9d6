"""Find fields of a configuration without effect, by the decisions in fields.json.

The file decides on each field of ModelConfig and each parameter of the Python backend: ``honored``; ``rejected`` (the
load fails); or per backend (``*``: the others) why the field has no effect. ``here`` means that a server may honor it;
`unless` names a subfield that makes it equal to its default, `option` an option of the server that gives it an effect.
Only ``honored`` leaves the subfields undecided.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bls_notebook.engine.core.metrics_config import FIRST_RESPONSE

from .protobuf_message import ModelConfigMessage

_NEWER = {"*": {"here": True, "why": "This version of bls_notebook does not know the field."}}


class IdleField(NamedTuple):
    """A field without effect, such as ``optimization.cuda``; `here` is False if a server ignores it, too."""

    path: str
    why: str
    here: bool


@functools.cache
def decisions() -> dict[str, dict[str, Any]]:
    """Return the decisions on ``fields`` and ``python parameters``."""
    return json.loads(Path(__file__).with_name("fields.json").read_bytes())  # type: ignore[no-any-return]


def idle_fields(config: ModelConfigMessage, options: Collection[str] = ()) -> list[IdleField]:
    """Return the fields of a completed configuration that are set and have no effect, each path once.

    `options` are Triton's options of the repository that make fields effective.
    """
    backend = config.backend or config.platform
    idle = list(_idle(config, "", backend, options))
    for name in sorted(config.parameters) if backend == "python" else ():
        idle += _judged(decisions()["python parameters"].get(name), f"parameters.{name}", backend, options)
    for control in config.model_metrics.metric_control if "histogram_latencies" in options else ():
        if control.metric_identifier.family != FIRST_RESPONSE:
            why = f"The only histogram is {FIRST_RESPONSE}, not {control.metric_identifier.family!r}."
            idle.append(IdleField("model_metrics.metric_control", why, False))
    return list(dict.fromkeys(idle))


def _idle(message: Any, path: str, backend: str, options: Collection[str]) -> Iterator[IdleField]:
    for field, value in message.ListFields():
        kind = field.message_type
        decision = decisions()["fields"].get(f"{message.DESCRIPTOR.full_name}.{field.name}", _NEWER)
        if decision != "honored":
            yield from _judged(decision, path + field.name, backend, options, value)
        elif kind is not None:
            mapped = kind.GetOptions().map_entry
            values = value.values() if mapped else value if field.is_repeated else (value,)
            for part in values if not mapped or kind.fields_by_name["value"].message_type else ():
                yield from _idle(part, f"{path}{field.name}.", backend, options)


def _judged(
    decision: Any, path: str, backend: str, options: Collection[str], value: object = None
) -> Iterator[IdleField]:
    judged = decision.get(backend, decision.get("*")) if isinstance(decision, dict) else None
    if judged is None or getattr(value, judged.get("unless", ""), False) or judged.get("option") in options:
        return
    yield IdleField(path, judged["why"], judged.get("here", False))
