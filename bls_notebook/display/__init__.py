"""Pure functions from plain records to text and HTML. Nothing here imports IPython or runs a model."""

from __future__ import annotations

from bls_notebook.display.bundle import Display, render, render_config
from bls_notebook.display.configs import config_html, config_text
from bls_notebook.display.errors import error_html, error_text
from bls_notebook.display.lifetimes import (
    left_behind,
    lifetimes_figure,
    lifetimes_html,
    lifetimes_svg,
    lifetimes_text,
)
from bls_notebook.display.log_lines import left_out_text, log_line_text
from bls_notebook.display.many import many_html, many_text, stream_html, stream_text
from bls_notebook.display.messages import message_html, message_text
from bls_notebook.display.metrics import metrics_html, metrics_text
from bls_notebook.display.model_list import models_html, models_text
from bls_notebook.display.models import model_html, model_text
from bls_notebook.display.responses import response_html, response_text
from bls_notebook.display.statistics import statistics_html, statistics_text
from bls_notebook.display.units import TIME_PATTERN

__all__ = [
    "TIME_PATTERN",
    "Display",
    "config_html",
    "config_text",
    "error_html",
    "error_text",
    "left_behind",
    "left_out_text",
    "lifetimes_figure",
    "lifetimes_html",
    "lifetimes_svg",
    "lifetimes_text",
    "log_line_text",
    "many_html",
    "many_text",
    "message_html",
    "message_text",
    "metrics_html",
    "metrics_text",
    "model_html",
    "model_text",
    "models_html",
    "models_text",
    "render",
    "render_config",
    "response_html",
    "response_text",
    "statistics_html",
    "statistics_text",
    "stream_html",
    "stream_text",
]
