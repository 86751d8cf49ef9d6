"""Lifetimes in a notebook: the report, and a widget that covers it while a kernel is running."""

from __future__ import annotations

from typing import Any

from bls_notebook.display.mime_bundle import Display, display_of, with_widget
from bls_notebook.lifetimes.records import Lifetimes

from .report import lifetimes_document


def lifetimes_display(record: Lifetimes, *, width: int, live: bool) -> Display:
    """Draw lifetimes; a widget covers the report if `live` allows it and there are blocks."""
    display = display_of(lifetimes_document(record), width)
    return with_widget(display, lambda: _widget(record, width)) if live and record.lives else display


def _widget(record: Lifetimes, width: int) -> Any:
    from .widget import LifetimesWidget  # needs anywidget

    return LifetimesWidget(record, width)
