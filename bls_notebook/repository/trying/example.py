"""A request that a newcomer can send to a model at once: values that its inputs may well take. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from bls_notebook.observe.records.repository import ModelRecord, TensorSpecRecord

_LONGEST = 16  # elements that are written out
_NUMPY = {"FP16": "float16", "FP32": "float32", "FP64": "float64", "BOOL": "bool_", "BF16": "float32"}
# By what the name says, for inputs that carry text.
_TEXTS = (
    (r"lang|locale", "en"),
    (r"json|schema|config|param", "{}"),
    (r"url|uri", "https://example.com/"),
    (r"voice|speaker", "default"),
    (r"format|codec", "wav"),
    (r"prompt|question|query", "What is a model repository?"),
    (r"id$|uuid", "1"),
)
_TEXT = "It was a bright cold day in April."
_NUMBERS = (
    (r"top_k|beam|num_", "1"),
    (r"max|len|size|width|height|limit", "64"),
    (r"temperature|top_p|threshold|score|scale|speed", "0.5"),
    (r"sample_rate|sampling_rate|rate$", "16000"),
)
_IMAGE = re.compile(r"image|img|picture|photo|frame|pixel|jpe?g|png", re.IGNORECASE)
_AUDIO = re.compile(r"audio|wav|pcm|sound|speech", re.IGNORECASE)


def request_line(record: ModelRecord, sequence: bool = False) -> str:
    """Return a line of ``%bls`` that the model can answer, as far as its configuration tells."""
    inputs = [_input(spec, record.max_batch_size > 0) for spec in record.inputs if not spec.optional]
    words = ["%bls", record.name, *inputs]
    if record.decoupled:
        words.append("--stream")
    if sequence:
        words.append("--sequence 1:start,end")
    return " ".join(words)


def _input(spec: TensorSpecRecord, batching: bool) -> str:
    return f"{spec.name}={_value(spec, batching)}"


def _value(spec: TensorSpecRecord, batching: bool) -> str:
    name = spec.name.lower()
    image, audio = _IMAGE.search(name), _AUDIO.search(name)
    rank = len(spec.dims)
    shape = [_size(dim, i, rank, bool(image), bool(audio)) for i, dim in enumerate(spec.dims)]
    shape[:0] = [1] * batching
    if spec.datatype == "BYTES":
        text = next((value for pattern, value in _TEXTS if re.search(pattern, name)), _TEXT)
        return _nested(repr(text), shape)
    number = next((value for pattern, value in _NUMBERS if re.search(pattern, name)), "1")
    if spec.datatype == "BOOL":
        number = "True"
    elif spec.datatype.startswith("FP") or spec.datatype == "BF16":
        number = "0.5" if number == "1" else number
    elif "." in number:
        number = "1"
    return _nested(number, shape)


def _size(dim: int, place: int, rank: int, image: bool, audio: bool) -> int:
    """A size for one that varies: a small picture's, half a second of sound, else one element."""
    if dim > 0:
        return dim
    if image and rank >= 3:
        return 3 if place == rank - 1 else 32
    return 8000 if audio and place == rank - 1 else 1


def _nested(value: str, shape: Sequence[int]) -> str:
    """The value in brackets for each dimension; where that were long, as a product of lists."""
    if prod(shape) == 1:
        return value
    out = value
    for size in reversed(shape):
        out = f"[{', '.join([out] * size)}]" if size * len(out) <= 48 else f"[{out}] * {size}"
    return out
