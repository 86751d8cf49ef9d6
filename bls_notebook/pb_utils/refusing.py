"""What the real module refuses by its nature: it is made of C++ objects."""

from __future__ import annotations

__all__ = ["is_sequence", "plain_text", "unpicklable"]


def is_sequence(value: object) -> bool:
    """Whether pybind takes a value where it wants a list: not a set, a dict, a generator, or text."""
    return hasattr(type(value), "__getitem__") and not isinstance(value, (str, bytes, dict))


def plain_text(value: object) -> str | None:
    """Return what pybind makes of text or bytes; None where it refuses them: text must have a UTF-8 form.

    (It takes any bytes, and fails later with those that are no text. Here they are shown as far as they are.)
    """
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if not isinstance(value, str):
        return None
    text = str.__str__(value)  # of a class of its own it would go on as text does there
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return None
    return text


def unpicklable(name: str) -> TypeError:
    """Return the error of an attempt to copy or pickle an object of the module."""
    return TypeError(f"cannot pickle 'c_python_backend_utils.{name}' object")
