"""Pure functions from plain records to text and HTML. Nothing here imports IPython or runs a model."""

from __future__ import annotations

from bls_notebook.display.bundle import Display, render, render_config
from bls_notebook.display.records.log_lines import left_out_text, log_line_text
from bls_notebook.display.units import TIME_PATTERN

__all__ = ["TIME_PATTERN", "Display", "left_out_text", "log_line_text", "render", "render_config"]
