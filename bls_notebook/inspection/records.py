"""Records of the inspector and the watch: views of tensors, responses and models; differences."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.records import (
    DeviceRecord,
    ErrorRecord,
    Media,
    ModelRecord,
    Record,
    ResponseRecord,
    StatisticsRecord,
    TensorRecord,
    TextSeen,
)


@dataclass(frozen=True, slots=True, repr=False)
class TensorView(Record):
    """A tensor, or the slice ``index`` of a tensor of shape ``whole``.

    ``texts`` are elements of BYTES; ``values`` are the numbers of a corner.
    """

    tensor: TensorRecord
    whole: tuple[int, ...] = ()
    index: str = ""
    sound: Media | None = None
    texts: tuple[TextSeen, ...] = ()
    values: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class ResponseView(Record):
    """A response, with a view of each output."""

    response: ResponseRecord
    tensors: tuple[TensorView, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class ConfigSetting(Record):
    """A field of a configuration; ``origin`` is author, model (auto_complete_config), Triton or default."""

    path: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True, repr=False)
class InstanceNow(Record):
    """An instance at one moment; ``state`` is idle, staged (it waits for the rate limiter), busy or passive.

    If it is busy, ``seconds`` is the time since it began (None if unknown), ``sender`` the caller, and ``waits``
    are the models that it waits for.
    """

    name: str
    device: str = "cpu"
    state: str = "idle"
    seconds: float | None = None
    sender: str = ""
    waits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class KeptMemory(Record):
    """Memory that a model keeps, and the name that refers to it."""

    name: str
    bytes: int
    what: str = ""
    device: str = "cpu"


@dataclass(frozen=True, slots=True, repr=False)
class ProcessNow(Record):
    """The process of an instance: its number and its memory; ``known`` is false if it did not say what it keeps."""

    instance: str
    pid: int
    bytes: int = 0
    known: bool = True


@dataclass(frozen=True, slots=True, repr=False)
class ModelView(Record):
    """A model version at the moment of inspection.

    ``queued`` is -1 without a queue; ``held`` is sorted by size, ``held_bytes`` is its total.
    """

    model: ModelRecord
    instances: tuple[InstanceNow, ...] = ()
    queued: int = 0
    statistics: StatisticsRecord | None = None
    held: tuple[KeptMemory, ...] = ()
    held_bytes: int = 0
    error: ErrorRecord | None = None
    calls: tuple[str, ...] = ()
    callers: tuple[str, ...] = ()
    settings: tuple[ConfigSetting, ...] = ()
    file: str = ""
    source: str = ""
    processes: tuple[ProcessNow, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class ModelNow(Record):
    """One version of a model at one moment.

    ``state`` and ``reason`` have the values of `ModelRecord`; if a stub answers, ``reason`` is ``stub: why``.
    ``busy`` of its ``instances`` run requests, and ``queue`` requests wait. ``answered`` and ``failed`` count
    requests since it was loaded; ``rate`` and ``errors`` are the recent numbers of these per second. ``p50``
    and ``p99`` are latencies (ns) of the requests answered since the previous sample, None without any.
    """

    name: str
    version: int = 1
    state: str = "READY"
    reason: str = ""
    instances: int = 0
    busy: int = 0
    queue: int = 0
    answered: int = 0
    failed: int = 0
    rate: float = 0.0
    errors: float = 0.0
    p50: int | None = None
    p99: int | None = None

    @property
    def in_use(self) -> bool:
        """Return whether it was loaded or is being loaded, as opposed to a mere folder on disk."""
        return self.state != "UNAVAILABLE" or self.reason not in ("not loaded", "unloaded", "")


@dataclass(frozen=True, slots=True, repr=False)
class WatchRecord(Record):
    """A repository at time ``at`` (seconds since 1970); ``place`` is its folder."""

    at: float
    place: str = ""
    models: tuple[ModelNow, ...] = ()
    devices: tuple[DeviceRecord, ...] = ()
    closed: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class TensorsCompared(Record):
    """Two tensors with one name, compared; `reason` says why a comparison was impossible.

    `absolute`, `relative` and `ulps` are the largest differences, `ulps` in units in the last place; `where` is the
    first element with the largest absolute difference. NaN equals NaN. `pictures` show the first tensor, the second,
    and the difference.
    """

    name: str
    first: TensorRecord | None = None
    second: TensorRecord | None = None
    reason: str = ""
    elements: int = 0
    differing: int = 0
    absolute: float = 0.0
    relative: float = 0.0
    ulps: float | None = None
    where: tuple[int, ...] = ()
    values: tuple[str, str] = ("", "")
    pictures: tuple[Media, ...] = ()
    every: int = 1


@dataclass(frozen=True, slots=True, repr=False)
class Compared(Record):
    """The comparison of two responses or two tensors."""

    first: str
    second: str
    tensors: tuple[TensorsCompared, ...] = ()
    errors: tuple[str, ...] = ()
