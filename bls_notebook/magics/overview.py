"""``%bls`` without arguments: all magics, verbs and commands on one screen; and where the manual is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from bls_notebook.capabilities import registry
from bls_notebook.display import Display, parts
from bls_notebook.display.document import Block, Document, Row, Table, Words, columns
from bls_notebook.display.mime_bundle import display_of

_PAGE = re.compile(r"\bdocs/(?=\w+/\w+\.md)")


def manual() -> Path:
    """Return the folder of the manual: in the package, or beside it in a clone of the repository."""
    package = Path(__file__).resolve().parents[1]
    return package / "docs" if (package / "docs").is_dir() else package.parent / "docs"


def with_paths(text: str) -> str:
    """Return a help text in which the pages of the manual are paths of files."""
    return _PAGE.sub(lambda _: f"{manual()}/", text)


def overview() -> Display:
    """List everything that a notebook offers, each with the first sentence of its help."""

    def summaries(kind: str) -> dict[str, str]:
        return {name: registry().load(kind, name).summary for name in registry().keys(kind)}

    commands = parts.dots(*map(parts.code, registry().keys("commands")))
    blocks: list[Block] = [
        _table("Magics", "magic | purpose; %bls? shows its help", summaries("magics")),
        _table("Verbs of %tritonrepo", "%tritonrepo | purpose; -h shows its help", summaries("verbs")),
        Words(parts.dots("in a shell:", parts.code("python -m bls_notebook"), commands, by=" "), gap=True),
        Words(parts.dots("manual:", parts.code(str(manual())), by=" ")),
    ]
    return display_of(Document(blocks))


def _table(caption: str, heads: str, texts: Mapping[str, str]) -> Table:
    return Table(caption, columns(heads), [Row([parts.code(name), text]) for name, text in texts.items()], indent="")
