"""Completion with Tab: models, tensors, devices, verbs and options in the lines of the magics."""

from __future__ import annotations

from .matcher import magic_matcher

__all__ = ["magic_matcher"]
