"""What models tell their test. They import this module; installed and shared modules are the same for all."""

from __future__ import annotations

from typing import Any

notes: dict[str, Any] = {}


def address(array: Any) -> int:
    """Where an array's memory begins."""
    return int(array.__array_interface__["data"][0])
