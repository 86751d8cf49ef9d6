"""The classification extension: an output's largest values, as text with their places and labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.pb_utils import Tensor

from .errors import refuse
from .tensors import bytes_of


def classified(model: LoadedModel, tensor: Tensor, count: int) -> Tensor:
    """Return the largest values of each row of an output as ``value:index[:label]``, largest first."""
    if tensor._datatype in ("BYTES", "BF16", "FP16", "BOOL"):
        refuse(f"class result not available for output '{tensor._name}' due to unsupported type "
               f"'{tensor._datatype}'")  # fmt: skip
    array: Any = tensor._array
    if not isinstance(array, np.ndarray):
        array = np.frombuffer(bytes_of(tensor), array.dtype).reshape(array.shape)
    batched = model.spec.max_batch_size > 0 and array.ndim > 0
    rows = array.reshape(array.shape[0], -1) if batched and array.shape[0] else array.reshape(1, -1)
    count = min(count, rows.shape[1])
    labels = _labels(model, tensor._name)
    whole = array.dtype.kind in "iu"
    out = np.empty((len(rows), count), np.object_)
    for number, row in enumerate(rows):
        best = np.argsort(-row.astype(np.float64), kind="stable")[:count]
        for place, index in enumerate(best.tolist()):
            value = str(row[index]) if whole else f"{float(row[index]):f}"
            label = f":{labels[index]}" if index < len(labels) else ""
            out[number, place] = f"{value}:{index}{label}".encode()
    return Tensor._of(tensor._name, out if batched else out[0], "BYTES")


def _labels(model: LoadedModel, output: str) -> list[str]:
    """The labels that the configuration names for an output; a file of the model, never of a request."""
    named = next((each.label_filename for each in model.spec.config.output if each.name == output), "")
    if not named or not model.directory:
        return []
    try:
        return (Path(model.directory).parent / Path(named).name).read_text(errors="replace").splitlines()
    except OSError:
        return []
