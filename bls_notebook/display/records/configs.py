"""A model's config.pbtxt, lightly coloured."""

from __future__ import annotations

import re

from bls_notebook.display import parts
from bls_notebook.display.document import Both, Document, Forms, Line
from bls_notebook.display.html import Html, join, prose, tag
from bls_notebook.records.visible import visible

_TOKEN = re.compile(
    r"""(?P<com>\#[^\n]*)
    |(?P<str>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<key>[A-Za-z_]\w*(?=[ \t]*[:{\[]))
    |(?P<lit>\b[A-Z][A-Z0-9_]+\b|\btrue\b|\bfalse\b|-?\b\d[\w.]*)
    |\w+""",
    re.VERBOSE,
)


def config_document(name: str, pbtxt: str) -> Document:
    """Show a config under the name of its model; never cut, so that it can be copied."""
    named = Line([parts.name(name), parts.quiet("config.pbtxt")])
    heading = Forms([Line([f"config.pbtxt of {name}"], mark="#")], [named])
    return Document([heading, config_block(pbtxt)], styles="config")


def config_block(pbtxt: str) -> Both:
    """Show lines of a config (YAML looks well too); the stylesheet is ``config``."""
    shown = tag("pre", _coloured(pbtxt.rstrip().expandtabs(4)), cls="config-text")
    return Both(lambda _: [visible(pbtxt.rstrip(), lines=True)], shown)


def _coloured(pbtxt: str) -> Html:
    pieces: list[str] = []
    end = 0
    for match in _TOKEN.finditer(pbtxt):
        pieces += [prose(pbtxt[end : match.start()]), _token(match)]
        end = match.end()
    return join(*pieces, prose(pbtxt[end:]))


def _token(match: re.Match[str]) -> Html:
    kind = match.lastgroup
    return tag("span", prose(match[0]), cls=f"config-{kind}") if kind else prose(match[0])
