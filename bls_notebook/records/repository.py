"""Records of models, tensors, responses, streams and differences between tensors: frozen and JSON-able."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Record
from .errors import ErrorRecord


@dataclass(frozen=True, slots=True, repr=False)
class Figures(Record):
    """Figures of the elements of a numeric tensor; least, greatest and mean ignore NaN and infinite ones.

    ``every`` is 1 where all elements were looked at, and n where one of n was. ``histogram`` counts them in
    bins of one width from the least to the greatest.
    """

    least: int | float | None = None
    greatest: int | float | None = None
    mean: float | None = None
    nans: int = 0
    infinities: int = 0
    every: int = 1
    histogram: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Media(Record):
    """A picture or a sound: its bytes in base64, and in words what was done to the numbers to make it.

    ``width`` and ``height`` are the tensor's; ``width`` of a sound is its samples a second.
    """

    kind: str
    data: str
    width: int = 0
    height: int = 0
    said: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class TextSeen(Record):
    """An element of a BYTES tensor: ``kind`` is JSON, text, hex or the kind of a file, such as PNG."""

    index: tuple[int, ...]
    kind: str
    bytes: int
    text: str = ""
    media: Media | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Change(Record):
    """A file that changed: how many lines came and went, and these with their neighbours.

    Each of ``lines`` is a sign and a text: ``+`` came, ``-`` went, a space stayed, ``…`` stands for a gap.
    ``numbers`` are theirs in the file as it was, 0 for what came; none where they are not told.
    """

    file: str
    added: int = 0
    removed: int = 0
    lines: tuple[tuple[str, str], ...] = ()
    numbers: tuple[int, ...] = ()


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


@dataclass(frozen=True, slots=True, repr=False)
class StreamRecord(Record):
    """One request that streamed: when its first and its last response came, in seconds since it was sent.

    ``responses`` counts those with outputs; ``text`` is what its pieces of text say together.
    """

    model: str
    version: int = 0
    index: int = 0
    responses: int = 0
    first: float | None = None
    last: float | None = None
    text: str = ""
    error: ErrorRecord | None = None
    warnings: tuple[str, ...] = ()
    stubs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class TensorRecord(Record):
    """One tensor as it was seen: what it is, where it lies, and its first few elements.

    ``device`` is ``cpu``, ``gpu:0`` or ``gpu:0 (simulated)``; ``bytes`` is -1 where it is not known.
    ``figures`` and ``pictures`` are there where somebody looked at all of it.
    """

    name: str
    datatype: str
    shape: tuple[int, ...] = ()
    device: str = "cpu"
    bytes: int = -1
    preview: str = ""
    figures: Figures | None = None
    pictures: tuple[Media, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class ResponseRecord(Record):
    """One response; ``seconds`` is the time since the request was sent.

    ``index`` counts the responses of a stream, or the requests of a run, from 0; ``final`` says that no
    more follow. ``stubs`` are the models on its way that stubs answered for.
    """

    model: str
    version: int = 0
    request_id: str = ""
    tensors: tuple[TensorRecord, ...] = ()
    error: ErrorRecord | None = None
    warnings: tuple[str, ...] = ()
    parameters: tuple[tuple[str, str | int | bool], ...] = ()
    seconds: float | None = None
    final: bool = True
    index: int = 0
    stubs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class TensorSpecRecord(Record):
    """An input or output that a model's config declares; ``dims`` are the config's, without the batch."""

    name: str
    datatype: str
    dims: tuple[int, ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class ModelRecord(Record):
    """One version of a model.

    ``state`` is READY, LOADING, UNLOADING or UNAVAILABLE; ``source`` is ``cell``, a folder, or empty. ``changes`` are
    those to the definition before, where a cell has defined it again. ``stub`` is why a stub answers in its place,
    empty where it answers itself; ``remote`` the address of the server that runs it, empty where that is this process.
    """

    name: str
    version: int = 1
    state: str = "READY"
    reason: str = ""
    backend: str = ""
    source: str = ""
    load_seconds: float | None = None
    max_batch_size: int = 0
    decoupled: bool = False
    instances: int = 1
    instance_kind: str = ""
    inputs: tuple[TensorSpecRecord, ...] = ()
    outputs: tuple[TensorSpecRecord, ...] = ()
    warnings: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    stub: str = ""
    remote: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class MessageRecord(Record):
    """One line for the person at the notebook; ``kind`` is done, info, warning or error."""

    text: str
    kind: str = "done"
    hint: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True, repr=False)
class TensorsCompared(Record):
    """Two tensors of one name; ``reason`` says why they could not be compared.

    ``absolute``, ``relative`` and ``ulps`` are the greatest differences, the last one counted in floats that
    lie between the two; ``where`` is the first element that has the greatest absolute one. NaN equals NaN.
    ``pictures`` are of the first, the second and the difference.
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
    """Two responses, or two tensors, side by side."""

    first: str
    second: str
    tensors: tuple[TensorsCompared, ...] = ()
    errors: tuple[str, ...] = ()
