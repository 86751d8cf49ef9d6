"""What a claim of ``%blscheck`` may go on with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import bls_notebook as bls
from bls_notebook.profiling.records.comparison import CAUSES
from bls_notebook.testing.claims import FORMS

if TYPE_CHECKING:
    from bls_notebook.records.repository import ModelRecord


def after(words: Sequence[str], models: Sequence[ModelRecord]) -> list[str]:
    """Return what may follow the words of a line, by how claims are written; nothing for numbers."""
    last = max((at for at, word in enumerate(words) if word == "and"), default=-1)
    claim = list(words[last + 1 :])
    if not claim:
        return list(FORMS)
    if claim[0] not in FORMS:
        return []
    usage = [part.strip("[]") for part in FORMS[claim[0]].usage.split()]
    with_unit = next((at for at, part in enumerate(usage) if part in ("SIZE", "TIME")), len(usage))
    if len(claim) > with_unit + 1 and not claim[with_unit + 1][0].isupper() and claim[with_unit].isdecimal():
        del claim[with_unit + 1]  # "5 ms" is one part
    if len(claim) >= len(usage):
        return ["and"]
    expected = usage[len(claim)]
    ready = [model for model in models if model.state == "READY"]
    known = {
        "MODEL": [model.name for model in ready],
        "NAME": [spec.name for model in ready for spec in model.outputs],
        "DEVICE": [device.name for device in bls.list_devices()],
        "CAUSE": list(CAUSES),
        "OP": ["==", "!=", "<", "<=", ">", ">="],
        "IS": ["==", "!="],
    }
    if expected in ("of", "on"):
        return [expected, "and"]
    return list(dict.fromkeys(known.get(expected, ())))
