"""Advice on an error, whatever it is of."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from bls_notebook.records.errors import ErrorRecord

from .context import Known, nearest
from .model_code import about_code
from .requests import about_request

_MOST = 4000  # characters of a message that are looked at
_CLASS = re.compile(r"^class\s+(\w+)", re.MULTILINE)


def advised(record: ErrorRecord, known: Known) -> ErrorRecord:
    """Return an error with what to do about it, where that is known."""
    if record.hint:
        return record
    message = record.message[:_MOST]
    hint = about_request(record, message, known) or about_code(record, message, known)
    return replace(record, hint=hint) if hint else record


def about_loading(record: ErrorRecord, file: Path | None = None) -> ErrorRecord:
    """Return the error of a model that could not be loaded with what to do; `file` has its code."""
    message = record.message[:_MOST]
    if "has no attribute 'TritonPythonModel'" in message:
        try:
            classes = _CLASS.findall("" if file is None else file.read_text("utf-8", "replace"))
        except OSError:
            classes = []
        found = nearest("TritonPythonModel", classes) or (classes[0] if len(classes) == 1 else "")
        hint = (
            f"rename the class `{found}`: `class TritonPythonModel:`"
            if found
            else "Triton looks for `class TritonPythonModel:` with `def execute(self, requests):` in it"
        )
    elif "'await' outside async function" in message:
        hint = "`async def execute(self, requests):`"
    else:
        hint = about_code(record, message, Known())
    return replace(record, hint=hint) if hint else record
