"""Whether a record is shown as a widget: where one can be, and the settings want it."""

from __future__ import annotations

from typing import Any

from bls_notebook.display.lifetimes.widget import can_show_widgets, lifetimes_widget
from bls_notebook.observe.lifetimes import Lifetimes

from .notebook import Notebook

__all__ = ["widget_of"]


def widget_of(notebook: Notebook, record: Lifetimes, *, asked: bool = False) -> Any:
    """Return a record's widget, or None where its static picture is to be shown.

    Parameters
    ----------
    asked : bool
        A widget is wanted, whatever the settings say.
    """
    wanted = notebook.settings.widgets and notebook.has_kernel and can_show_widgets()
    return lifetimes_widget(record, width=notebook.settings.width) if asked or wanted else None
