"""`ErrorFacts`: an exception as plain data, from which the reason of a failed load can be read in another process.

A worker runs this module, and its Python may be 3.8.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from dataclasses import dataclass
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MOST = 16  # exceptions of a chain
_FRAMES = 100
_LOCALS = ("cwd", "pretrained_model_name_or_path", "repo_id")  # variables that name a folder or a hub's repository
_ATTRIBUTE = re.compile(r"module '([\w.]+)' has no attribute")


@dataclass(frozen=True)
class ErrorFacts:
    """One exception. Texts are empty, and numbers None, if it has none."""

    kind: str
    text: str
    classes: Sequence[str] = ()  # of its class and their bases, with their modules
    frames: Sequence[Sequence[Any]] = ()  # module, function, file, the `_LOCALS` and line, outermost first
    name: str = ""  # of what is missing
    path: str = ""  # of the module that an ImportError is about
    owner: str = ""  # the object, or its class, without the attribute
    owner_file: str = ""  # of a module without the attribute
    loaded: bool = False  # the first part of a missing module is imported
    filename: str = ""
    errno: int | None = None
    status: int | None = None  # of a program that failed
    key: str = ""  # that is missing
    syntax: Sequence[str] = ()  # the message of a SyntaxError and its line

    @property
    def message(self) -> str:
        return f"{self.kind}: {self.text or '<EMPTY MESSAGE>'}"

    @property
    def origin(self) -> tuple[str, str, str]:
        """The module, function and file that raised it; empty if unknown."""
        return (self.frames[-1][0], self.frames[-1][1], self.frames[-1][2]) if self.frames else ("", "", "")

    def is_a(self, *classes: str) -> bool:
        """Return whether its class is one of these, or derives from one."""
        return any(f"builtins.{name}" in self.classes or name in self.classes for name in classes)


def facts_of(error: BaseException, text_of: Callable[[BaseException], str]) -> list[ErrorFacts]:
    """Return the facts of an exception and its causes: explicit ones, and handled ones whose text it repeats."""
    seen: list[BaseException] = []
    out: list[ErrorFacts] = []
    while not any(error is each for each in seen) and len(seen) < MOST:
        seen.append(error)
        text = text_of(error)
        out.append(_facts(error, text))
        cause, context = error.__cause__, error.__context__
        if cause is None and context is not None and not error.__suppress_context__:
            repeated = text_of(context)
            cause = context if repeated and repeated in text else None
        if cause is None:
            break
        error = cause
    return out


def _facts(error: Any, text: str) -> ErrorFacts:
    kind = type(error)
    name, owner = getattr(error, "name", None), getattr(error, "obj", None)
    has_owner = isinstance(error, AttributeError) and name is not None
    syntax = [_text(error.msg), _text(error.text)] if isinstance(error, SyntaxError) else []
    missing = isinstance(error, ModuleNotFoundError)
    module = _ATTRIBUTE.search(text) if isinstance(error, AttributeError) else None
    return ErrorFacts(
        kind.__name__, text, [f"{cls.__module__}.{cls.__qualname__}" for cls in kind.__mro__],
        list(_frames(error)),
        name=_text(name),
        path=_text(getattr(error, "path", None)),
        owner=_text(getattr(owner, "__name__", None)) or type(owner).__name__ if has_owner else "",
        owner_file=_text(getattr(sys.modules.get(module[1]), "__file__", None)) if module else "",
        loaded=missing and _text(name).partition(".")[0] in sys.modules,
        filename=_path(getattr(error, "filename", None)) if isinstance(error, OSError) else "",
        errno=error.errno if isinstance(error, OSError) and isinstance(error.errno, int) else None,
        status=_number(getattr(error, "returncode", None)),
        key=_text(error.args[0]) if isinstance(error, KeyError) and error.args else "",
        syntax=syntax,
    )  # fmt: skip


def _frames(error: BaseException) -> Iterator[Sequence[Any]]:
    traceback = BaseException.__dict__["__traceback__"].__get__(error)  # a class cannot override it here
    for frame, line in deque(walk_tb(traceback), _FRAMES):
        variables = frame.f_locals
        values = {name: _path(variables[name]) for name in _LOCALS if name in variables}
        code = frame.f_code
        yield str(frame.f_globals.get("__name__")), code.co_name, code.co_filename, values, line


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _path(value: object) -> str:
    """Return a path as text; empty for other objects."""
    try:
        path: Any = type(value).__fspath__(value) if hasattr(type(value), "__fspath__") else value  # type: ignore[attr-defined]
        path = path.decode(errors="replace") if isinstance(path, bytes) else path
    except Exception:
        return ""
    return path if isinstance(path, str) else ""
