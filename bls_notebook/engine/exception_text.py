"""Describes exceptions that models raise: their text, and the frames of the model's code.

An exception is code of the model's: its `__str__` may raise, exit or never end, and its class may have a
`__class__`, a `__name__` or a `__traceback__` of its own. So class, name and traceback are read past the
class, and its text is asked for once and under guard.

Guarantees: `describe` raises nothing, whatever the exception is; what it gives is plain text of bounded
length that has a UTF-8 form. A Ctrl-C that strikes meanwhile comes back a moment later. `describe` may not be
asked under a lock: `__str__` is the model's code.
"""

from __future__ import annotations

import linecache
import os
import stat
import weakref
from collections import deque
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any, NamedTuple

from bls_notebook.pb_utils.errors import TritonModelException
from bls_notebook.records.errors import FrameRecord
from bls_notebook.records.visible_text import encodable, first_line

from .waiting.ctrl_c import comes_back, may_be_interrupted

CONTEXT_LINES = 3
MAX_FRAMES = 30
MAX_TEXT = 1_000_000  # characters of an exception's text
MAX_NAME = 1000  # of a class, a function, a file or a line of source
MAX_SOURCE = 1 << 24  # bytes of a file that lines are shown of
HOME = "__bls_home__"  # in the globals of a model's modules: says which model they belong to
THREAD_HOME = "_bls_home"  # of a thread: a weak reference to the home that it works for
_UNAVAILABLE = "<MESSAGE UNAVAILABLE DUE TO ANOTHER EXCEPTION>"  # Triton's words

_EMPTY = "<EMPTY MESSAGE>"
_NO_ROOM = "maximum recursion depth exceeded, with no room left to say more"

# Frames of these files are this package's own machinery, not the model's.
internal_paths: tuple[str, ...] = (__file__.rsplit("engine", 1)[0],)

# What cells are called where a person reads it, by the names of their files.
labels: dict[str, str] = {}

_Line = tuple[FrameType, int]
# As C keeps them, whatever an exception's class says.
_name_of = type.__dict__["__name__"].__get__
_traceback_of = BaseException.__dict__["__traceback__"].__get__


class ModelHome:
    """Whose the modules are that have it in their globals."""

    model: str
    version: int
    sources: dict[str, list[str]]
    owner: Any  # the LoadedModel, once there is one
    instance: Any  # its Instance, where that is known
    folders: list[str]  # where its modules are looked for
    reference: weakref.ref[ModelHome]  # to itself

    @property
    def modules(self) -> dict[str, ModuleType]:
        """The modules, by name."""
        raise NotImplementedError


class ReturnError(TritonModelException):
    """`execute` returned what it must not; reported without the frames of anybody's code."""


class Description(NamedTuple):
    """An exception in plain text.

    ``message`` is all of it as Triton puts it; ``brief`` the first line of its text; ``frames`` are those of
    model code and of what it called, outermost first, with the lines around each.
    """

    kind: str
    text: str
    brief: str
    message: str
    frames: tuple[FrameRecord, ...]

    def __str__(self) -> str:
        return f"{self.kind}: {self.brief}" if self.brief else self.kind


def is_a(error: BaseException, *kinds: type[BaseException]) -> bool:
    """Whether an exception is of one of these classes, without asking it: `isinstance` would."""
    return issubclass(type(error), kinds)


def traceback_of(error: BaseException) -> TracebackType | None:
    """Return an exception's traceback, without asking its class."""
    found: TracebackType | None = _traceback_of(error)
    return found


def home_of(variables: dict[str, Any]) -> ModelHome | None:
    """Return whose module it is that has these globals; None where it is no model's."""
    found = dict.get(variables, HOME)
    return found if issubclass(type(found), ModelHome) else None


def describe(error: BaseException, model: str = "", version: int = 0) -> Description:
    """Return what is said of an exception.

    `model`: whose file it is that a SyntaxError is about.
    """
    try:
        return _describe(error, model, version)
    except RecursionError:
        kind, words = str.__str__(_name_of(type(error))), _NO_ROOM
    except BaseException as problem:
        comes_back(problem)
        kind, words = "exception", _UNAVAILABLE
    return tuple.__new__(Description, (kind, words, words, f"{kind}: {words}", ()))  # takes no room either


def label_of(file: str) -> str:
    """Return what a file is called where a person reads it."""
    return labels.get(file, file)


def _from_here(file: str) -> str:
    """Return what a file is called for a person in this folder: by its way from here, if that is shorter."""
    label = label_of(file)
    try:
        return min(label, os.path.relpath(label), key=len) if os.path.isabs(label) else label
    except (OSError, ValueError):  # no folder, another drive
        return label


def _describe(error: BaseException, model: str, version: int) -> Description:
    kind = _kind(error)
    text, problem = _text(error)
    lines = _code_lines(error)
    brief, file, line = text, "", 1
    if is_a(error, SyntaxError):  # its text says the place too
        brief, file, line = _of_syntax_error(error, text)
    frames = _frames(lines)
    if file:
        frames += (FrameRecord(model, version, _plain(label_of(file)), line, "", _around(source_of(file), line)),)
    message = f"{kind}: {text or _EMPTY}{_at(lines)}"
    if is_a(error, ReturnError):  # Triton's own complaint, not an exception of the model
        message = text
    if problem is not None:
        words = f"{_kind(problem)}: {_text(problem)[0] or _EMPTY}"
        message += f"{'' if lines else chr(10)}\nMESSAGE UNAVAILABLE DUE TO EXCEPTION: {words}"
        message += _at(_code_lines(problem))
    return Description(kind, text, first_line(brief, MAX_NAME), message, frames)


def _text(error: BaseException) -> tuple[str, BaseException | None]:
    """The exception's text; where there is none, why."""
    try:
        return _plain(str(error), MAX_TEXT), None
    except BaseException as problem:
        comes_back(problem)
        return _UNAVAILABLE, problem


def _plain(text: str, most: int = MAX_NAME) -> str:
    """A text as it is to be kept: of no subclass of str, not too long, and with a UTF-8 form."""
    text = str.__str__(text)
    if len(text) > most:
        text = f"{text[:most]} … {len(text) - most:,} more characters"
    return encodable(text)


def _kind(error: BaseException) -> str:
    return _plain(_name_of(type(error)))


def _of_syntax_error(error: Any, text: str) -> tuple[str, str, int]:
    """What a SyntaxError says without its place, the file that it is about (or nothing), and the line."""
    try:
        said, file, line = error.msg, error.filename, error.lineno
    except BaseException as problem:
        comes_back(problem)
        return text, "", 1
    said = _plain(said, MAX_TEXT) if issubclass(type(said), str) else text
    file = str.__str__(file) if issubclass(type(file), str) else ""
    return said, file, line if type(line) is int and 0 < line < 1 << 31 else 1


def _code_lines(error: BaseException) -> tuple[_Line, ...]:
    found: deque[_Line] = deque(maxlen=MAX_FRAMES)
    entry = traceback_of(error)
    while entry is not None:
        file = str.__str__(entry.tb_frame.f_code.co_filename)
        if not file.startswith(internal_paths) and not file.startswith("<frozen importlib"):
            found.append((entry.tb_frame, entry.tb_lineno or 0))
        entry = entry.tb_next
    return tuple(found)


def _at(lines: tuple[_Line, ...]) -> str:
    """The frames as Triton lists them, innermost first."""
    at = "".join(
        f"  {_plain(label_of(frame.f_code.co_filename))}({line}): {_plain(frame.f_code.co_name)}\n"
        for frame, line in reversed(lines)
    )
    return f"\n\nAt:\n{at}" if at else ""


def _frames(lines: tuple[_Line, ...]) -> tuple[FrameRecord, ...]:
    """The frames with lines around each; frames of code that belongs to no model have no model's name."""
    out: list[FrameRecord] = []
    for frame, line in lines:
        home = home_of(frame.f_globals)
        file = str.__str__(frame.f_code.co_filename)
        shown = _plain(_from_here(file) if home_of(frame.f_globals) is not None else label_of(file))
        if out and (out[-1].file, out[-1].line) == (shown, line):
            continue  # a comprehension is a frame of its own in some versions of Python
        name, number = (home.model, home.version) if home is not None else ("", 0)
        around = _around((home and home.sources.get(file)) or source_of(file), line)
        out.append(FrameRecord(name, number, shown, line, _plain(frame.f_code.co_name), around))
    return tuple(out)


def frame_at(code: CodeType, line: int, home: ModelHome) -> FrameRecord | None:
    """Return a line of a model's code as a frame; None where it is not that model's."""
    lines = home.sources.get(str.__str__(code.co_filename))
    if lines is None:
        return None
    file, function = _plain(_from_here(code.co_filename)), _plain(code.co_name)
    return FrameRecord(home.model, home.version, file, line, function, _around(lines, line))


def source_of(file: str) -> list[str]:
    """Return the lines of a file; none of what is no plain file, or too large to be anybody's code."""
    if file not in linecache.cache:
        try:
            found = os.stat(file)
        except (OSError, ValueError):
            return []
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_SOURCE:
            return []
    return linecache.getlines(file)


def _around(lines: list[str], line: int) -> tuple[tuple[int, str], ...]:
    first = max(1, line - CONTEXT_LINES)
    return tuple(
        (number, _plain(lines[number - 1].rstrip("\n")))
        for number in range(first, min(line + CONTEXT_LINES, len(lines)) + 1)
    )


may_be_interrupted(_text.__code__)
