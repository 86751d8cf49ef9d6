"""The inputs and outputs of the model that a cell defines, also before it has been run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bls_notebook.records.repository import ModelRecord

_CELL = re.compile(r"^%%triton(?:model|config)\s+(?:[^\n]*?\s)??([A-Za-z][\w.\-]*)")
_OPTION = re.compile(r"""--(input|output)\s+["']?([A-Za-z_][^\s"']*)""")
_ADDED = re.compile(r"""\badd_(input|output)\(\s*\{[^}]*?["']name["']\s*:\s*["']([^"'\n]+)["']""")


def model_of_cell(code: str) -> str:
    """Return the model that a cell is about, or nothing."""
    found = _CELL.match(code)
    return found[1] if found else ""


def tensors_of_cell(code: str, models: Sequence[ModelRecord]) -> tuple[list[str], list[str]]:
    """Return the names of inputs and outputs: as the cell says them, and as its model has them by now."""
    line, _, body = code.partition("\n")
    said = [*_OPTION.findall(line), *_ADDED.findall(body)] if line.startswith("%%tritonmodel") else []
    name = model_of_cell(code)
    known = [model for model in models if model.name == name and model.state == "READY"]
    inputs = [tensor for side, tensor in said if side == "input"]
    outputs = [tensor for side, tensor in said if side == "output"]
    inputs += [spec.name for model in known for spec in model.inputs]
    outputs += [spec.name for model in known for spec in model.outputs]
    return list(dict.fromkeys(inputs)), list(dict.fromkeys(outputs))
