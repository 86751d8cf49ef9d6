"""Tensors that are a row of numbers: as a line, and as a sound."""

from __future__ import annotations

import io
import wave
from base64 import b64encode
from typing import Any

import numpy as np

from bls_notebook.records.tensors import Figures, Media
from bls_notebook.repository.requests.tensor_statistics import sampled, to_host, working_on

RATE = 16_000  # samples a second where nobody says
POINTS = 300
LEAST = 16  # numbers of a line
SOUND = 2_000  # samples of what is taken for a sound unasked
LONGEST = 320_000  # samples that are played: 20 s at the usual rate, 0.9 MB in a notebook


def row_of(array: Any) -> Any:
    """Return an array that is a row of numbers, whatever dimensions of one it has; None for any other."""
    if array.size < LEAST or array.dtype.kind not in "iuf" or max(array.shape) != array.size:
        return None
    return array.reshape(-1)


def line_of(array: Any) -> tuple[tuple[float, float], ...]:
    """Return the least and the greatest number of each of many pieces of a row."""
    row = row_of(array)
    if row is None:
        return ()
    row, _ = sampled(row, 1 << 22)
    with working_on(row) as xp, np.errstate(all="ignore"):
        pieces = min(POINTS, row.size)
        length = row.size // pieces
        parts = xp.ascontiguousarray(row[: pieces * length]).reshape(pieces, length)
        if parts.dtype.kind == "f":
            parts = xp.where(xp.isfinite(parts), parts, parts.dtype.type(0))
        both = to_host(xp.stack([parts.min(axis=1), parts.max(axis=1)]).astype(np.float64))
    return tuple((float(low), float(high)) for low, high in both.T)


def sound_of(array: Any, figures: Figures | None, rate: int | None) -> Media | None:
    """Return a row of numbers as a sound, where somebody says its rate or it looks like one."""
    row = row_of(array)
    if row is None or figures is None or figures.least is None or figures.greatest is None:
        return None
    low, high = figures.least, figures.greatest
    waves = row.dtype == np.int16 or (row.dtype.kind == "f" and -1 <= low < 0 < high <= 1)
    if rate is None and not (waves and row.size >= SOUND and low < 0 < high):
        return None
    with working_on(row):
        samples = to_host(row[:LONGEST]).astype(np.float64)
    loudest = max(abs(low), abs(high))
    full = 32768.0 if row.dtype == np.int16 else 1.0
    told = [f"at {rate or RATE:,} samples a second" + (", as nobody said" if rate is None else "")]
    if loudest > full:
        full = float(loudest)
        told.append(f"{loudest:.4g} made the loudest")
    if row.size > LONGEST:
        told.append(f"the first {LONGEST / (rate or RATE):.1f} s of {row.size / (rate or RATE):.1f} s")
    with np.errstate(all="ignore"):
        shorts = np.clip(np.nan_to_num(samples / full) * 32767, -32768, 32767).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(rate or RATE)
        writer.writeframes(shorts.tobytes())
    return Media("audio/wav", b64encode(file.getvalue()).decode(), rate or RATE, 1, ", ".join(told))
