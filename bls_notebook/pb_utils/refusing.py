"""What the real module refuses by its nature: it is made of C++ objects."""

from __future__ import annotations

__all__ = ["is_sequence", "unpicklable"]


def is_sequence(value: object) -> bool:
    """Whether pybind takes a value where it wants a list: not a set, a dict, a generator, or text."""
    return hasattr(type(value), "__getitem__") and not isinstance(value, (str, bytes, dict))


def unpicklable(name: str) -> TypeError:
    """Return the error of an attempt to copy or pickle an object of the module."""
    return TypeError(f"cannot pickle 'c_python_backend_utils.{name}' object")
