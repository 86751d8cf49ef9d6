"""What the templates of a repository were filled with, all models together, as lines for its report."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from bls_notebook.engine.errors import ConfigError
from bls_notebook.observe.visible import visible
from bls_notebook.repository.config.templates import fill_templates
from bls_notebook.repository.source.layout import config_text

from .folders import config_files

_LISTED, _FEW = 24, 8
_PATH = re.compile(r"dir$|path$|file$", re.IGNORECASE)  # what a model can hardly do without


def told_of_fills(folders: Iterable[Path], values: Mapping[str, object]) -> tuple[str, ...]:
    """Return a line for what was filled and one for what is still open; none where there is no template."""
    filled: dict[str, None] = {}  # in their order
    still: dict[str, None] = {}
    for folder in folders:
        text = config_text(folder)
        if text is None and (files := config_files(folder)):
            text = files[0].read_text("utf-8", "replace")
        if not isinstance(text, str):
            continue
        try:
            found = fill_templates(text, values, environment=os.environ, defaults=True, model=folder.name)
        except ConfigError:  # which is what its model's row says
            continue
        filled |= dict.fromkeys(f"{visible(f.key)}={visible(f.value)} ({f.origin})" for f in found.fills)
        still |= dict.fromkeys(visible(template.key) for template in found.open)
    out = []
    if filled:
        out.append(f"templates were filled: {_listed(filled, _LISTED)}")
    if still:
        paths_first = sorted(still, key=lambda key: _PATH.search(key) is None)
        out.append(f"templates left in texts: {_listed(paths_first, _FEW)}; `--fill KEY=VALUE` fills one")
    return tuple(out)


def _listed(words: Iterable[str], most: int) -> str:
    words = list(words)
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more
