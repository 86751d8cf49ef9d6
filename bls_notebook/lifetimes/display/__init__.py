"""Lifetimes in a notebook: the report, its pictures, and a widget that covers the lifetime chart."""

from __future__ import annotations

from typing import Any

from bls_notebook.lifetimes.records import Lifetimes


def lifetimes_widget(record: Lifetimes, width: int) -> Any:
    """Return the interactive lifetime chart; None if there are no blocks."""
    from .widget import LifetimesWidget  # needs anywidget

    return LifetimesWidget(record, width) if record.lives else None
