"""The stylesheet of displays, ``widgets/display.css``: common rules, and one part for each kind of display.

Styles are global to a page: the rules of one display apply to all others too. Therefore every display has the same
common rules in the same order; the classes of a part begin with its name, so no two parts share a class; and the rules
of parts have a higher specificity than the common ones, whichever comes last.
"""

from __future__ import annotations

import re
from functools import cache

from .widgets import widget_file

# Three classes, because JupyterLab's rule for code in outputs has two classes and two elements.
_SCOPE = ".bls-out.bls-out.bls-out"
_PART = f"{_SCOPE}.bls-out"
COMMON = ("base", "table")  # parts of every display

# Marks of a dark page in JupyterLab, VS Code and Colab.
_DARK = ("[data-jp-theme-light=false]", ".vscode-dark", "html[theme=dark]")


@cache
def parts() -> dict[str, str]:
    _, *pieces = re.split(r"/\* part: (\w+) \*/", widget_file("display.css").read_text(encoding="utf-8"))
    return dict(zip(pieces[::2], pieces[1::2], strict=True))


@cache
def stylesheet(*names: str) -> str:
    """Return the common rules, then the rules of the named parts."""
    common = (_scoped(parts()[name], _SCOPE) for name in COMMON)
    return "".join([*common, *(_scoped(parts()[name], _PART) for name in names)])


def _scoped(sheet: str, scope: str) -> str:
    rules = [rule for rule in sheet.replace("\n", "").split("}") if rule]
    return "".join(f"{_selectors(rule.split('{')[0], scope)}{{{rule.split('{', 1)[1]}}}" for rule in rules)


def _selectors(selectors: str, scope: str) -> str:
    if selectors.startswith("&dark "):
        return f"{scope}:is({','.join(f'{dark} *' for dark in _DARK)}) {selectors[6:]}".rstrip()
    return ",".join(f"{scope} {selector}" if selector else scope for selector in selectors.split(","))
