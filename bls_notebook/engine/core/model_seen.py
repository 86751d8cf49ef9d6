"""What a profile says of a model version: how it is configured, and which code it is."""

from __future__ import annotations

import hashlib

from bls_notebook.observe.records.seen import ModelSeen

from .spec import ModelSpec

__all__ = ["model_seen"]

_SCHEDULERS = {"dynamic": "dynamic_batching", "sequence": "sequence_batching"}


def model_seen(spec: ModelSpec, version: int, is_async: bool) -> ModelSeen:
    """Return the record of a model version, without the hash of its code."""
    return ModelSeen(
        name=spec.name,
        version=version,
        backend=spec.backend,
        scheduler=_SCHEDULERS.get(spec.scheduler, spec.scheduler),
        instances=tuple(i.name for i in spec.instances if not i.passive),
        max_batch_size=spec.max_batch_size,
        decoupled=spec.decoupled,
        is_async=is_async,
        config=hashlib.sha256(spec.json.encode("utf-8", "surrogatepass")).hexdigest(),
    )
