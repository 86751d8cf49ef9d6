"""What Sphinx reads beside the committed pages: the reference from the code, and the notebooks of the course."""

from __future__ import annotations

import ast
import json
import os
import re
from pathlib import Path
from typing import Any, ClassVar

import reference
from badges import badges, repository_of
from pygments.lexer import bygroups, inherit
from pygments.lexers.python import PythonLexer
from pygments.token import Keyword, Operator, Text
from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[1]
NOTEBOOKS = DOCS.parent / "notebooks"
_EMPTY_HEAD = re.compile(r'<th scope="col"([^>]*)></th>')  # names no column for screen readers
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")


class CellLexer(PythonLexer):
    """Python with the magics of IPython, which are no errors."""

    tokens: ClassVar[dict[str, Any]] = {
        "root": [
            (r"^([ \t]*(?:\w+[ \t]*=[ \t]*)?)(%%?)(\w+)(.*\n)", bygroups(Text, Operator, Keyword, Text)),
            (r"^(%%?\w+)(\?)(\n)", bygroups(Keyword, Operator, Text)),
            inherit,
        ]
    }


def python_of(source: str) -> tuple[str, str]:
    """Return a block, and what of it is Python: lines of magics are empty, and a block that is no program is."""
    python = re.sub(r"^([ \t]*)(?:\w+ = )?[%!].*$", r"\1pass", source, flags=re.MULTILINE)
    try:
        compile(python, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError:
        return source, ""
    return source, python


def write(app: Sphinx) -> None:
    """Write the pages of the reference, and copy the notebooks. A file that has not changed is not read again."""
    generated = DOCS / "reference" / "generated"
    pages = {generated / f"{name}.md": text for name, text in reference.pages().items()}
    repository = repository_of(DOCS)
    for path in NOTEBOOKS.glob("[0-9]*.ipynb"):  # without the index: the manual has its own
        content = json.loads(path.read_text("utf-8"))
        for cell in content["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = resolved("".join(cell["source"]), NOTEBOOKS, DOCS / "tutorials")
            for output in cell.get("outputs", ()):
                shown = output.get("data", {})
                if "text/html" in shown:
                    shown["text/html"] = _EMPTY_HEAD.sub(r"<td\1></td>", "".join(shown["text/html"]))
        first = content["cells"][0]
        title, _, rest = first["source"].partition("\n")
        first["source"] = f"{title}\n\n{badges(repository, path.name)}\n{rest}"
        pages[DOCS / "tutorials" / path.name] = json.dumps(content)
    for folder, kind in ((generated, "*.md"), (DOCS / "tutorials", "*.ipynb")):
        folder.mkdir(exist_ok=True)
        for old in set(folder.glob(kind)) - set(pages):
            old.unlink()
    for path, text in pages.items():
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


def resolved(text: str, original: Path, folder: Path) -> str:
    """Return Markdown with its links for a page in `folder`: notebooks are in the manual, other files have a path."""

    def link(match: re.Match[str]) -> str:
        is_picture, words, target, anchor = match[1], match[2], match[3], match[4] or ""
        path = Path(os.path.normpath(original / target))
        if not path.exists():
            return match[0]  # Python code, or a wrong link, of which Sphinx warns
        if is_picture:
            return f"![{words}]({os.path.relpath(path, folder)})"
        if path.parent == NOTEBOOKS:
            path = DOCS / "tutorials" / path.name.replace("index.ipynb", "index.md")
        if path.is_relative_to(DOCS) and path.suffix in (".md", ".ipynb"):
            return f"[{words}]({os.path.relpath(path, folder)}{anchor})"
        shown = str(path.relative_to(DOCS.parent))
        return words if words.strip("`") == shown else f"{words} (`{shown}`)"

    return _LINK.sub(link, text)


def resolve_links(app: Sphinx, page: str, source: list[str]) -> None:
    """Resolve the links of a page; the copies of notebooks have resolved links."""
    path = Path(app.env.doc2path(page))
    if path.suffix == ".md":
        source[0] = resolved(source[0], path.parent, path.parent)


def clean_docstring(app: Sphinx, kind: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Remove the marks of examples that need a server."""
    lines[:] = [line.removesuffix("  # doctest: +SKIP") for line in lines]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the lexer and the steps."""
    for name in ("python", "ipython", "ipython3"):
        app.add_lexer(name, CellLexer)
    app.connect("builder-inited", write)
    app.connect("source-read", resolve_links)
    app.connect("autodoc-process-docstring", clean_docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
