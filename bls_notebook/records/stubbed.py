"""The mark of an answer that a stub had a part in, which rides with the warnings of a response."""

from __future__ import annotations

from collections.abc import Iterable


class Stubbed(str):
    """Name of a model that a stub answered for."""

    __slots__ = ()


def stubs_in(warnings: Iterable[str]) -> tuple[str, ...]:
    """Return the models that stubs answered for, each once, in order."""
    return tuple(dict.fromkeys(str(each) for each in warnings if each.__class__ is Stubbed))


def without_stubs(warnings: Iterable[str]) -> tuple[str, ...]:
    """Return the warnings that are no such marks."""
    return tuple(each for each in warnings if each.__class__ is not Stubbed)


def went_through(stubs: Iterable[str]) -> str:
    """Say in a line what an answer went through."""
    return f"went through a stub: {', '.join(stubs)}; its values are made up"
