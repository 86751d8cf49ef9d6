"""Archives that PyTorch compiled ahead of time (`model.pt2`, platform `torch_aoti`), on the CPU.

Mirrors src/pt2 of triton-inference-server/pytorch_backend (beta since 26.03). Tensors are named by the archive's call
specification (``ARGS[0]``, ``KWARGS[mask]``, ``RESULT[0][logits]``, or ``RESULT`` for a single one), or by number
(``INPUT__0``, ``OUTPUT__1``). Sequences are refused, and each request runs alone.

Compiled code reads memory by the shapes and types of its example inputs. PyTorch's own check of them is switched on, so
a tensor that does not fit is an error, not a dead kernel.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from bls_notebook.backends import BackendError

_DEVICE = "AOTI_DEVICE_KEY"
_CHECK_INPUTS = "AOTI_RUNTIME_CHECK_INPUTS"


def loaded_archive(torch: Any, file: Path) -> Any:
    """Return PyTorch's loader of an archive, whose `run` takes and returns lists of tensors."""
    os.environ.setdefault(_CHECK_INPUTS, "1")  # read by each archive on its first run
    loader = torch._C._aoti.AOTIModelPackageLoader(str(file), "model", False, 1, -1)
    device = loader.get_metadata().get(_DEVICE, "cpu")
    if device != "cpu":
        raise BackendError(f"{file.name} was compiled for {device}, and archives run on the CPU here; stub the model")
    return loader


def archive_positions(loader: Any, config: dict[str, Any], instance: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return the positions of the configuration's inputs and outputs; BackendError if they contradict the archive."""
    taken, returned = (json.loads(text)[1] for text in loader.get_call_spec())
    arguments, keywords = taken["children_spec"]
    inputs = [f"ARGS{name}" for name in _names(arguments)] + [f"KWARGS{name}" for name in _names(keywords)]
    outputs = [f"RESULT{name}" for name in _names(returned)]
    if len(config["input"]) != len(inputs):
        raise BackendError(
            f'Failed to load model "{instance}" configuration expects {len(config["input"])} inputs, but model expects '
            f"{len(inputs)} inputs. ({', '.join(inputs)})"
        )
    return _found(config["input"], inputs, "Input", instance), _found(config["output"], outputs, "Output", instance)


def _found(tensors: list[dict[str, Any]], names: list[str], kind: str, instance: str) -> dict[str, int]:
    """Return the positions of tensors among the names of the archive, or in their ordinal names."""
    positions = {f"{kind.upper()}__{i}": i for i in range(len(names))} | {name: i for i, name in enumerate(names)}
    for tensor in tensors:
        if tensor["name"] not in positions:
            raise BackendError(
                f'{kind} "{tensor["name"]}" for model instance "{instance}" is not found in model {kind.lower()} map. '
                f"({', '.join(names)}, or {kind.upper()}__0 and so on)"
            )
    return {tensor["name"]: positions[tensor["name"]] for tensor in tensors}


def _names(spec: dict[str, Any]) -> list[str]:
    """Return the names of the tensors of a call specification, such as ``[0][mask]``; "" for a tensor itself."""
    parts = spec["children_spec"]
    if spec["type"] is None:
        return [""]
    keys = json.loads(spec["context"]) if spec["type"] == "builtins.dict" else range(len(parts))
    return [f"[{key}]{name}" for key, part in zip(keys, parts, strict=True) for name in _names(part)]
