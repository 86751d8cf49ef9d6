"""Displays: pure functions from records to text and HTML. Nothing here imports IPython or runs a model.

Modules are imported on first use, so that loading the extension stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bls_notebook.display.mime_bundle import Display, render, render_config

    from .records.messages import left_out_text, log_line_text

__all__ = ["Display", "left_out_text", "log_line_text", "render", "render_config"]

_FROM = {"left_out_text": "records.messages", "log_line_text": "records.messages"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_FROM.get(name, 'mime_bundle')}"), name)
    return value
