"""What an export wrote: frozen, JSON-able."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.records.base import Record


@dataclass(frozen=True, slots=True, repr=False)
class ExportedModel(Record):
    """One model of an export.

    ``calls`` are the models that it calls or has as steps, ``absent`` those of them that did not serve here
    and were left out. ``asked`` says whether it was named, or came because another calls it; ``sequences``
    whether it keeps state from request to request, which then have to reach the same server; ``decoupled``
    whether it answers by streams. ``shapes`` are of inputs of any length, to measure it: ``IN:1,3``.
    """

    name: str
    versions: tuple[int, ...] = (1,)
    backend: str = ""
    source: str = ""
    files: int = 0
    bytes: int = 0
    asked: bool = True
    calls: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    on_gpu: bool = False
    sequences: bool = False
    decoupled: bool = False
    shapes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Exported(Record):
    """An export: the folder or archive, the models in it, and what they need on a server.

    ``requirements`` are pip's, with the versions that are installed here; ``unknown`` are modules that the
    models import and that are not installed here. ``shm_bytes`` is what the models' processes need of
    ``/dev/shm``, at least. ``python`` is the version that they ran with.
    ``elsewhere`` are remote models that they call, each with the address of its server.
    ``files`` are those for the ``target`` that the export is for, with so many ``replicas`` of the server.
    """

    place: str
    models: tuple[ExportedModel, ...] = ()
    requirements: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    shm_bytes: int = 0
    python: str = ""
    target: str = ""
    files: tuple[str, ...] = ()
    replicas: int = 1
    elsewhere: tuple[tuple[str, str], ...] = ()

    @property
    def entries(self) -> tuple[str, ...]:
        """The models that none of the others calls."""
        called = {name for model in self.models for name in model.calls}
        return tuple(m.name for m in self.models if m.name not in called) or self.names

    @property
    def on_gpu(self) -> bool:
        """Whether any of them runs on a GPU."""
        return any(model.on_gpu for model in self.models)

    @property
    def sequences(self) -> bool:
        """Whether any of them keeps state from request to request."""
        return any(model.sequences for model in self.models)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all models."""
        return tuple(model.name for model in self.models)
