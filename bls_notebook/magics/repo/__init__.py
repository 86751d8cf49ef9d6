"""``%tritonrepo VERB``: looking after the current repository."""

from __future__ import annotations

from .router import VERBS, help_text, tritonrepo

__all__ = ["VERBS", "help_text", "tritonrepo"]
