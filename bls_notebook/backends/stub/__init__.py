"""The stub backend: instances that answer from a model's configuration, without its files.

`Stub` says how a model is stood in for; `StubModel` is what its backend's `open_model` would give.
"""

from __future__ import annotations

from .how import Stub
from .model import StubModel

__all__ = ["Stub", "StubModel"]
