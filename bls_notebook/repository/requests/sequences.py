"""Correlation IDs and flags for requests to models that batch sequences."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from bls_notebook.engine.core.model_spec import ModelSpec
from bls_notebook.pb_utils import TRITONSERVER_REQUEST_FLAG_SEQUENCE_END, TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
from bls_notebook.pb_utils.dtypes import DataType
from bls_notebook.repository.loading.ensembles import members_of

correlation_ids = itertools.count(1_000_000)  # of sequences that bls_notebook begins itself; they fit every CORRID


def sequence_spec(name: str, spec_of: Callable[[str], ModelSpec]) -> ModelSpec:
    """Return the specification of a model; for an ensemble, of its step that batches sequences."""
    spec = spec_of(name)
    found = (sequence_spec(member, spec_of) for member in members_of(spec.config))
    return next((member for member in found if member.scheduler == "sequence"), spec)


def sequence_options(spec: ModelSpec, correlation_id: int, step: int = 0, steps: int = 1) -> dict[str, Any]:
    """Return correlation ID and flags of a step of a sequence; empty unless the model batches sequences."""
    if spec.scheduler != "sequence":
        return {}
    flags = TRITONSERVER_REQUEST_FLAG_SEQUENCE_START * (step == 0)
    flags |= TRITONSERVER_REQUEST_FLAG_SEQUENCE_END * (step == steps - 1)
    controls = [c for each in spec.config.sequence_batching.control_input for c in each.control]
    has_text = any(c.kind == c.CONTROL_SEQUENCE_CORRID and c.data_type == DataType.BYTES for c in controls)
    return {"correlation_id": f"id-{correlation_id}" if has_text else correlation_id, "flags": flags}
