"""Finds the browser half of a widget: one ES module and one stylesheet, in the folder ``widgets``.

An installed package carries the folder inside itself; in a checkout it stands beside the package. What two
widgets share is a module of its own that they import, ``import {ticks} from "./common.js";``; a notebook
gets one module, so its text takes the place of that line.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_IMPORT = re.compile(r'^import\s*(?:\{[^}]*\}\s*from\s*)?["\']\./([\w.-]+)["\'];?[ \t]*\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function|const|let|class)", re.MULTILINE)


def widget_file(name: str) -> Path:
    """Return the path of a file of the widgets, such as ``timeline.js``."""
    package = Path(__file__).resolve().parents[2]
    for folder in (package / "widgets", package.parent / "widgets"):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(
        f"widget file {name!r} is missing from {package / 'widgets'}; install bls_notebook again"
    )


@cache
def widget_source(name: str) -> str:
    """Return the text of a file of the widgets, with the modules that it imports put in place."""
    included: set[str] = set()

    def inlined(file: str) -> str:
        def other(match: re.Match[str]) -> str:
            if match[1] in included:
                return ""
            included.add(match[1])
            return _EXPORT.sub("", inlined(match[1])) + "\n"

        return _IMPORT.sub(other, widget_file(file).read_text(encoding="utf-8"))

    return inlined(name)
