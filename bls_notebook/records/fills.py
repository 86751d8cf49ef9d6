"""With what a template of a configuration was filled."""

from __future__ import annotations

from dataclasses import dataclass

from .plain import Record


@dataclass(frozen=True, slots=True, repr=False)
class Fill(Record):
    """A template's value and where it is from.

    ``origin`` is ``given``, ``environment``, ``in the file`` (the template brings it along) or ``default``;
    ``places`` are the fields that it went to, such as ``max_batch_size``.
    """

    key: str
    value: str
    origin: str
    places: tuple[str, ...] = ()
