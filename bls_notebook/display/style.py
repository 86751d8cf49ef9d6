"""The stylesheet of displays, ``widgets/display.css``: one part for each kind of display, scoped and as small as needed.

Styles are global to a page: each display's rules reach every other one. So every display comes with the common
rules, the same ones in the same order; and a part's classes begin with the part's name, so that they are in no
other part, and its rules weigh more than the common ones, whichever came last.
"""

from __future__ import annotations

import re
from functools import cache

from .widgets import widget_file

# Three times the class: JupyterLab's own rule for code in outputs has two classes and two elements.
_SCOPE = ".bls-out.bls-out.bls-out"
_PART = f"{_SCOPE}.bls-out"
COMMON = ("base", "table")  # parts that come with every display

# Who says that a page is dark: JupyterLab, VS Code, Colab.
_DARK = ("[data-jp-theme-light=false]", ".vscode-dark", "html[theme=dark]")


@cache
def parts() -> dict[str, str]:
    """Return the rules of each part, by its name."""
    _, *found = re.split(r"/\* part: (\w+) \*/", widget_file("display.css").read_text(encoding="utf-8"))
    return dict(zip(found[::2], found[1::2], strict=True))


@cache
def stylesheet(*names: str) -> str:
    """Return the rules that every display comes with, then those of the named parts."""
    common = (_scoped(parts()[name], _SCOPE) for name in COMMON)
    return "".join([*common, *(_scoped(parts()[name], _PART) for name in names)])


def _scoped(sheet: str, scope: str) -> str:
    rules = [rule for rule in sheet.replace("\n", "").split("}") if rule]
    return "".join(f"{_selectors(rule.split('{')[0], scope)}{{{rule.split('{', 1)[1]}}}" for rule in rules)


def _selectors(selectors: str, scope: str) -> str:
    if selectors.startswith("&dark "):
        return ",".join(f"{scope}:is({dark} *) {selectors[6:]}" for dark in _DARK)
    return ",".join(f"{scope} {each}" if each else scope for each in selectors.split(","))
