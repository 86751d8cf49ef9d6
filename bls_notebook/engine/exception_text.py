"""Descriptions of exceptions that models raise: their text, and the frames of the model's code.

The class of an exception is the model's code: its `__str__` may raise, exit or never return, and it may override
`__class__` or `__traceback__`.

Guarantees: `describe` raises nothing; its result is plain text of bounded length that has a UTF-8 form. A Ctrl-C
during `__str__` is sent again a moment later. Do not call `describe` under a lock, because it runs `__str__`.
"""

from __future__ import annotations

import linecache
import os
import weakref
from collections import deque
from functools import reduce
from traceback import walk_tb
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any, NamedTuple, cast

from bls_notebook.backends.processes import error_facts
from bls_notebook.backends.protocol import ModelError
from bls_notebook.pb_utils.errors import TritonModelException
from bls_notebook.records.errors import FrameRecord
from bls_notebook.records.visible_text import encodable, first_line

from .waiting.interrupts import may_be_interrupted

CONTEXT_LINES = 3
MAX_FRAMES = 30
MAX_TEXT = 1_000_000  # characters of an exception's text
MAX_NAME = 1000  # of a class, a function, a file or a line of source
HOME = "__bls_home__"  # global variable of a model's modules: their `ModelHome`
THREAD_HOME = "_bls_home"  # attribute of a model's thread: a weak reference to its `ModelHome`
_UNAVAILABLE = "<MESSAGE UNAVAILABLE DUE TO ANOTHER EXCEPTION>"  # Triton's words
_EMPTY = "<EMPTY MESSAGE>"
_NO_ROOM = "maximum recursion depth exceeded, with no room left for a longer message"

# Frames of these files are this package's own machinery, not the model's.
internal_paths: tuple[str, ...] = (__file__.rsplit("engine", 1)[0],)

# Names of cells in displays, by the names of their files.
labels: dict[str, str] = {}

# The attributes in C, which an exception's class cannot override.
_name_of = type.__dict__["__name__"].__get__
_traceback_of = BaseException.__dict__["__traceback__"].__get__


class ModelHome:
    """The owner of a group of modules: a model version, and the instance if it is known."""

    model: str
    version: int
    sources: dict[str, list[str]]
    owner: Any  # the LoadedModel, once it exists
    instance: Any  # its Instance, if known
    folders: list[str]  # search path of its modules
    reference: weakref.ref[ModelHome]  # to itself

    @property
    def modules(self) -> dict[str, ModuleType]:
        raise NotImplementedError

    def note_started(self, work: Any) -> None:
        """Note a `Thread` or an executor's `Future` that its code has started."""
        raise NotImplementedError

    def has_threads(self) -> bool:
        """Return whether a such a thread or an executor's job may still run."""
        raise NotImplementedError


class ReturnError(TritonModelException):
    """`execute` returned an invalid value. The report has no frames, because no statement of the model failed."""


class Description(NamedTuple):
    """An exception in plain text: `message` in Triton's words, `brief` is its first line, `frames` outermost first."""

    kind: str
    text: str
    brief: str
    message: str
    frames: tuple[FrameRecord, ...]

    def __str__(self) -> str:
        return f"{self.kind}: {self.brief}" if self.brief else self.kind


def is_a(error: BaseException, *kinds: type[BaseException]) -> bool:
    return issubclass(type(error), kinds)


def traceback_of(error: BaseException) -> TracebackType | None:
    """Return an exception's traceback, even if its class overrides `__traceback__`."""
    return _traceback_of(error)  # type: ignore[no-any-return]


def home_of(variables: dict[str, Any]) -> ModelHome | None:
    """Return the home of the model that a module with these globals belongs to, or None."""
    home = dict.get(variables, HOME)
    return home if issubclass(type(home), ModelHome) else None


def describe(error: BaseException, model: str = "", version: int = 0) -> Description:
    """Describe an exception; `model` and `version` own the file of a SyntaxError."""
    try:
        return _describe(error, model, version)
    except RecursionError:
        kind, text = str.__str__(_name_of(type(error))), _NO_ROOM
    except BaseException:
        kind, text = "exception", _UNAVAILABLE
    return tuple.__new__(Description, (kind, text, text, f"{kind}: {text}", ()))  # needs no room on the stack


def facts_of(error: BaseException) -> list[error_facts.ErrorFacts]:
    """Return the facts of an exception and its causes, the last one first."""
    if isinstance(error, ModelError):
        return error.chain or [error_facts.ErrorFacts(error.kind, error.text)]
    return error_facts.facts_of(error, lambda each: describe(each).text)


def label_of(file: str) -> str:
    return labels.get(file, file)


def _from_here(file: str) -> str:
    """Return the name of a file in displays: relative to the current folder if that is shorter."""
    label = label_of(file)
    try:
        return min(label, os.path.relpath(label), key=len) if os.path.isabs(label) else label
    except (OSError, ValueError):  # no folder, another drive
        return label


def _carried(error: ModelError, model: str, version: int) -> Description:
    """Describe an exception of a model in another process."""
    at = "".join(f"  {label_of(file)}({line}): {name}\n" for file, line, name in reversed(error.places))
    frames = [
        frame_in_process(model if str.startswith(file, tuple(error.folders)) else "", version, file, line, name)
        for file, line, name in error.places
    ]
    brief = error.text
    if error.syntax:
        brief, file, line = error.syntax
        frames.append(frame_in_process(model, version, file, line, ""))
    where = f"\n\nAt:\n{at}" if at else ""
    message = f"{error.kind}: {error.text or _EMPTY}{where}"
    if error.own_words:
        message = reduce(lambda text, place: text.replace(place[0], label_of(place[0])), error.places, error.text)
    return Description(
        error.kind, _plain(error.text, MAX_TEXT), first_line(brief, MAX_NAME), encodable(message), tuple(frames)
    )


def frame_in_process(model: str, version: int, file: str, line: int, name: str) -> FrameRecord:
    """Return a line of code in another process as a frame; `model` is empty for code outside the model."""
    shown = _from_here(file) if model else label_of(file)
    return FrameRecord(
        model, version if model else 0, _plain(shown), line, _plain(name), _around(source_of(file), line)
    )


def _describe(error: BaseException, model: str, version: int) -> Description:
    if is_a(error, ModelError):
        return _carried(cast(ModelError, error), model, version)
    kind = _kind(error)
    text, problem = _text(error)
    places = _places(error)
    brief, frames = text, _frames(places)
    if is_a(error, SyntaxError):
        brief, file, line = _of_syntax_error(error, text)
        if file:
            frames += (FrameRecord(model, version, _plain(label_of(file)), line, "", _around(source_of(file), line)),)
    # A ReturnError is Triton's own error, not an exception of the model.
    message = text if is_a(error, ReturnError) else f"{kind}: {text or _EMPTY}{_at(places)}"
    if problem is not None:
        reason = f"{_kind(problem)}: {_text(problem)[0] or _EMPTY}{_at(_places(problem))}"
        message += f"{'' if places else chr(10)}\nMESSAGE UNAVAILABLE DUE TO EXCEPTION: {reason}"
    return Description(kind, text, first_line(brief, MAX_NAME), message, frames)


def _text(error: BaseException) -> tuple[str, BaseException | None]:
    """Return the exception's text, and the exception that its `__str__` raised, if any."""
    try:
        return _plain(str(error), MAX_TEXT), None
    except BaseException as problem:
        return _UNAVAILABLE, problem


def _plain(text: str, most: int = MAX_NAME) -> str:
    """Return a plain `str` with a UTF-8 form, at most `most` characters long."""
    text = str.__str__(text)
    if len(text) > most:
        text = f"{text[:most]} … {len(text) - most:,} more characters"
    return encodable(text)


def _kind(error: BaseException) -> str:
    return _plain(_name_of(type(error)))


def _of_syntax_error(error: Any, text: str) -> tuple[str, str, int]:
    """Return the message (`text` also contains file and line), file (or "") and line of a SyntaxError."""
    try:
        message, file, line = error.msg, error.filename, error.lineno
        line = line if type(line) is int and 0 < line < 1 << 31 else 1
        return _plain(message, MAX_TEXT), str.__str__(file) if isinstance(file, str) else "", line
    except BaseException:
        return text, "", 1


def _places(error: BaseException) -> list[tuple[FrameType, int]]:
    """Return the frames and lines of an exception, outermost first, except frames of this package."""
    entries = ((frame, line or 0) for frame, line in walk_tb(traceback_of(error)))
    hidden = (*internal_paths, "<frozen importlib")
    own = (each for each in entries if not str.startswith(each[0].f_code.co_filename, hidden))
    return list(deque(own, maxlen=MAX_FRAMES))


def _at(places: list[tuple[FrameType, int]]) -> str:
    at = "".join(
        f"  {_plain(label_of(frame.f_code.co_filename))}({line}): {_plain(frame.f_code.co_name)}\n"
        for frame, line in reversed(places)  # innermost first, as Triton lists them
    )
    return f"\n\nAt:\n{at}" if at else ""


def _frames(places: list[tuple[FrameType, int]]) -> tuple[FrameRecord, ...]:
    """Return the frames with source lines; frames of code outside models have no model name."""
    out: list[FrameRecord] = []
    for frame, line in places:
        home = home_of(frame.f_globals)
        record = frame_at(frame.f_code, line, home) or _frame(frame.f_code, line, home)
        # Before Python 3.12, a comprehension has its own frame.
        if not out or (out[-1].file, out[-1].line) != (record.file, line):
            out.append(record)
    return tuple(out)


def frame_at(code: CodeType, line: int, home: ModelHome | None) -> FrameRecord | None:
    """Return a line of a model's code as a frame; None if the code belongs to no module of that model."""
    lines = None if home is None else home.sources.get(str.__str__(code.co_filename))
    return None if lines is None else _frame(code, line, home, lines)


def _frame(code: CodeType, line: int, home: ModelHome | None, lines: list[str] | None = None) -> FrameRecord:
    file = str.__str__(code.co_filename)
    name, version, shown = ("", 0, label_of(file)) if home is None else (home.model, home.version, _from_here(file))
    source = _around(source_of(file) if lines is None else lines, line)
    return FrameRecord(name, version, _plain(shown), line, _plain(code.co_name), source)


def source_of(file: str) -> list[str]:
    """Return the lines of a file; none if it is not a regular file."""
    return linecache.getlines(file) if file in linecache.cache or os.path.isfile(file) else []


def _around(lines: list[str], line: int) -> tuple[tuple[int, str], ...]:
    numbers = range(max(1, line - CONTEXT_LINES), min(line + CONTEXT_LINES, len(lines)) + 1)
    return tuple((number, _plain(lines[number - 1].rstrip("\n"))) for number in numbers)


may_be_interrupted(_text.__code__)
