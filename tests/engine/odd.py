"""Exceptions that are hard to describe: their classes lie, raise, exit or answer nonsense."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn


def _raises(error: BaseException) -> Any:
    def asked(*_: Any) -> NoReturn:
        raise error

    return asked


class Text(str):
    """Text that answers nothing."""

    __slots__ = ()
    __add__ = __format__ = __contains__ = __getitem__ = __len__ = _raises(SystemExit(1))
    strip = splitlines = startswith = encode = isascii = _raises(ValueError("no"))


class Meta(type):
    """A class that has no name for those that ask."""

    __name__ = property(_raises(ZeroDivisionError()))  # type: ignore[assignment]
    __module__ = property(_raises(ZeroDivisionError()))  # type: ignore[assignment]
    __mro__ = property(_raises(ZeroDivisionError()))  # type: ignore[assignment]
    __instancecheck__ = _raises(SystemExit(2))  # type: ignore[assignment]


def _odd(base: type[BaseException] = Exception, meta: type[type] = type, **members: Any) -> Any:
    return lambda: meta("Odd", (base,), members)("its text")


def _renamed() -> BaseException:
    kind = type("Odd", (Exception,), {})
    kind.__name__ = Text("Renamed")
    kind.__qualname__ = Text("Renamed")
    return kind("its text")


def _loop() -> BaseException:
    """Causes and contexts that go round in a circle."""
    first, second = ValueError("its text"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    first.__context__, second.__context__ = second, first
    return first


def _long_chain() -> BaseException:
    error = ValueError("its text")
    for _ in range(3000):
        error, error.__cause__ = ValueError("its text"), error
    return error


def _forged() -> BaseException:
    """A traceback without end, and with lines that are nowhere."""
    frame, entry = sys._getframe(), None
    for line in (-1, 0, 1 << 30, *range(2000)):
        entry = TracebackType(entry, frame, 0, line)
    return ValueError("its text").with_traceback(entry)


def _bare_code(**changes: Any) -> BaseException:
    """Raised by code that says odd things of itself."""
    code = compile("raise ValueError('its text')", "somewhere", "exec").replace(**changes)
    try:
        exec(code, {"__bls_home__": 5})
    except ValueError as error:
        return error
    raise AssertionError


def _recursive(self: Any) -> str:
    return _recursive(self) + "."


def _syntax(*place: Any) -> Callable[[], BaseException]:
    return lambda: SyntaxError("its text", place)


def _unicode() -> BaseException:
    error = UnicodeDecodeError("utf-8", b"x", 0, 1, "its text")
    error.end = -5
    error.start = 1 << 40
    return error


def _os_error() -> BaseException:
    error = OSError(2, "its text")
    error.filename, error.errno = Text("file"), "many"  # type: ignore[assignment]
    return error


ODD: dict[str, Callable[[], BaseException]] = {
    **{
        f"__str__ raises {type(error).__name__}": _odd(__str__=_raises(error))
        for error in (ValueError("x"), SystemExit(3), KeyboardInterrupt("x"), GeneratorExit(), MemoryError())
    },
    "__str__ raises what cannot be said": _odd(__str__=_raises(_odd(__str__=_raises(SystemExit()))())),
    "__str__ without end": _odd(__str__=_recursive),
    "__str__ gives a number": _odd(__str__=lambda self: 5),
    "__str__ gives no plain text": _odd(__str__=lambda self: Text("its text")),
    "a lone surrogate": lambda: ValueError("its text \ud800"),
    "no text": ValueError,
    "blank text": lambda: ValueError("\n \n"),
    "long text": lambda: ValueError("its text" * 150_000),
    "no class": _odd(__class__=property(_raises(SystemExit(4)))),
    "another class": _odd(__class__=KeyboardInterrupt),
    "no traceback": _odd(__traceback__=property(_raises(ValueError()))),
    "no plain traceback": _odd(__traceback__=5, __cause__=5, __context__=5, __notes__=5),
    "no attributes": _odd(__getattribute__=_raises(SystemExit(5))),
    "neither equal nor true": _odd(
        __eq__=_raises(ValueError()), __hash__=_raises(ValueError()), __bool__=_raises(ValueError())
    ),
    "no pickle": _odd(__reduce__=_raises(ValueError()), __slots__=()),
    "no name": _odd(meta=Meta),
    "an odd name": _renamed,
    "a syntax error with odd attributes": _odd(SyntaxError, filename=5, lineno="x", msg=7),
    "a syntax error that answers nothing": _odd(SyntaxError, __getattribute__=_raises(SystemExit())),
    "a line of text": _syntax("page.tmpl", "3", None, None),
    "a line of a fraction": _syntax("page.tmpl", 3.0, None, None),
    "a line beyond all": _syntax("/dev/zero", 1 << 70, None, None),
    "a file of bytes": _syntax(b"page.tmpl", 3, None, None),
    "a file of a path": _syntax(Path("page.tmpl"), 3, None, None),
    "a file that cannot be": _syntax("a\0b", -3, None, None),
    "a file of odd text": _syntax(Text("page.tmpl"), 3, None, None),
    "a device": _syntax("/dev/zero", 1, None, None),
    "a folder": _syntax("/", 1, None, None),
    "a unicode error beyond its object": _unicode,
    "an os error with odd attributes": _os_error,
    "causes in a circle": _loop,
    "many causes": _long_chain,
    "a forged traceback": _forged,
    "a file name of odd text": lambda: _bare_code(co_filename=Text("somewhere")),
    "a file name of half a character": lambda: _bare_code(co_filename="caf\udce9.py"),
    "a file name that cannot be": lambda: _bare_code(co_filename="a\0b"),
    "a keyboard interrupt of the model's": lambda: KeyboardInterrupt("its text"),
    "an exit": lambda: SystemExit(_odd(__str__=_raises(ValueError()))()),
}  # fmt: skip
if sys.version_info >= (3, 11):
    ODD["a group"] = lambda: builtins.BaseExceptionGroup("its text", [_odd(__str__=_raises(SystemExit()))()])
NAMES = tuple(ODD)


def strike(name: str) -> NoReturn:
    """Raise one."""
    raise ODD[name]()
