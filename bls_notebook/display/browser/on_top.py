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

VIEW = "application/vnd.jupyter.widget-view+json"


def new_place() -> str:
    """Return a name for the place of a picture: the widget's trait ``place``."""
    return uuid.uuid4().hex


def covered(picture: Html, widget: Any) -> Html:
    """Put a picture into the place that a widget, by its trait ``place``, covers."""
    return tag("div", picture, **{"data-bls-place": widget.place})


def with_view(bundle: dict[str, Any], widget: Any) -> dict[str, Any]:
    """Add the widget's view to a bundle for frontends that need it."""
    if widget is None or not _wants_views():
        return bundle
    view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    return {**bundle, VIEW: view}


def _wants_views() -> bool:
    return "google.colab" in sys.modules or any(name.startswith("VSCODE_") for name in os.environ)
