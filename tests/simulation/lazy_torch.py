"""PyTorch, imported by the first test that uses it: it takes seconds, in each process that collects tests."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import pytest

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")


class _Torch:
    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("torch"), name)


torch: Any = _Torch()
