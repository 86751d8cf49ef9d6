"""A model's config.pbtxt, lightly coloured."""

from __future__ import annotations

import re

from bls_notebook.display import parts
from bls_notebook.display.html import Html, join, prose, tag
from bls_notebook.observe.visible import visible

_TOKEN = re.compile(
    r"""(?P<com>\#[^\n]*)
    |(?P<str>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<key>[A-Za-z_]\w*(?=[ \t]*[:{\[]))
    |(?P<lit>\b[A-Z][A-Z0-9_]+\b|\btrue\b|\bfalse\b|-?\b\d[\w.]*)
    |\w+""",
    re.VERBOSE,
)


def config_text(name: str, pbtxt: str, *, width: int = 100) -> str:
    """Show a config as plain text.

    Parameters
    ----------
    name : str
        The model's name.
    pbtxt : str
        The config in protobuf's text format.
    width : int
        Not used: a config is never cut, so that it can be copied.

    Returns
    -------
    str
        The config after a comment that names its model.
    """
    return f"# config.pbtxt of {visible(name)}\n{visible(pbtxt.rstrip(), lines=True)}"


def config_html(name: str, pbtxt: str) -> str:
    """Show a config as HTML.

    Parameters
    ----------
    name : str
        The model's name.
    pbtxt : str
        The config in protobuf's text format.

    Returns
    -------
    str
        One ``div`` with its stylesheet.
    """
    top = parts.line(parts.name(name), parts.quiet("config.pbtxt"))
    return parts.output(
        top, tag("pre", _coloured(pbtxt.rstrip().expandtabs(4)), cls="config-text"), styles="config"
    )


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
