"""Pictures of saved records: a picture `NAME-light.png` beside a record `NAME.json.gz` becomes its display.

The display is the same as in a notebook, with its widget: the data is in the page, and `manual.js` replaces the kernel.
Without JavaScript the static picture remains. Viewers of Markdown show the screenshot `NAME-light.png`.
"""

from __future__ import annotations

import base64
import html
import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

import bls_notebook
from bls_notebook.display import render, widgets

DOCS = Path(__file__).resolve().parents[1]
_SOURCES: dict[str, tuple[str, str]] = {}  # JavaScript and CSS, by the name of the widget
_CLASSIC = """(() => {{
{source}
blsWidgets[{name!r}] = widget;
}})();
"""


def encoded(value: Any) -> Any:
    """Return a value of a widget as JSON can have it: bytes become an object with their base64 text."""
    if isinstance(value, (bytes, memoryview)):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {key: encoded(item) for key, item in value.items()}
    return [encoded(item) for item in value] if isinstance(value, (list, tuple)) else value


def picture_of(record: Path, text: str) -> str:
    """Return the HTML of a record's display, with the data of its widget."""
    display = render(bls_notebook.open_file(record), live=True)
    name = type(display.widget).__name__.lower()
    state = display.widget.get_state()
    _SOURCES[name] = state["_esm"], state["_css"]
    data = {key: encoded(value) for key, value in state.items() if key[0] != "_" and key not in ("layout", "tabbable")}
    block = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    return (
        f'<figure class="bls-picture" aria-label="{html.escape(text)}">{display.html}</figure>\n'
        f'<script type="application/json" data-bls-widget="{name}">{block}</script>\n'
    )


class Pictures(SphinxTransform):
    """Replaces screenshots of records."""

    default_priority = 100  # before Sphinx collects the files of images

    def apply(self, **_: Any) -> None:
        folder = Path(self.env.doc2path(self.env.docname)).parent
        for node in list(self.document.findall(nodes.image)):
            record = folder / node["uri"].replace("-light.png", ".json.gz")
            if record.name.endswith(".json.gz") and record.exists():
                for file in (record, *(DOCS.parent / "widgets").iterdir()):
                    self.env.note_dependency(str(file))
                node.replace_self(nodes.raw("", picture_of(record, node.get("alt", "")), format="html"))


def write_widgets(app: Sphinx, error: Exception | None) -> None:
    """Write the code of widgets as classic scripts: a browser loads no modules from files."""
    folder = Path(app.outdir) / "_static" / "widgets"
    if error is not None or app.builder.format != "html":
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name, (source, style) in _SOURCES.items():
        source = re.sub("^export ", "", source.replace("export default ", "const widget = "), flags=re.MULTILINE)
        (folder / f"{name}.js").write_text(_CLASSIC.format(source=source, name=name), "utf-8")
        (folder / f"{name}.css").write_text(style, "utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform."""
    widgets.can_live = lambda: True  # there is no kernel, but a page
    app.add_transform(Pictures)
    app.connect("build-finished", write_widgets)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
