"""Pictures of a memory track: text, HTML, a figure, and a widget, each made of the record alone."""

from __future__ import annotations

from bls_notebook.display.lifetimes.figure import lifetimes_figure, lifetimes_svg
from bls_notebook.display.lifetimes.html import lifetimes_html
from bls_notebook.display.lifetimes.left_behind import left_behind
from bls_notebook.display.lifetimes.text import lifetimes_text

__all__ = ["left_behind", "lifetimes_figure", "lifetimes_html", "lifetimes_svg", "lifetimes_text"]
