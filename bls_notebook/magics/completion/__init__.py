"""Completion with Tab: models, tensors, devices, verbs and options in the lines of the magics."""

from __future__ import annotations

from .matcher import MagicMatcher

__all__ = ["MagicMatcher"]
