"""A widget on top of its picture: the notebook keeps the picture, and shows it wherever no kernel is.

A widget's own view in a saved notebook is an error message once the kernel is gone. So the output is text
and HTML alone, with the picture in a place that has a name; while the kernel lives, the widget finds that
place and covers it (``widgets/on_top.js``), also after the page was loaded again. Frontends that draw each
output in a frame of its own, and start a widget only for its view, get the view too.
"""

from __future__ import annotations

import os
import sys
import uuid
from typing import Any

from bls_notebook.display.html import Html, tag

__all__ = ["VIEW", "bundle_on_top", "new_place"]

VIEW = "application/vnd.jupyter.widget-view+json"


def new_place() -> str:
    """Return a name for the place of a picture: the widget's trait ``place``."""
    return uuid.uuid4().hex


def bundle_on_top(text: str, html: Html, widget: Any = None) -> dict[str, Any]:
    """Make the bundle of a picture that a widget covers.

    Parameters
    ----------
    text, html : str and Html
        The picture, for terminals and for notebooks without a kernel.
    widget : anywidget.AnyWidget, optional
        With a trait ``place``. Without a widget the bundle is the picture alone.

    Returns
    -------
    dict
        By MIME type.
    """
    if widget is None:
        return {"text/plain": text, "text/html": html}
    covered = tag("div", html, **{"data-bls-place": widget.place})
    bundle: dict[str, Any] = {"text/plain": text, "text/html": covered}
    if _wants_views():
        bundle[VIEW] = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    return bundle


def _wants_views() -> bool:
    return "google.colab" in sys.modules or any(name.startswith("VSCODE_") for name in os.environ)
