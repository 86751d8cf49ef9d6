"""The timeline of one session, or of two on one axis: as text, as a figure, as a widget on top of the figure.

Nothing here imports matplotlib or anywidget before it is used, and without them the text stands in.
"""

from __future__ import annotations

from bls_notebook.display.timeline.figure import timeline_alt, timeline_figure, timeline_picture, timeline_svg
from bls_notebook.display.timeline.html import timeline_html
from bls_notebook.display.timeline.lanes import Lane, Layout, lay_out
from bls_notebook.display.timeline.live import live_timeline
from bls_notebook.display.timeline.ranges import range_figures
from bls_notebook.display.timeline.text import timeline_lines, timeline_text

__all__ = [
    "Lane",
    "Layout",
    "lay_out",
    "live_timeline",
    "range_figures",
    "timeline_alt",
    "timeline_figure",
    "timeline_html",
    "timeline_lines",
    "timeline_picture",
    "timeline_svg",
    "timeline_text",
]
