"""Errors that models raise and return, and checks of arguments that pybind makes in the real module."""

from __future__ import annotations

import enum
import sys
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable


class TritonModelException(Exception):  # noqa: N818 - Triton's own name
    """Raised by `pb_utils` for misuse, and by models to fail a request."""


class ServerEnum(enum.IntEnum):
    """An enumeration like pybind's in the real module: equal to its numbers, without order and arithmetic."""

    def _refused(self, other: object) -> Any:
        raise TypeError(
            f"unsupported operand for {self!r} and {other!r}: on a server, it has no order and no arithmetic; use int()"
        )

    __lt__ = __le__ = __gt__ = __ge__ = __add__ = __radd__ = __sub__ = __rsub__ = _refused


class ErrorCode(ServerEnum):
    """Codes of `TritonError` (`TRITONSERVER_Error_Code` of tritonserver.h)."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7

    def __str__(self) -> str:
        return f"__ErrorCode.{self.name}"  # as Triton prints it

    def __repr__(self) -> str:
        return f"<__ErrorCode.{self.name}: {int(self)}>"


in_model: list[Callable[[], bool]] = [lambda: False]
"""The function that says whether a model runs this code."""


class TritonError:
    """An error of one request.

    Parameters
    ----------
    message : str
    code : ErrorCode
        One of `TritonError.UNKNOWN`, `INTERNAL` (default), `NOT_FOUND`, `INVALID_ARG`,
        `UNAVAILABLE`, `UNSUPPORTED`, `ALREADY_EXISTS`, `CANCELLED`.

    Raises
    ------
    TypeError
        `message` has no UTF-8 form, or `code` is not one of the codes.
    """

    __slots__ = ("__weakref__", "_code", "_made", "_message", "_origin")

    UNKNOWN: ClassVar[ErrorCode] = ErrorCode.UNKNOWN
    INTERNAL: ClassVar[ErrorCode] = ErrorCode.INTERNAL
    NOT_FOUND: ClassVar[ErrorCode] = ErrorCode.NOT_FOUND
    INVALID_ARG: ClassVar[ErrorCode] = ErrorCode.INVALID_ARG
    UNAVAILABLE: ClassVar[ErrorCode] = ErrorCode.UNAVAILABLE
    UNSUPPORTED: ClassVar[ErrorCode] = ErrorCode.UNSUPPORTED
    ALREADY_EXISTS: ClassVar[ErrorCode] = ErrorCode.ALREADY_EXISTS
    CANCELLED: ClassVar[ErrorCode] = ErrorCode.CANCELLED

    def __init__(self, message: str, code: ErrorCode = ErrorCode.INTERNAL) -> None:
        text = plain_text(message)
        if text is None or not isinstance(code, ErrorCode):
            if text is None:
                got = f"message {message!r} of type {type(message).__name__}"
            else:
                got = f"code {code!r}; use one of TritonError.INTERNAL, TritonError.NOT_FOUND, ..."
            raise TypeError(
                f"__init__(): incompatible constructor arguments: TritonError(message: str, code = INTERNAL); got {got}"
            )
        self._message = text
        self._code = code
        self._origin: Any = None  # the engine's record of the models and lines of the error
        frame = sys._getframe(1)
        self._made = (frame.f_code, frame.f_lineno)  # not the frame, which would keep its variables alive

    def code(self) -> ErrorCode:
        """Return the error's code."""
        return self._code

    def message(self) -> str:
        """Return the error's text."""
        return self._message

    def _plain(self) -> TritonError:
        try:
            plain = TritonError(self._message, self._code)
            plain._origin, plain._made = self._origin, self._made
        except AttributeError:
            raise TypeError("TritonError.__init__() must be called when overriding __init__") from None
        return plain

    def __repr__(self) -> str:
        return f"TritonError({self._message!r}, {self._code})"

    def __str__(self) -> str:
        """In a model, return the text of a server, which has no message: only `message()` returns it."""
        return f"<c_python_backend_utils.TritonError object at {id(self):#x}>" if in_model[0]() else repr(self)


class UnreadableError(TritonError):
    """An error with a name that is not valid UTF-8: as in Triton, a model cannot read its message."""

    __slots__ = ("_bytes",)

    def __init__(self, message: bytes) -> None:
        super().__init__(message)  # type: ignore[arg-type]
        self._bytes = message

    def message(self) -> str:
        """Raise UnicodeDecodeError, as pybind does at the same byte."""
        return self._bytes.decode()


def failed_for(instance: str, operation: str, reason: object) -> TritonModelException:
    """Return the exception for an operation of the server that failed for a model's instance."""
    return TritonModelException(f"{operation}: Failed to process the request for model '{instance}', message: {reason}")


def is_sequence(value: object) -> bool:
    """Return whether pybind accepts a value as a list: not a set, a dict, a generator, or text."""
    return hasattr(type(value), "__getitem__") and not isinstance(value, (str, bytes, dict))


def plain_text(value: object) -> str | None:
    """Return the `str` that pybind makes of text or bytes; None for values that it rejects, as text without UTF-8 form.

    (pybind accepts any bytes, and later fails if they are not UTF-8. Here such bytes become escapes.)
    """
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if not isinstance(value, str):
        return None
    text = str.__str__(value)  # a plain str, if it is of a subclass
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return None
    return text


def unpicklable(name: str) -> TypeError:
    """Return the error of an attempt to copy or pickle an object of the module."""
    return TypeError(f"cannot pickle 'c_python_backend_utils.{name}' object")
