"""A naive model, the constraints for its replacement, and the models that it calls; read from ``puzzles/``.

A file has the sections Constraints, Variants, Hint, Model, Callees, Requests, Naive and Solution. The first line of a
model is its signature; the lines below compute the outputs of a callee, or are its whole model.py. The solution is a
diff from the naive code. In both, ``{ask}`` and ``{async ask}`` are methods that send a request.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bls_notebook.records import BLSError, Record

FOLDER = Path(__file__).with_name("puzzles")
_SIGNATURE = re.compile(r"(\w+)\((.*?)\) -> ([^;]*)((?:; *[\w ]+)*)")
_TENSOR = re.compile(r"(\w+) (\w+) (\[[-\d, ]*\])")
_CALLEE_ITEM = "- callee "
_CALLEE = """\
import json
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.seconds = float(json.loads(args["model_config"])["parameters"]["seconds"]["string_value"])

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        error, cost = None, 1
{body}
        time.sleep(self.seconds * float(cost))
        if error is not None:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(error))
        return pb_utils.InferenceResponse([{outputs}])
"""
_ASK = """\
    def ask(self, model, tensor, output):
        request = pb_utils.InferenceRequest(model_name=model, requested_output_names=[output], inputs=[tensor])
        response = request.exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.get_output_tensor_by_name(response, output)
"""
_ASYNC_ASK = _ASK.replace("def", "async def", 1).replace("request.exec", "await request.async_exec")


@dataclass(frozen=True, slots=True, repr=False)
class PuzzleModel(Record):
    """A model of a puzzle: its ``signature``, its configuration (pbtxt) and the text of its model.py."""

    name: str
    signature: str
    config: str
    source: str

    @property
    def is_decoupled(self) -> bool:
        """Return whether a request may have any number of responses."""
        return "decoupled: true" in self.config


@dataclass(frozen=True, slots=True, repr=False)
class PuzzleData(Record):
    """The fields of a `Puzzle`, which documents them."""

    name: str
    number: int
    title: str
    story: str
    constraints: tuple[str, ...]
    naive: PuzzleModel
    callees: tuple[PuzzleModel, ...]
    requests: tuple[str, ...]
    measured: tuple[str, ...]
    solution: str
    hint: str = ""
    hint_pattern: str = ""
    seed: int = 0


def puzzle_names() -> list[str]:
    """Return the names of all puzzles in the order of the course."""
    return [file.stem.partition("_")[2] for file in sorted(FOLDER.glob("*.md"))]


def read_puzzle(name: str, seed: int = 0) -> PuzzleData:
    """Return a puzzle by its name; seeds other than 0 choose other names and numbers."""
    names = puzzle_names()
    if name not in names:
        raise BLSError(f"puzzle: got {name!r}, expected one of {', '.join(names)}")
    number = names.index(name) + 1
    text = (FOLDER / f"{number:02}_{name}.md").read_text("utf-8")
    text = _other_callees(text, f"{name} {seed}") if seed else text
    head, sections = text.partition("\n## ")[0], sections_of(text)
    replaced = _variant(sections.pop("Variants"), f"{name} {seed}") if seed else {}
    title, _, story = replace_words(head, replaced).lstrip("# ").partition("\n")
    texts = {key: replace_words(text, replaced) for key, text in sections.items()}
    requests = [line[2:] for line in texts["Requests"].splitlines()]
    naive = section_code(texts["Naive"])
    pattern, _, hint = " ".join(texts.get("Hint", "").split()).partition("`: ")
    return PuzzleData(
        name,
        number,
        title,
        " ".join(story.split()),
        tuple(line[2:] for line in texts["Constraints"].splitlines() if line),
        _model(texts["Model"], _with_methods(naive)),
        tuple(_model(f"### {part}") for part in texts["Callees"].split("### ")[1:]),
        tuple(line for line in requests if line[0] != "{" and line[0] != "["),
        tuple(line for line in requests if line[0] in "{["),
        _with_methods(patched(naive, section_code(texts["Solution"], "diff"))),
        hint,
        pattern.strip("`"),
        seed,
    )


def sections_of(text: str) -> dict[str, str]:
    """Return the sections of a file by their titles."""
    parts = (part.partition("\n") for part in text.split("\n## ")[1:])
    return {title: section.strip("\n") for title, _, section in parts}


def _variant(lines: str, seed: str) -> dict[str, str]:
    """Return replacements of names, and of parts of the code such as sizes and costs.

    A line has a text and its alternatives, separated by commas or by `` | ``; `` ~ `` joins texts that change together.
    """
    choose = random.Random(seed)
    replaced: dict[str, str] = {}
    for line in lines.splitlines():
        if line.startswith("- ") and not line.startswith(_CALLEE_ITEM):
            texts, others = re.split(r"(?<!size): ", line[2:], maxsplit=1)
            chosen = choose.choice(others.split(" | ") if " | " in others else others.split(", "))
            replaced |= zip(texts.split(" ~ "), chosen.split(" ~ "), strict=True)
    return replaced


def _other_callees(text: str, seed: str) -> str:
    """Return the text of a puzzle with more or fewer callees.

    An item ``- callee NAME OUTPUT: one, none, OTHER OTHER_OUTPUT`` of the variants lists what may become of a callee:
    it stays, it disappears, or there is another one beside it. That concerns its section, its output in signatures,
    its calls, and the lines with its name or output.
    """
    choose = random.Random(seed)
    for name, output, others in re.findall(rf"^{_CALLEE_ITEM}(\w+) (\w+): (.*)\n", text, re.M):
        chosen = choose.choice(others.split(", "))
        if chosen == "one":
            continue
        words = dict(zip((name, output), chosen.split(), strict=False))
        call = rf', self\.ask\("{name}"[^)]*\)'
        line = rf"^(?:[-+ ] {{4}}|- (?:\{{|outputs|requests))(?!.*{call}).*\b(?:{name}|{output})\b.*\n"
        parts = rf"### `{name}\((?:.|\n)*?```\n|, {output} \w+ \[[^]]*\]|{call}|(?:{line})+"
        kept, texts = re.split(f"({parts})", text, flags=re.M), []
        for part, found in zip(kept[::2], [*kept[1::2], ""], strict=True):
            texts += [part] if chosen == "none" else [part, found, replace_words(found, words)]
        text = "".join(texts)
    return text


def replace_words(text: str, words: Mapping[str, str]) -> str:
    """Return a text in which each of the words, such as a name of a model, is replaced."""
    pattern = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    return re.sub(rf"(?<!\w)(?:{pattern})(?!\w)", lambda match: words[match[0]], text) if words else text


def patched(code: str, diff: str) -> str:
    """Apply the hunks of a diff, each below a line ``@@``."""
    for hunk in diff.split("@@\n")[1:]:
        lines = hunk.splitlines(keepends=True)
        before, after = ("".join(line[1:] or line for line in lines if line[0] != sign) for sign in "+-")
        code = code.replace(before, after)
    return code


def section_code(text: str, language: str = "python") -> str:
    """Return the block of code in a section."""
    return text.partition(f"```{language}\n")[2].partition("```")[0]


def _with_methods(code: str) -> str:
    return code.replace("    {ask}\n", _ASK).replace("    {async ask}\n", _ASYNC_ASK)


_Signature = tuple[str, list[tuple[str, str, str]], list[tuple[str, str, str]]]


def _parsed(signature: str) -> _Signature:
    """Return the name, the inputs and the outputs in a signature."""
    match = _SIGNATURE.fullmatch(signature)
    if match is None:
        raise BLSError(f"puzzle: signature: got {signature!r}, expected MODEL(NAME TYPE [DIMS]) -> NAME TYPE [DIMS]")
    return match[1], _TENSOR.findall(match[2]), _TENSOR.findall(match[3])


def signature_config(signature: str) -> str:
    """Return the configuration (pbtxt) of a model with a signature."""
    _, inputs, outputs = _parsed(signature)
    lines = ['backend: "python"']
    for kind, tensors in (("input", inputs), ("output", outputs)):
        typed = [(name, dtype.replace("BYTES", "STRING"), dims) for name, dtype, dims in tensors]
        lines += [f'{kind} {{ name: "{name}" data_type: TYPE_{dtype} dims: {dims} }}' for name, dtype, dims in typed]
    for option, _, value in (words.strip().partition(" ") for words in signature.split(";")[1:]):
        lines.append(_OPTIONS[option].format(value))
    return "\n".join(lines)


def _model(text: str, source: str = "") -> PuzzleModel:
    """Read a model: its signature in the first line, then its code or the lines that compute its outputs."""
    signature = text.strip().partition("\n")[0].lstrip("# ").strip("`")
    name, inputs, outputs = _parsed(signature)
    lines = [signature_config(signature)]
    body = source or section_code(text)
    if not source:
        lines.append(_SECONDS.format("0"))
        if "class TritonPythonModel" not in body:
            body = _callee(body, inputs, outputs)
    return PuzzleModel(name, signature, "\n".join(lines), body)


_SECONDS = 'parameters {{ key: "seconds" value {{ string_value: "{}" }} }}'
_OPTIONS = {
    "count": "instance_group {{ count: {} kind: KIND_CPU }}",
    "batch": "max_batch_size: {}",
    "delay": "dynamic_batching {{ max_queue_delay_microseconds: {} }}",
    "decoupled": "model_transaction_policy {{ decoupled: true }}",
    "sequence": "sequence_batching {{ max_sequence_idle_microseconds: 60000000 "
    "oldest {{ max_candidate_sequences: 4 }} }}",
    "keeps": 'parameters {{ key: "FORCE_CPU_ONLY_INPUT_TENSORS" value {{ string_value: "no" }} }}',
}


def _callee(body: str, inputs: list[tuple[str, str, str]], outputs: list[tuple[str, str, str]]) -> str:
    reads = [f'{name} = pb_utils.get_input_tensor_by_name(request, "{name}").as_numpy()' for name, *_ in inputs]
    types = {"FP32": "np.float32", "INT32": "np.int32", "UINT8": "np.uint8", "BYTES": "object"}
    made = [f'pb_utils.Tensor("{name}", np.asarray({name}, {types[dtype]}))' for name, dtype, _ in outputs]
    lines = "\n".join(" " * 8 + line if line else "" for line in [*reads, *body.splitlines()])
    return _CALLEE.format(body=lines, outputs=", ".join(made))


def with_delay(model: PuzzleModel, seconds: float) -> str:
    """Return a configuration with the time for which a callee works, and a batcher that waits for full batches."""
    config = model.config.replace(_SECONDS.format("0"), _SECONDS.format(seconds))
    return re.sub(r"(?<=delay_microseconds: )\d+", "2000000", config) if seconds else config


def case_of(text: str) -> list[dict[str, object]]:
    """Return the requests of a measured case: one, or several that are sent together or in turn."""
    case = json.loads(text)
    return case if isinstance(case, list) else [case]
