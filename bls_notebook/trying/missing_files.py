"""Record the files that the code of models looks for in vain, such as ``os.path.exists(path)`` before a default.

Python has no event for this, so some functions of `os`, and `open`, are replaced while a trial runs. A model keeps the
`open` of its load; it records nothing afterwards. Workers run this module, too: `begin`.
"""

from __future__ import annotations

import builtins
import io
import os
import pathlib
import sys
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_REPLACED = [(os, "stat"), (os, "lstat"), (os, "listdir"), (os, "scandir"), (io, "open"), (builtins, "open")]
if sys.version_info < (3, 11):  # there, pathlib keeps functions of its own
    _REPLACED += [(pathlib._normal_accessor, name) for name in ("stat", "listdir", "scandir")]  # type: ignore[attr-defined,unused-ignore]
_CALLERS = {"codecs", "genericpath", "glob", "io", "os", "pathlib", "posixpath"}  # of these functions, for other code

_kept: list[Any] = []  # what lasts as long as a worker


def begin(arguments: dict[str, Any], note: Callable[[str, str], None]) -> None:
    """Note the paths that code of the model, in these `folders`, looks for in vain, for the rest of the process."""
    folders = tuple(os.path.join(folder, "") for folder in arguments["folders"])
    noted: set[str] = set()

    def look(path: str, frames: list[FrameType]) -> None:
        file = frames[0].f_code.co_filename
        if file.startswith(folders) and "site-packages" not in file and path not in noted:
            noted.add(path)
            note("file", path)

    _kept.append(looked_for(look))
    _kept[0].__enter__()


@contextmanager
def looked_for(look: Callable[[str, list[FrameType]], None]) -> Iterator[None]:
    """Call `look` in a ``with`` with each path, as code writes it, and the frames of that code, innermost first."""
    recording = True

    def note(path: object) -> None:
        if not recording or not isinstance(path, (str, os.PathLike)):
            return
        frames = []
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            if str(frame.f_globals.get("__name__")).split(".")[0] not in _CALLERS:
                frames.append(frame)
            frame = frame.f_back
        if frames:
            look(str(os.fspath(path)), frames)

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            try:
                return function(*arguments, **options)
            except FileNotFoundError:
                note(arguments[0] if arguments else next(iter(options.values()), None))
                raise

        return call

    replaced = [(module, name, old, noting(old)) for module, name in _REPLACED for old in [getattr(module, name)]]
    sets = os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks  # of functions with these options
    added = [(functions, new) for functions in sets for _, _, old, new in replaced if old in functions]
    try:
        for functions, new in added:
            functions.add(new)
        for module, name, _, new in replaced:
            setattr(module, name, new)
        yield
    finally:
        recording = False
        for module, name, old, _ in replaced:
            setattr(module, name, old)
        for functions, new in added:
            functions.discard(new)
