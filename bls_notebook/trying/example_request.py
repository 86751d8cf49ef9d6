"""Example requests with plausible values for a model's inputs: as a `%bls` line, and sent to the model."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

from bls_notebook.engine.errors import BLSError
from bls_notebook.extending import Host
from bls_notebook.pb_utils import TRITONSERVER_REQUEST_FLAG_SEQUENCE_END as END
from bls_notebook.pb_utils import TRITONSERVER_REQUEST_FLAG_SEQUENCE_START as START
from bls_notebook.progress import progress
from bls_notebook.records.models import ModelRecord, TensorSpecRecord
from bls_notebook.records.recorded_models import went_through
from bls_notebook.records.units import listed
from bls_notebook.records.visible_text import first_line
from bls_notebook.repository.call_order import entries, in_order, reached
from bls_notebook.repository.repository import ModelRepository

from .load_or_stub import ModelPlan
from .records import TriedModel

# Values of inputs by patterns in their names: texts and numbers; the text of other inputs; and a picture of a word, as
# a PNG of 64 by 64 pixels and as a number whose bits are 16 by 16 pixels. Detectors of text find the word.
_VALUES = json.loads(Path(__file__).with_name("example_values.json").read_text("utf-8"))
_TEXT, _PICTURE, _PIXELS = _VALUES["text"], _VALUES["picture"], _VALUES["pixels"]
_IMAGE = re.compile(r"image|img|picture|photo|frame|pixel|jpe?g|png", re.IGNORECASE)
_AUDIO = re.compile(r"audio|wav(?!.*len)|pcm|sound|speech", re.IGNORECASE)
_DATA = re.compile(r"raw|bytes|data|file|content|input_?\d*$", re.IGNORECASE)
_SAMPLES = 8000
_MOST_ELEMENTS = 1 << 24  # of a generated request
_KEY = re.compile(r"""(?:\[|\.get\()["'](\w+)["']""")
_DECODES_TEXT = re.compile(r"b64decode|base64|data:image")
_DECODES_FILE = re.compile(r"Image\.open|imdecode|decode_(?:image|jpeg|png|gif)|imageio|io\.read_image")


# Ways to generate a request, tried until the model answers one: plain; with the optional inputs; no variable size is 1;
# pictures show a word instead of one color; texts are JSON, if the code parses it, with the keys that it reads.
STYLES = ("", "optional", "wide", "drawn", "json")


def json_text(sources: Sequence[str]) -> str:
    """Return an object of JSON with the keys that sources read; empty if they parse none."""
    code = "".join(source for source in sources if "json.loads" in source)
    return json.dumps(dict.fromkeys(_KEY.findall(code), _TEXT)) if code else ""


def takes_files(sources: Sequence[str]) -> bool:
    """Return whether a model takes images as the bytes of files; `sources` are its own and its callees' code."""
    return any(map(_DECODES_FILE.search, sources)) and not any(map(_DECODES_TEXT.search, sources))


def example_inputs(
    record: ModelRecord, callee: str = "", files: bool = False, style: str = "", sources: Sequence[str] = ()
) -> dict[str, str]:
    """Return a Python expression for each input that a request needs.

    `callee` is a value for inputs that name one; `files`: images are the bytes of files.
    """
    text = json_text(sources) if style == "json" else ""
    sounds = any(_AUDIO.search(spec.name) and -1 in spec.dims for spec in record.inputs)
    return {
        spec.name: _value(spec, record.max_batch_size > 0, sounds, callee, files, style, text)
        for spec in record.inputs
        if style == "optional" or not spec.optional
    }


def request_line(record: ModelRecord, inputs: Mapping[str, str], sequence: bool = False) -> str:
    """Return a line of ``%bls`` with these inputs."""
    words = ["%bls", record.name, *(f"{name}={value}" for name, value in inputs.items())]
    if record.decoupled:
        words.append("--stream")
    if sequence:
        words.append("--sequence 1:start,end")
    return " ".join(words)


def _value(spec: TensorSpecRecord, batching: bool, sounds: bool, other: str, files: bool, style: str, text: str) -> str:
    """Return a value for an input; `sounds`: an input of the model is a sound; `text`: that of all texts, if any."""
    name = spec.name.lower()
    image = spec.datatype == "UINT8" or _IMAGE.search(name) is not None or spec.dims[-3:] in ((-1, -1, 3), (3, -1, -1))
    shape = [1] * batching + _sizes(spec, image, _AUDIO.search(name) is not None, style == "wide")
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
    if style == "drawn" and image and len(spec.dims) >= 3:
        return _drawing("255" if spec.datatype == "UINT8" else "1.0", shape)
    return _nested(number, shape)


def _drawing(white: str, shape: Sequence[int]) -> str:
    """Return the source text of a picture of a word; its last axes are rows, columns and colors, or colors first."""
    last = shape[-1] <= 4
    height, width, colors = shape[-3:] if last else (*shape[-2:], shape[-3])
    pixel = f"{white} * ({_PIXELS} >> (y * 16 // {height} * 16 + x * 16 // {width}) & 1)"
    row = f"[{f'[{pixel}] * {colors}' if last else pixel} for x in range({width})]"
    picture = f"[{row} for y in range({height})]"
    return _nested(picture if last else f"[{picture}] * {colors}", shape[:-3])


def _sizes(spec: TensorSpecRecord, image: bool, audio: bool, wide: bool) -> list[int]:
    """Return the shape; variable dimensions get the size of a small image or half a second of sound, else 1, then 8."""
    out = list(spec.dims)
    rank = len(out)
    coloured = any(dim in (1, 3, 4) for dim in out)
    for place in [i for i, dim in enumerate(out) if dim == -1]:
        if image and rank >= 3:
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


class ExampleRequests:
    """Example requests to the loaded models of a repository."""

    def __init__(self, host: Host, plans: Mapping[str, ModelPlan]) -> None:
        self._host, self._repository, self._plans = host, host.repository, plans
        self._calls = {name: plan.calls for name, plan in plans.items()}
        self._named = {name: plan.named for name, plan in plans.items()}
        self._unanswered: set[str] = set()
        self._answered_with: dict[str, str] = {}

    def lines(self, reports: Sequence[TriedModel]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the models that no other calls, real ones first, and a line of ``%bls`` for each."""
        kinds = {report.name: report.kind for report in reports}
        names = [name for name in entries(self._calls) if kinds.get(name, "absent") != "absent"]
        names.sort(key=lambda name: kinds[name] != "real")
        lines = [
            request_line(self._repository.record(name), self._inputs(name), _in_sequences(self._repository, name))
            for name in names
        ]
        return tuple(names), tuple(lines)

    def answered(self, reports: Sequence[TriedModel], seconds: float) -> list[TriedModel]:
        """Send each real model one request; return the reports with errors and warnings. Ctrl-C ends it early."""
        out = list(reports)
        self._unanswered.clear()
        # Callees come first: if one does not answer, its callers need not be asked.
        order = {name: number for number, name in enumerate(in_order(self._named))}
        real = [place for place, report in enumerate(out) if report.kind == "real"]
        real.sort(key=lambda place: order[out[place].name])
        try:
            with progress("sending generated requests", len(real), "model") as shown:
                for place in real:
                    out[place] = self._waited_for(out[place], seconds) or self._answered(out[place], seconds)
                    shown.step()
        except KeyboardInterrupt:
            pass  # the reports say which models were asked
        return out

    def _waited_for(self, report: TriedModel, seconds: float) -> TriedModel | None:
        """Return the report of a model that would wait for one without an answer; None for the others."""
        slow = sorted(reached(report.name, self._named) & self._unanswered) if self._unanswered else []
        if not slow:
            return None
        why = f"no request was sent: it calls {listed(slow, 3)}, which did not answer within {seconds:g} s"
        return replace(report, warnings=(why,))

    def _answered(self, report: TriedModel, seconds: float) -> TriedModel:
        name = report.name
        record = self._repository.record(name)
        elements = sum(prod(map(abs, spec.dims)) for spec in record.inputs)
        if elements > _MOST_ELEMENTS:
            return replace(report, warnings=(f"no request was generated: its inputs have {elements:,} elements",))
        first, tried = report, list[dict[str, str]]()
        for style in STYLES:
            if (inputs := self._inputs(name, style)) in tried:
                continue
            tried.append(inputs)
            answered, may_retry = self._sent(report, record, inputs, seconds)
            if not answered.problem:
                self._answered_with[name] = style
                return answered
            first = answered if first is report else first
            if not may_retry:
                break
        return first

    def _sent(
        self, report: TriedModel, record: ModelRecord, inputs: Mapping[str, str], seconds: float
    ) -> tuple[TriedModel, bool]:
        """Send a model one request; return the report, and whether another request may succeed."""
        options: dict[str, Any] = {}
        if _in_sequences(self._repository, record.name):
            options = {"correlation_id": 1, "flags": START | END}
        try:
            values = {name: eval(text, {}) for name, text in inputs.items()}  # our own literals
            sent = self._host.send(self._host.request(record.name, values, **options), stream=record.decoupled)
        except BLSError as error:
            return replace(report, asked=True, problem=first_line(str(error))), True
        try:
            answer = sent.result(seconds)
        except FutureTimeoutError:
            self._unanswered.add(record.name)
            return replace(report, asked=True, problem=f"no answer within {seconds:g} s"), False
        finally:
            sent.cancel()  # no effect if it is answered
        responses = answer if record.decoupled else [answer]
        errors = [first_line(r.error.message(), 400) for r in responses if r.error is not None]
        warnings = dict.fromkeys(w for r in responses for w in r.warnings if w != went_through(r.stubs))
        stubs = listed(dict.fromkeys(stub for r in responses for stub in r.stubs), 6)
        made_up = f" (after made-up answers of the stub {stubs})" if errors and stubs else ""
        return replace(report, asked=True, problem="".join(errors[:1]) + made_up, warnings=tuple(warnings)), True

    def _inputs(self, name: str, style: str | None = None) -> dict[str, str]:
        """Return a request's inputs; without `style`, those that the model answered."""
        record = self._repository.record(name)
        ready = [record for record in self._repository.index() if record.state == "READY"]
        models = {name, *reached(name, self._calls)} & self._plans.keys()
        sources = [source for model in models for source in self._plans[model].sources]
        style = self._answered_with.get(name, "") if style is None else style
        return example_inputs(record, _likely_callee(record, ready), takes_files(sources), style, sources)


def _in_sequences(repository: ModelRepository, name: str) -> bool:
    """Return whether the model, or a direct or indirect step of it, batches sequences."""
    found, pending = {name}, [name]
    while pending:
        config = repository.config(pending.pop())
        if config.HasField("sequence_batching"):
            return True
        new = {step.model_name for step in config.ensemble_scheduling.step} - found
        found |= new
        pending += filter(repository.ready, new)
    return False


def _likely_callee(record: ModelRecord, known: Iterable[ModelRecord]) -> str:
    """Guess the callee that an input may name: the model that shares most inputs with this one."""
    names = {spec.name for spec in record.inputs}
    shared = {other.name: len(names & {spec.name for spec in other.inputs}) for other in known}
    shared.pop(record.name, None)
    return max(shared, key=lambda name: (shared[name], name), default="")
