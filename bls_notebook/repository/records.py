"""Plain records of models, for the index and the displays."""

from __future__ import annotations

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.spec import ModelSpec
from bls_notebook.observe.records.repository import ModelRecord, TensorSpecRecord

__all__ = ["model_record", "unavailable_record"]


def _specs(spec: ModelSpec, which: str) -> tuple[TensorSpecRecord, ...]:
    tensors = spec.inputs if which == "inputs" else spec.outputs
    return tuple(
        TensorSpecRecord(t.name, t.datatype, tuple(t.dims), bool(t.optional)) for t in tensors.values()
    )


def model_record(
    model: LoadedModel, origin: str, load_seconds: float | None, warnings: tuple[str, ...] = ()
) -> ModelRecord:
    """Return the record of a model version that serves."""
    spec = model.spec
    return ModelRecord(
        name=model.name,
        version=model.version,
        state="READY",
        reason="",
        backend=spec.backend,
        source=origin,
        load_seconds=load_seconds,
        max_batch_size=spec.max_batch_size,
        decoupled=spec.decoupled,
        instances=len(model.instances) + len(model.passive),
        instance_kind=f"KIND_{spec.instance_kind}" if spec.instance_kind else "",
        inputs=_specs(spec, "inputs"),
        outputs=_specs(spec, "outputs"),
        warnings=warnings,
    )


def unavailable_record(name: str, version: int, origin: str, reason: str) -> ModelRecord:
    """Return the record of a model version that does not serve."""
    return ModelRecord(
        name=name, version=version, state="UNAVAILABLE", reason=reason, source=origin, instances=0
    )
