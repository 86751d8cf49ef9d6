"""What is shown of a whole tensor: statistics, a histogram, and pictures of what is shaped as an image.

Computed on the tensor's device in bounded chunks; only numbers and small pictures come to the host.
"""

from __future__ import annotations

import math
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bls_notebook.devices.registry import backend_of
from bls_notebook.pb_utils.dtypes import from_bits
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.records.preview import WHOLE
from bls_notebook.records.repository import Figures, Media

CHUNK = 1 << 22  # elements that are worked on at a time: what is made of them meanwhile is bounded
BINS = 40
COUNTED = 1 << 22  # elements that a histogram is made of


def figures(array: Any, most: int, *, histogram: bool = False) -> Figures | None:
    """Return the figures of a numeric array, of at most so many elements of it; None where it has none."""
    if array.dtype.kind not in "biuf" or not array.size:
        return None
    seen, every = sampled(array, most if array.size <= most else most // 4)
    if seen.dtype.kind == "b":
        seen = seen.view(np.uint8)
    whole = seen.dtype.kind != "f"
    lows: list[Any] = []
    highs: list[Any] = []
    total, finite, nans = 0.0, 0, 0
    with working_on(seen) as xp, np.errstate(all="ignore"):
        if every > 1 and seen.size <= CHUNK:
            seen = xp.ascontiguousarray(seen)  # reading it here and there once is enough
        for chunk in chunks(seen):
            if not whole:
                good = xp.isfinite(chunk)
                count = int(good.sum())
                if count < chunk.size:
                    nans += int(xp.isnan(chunk).sum())
                    chunk = chunk[good]
            if chunk.size:
                finite += chunk.size
                lows.append(chunk.min().item())
                highs.append(chunk.max().item())
                total += float(chunk.sum(dtype=np.float64))
        bins = _histogram(xp, seen, min(lows), max(highs)) if histogram and lows else ()
    infinities = seen.size - finite - nans
    if not lows:
        return Figures(nans=nans, infinities=infinities, every=every)
    return Figures(min(lows), max(highs), total / finite, nans, infinities, every, bins)


def _histogram(xp: Any, array: Any, low: float, high: float) -> tuple[int, ...]:
    """How many elements lie in each bin; none where they are all the same."""
    if not (low < high and math.isfinite(float(high) - float(low))):
        return ()
    # Of whole numbers that are few, each has a bin.
    number = min(BINS, int(high) - int(low) + 1) if array.dtype.kind != "f" else BINS
    counts = [0] * number
    for chunk in chunks(sampled(array, COUNTED)[0]):
        if chunk.dtype.kind == "f":
            chunk = chunk[xp.isfinite(chunk)].astype(np.float64)
        found = xp.histogram(chunk, bins=number, range=(float(low), float(high)))[0]
        counts = [a + b for a, b in zip(counts, found.tolist(), strict=True)]
    return tuple(counts)


@contextmanager
def working_on(array: Any) -> Iterator[Any]:
    """Give the module whose functions work on an array: NumPy, or CuPy on the array's GPU."""
    there = backend_of(array)
    if there is None:
        yield np
        return
    before = there.current()
    there.finish(array)  # whatever stream it was made on
    there.set_current(there.device_of(array).index)
    try:
        yield there.array_module()
    finally:
        there.set_current(before)


def to_host(array: Any) -> np.ndarray[Any, Any]:
    """Return an array, which should be small, in host memory."""
    there = backend_of(array)
    return np.asarray(array) if there is None else there.to_host(array.copy())


def sampled(array: Any, most: int) -> tuple[Any, int]:
    """Return an evenly spaced view of at most `most` elements, and how many elements each one stands for."""
    every = 1
    while array.size > most:
        axis = int(np.argmax(array.shape))
        array = array[(slice(None),) * axis + (slice(None, None, 2),)]
        every *= 2
    return array, every


def chunks(array: Any) -> Iterator[Any]:
    """Give an array in parts of a bounded size, without copying any."""
    if array.size <= CHUNK:
        yield array
        return
    row = array.size // array.shape[0]
    if row > CHUNK:
        for i in range(array.shape[0]):
            yield from chunks(array[i])
        return
    step = max(1, CHUNK // row)
    for start in range(0, array.shape[0], step):
        yield array[start : start + step]


LEAST, LONGEST = 8, 8  # pixels of a side, how many times the other one a side may be
_ALARM = (213, 94, 0)  # what is no number
_Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ImageLayout:
    """Which axes of an array are what; -1 for one that is not there."""

    batch: int
    height: int
    width: int
    channel: int
    said: str


def layout_of(shape: tuple[int, ...]) -> ImageLayout | None:
    """Return how an array of this shape is a picture, or a batch of them; None where it is not.

    H×W, H×W×1, ×3 and ×4, 1×H×W, 3×H×W and 4×H×W, and batches of these.
    """
    ways = {
        2: [ImageLayout(-1, 0, 1, -1, "grey")],
        3: [
            ImageLayout(-1, 0, 1, 2, "channels last"),
            ImageLayout(-1, 1, 2, 0, "channels first"),
            ImageLayout(0, 1, 2, -1, "a batch of grey pictures"),
        ],
        4: [ImageLayout(0, 1, 2, 3, "channels last"), ImageLayout(0, 2, 3, 1, "channels first")],
    }
    for way in ways.get(len(shape), ()):
        sides = shape[way.height], shape[way.width]
        channels = 1 if way.channel < 0 else shape[way.channel]
        if min(sides) >= LEAST and max(sides) <= LONGEST * min(sides) and channels in (1, 3, 4):
            return way
    return None


def pictures(
    array: Any, figures: Figures | None, most: int, pixels: int, *, stretched: bool = False
) -> tuple[Media, ...]:
    """Return pictures of an array that is shaped as one or a batch, the first so many of them.

    Only what is shown is copied to the host: of a longer side than `pixels` every n-th row and column. The
    `figures` of the array say how its numbers become shades; `stretched`, the least and the greatest are
    black and white, whatever they are.
    """
    way = layout_of(array.shape)
    if way is None or figures is None or array.dtype.kind not in "biuf":
        return ()
    axes = [axis for axis in (way.batch, way.height, way.width, way.channel) if axis >= 0]
    ordered = array.transpose(axes)
    ordered = ordered if way.batch >= 0 else ordered[None]
    ordered = ordered if way.channel >= 0 else ordered[..., None]
    count, height, width, channels = ordered.shape
    step = -(-max(height, width) // pixels)
    with working_on(ordered):
        shown = to_host(ordered[:most, ::step, ::step])
    shades, said = _shades(shown, figures, stretched)
    words = [said, way.said if channels > 1 or way.batch < 0 < array.ndim - 2 else ""]
    words += [f"at 1/{step} of its size" if step > 1 else "", f"the first {most} of {count:,}" * (count > most)]
    told = ", ".join(word for word in words if word)
    return tuple(Media("image/png", b64encode(png(each)).decode(), width, height, told) for each in shades)


def _shades(values: _Array, figures: Figures, stretched: bool) -> tuple[_Array, str]:
    if values.dtype == np.uint8:
        return values, "0 to 255 as they are"
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * 255, "True is white"
    if figures.least is None or figures.greatest is None:
        low, high, said = 0.0, 1.0, "no number in it"
    elif stretched:
        low, high = float(figures.least), float(figures.greatest)
        said = f"{low:.4g} black, {high:.4g} white"
    else:
        low, high, said = _range(float(figures.least), float(figures.greatest), values.dtype.kind == "f")
    numbers = values.astype(np.float64)
    good = np.isfinite(numbers)
    with np.errstate(all="ignore"):
        scaled = (numbers - low) * (255 / (high - low) if high > low else 0)
    shades = np.where(good, np.clip(np.nan_to_num(scaled), 0, 255), 0).round().astype(np.uint8)
    if good.all():
        return shades, said
    bad = ~good.all(axis=-1)
    shades = np.repeat(shades, 3, axis=-1) if shades.shape[-1] == 1 else shades
    shades[bad, :3] = _ALARM
    return shades, f"{said}, NaN and infinities red"


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
    """Return pixels, of uint8 and shape height × width × 1, 3 or 4, as a file."""
    height, width, channels = pixels.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each row begins with its filter: none
    rows[:, 1:] = pixels.reshape(height, -1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


GLANCE = 1 << 20  # elements that are read: about a millisecond
LARGEST = 600_000  # bytes of a file that is shown
_FEW, _SMALL = 4, 64  # pictures, and pixels of their sides
_LIGHT = 100_000  # bytes of a picture that is a file
_KINDS = {
    b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}  # fmt: skip


def at_a_glance(tensor: Tensor) -> dict[str, Any]:
    """Return figures and small pictures of a tensor, as fields of its record.

    Skips tensors on a GPU, where this could take seconds, and tensors small enough to be shown whole.
    """
    array: Any = tensor._array
    if not tensor.is_cpu():
        return {}
    array = array.view(np.ndarray)
    if tensor._datatype == "BYTES":
        few = array.reshape(-1)[:_FEW].tolist()
        found = (media_of(element, _LIGHT) for element in few)
        shown = (each for each in found if each is not None and each.data)
        return {"pictures": tuple(each for each in shown if each.kind.startswith("image"))}
    if array.size <= WHOLE:
        return {}
    array, every = numbers(array, tensor._datatype, GLANCE)
    seen = figures(array, GLANCE)
    if seen is not None and every > 1:
        seen = replace(seen, every=every)
    return {"figures": seen, "pictures": pictures(array, seen, _FEW, _SMALL) if every == 1 else ()}


def numbers(array: Any, datatype: str, most: int) -> tuple[Any, int]:
    """Return what can be computed with, and of how many elements one is in it: BF16 has to be copied."""
    if datatype != "BF16" or array.dtype.name == "bfloat16":
        return array, 1
    few, every = sampled(array, most)
    with working_on(few):
        return from_bits(few), every


def media_of(element: object, largest: int = LARGEST) -> Media | None:
    """Return an element that is an encoded picture or a sound as such, None for any other."""
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
        return Media(kind, "", width, height, f"larger than the {largest:,} bytes that are shown")
    return Media(kind, b64encode(element).decode(), width, height)
