"""The manual as text: `llms.txt`, and the Markdown of each page beside it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

_ABOUT = (
    "Write, run and see models of Triton's Python backend, with Business Logic Scripting, inside a Jupyter notebook."
)
_KINDS = {
    "tutorials": "Tutorials", "guides": "How-to guides", "reference": "Reference", "explanation": "Explanation",
}  # fmt: skip


def markdown_of(path: Path) -> str:
    """Return the Markdown of a page; of a notebook, its cells without their outputs."""
    text = path.read_text("utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    sources = ["".join(cell["source"]) for cell in cells]
    kinds = [cell["cell_type"] for cell in cells]
    return "\n\n".join(
        f"```python\n{source}\n```" if kind == "code" else source for kind, source in zip(kinds, sources, strict=True)
    ) + "\n"  # fmt: skip


def first_sentence(document: nodes.document) -> str:
    """Return the first sentence of a page's first paragraph."""
    paragraph = next(iter(document.findall(nodes.paragraph)), None)
    text = " ".join(paragraph.astext().split()) if paragraph is not None else ""
    return re.split(r"(?<=[.?!]) (?=[A-Z`])", text)[0]


def write(app: Sphinx, error: Exception | None) -> None:
    """Write the files after the build."""
    if error is not None or app.builder.name != "html":
        return
    lines = ["# bls_notebook", "", f"> {_ABOUT}"]
    for kind, title in _KINDS.items():
        lines += ["", f"## {title}", ""]
        for page in sorted(page for page in app.env.found_docs if page.partition("/")[0] == kind):
            name, text = app.env.titles[page].astext(), first_sentence(app.env.get_doctree(page))
            lines.append(f"- [{name}]({page}.md): {text}")
    outdir = Path(app.outdir)
    (outdir / "llms.txt").write_text("\n".join(lines) + "\n", "utf-8")
    for page in app.env.found_docs:
        (outdir / f"{page}.md").write_text(markdown_of(Path(app.env.doc2path(page))), "utf-8")


def link(app: Sphinx, page: str, template: str, context: dict[str, Any], document: nodes.document | None) -> None:
    """Link the Markdown from the head of a page."""
    if document is not None:
        name = page.rpartition("/")[2]
        context["metatags"] += f'\n<link rel="alternate" type="text/markdown" href="{name}.md">'


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the two steps."""
    app.connect("build-finished", write)
    app.connect("html-page-context", link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
