"""Words of messages for scripts: without the extension in a shell, magics in a message become Python calls."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

shells: list[object] = []  # with the extension loaded


@functools.cache
def _table() -> list[tuple[re.Pattern[str], str]]:
    pairs = json.loads(Path(__file__).with_suffix(".json").read_bytes())
    return [(re.compile(pattern), replacement) for pattern, replacement in pairs]


def suited(text: str) -> str:
    """Return a message for its reader: unchanged in a notebook, with Python calls for magics in a script."""
    if shells or "%" not in text:
        return text
    for pattern, replacement in _table():
        text = pattern.sub(replacement, text)
    return text
