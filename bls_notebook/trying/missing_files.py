"""Record the files that the code of models looks for in vain, such as ``os.path.exists(path)`` before a default.

Python has no event for this, so some functions of `os`, and `open`, are replaced while a trial runs. A model keeps the
`open` of its load; it records nothing afterwards.
"""

from __future__ import annotations

import builtins
import io
import os
import pathlib
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from bls_notebook.engine import home_of, walk_back

_REPLACED = [(os, "stat"), (os, "lstat"), (os, "listdir"), (os, "scandir"), (io, "open"), (builtins, "open")]
if sys.version_info < (3, 11):  # there, pathlib keeps functions of its own
    _REPLACED += [(pathlib._normal_accessor, name) for name in ("stat", "listdir", "scandir")]  # type: ignore[attr-defined,unused-ignore]
_CALLERS = {"codecs", "genericpath", "glob", "io", "os", "pathlib", "posixpath"}  # of these functions, for other code


@contextmanager
def looked_for(project: Path) -> Iterator[dict[str, dict[str, None]]]:
    """Record paths by model in a ``with``, as the code of the project's files writes them."""
    found: defaultdict[str, dict[str, None]] = defaultdict(dict)
    recording = True

    def note(path: object) -> None:
        if not recording or not isinstance(path, (str, os.PathLike)):
            return
        stack = walk_back(sys._getframe(2))
        frames = [frame for frame in stack if str(frame.f_globals.get("__name__")).split(".")[0] not in _CALLERS]
        homes = [home for frame in frames if (home := home_of(frame.f_globals)) is not None]
        file = frames[0].f_code.co_filename if frames else ""
        own = Path(file).is_relative_to(project) and "site-packages" not in file
        if homes and (own or home_of(frames[0].f_globals) is not None):
            found[homes[0].model][str(os.fspath(path))] = None

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            try:
                return function(*arguments, **options)
            except FileNotFoundError:
                note(arguments[0] if arguments else next(iter(options.values()), None))
                raise

        return call

    originals = [getattr(module, name) for module, name in _REPLACED]
    replacements = list(map(noting, originals))
    sets = os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks  # of functions with these options
    added = [
        (functions, new)
        for functions in sets
        for old, new in zip(originals, replacements, strict=True)
        if old in functions
    ]
    try:
        for functions, new in added:
            functions.add(new)
        for (module, name), new in zip(_REPLACED, replacements, strict=True):
            setattr(module, name, new)
        yield found
    finally:
        recording = False
        for (module, name), old in zip(_REPLACED, originals, strict=True):
            setattr(module, name, old)
        for functions, new in added:
            functions.discard(new)
