"""Sizes of memory as people write them."""

from __future__ import annotations

import re

__all__ = ["parse_size"]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse_size(size: int | str) -> int:
    """Return a number of bytes: a whole number, or text such as ``512 MiB``, ``4GB``, ``1.5 GiB``.

    Raises
    ------
    ValueError
        Anything else, and sizes that are not above 0.
    """
    number = -1
    if isinstance(size, int) and not isinstance(size, bool):
        number = size
    elif isinstance(size, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", size, re.IGNORECASE)
        if found and not (found[3] and not found[2]):
            units = _BINARY if found[3] else _UNITS
            number = int(float(found[1]) * units[found[2].lower()])
    if number <= 0:
        raise ValueError(f"size of memory: got {size!r}, expected bytes, or text such as '512 MiB' or '4 GB'")
    return number
