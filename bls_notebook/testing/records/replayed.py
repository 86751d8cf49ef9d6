"""Recorded requests that were sent again, and how their answers differ from the recorded ones. Frozen."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.records.base import Record
from bls_notebook.records.repository import TensorRecord, TensorsCompared


@dataclass(frozen=True, slots=True, repr=False)
class Resent(Record):
    """A request that was sent again; ``id`` is its own in the recording.

    ``what`` says what differs, a line each, empty where the answers are equal; ``tensors`` are the outputs of
    one name that do, and ``inputs`` what it was sent with, where something differs. ``then_ns`` and
    ``now_ns`` are how long the answer took. ``begins`` says which hop is the first that is other than
    recorded, where all were kept. ``error`` is the one that both were answered with.
    """

    id: int
    model: str
    what: tuple[str, ...] = ()
    tensors: tuple[TensorsCompared, ...] = ()
    inputs: tuple[TensorRecord, ...] = ()
    then_ns: int = 0
    now_ns: int = 0
    error: str = ""
    begins: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Replay(Record):
    """Recorded requests sent again: to the models of a repository, or to a server (``place``).

    ``to`` is the model that they were sent to, where that was another than the recorded one. ``only`` is the
    model that ran alone, ``stubbed`` those that were answered from the recording. ``skipped`` says which
    requests could not be sent again, or not compared.
    """

    recording: str = ""
    place: str = ""
    to: str = ""
    only: str = ""
    stubbed: tuple[str, ...] = ()
    tolerance: float = 0.0
    ulps: int = 0
    requests: tuple[Resent, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether there were answers, and each was as recorded."""
        return bool(self.requests) and not self.unequal

    @property
    def unequal(self) -> tuple[Resent, ...]:
        """The requests that were answered differently."""
        return tuple(each for each in self.requests if each.what)
