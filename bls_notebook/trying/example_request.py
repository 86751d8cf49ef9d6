"""Example requests: plausible values for a model's inputs, as Python expressions and as a `%bls` line."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

from bls_notebook.records import ModelRecord, TensorSpecRecord

# Values of inputs by patterns in their names: texts and numbers; the text of other inputs; and a picture of a word, as
# a PNG of 64 by 64 pixels and as a number whose bits are 16 by 16 pixels. Detectors of text find the word.
_VALUES = json.loads(Path(__file__).with_name("example_values.json").read_text("utf-8"))
_TEXT, _PICTURE, _PIXELS = _VALUES["text"], _VALUES["picture"], _VALUES["pixels"]
_IMAGE = re.compile(r"image|img|picture|photo|frame|pixel|jpe?g|png", re.IGNORECASE)
_AUDIO = re.compile(r"audio|wav(?!.*len)|pcm|sound|speech", re.IGNORECASE)
_DATA = re.compile(r"raw|bytes|data|file|content|input_?\d*$", re.IGNORECASE)
_SAMPLES = 8000
_PARSES_JSON = re.compile(r"json\.loads\((?!\s*args\b|[^)]*model_config)")  # other JSON than the model's configuration
_KEY = re.compile(r"""(?:\[|\.get\()["'](\w+)["']""")
_DECODES_TEXT = re.compile(r"b64decode|base64|data:image")
_DECODES_FILE = re.compile(r"Image\.open|imdecode|decode_(?:image|jpeg|png|gif)|imageio|io\.read_image")


# Ways to generate a request, tried until the model answers one: plain; with the optional inputs; no variable size is 1;
# pictures show a word instead of one color; texts are JSON, if the code parses it, with the keys that it reads.
STYLES = ("", "optional", "wide", "drawn", "json")


def json_text(sources: Sequence[str]) -> str:
    """Return an object of JSON with the keys that sources read; empty if they parse none."""
    code = "".join(source for source in sources if _PARSES_JSON.search(source))
    return json.dumps(dict.fromkeys(_KEY.findall(code), _TEXT)) if code else ""


def takes_files(sources: Sequence[str]) -> bool:
    """Return whether a model takes images as the bytes of files."""
    return any(map(_DECODES_FILE.search, sources)) and not any(map(_DECODES_TEXT.search, sources))


def example_inputs(
    record: ModelRecord, callee: str = "", style: str = "", sources: Sequence[str] = ()
) -> dict[str, str]:
    """Return a Python expression for each input that a request needs.

    `callee` is a value for inputs that name one; `sources` are the model's own and its callees' code.
    """
    text = json_text(sources) if style == "json" else ""
    files = takes_files(sources)
    sounds = any(_AUDIO.search(spec.name) and -1 in spec.dims for spec in record.inputs)
    return {
        spec.name: _value(spec, record.max_batch_size > 0, sounds, callee, files, style, text)
        for spec in record.inputs
        if style == "optional" or not spec.optional
    }


def request_line(record: ModelRecord, inputs: Mapping[str, str], sequence: bool = False) -> str:
    """Return a line of ``%bls`` with these inputs; three for a sequence."""
    words = ["%bls", record.name, *(f"{name}={value}" for name, value in inputs.items())]
    if record.decoupled:
        words.append("--stream")
    line = " ".join(words)
    return "\n".join(f"{line} --sequence 1{part}" for part in (":start", "", ":end")) if sequence else line


def _value(spec: TensorSpecRecord, batching: bool, sounds: bool, other: str, files: bool, style: str, text: str) -> str:
    """Return a value for an input; `sounds`: an input of the model is a sound; `text`: that of all texts, if any."""
    name = spec.name.lower()
    image = spec.datatype == "UINT8" or _IMAGE.search(name) is not None or spec.dims[-3:] in ((-1, -1, 3), (3, -1, -1))
    sound = spec.datatype != "BYTES" and _AUDIO.search(name) is not None
    shape = ([1] if batching else []) + _sizes(spec, image, sound, style == "wide")
    if (files or text) and spec.datatype == "UINT8" and spec.dims in ((-1,), (-1, -1)):
        return _nested(str(list(text.encode() or base64.b64decode(_PICTURE))), shape[:-1])
    if spec.datatype == "BYTES":
        likely = (value for pattern, value in _VALUES["texts"].items() if re.search(pattern, name))
        text = text or (other if other and "model" in name else next(likely, _TEXT))
        if text == _TEXT and (_IMAGE.search(name) or (files and _DATA.search(name))):
            return _nested(repr(base64.b64decode(_PICTURE) if files else _PICTURE), shape)
        return _nested(repr(text), shape)
    number = next((value for pattern, value in _VALUES["numbers"].items() if re.search(pattern, name)), "1")
    if sounds and re.search(r"len|num_samples", name):
        number = str(_SAMPLES)
    if spec.datatype == "BOOL":
        number = "True"
    elif spec.datatype.startswith("FP") or spec.datatype == "BF16":
        number = "0.5" if number == "1" else number
    elif "." in number:
        number = "1"
    if style == "drawn" and (_is_gray(spec) or (image and len(spec.dims) >= 3)):
        return _drawing("255" if spec.datatype == "UINT8" else "1.0", shape, _is_gray(spec))
    return _nested(number, shape)


def _is_gray(spec: TensorSpecRecord) -> bool:
    """Return whether an input is a picture with rows and columns only."""
    return len(spec.dims) == 2 and _IMAGE.search(spec.name) is not None and spec.datatype != "BYTES"


def _drawing(white: str, shape: Sequence[int], gray: bool) -> str:
    """Return the source text of a picture of a word; its last axes are rows, columns and colors, or colors first."""
    shape = [*shape, 1] if gray else shape
    last = shape[-1] <= 4
    height, width, colors = shape[-3:] if last else (*shape[-2:], shape[-3])
    pixel = f"{white} * ({_PIXELS} >> (y * 16 // {height} * 16 + x * 16 // {width}) & 1)"
    row = f"[{f'[{pixel}] * {colors}' if last and not gray else pixel} for x in range({width})]"
    picture = f"[{row} for y in range({height})]"
    return _nested(picture if last else f"[{picture}] * {colors}", shape[:-3])


def _sizes(spec: TensorSpecRecord, image: bool, audio: bool, wide: bool) -> list[int]:
    """Return the shape; variable dimensions get the size of a small image or half a second of sound, else 1, then 8."""
    out = list(spec.dims)
    rank = len(out)
    coloured = any(dim in (1, 3, 4) for dim in out)
    for place in [i for i, dim in enumerate(out) if dim == -1]:
        if _is_gray(spec):
            out[place] = 32
        elif image and rank >= 3:
            first = place < rank - 3  # a batch dimension in `dims`
            last = place == rank - 1 and not coloured
            out[place] = 1 if first else 3 if last else 32
        else:
            several = spec.datatype != "BYTES" and (wide or -1 in spec.dims[:place])  # the first is mostly a batch
            out[place] = _SAMPLES if audio and place == rank - 1 else 8 if several else 1
    return out


def _nested(value: str, shape: Sequence[int]) -> str:
    """Return the source text of nested lists of a value; long lists as a product."""
    if prod(shape) == 1 and value[0] != "[":
        return value
    out = value
    for size in reversed(shape):
        out = f"[{', '.join([out] * size)}]" if size == 1 or size * len(out) <= 30 else f"[{out}] * {size}"
    return out
