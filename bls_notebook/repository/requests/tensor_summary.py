"""Summarize a tensor: statistics, a histogram, and small pictures if it is shaped like an image.

Arrays are read on their device in bounded samples and chunks; only numbers and small pictures are copied to the host.
"""

from __future__ import annotations

import math
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from bls_notebook.devices.registry import backend_of
from bls_notebook.pb_utils.dtypes import from_bits
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.records.responses import WHOLE, Figures, Media

CHUNK = 1 << 22  # elements per chunk, which bounds the memory of intermediate results


@contextmanager
def working_on(array: Any) -> Iterator[Any]:
    """Yield the module for computing on an array: NumPy, or CuPy with the array's GPU as the current device."""
    backend = backend_of(array)
    if backend is None:
        yield np
        return
    before = backend.current()
    backend.finish(array)  # wait for pending work on any stream
    backend.set_current(backend.device_of(array).index)
    try:
        yield backend.array_module()
    finally:
        backend.set_current(before)


def to_host(array: Any) -> np.ndarray[Any, Any]:
    """Return an array in host memory; meant for small arrays."""
    backend = backend_of(array)
    return np.asarray(array) if backend is None else backend.to_host(array.copy())


def sampled(array: Any, most: int) -> tuple[Any, int]:
    """Return an evenly spaced view of at most `most` elements, and the number of elements that each represents."""
    every = 1
    while array.size > most:
        axis = int(np.argmax(array.shape))
        array = array[(slice(None),) * axis + (slice(None, None, 2),)]
        every *= 2
    return array, every


def chunks(array: Any) -> Iterator[Any]:
    """Yield views of an array of at most `CHUNK` elements each."""
    if array.size <= CHUNK:
        yield array
        return
    row = array.size // array.shape[0]
    if row > CHUNK:
        for i in range(array.shape[0]):
            yield from chunks(array[i])
        return
    step = max(1, CHUNK // row)
    yield from (array[start : start + step] for start in range(0, array.shape[0], step))


def numbers(array: Any, datatype: str, most: int) -> tuple[Any, int]:
    """Return an array for computing, and the number of elements that each of its elements represents.

    BF16 in the form of 16-bit integers is converted, of which only a sample of `most` elements is taken.
    """
    if datatype != "BF16" or array.dtype.name == "bfloat16":
        return array, 1
    sample, every = sampled(array, most)
    with working_on(sample):
        return from_bits(sample), every


LEAST = 8  # pixels of a side
LONGEST = 8  # times the other side
_ALARM = (213, 94, 0)  # red, for NaN and infinities
_Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ImageLayout:
    """The axes of an image in an array; -1 for a missing axis."""

    batch: int
    height: int
    width: int
    channel: int
    text: str


def layout_of(shape: tuple[int, ...]) -> ImageLayout | None:
    """Return the axes of an array shaped like an image or a batch of images; None for other shapes.

    Images are H×W, H×W×1, ×3 and ×4, 1×H×W, 3×H×W and 4×H×W.
    """
    layouts = {
        2: [ImageLayout(-1, 0, 1, -1, "grey")],
        3: [
            ImageLayout(-1, 0, 1, 2, "channels last"),
            ImageLayout(-1, 1, 2, 0, "channels first"),
            ImageLayout(0, 1, 2, -1, "a batch of grey pictures"),
        ],
        4: [ImageLayout(0, 1, 2, 3, "channels last"), ImageLayout(0, 2, 3, 1, "channels first")],
    }
    for layout in layouts.get(len(shape), ()):
        sides = shape[layout.height], shape[layout.width]
        channels = 1 if layout.channel < 0 else shape[layout.channel]
        if min(sides) >= LEAST and max(sides) <= LONGEST * min(sides) and channels in (1, 3, 4):
            return layout
    return None


def pictures(
    array: Any, figures: Figures | None, most: int, pixels: int, *, stretched: bool = False
) -> tuple[Media, ...]:
    """Return the first `most` pictures of an array that is shaped like an image or a batch of images.

    Sides longer than `pixels` are reduced to every n-th row or column before anything is copied to the host. The
    array's `figures` determine the range from black to white; with `stretched` it is always least to greatest.
    """
    layout = layout_of(array.shape)
    if layout is None or figures is None or array.dtype.kind not in "biuf":
        return ()
    axes = [axis for axis in (layout.batch, layout.height, layout.width, layout.channel) if axis >= 0]
    ordered = array.transpose(axes)
    ordered = ordered if layout.batch >= 0 else ordered[None]
    ordered = ordered if layout.channel >= 0 else ordered[..., None]
    count, height, width, channels = ordered.shape
    step = -(-max(height, width) // pixels)
    with working_on(ordered):
        shown = to_host(ordered[:most, ::step, ::step])
    shades, range_text = _shades(shown, figures, stretched)
    parts = [range_text, layout.text if channels > 1 or layout.batch < 0 < array.ndim - 2 else ""]
    parts += [f"at 1/{step} of its size" if step > 1 else "", f"the first {most} of {count:,}" if count > most else ""]
    caption = ", ".join(word for word in parts if word)
    return tuple(Media("image/png", b64encode(png(picture)).decode(), width, height, caption) for picture in shades)


def _shades(values: _Array, figures: Figures, stretched: bool) -> tuple[_Array, str]:
    if values.dtype == np.uint8:
        return values, "0 to 255 as they are"
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * 255, "True is white"
    if figures.least is None or figures.greatest is None:
        low, high, range_text = 0.0, 1.0, "no number in it"
    elif stretched:
        low, high = float(figures.least), float(figures.greatest)
        range_text = f"{low:.4g} black, {high:.4g} white"
    else:
        low, high, range_text = _range(float(figures.least), float(figures.greatest), values.dtype.kind == "f")
    numbers = values.astype(np.float64)
    is_finite = np.isfinite(numbers)
    with np.errstate(all="ignore"):
        scaled = (numbers - low) * (255 / (high - low) if high > low else 0)
    shades = np.where(is_finite, np.clip(np.nan_to_num(scaled), 0, 255), 0).round().astype(np.uint8)
    if is_finite.all():
        return shades, range_text
    not_finite = ~is_finite.all(axis=-1)
    shades = np.repeat(shades, 3, axis=-1) if shades.shape[-1] == 1 else shades
    shades[not_finite, :3] = _ALARM
    return shades, f"{range_text}, NaN and infinities red"


def _range(low: float, high: float, is_float: bool) -> tuple[float, float, str]:
    if is_float and low >= 0 and high <= 1:
        return 0, 1, "0 to 1 as black to white"
    if is_float and -1 <= low < 0 and high <= 1:
        return -1, 1, "-1 to 1 as black to white"
    if low >= 0 and 16 <= high <= 255:
        return 0, 255, "0 to 255 as black to white"
    if not np.isfinite(high - low):
        return low / 2, high / 2, "stretched"
    return low, high, f"stretched: {low:.4g} black, {high:.4g} white"


def png(pixels: _Array) -> bytes:
    """Encode pixels (uint8, height × width × 1, 3 or 4) as a PNG file."""
    height, width, channels = pixels.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each row starts with its filter type, 0
    rows[:, 1:] = pixels.reshape(height, -1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


LARGEST = 600_000  # bytes; larger encoded files are not shown
_KINDS = {
    b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}  # fmt: skip


def media_of(element: object, largest: int = LARGEST) -> Media | None:
    """Return the picture or sound that a BYTES element encodes; None for other elements."""
    if not isinstance(element, bytes):
        return None
    kind = next((kind for start, kind in _KINDS.items() if element.startswith(start)), "")
    if element[:4] == b"RIFF":
        kind = {b"WAVE": "audio/wav", b"WEBP": "image/webp"}.get(element[8:12], "")
    if not kind:
        return None
    width = height = 0
    if kind == "image/png" and len(element) >= 24:
        width, height = int.from_bytes(element[16:20], "big"), int.from_bytes(element[20:24], "big")
    if len(element) > largest:
        return Media(kind, "", width, height, f"larger than {largest:,} bytes, not shown")
    return Media(kind, b64encode(element).decode(), width, height)


BINS = 40
COUNTED = 1 << 22  # most elements in a histogram


def figures(array: Any, most: int, *, each: int = 1, histogram: bool = False) -> Figures | None:
    """Return the statistics of at most `most` elements of a numeric array; None for other or empty arrays.

    An element of the array represents `each` elements of the tensor; see `numbers`.
    """
    if array.dtype.kind not in "biuf" or not array.size:
        return None
    sample, every = sampled(array, most if array.size <= most else most // 4)
    every *= each
    if sample.dtype.kind == "b":
        sample = sample.view(np.uint8)
    is_integer = sample.dtype.kind != "f"
    lows: list[Any] = []
    highs: list[Any] = []
    total, finite, nans = 0.0, 0, 0
    with working_on(sample) as xp, np.errstate(all="ignore"):
        if every > each and sample.size <= CHUNK:
            sample = xp.ascontiguousarray(sample)  # so that the strided array is read only once
        for chunk in chunks(sample):
            if not is_integer:
                is_finite = xp.isfinite(chunk)
                if int(is_finite.sum()) < chunk.size:
                    nans += int(xp.isnan(chunk).sum())
                    chunk = chunk[is_finite]
            if chunk.size:
                finite += chunk.size
                lows.append(chunk.min().item())
                highs.append(chunk.max().item())
                total += float(chunk.sum(dtype=np.float64))
        bins = _histogram(xp, sample, min(lows), max(highs)) if histogram and lows else ()
    infinities = sample.size - finite - nans
    if not lows:
        return Figures(nans=nans, infinities=infinities, every=every)
    return Figures(min(lows), max(highs), total / finite, nans, infinities, every, bins)


def _histogram(xp: Any, array: Any, low: float, high: float) -> tuple[int, ...]:
    """Count the elements in each bin; empty if all elements are equal."""
    if not (low < high and math.isfinite(float(high) - float(low))):
        return ()
    # One bin for each integer if their range is small.
    bins = min(BINS, int(high) - int(low) + 1) if array.dtype.kind != "f" else BINS
    counts = [0] * bins
    for chunk in chunks(sampled(array, COUNTED)[0]):
        if chunk.dtype.kind == "f":
            chunk = chunk[xp.isfinite(chunk)].astype(np.float64)
        chunk_counts = xp.histogram(chunk, bins=bins, range=(float(low), float(high)))[0]
        counts = [a + b for a, b in zip(counts, chunk_counts.tolist(), strict=True)]
    return tuple(counts)


GLANCE = 1 << 20  # most elements that `quick_summary` reads: about a millisecond
_FEW, _SMALL = 4, 64  # most pictures, and most pixels of their sides
_LIGHT = 100_000  # most bytes of an encoded picture


def quick_summary(tensor: Tensor) -> dict[str, Any]:
    """Return statistics and small pictures of a tensor, as fields of its record.

    Skips tensors on a GPU, where this could take seconds, and tensors that are small enough to be shown whole.
    """
    array: Any = tensor._array
    if not tensor.is_cpu():
        return {}
    array = array.view(np.ndarray)
    if tensor._datatype == "BYTES":
        media = [media_of(element, _LIGHT) for element in array.reshape(-1)[:_FEW].tolist()]
        return {"pictures": tuple(m for m in media if m is not None and m.data and m.kind.startswith("image"))}
    if array.size <= WHOLE:
        return {}
    array, every = numbers(array, tensor._datatype, GLANCE)
    statistics = figures(array, GLANCE, each=every)
    return {"figures": statistics, "pictures": pictures(array, statistics, _FEW, _SMALL) if every == 1 else ()}
