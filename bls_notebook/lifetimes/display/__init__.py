"""Lifetimes in a notebook: the report, and a widget that covers it while a kernel is running."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bls_notebook.display.bundle import Display, display_of
from bls_notebook.display.html import Html
from bls_notebook.display.widgets import covered
from bls_notebook.display.widgets import live as live_widget
from bls_notebook.lifetimes.records import Lifetimes

from .report import lifetimes_document


def lifetimes_display(record: Lifetimes, *, width: int, live: bool) -> Display:
    """Draw lifetimes; a widget covers the report if `live` allows it and there are blocks."""
    display = display_of(lifetimes_document(record), width)
    widget = live_widget(lambda: _widget(record, width)) if live and record.lives else None
    if widget is None:
        return display
    return replace(display, html=covered(Html(display.html), widget), widget=widget)


def _widget(record: Lifetimes, width: int) -> Any:
    from .widget import LifetimesWidget  # needs anywidget

    return LifetimesWidget(record, width)
