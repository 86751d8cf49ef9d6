"""Which block of a simulated GPU another library's tensor lies in, as those say who put the GPU into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .machine import Block

finders: list[Callable[[Any], Block | None]] = []
"""Each returns None for an object that is none of its library's."""
