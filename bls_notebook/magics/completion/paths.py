"""What a path that is being written may go on with."""

from __future__ import annotations

import os
from pathlib import Path

_QUOTES = "'\""


def paths(fragment: str, folders: bool) -> list[str]:
    """Return the paths that begin as a word does that is being written, quoted where they have to be.

    Folders end with a slash; hidden ones come if their dot is written.
    """
    quote = fragment[:1] if fragment[:1] in _QUOTES else ""
    closed = quote if len(fragment) > 1 and fragment.endswith(quote) else ""
    written = fragment.removeprefix(quote).removesuffix(closed)
    folder, slash, begun = written.rpartition("/")
    found = ["../"] if begun == ".." else []
    try:
        with os.scandir(Path(f"{folder}{slash}" or ".").expanduser()) as entries:
            for entry in entries:
                if entry.name.startswith(begun) and entry.name.startswith(".") == begun.startswith("."):
                    if entry.is_dir():
                        found.append(f"{entry.name}/")
                    elif not folders:
                        found.append(entry.name)
    except (OSError, RuntimeError, ValueError):  # not there, of nobody who exists, not a path
        pass
    whole = (f"{folder}{slash}{name}" for name in sorted(found))
    return [_quoted(path, quote, closed) for path in whole]


def _quoted(path: str, quote: str, closed: str) -> str:
    if quote:
        return f"{quote}{path}{closed}"
    if not any(char.isspace() or char in "'\"()[]{}" for char in path):
        return path
    own = "'" if '"' in path else '"'
    return f"{own}{path}{own}"
