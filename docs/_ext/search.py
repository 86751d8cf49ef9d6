"""The search of the manual: Pagefind's index of the pages, in one script, so that it also works from files.

Pagefind loads its index with `fetch`, which browsers refuse to pages opened from files. `manual_index.js` has the same
files as base64 text, and `search.js` gives them to Pagefind.
"""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup
from pagefind.index import IndexConfig, PagefindIndex
from sphinx.application import Sphinx

_NO_TEXT = ".headerlink, .cell_output, .bls-picture, script, style, svg, .sig-paren, .sig-param, .copybtn"
_WEIGHTS = {"guides": 2, "evidence": 0.5}  # by folder
_FILES = ("pagefind.js", "pagefind-entry.json", "wasm.en.pagefind", "*.pf_meta", "index/*", "fragment/*")


def searchable(address: str, html: str) -> str:
    """Return the article of a page with an id at each heading, and a heading for each documented name."""
    article = BeautifulSoup(html, "html.parser").find("article")
    folder, slash, file = address.rpartition("/")
    is_list = slash and file == "index.html"  # of pages, each of which answers better
    article["data-pagefind-weight"] = 0.5 if is_list else _WEIGHTS.get(folder, 1)
    for node in article.select(_NO_TEXT):
        node.decompose()
    for section in article.select("section[id]"):
        if heading := section.find(["h1", "h2", "h3", "h4"], recursive=False):
            heading["id"] = section["id"]
    for name in article.select("dt.sig[id]"):
        name.name, name.string = "h4", name.select_one(".descname").text
    return f'<html lang="en"><body>{article}</body></html>'


async def index(pages: dict[str, str], folder: str) -> None:
    """Write the index of pages, by their address, into a folder."""
    async with PagefindIndex(IndexConfig(output_path=folder)) as found:
        for address, html in pages.items():
            await found.add_html_file(content=searchable(address, html), url=address)


def write(app: Sphinx, error: Exception | None) -> None:
    """Write the script after the build."""
    if error is not None or app.builder.name != "html":
        return
    outdir = Path(app.outdir)
    pages = {f"{name}.html": (outdir / f"{name}.html").read_text("utf-8") for name in sorted(app.env.found_docs)}
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(index(pages, folder))
        paths = [path for pattern in _FILES for path in sorted(Path(folder).glob(pattern))]
        files = {
            path.relative_to(folder).as_posix(): base64.b64encode(path.read_bytes()).decode("ascii") for path in paths
        }
    (outdir / "_static" / "manual_index.js").write_text(f"const manualIndex = {json.dumps(files)};\n", "utf-8")


def replace_sphinx_search(app: Sphinx) -> None:
    """Make the page of the search, without Sphinx's own index."""
    app.builder.search = False
    app.config.html_additional_pages["search"] = "search.html"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the two steps."""
    app.connect("builder-inited", replace_sphinx_search)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
