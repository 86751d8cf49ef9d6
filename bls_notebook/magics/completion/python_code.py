"""Completions in Python code: names of models, tensors and devices inside quotes, Triton's names in cells of
models.

Such quotes are ``repo.infer("``, ``model_name="``, ``get_input_tensor_by_name(request, "``. The code is
being written and need not parse, so it is read token by token up to the cursor. jedi knows Triton's names
from the stubs package; it is told what it cannot see in a cell: that `pb_utils` is imported, and the type of
what `execute` receives.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jedi

import bls_notebook as bls

from .config_fields import enumeration
from .magic_lines import paths

if TYPE_CHECKING:
    from bls_notebook.records.repository import ModelRecord, TensorSpecRecord


_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)
    |(?P<string>(?P<prefix>[A-Za-z]{0,2})(?P<quote>\"{3}|'{3}|"|'))
    |(?P<name>[^\W\d]\w*)
    |(?P<space>[^\S\n]+|\\\n)
    |(?P<mark>==|[<>!:]=|->|\d[\w.]*|.|\n)""",
    re.VERBOSE | re.DOTALL,
)
_CLOSING = {")": "(", "]": "[", "}": "{"}
_MAGIC = re.compile(r"^[^\S\n]*[%!][^\n]*", re.MULTILINE)


@dataclass
class Bracket:
    """A bracket that is open at the cursor.

    ``of`` is what stands right before it, such as ``repo.infer``; ``argument`` counts the commas in it;
    ``keyword`` is the name of the argument, where it is given by name; ``key`` text before the last colon.
    """

    opener: str
    of: str
    start: int
    argument: int = 0
    keyword: str = ""
    key: str | None = None

    @property
    def function(self) -> str:
        """The last part of the name of what is called."""
        return self.of.rpartition(".")[2] if self.opener == "(" else ""


@dataclass
class CodePosition:
    """Where the cursor is.

    ``brackets`` are those open, the outermost first; ``quote`` is of the string that it is in, or empty.
    ``fragment`` is what that string holds up to the cursor, else the name before it, dots and calls included.
    """

    brackets: list[Bracket] = field(default_factory=list)
    quote: str = ""
    fragment: str = ""


def without_magics(code: str) -> str:
    """Return code of the same length in which lines of magics and of the system's shell are blank."""
    return _MAGIC.sub(lambda found: " " * len(found[0]), code)


def place_of(code: str) -> CodePosition:
    """Return where the end of the code is."""
    place = CodePosition()
    said, string = "", ""  # the expression that ends here, as far as it is names; the string before
    for kind, text, start, prefix in _tokens(code):
        inner = place.brackets[-1] if place.brackets else None
        if kind == "open":
            if "f" in prefix.lower() and "{" in text:
                return CodePosition()
            return CodePosition(place.brackets, code[start], text)
        if kind == "string":
            said, string = "", text
        elif kind == "name":
            said = said + text if said.endswith(".") else text
        elif text in "([{":
            place.brackets.append(Bracket(text, said, start))
            said = ""
        elif text in _CLOSING:
            closed = place.brackets.pop() if inner is not None and inner.opener == _CLOSING[text] else None
            said = f"{closed.of}{closed.opener}{text}" if closed is not None and closed.of else ""
        elif text == ".":
            said = f"{said}." if said else ""
        else:
            if inner is not None and text == ",":
                inner.argument, inner.keyword, inner.key = inner.argument + 1, "", None
            elif inner is not None and text == ":":
                inner.key = string
            elif inner is not None and text == "=" and inner.opener == "(" and said.isidentifier():
                inner.keyword = said
            if text != "\n" or inner is None:
                said = ""
            string = string if text == "\n" else ""
    place.fragment = said
    return place


def call_text(code: str, bracket: Bracket) -> str:
    """Return what a bracket holds, up to its end or that of the code."""
    depth = 0
    for kind, text, start, _ in _tokens(code[bracket.start :]):
        depth += (text in "([{") - (text in _CLOSING) if kind == "mark" else 0
        if depth == 0:
            return code[bracket.start + 1 : bracket.start + start]
    return code[bracket.start + 1 :]


def _tokens(code: str) -> Iterator[tuple[str, str, int, str]]:
    """Kind, text, place and prefix of each token; of strings what is in the quotes, ``open`` for the last."""
    at = 0
    while at < len(code):
        found = _TOKEN.match(code, at)
        assert found is not None  # it matches any character
        at = found.end()
        kind = found.lastgroup if found["string"] is None else "string"
        if kind == "string":
            end, closed = _end_of_string(code, at, found["quote"])
            yield "string" if closed else "open", code[at:end], found.start(), found["prefix"]
            at = end + len(found["quote"]) * (closed and code.startswith(found["quote"], end))
        elif kind in ("name", "mark"):
            yield kind, found[0], found.start(), ""


def _end_of_string(code: str, at: int, quote: str) -> tuple[int, bool]:
    """Where the text of a string ends, and whether that is before the code does."""
    while at < len(code):
        if code[at] == "\\":
            at += 2
        elif code.startswith(quote, at) or (len(quote) == 1 and code[at] == "\n"):
            return at, True
        else:
            at += 1
    return len(code), False


_CELL = re.compile(r"^%%triton(?:model|config)\s+(?:[^\n]*?\s)??([A-Za-z][\w.\-]*)")
_OPTION = re.compile(r"""--(input|output)\s+["']?([A-Za-z_][^\s"']*)""")
_ADDED = re.compile(r"""\badd_(input|output)\(\s*\{[^}]*?["']name["']\s*:\s*["']([^"'\n]+)["']""")


def model_of_cell(code: str) -> str:
    """Return the model that a cell is about, or nothing."""
    found = _CELL.match(code)
    return found[1] if found else ""


def tensors_of_cell(code: str, models: Sequence[ModelRecord]) -> tuple[list[str], list[str]]:
    """Return the names of inputs and outputs: as the cell says them, and as its model has them by now."""
    line, _, body = code.partition("\n")
    said = [*_OPTION.findall(line), *_ADDED.findall(body)] if line.startswith("%%tritonmodel") else []
    name = model_of_cell(code)
    known = [model for model in models if model.name == name and model.state == "READY"]
    inputs = [tensor for side, tensor in said if side == "input"]
    outputs = [tensor for side, tensor in said if side == "output"]
    inputs += [spec.name for model in known for spec in model.inputs]
    outputs += [spec.name for model in known for spec in model.outputs]
    return list(dict.fromkeys(inputs)), list(dict.fromkeys(outputs))


_IN_MODEL = ("%%tritonmodel", "%%bls")
_GIVEN = "import triton_python_backend_utils as pb_utils\n"
_EXECUTE = re.compile(r"(\bdef\s+execute\(\s*self\s*,\s*\w+)(?=\s*[,)])")
_TYPED = r"\1: 'list[pb_utils.InferenceRequest]'"
_MODULES = ("triton_python_backend_utils", "bls_notebook.pb_utils")


@dataclass(frozen=True)
class Code:
    """A cell that is being written, with the place of the cursor, and the notebook's variables."""

    text: str
    cursor: int
    variables: Mapping[str, Any]

    @property
    def before(self) -> str:
        """The part before the cursor."""
        return self.text[: self.cursor]

    @property
    def in_model(self) -> bool:
        """Whether it is a model's, or the body of one."""
        return self.text.startswith(_IN_MODEL)

    def names(self) -> list[str]:
        """Return the public names of Triton's that may stand at the cursor."""
        found = self._asked("complete")
        return list(dict.fromkeys(each.name for each in found if not each.name.startswith("_")))

    def help(self) -> str:
        """Return signature and docstring of Triton's name at the cursor, or of what is called there."""
        for question in ("infer", "get_signatures"):
            for found in self._asked(question):
                return str(found.docstring())
        return ""

    def _asked(self, question: str) -> list[Any]:
        """Jedi's answers about the cursor that are of Triton's module."""
        if not self.in_model or "\n" not in self.before:
            return []
        text, before = (_GIVEN + _EXECUTE.sub(_TYPED, part.partition("\n")[2]) for part in (self.text, self.before))
        lines = before.split("\n")
        answers = getattr(jedi.Script(text), question)(len(lines), len(lines[-1]))
        return [each for each in answers if str(each.module_name).startswith(_MODULES)]


_FILES = ("load", "replay")  # of the package, of a file each
_FUNCTIONS = ("compare", "inspect")  # of the package, of a model each
_REQUESTS = ("infer", "infer_async", "stream", "stream_async")
_BY_NAME = ("load", "reload", "unload", "config", "record", "ready", "statistics", "statistics_records")
_FOR_MODELS = ("load_model", "unload_model", "is_model_ready")
_TEXT = re.compile(r"""\s*[rR]?["']([^"'\n]+)["']""")
_MODEL_NAME = re.compile(r"""\bmodel_name\s*=\s*(?:[rR]?["']([^"'\n]+)["']|([^\W\d]\w*))""")
_ENUMERATIONS = {"data_type": "DataType", "kind": "ModelInstanceGroup.Kind"}

Found = tuple[str, list[str]]


def in_python(code: Code, current: Sequence[ModelRecord]) -> Found | None:
    """Return the text to replace and what may stand there; None where that is not ours to say.

    ``current`` are the models of the current repository.
    """
    place = place_of(without_magics(code.before))
    if not place.quote:
        _, dot, begun = place.fragment.rpartition(".")
        own = code.names() if dot and code.before.endswith(begun or ".") else []
        return (begun, own) if own else None
    if not place.brackets or "\n" in place.fragment:
        return None
    names = _Strings(code, place, current).names()
    return None if names is None else (place.fragment, [n for n in names if n.startswith(place.fragment)])


class _Strings:
    """Finds what a string in a call may be."""

    def __init__(self, code: Code, place: CodePosition, current: Sequence[ModelRecord]) -> None:
        self._code, self._place, self._current = code, place, current

    def names(self) -> Iterable[str] | None:
        """Return the names that fit; None where any text does."""
        inner = self._place.brackets[-1]
        outer = self._place.brackets[-2] if len(self._place.brackets) > 1 else inner
        if inner.opener == "{" and inner.key in _ENUMERATIONS and inner.key is not None:
            return enumeration(_ENUMERATIONS[inner.key])
        if inner.function == "Tensor" and self._argument(inner, 0, "name"):
            return self._of_tensor(outer)
        if self._argument(inner, 1, "name") and inner.function.endswith("put_tensor_by_name"):
            return self._received(inner.function)
        if inner.function in ("get_input_config_by_name", "get_output_config_by_name"):
            inputs, outputs = self._own()
            return inputs if "input" in inner.function else outputs
        if inner.function in ("ModelRepository", *_FILES) and self._is_of_package(inner):
            return self._paths(inner)
        if inner.keyword == "model_name":
            return _ready(self._current)
        if inner.function in _FOR_MODELS and self._argument(inner, 0, "model_name"):
            return _names(self._current)
        if inner.opener == "[" and outer.function == "InferenceRequest":
            if outer.keyword == "requested_output_names" or (not outer.keyword and outer.argument == 3):
                return self._tensors(outer, self._current, "outputs")
            return None
        return self._of_repository(inner, outer)

    def _paths(self, call: Bracket) -> Iterable[str] | None:
        if call.keyword:
            return None
        found = paths(f'"{self._place.fragment}', folders=call.function == "ModelRepository")
        return [path[1:] for path in found]

    def _of_repository(self, inner: Bracket, outer: Bracket) -> Iterable[str] | None:
        call = inner if inner.opener == "(" else outer
        models = self._models_of(call)
        if models is None:
            return None
        if call is inner:
            if inner.keyword == "preferred_memory":
                return _devices()
            if not self._argument(inner, 0, "name") and inner.function != "statistics_records":
                return None
            asks = inner.function in (*_REQUESTS, *_FUNCTIONS, "config", "record", "statistics", "reload")
            return _ready(models) if asks else _names(models)
        sends = call.function in (*_REQUESTS, "compare")
        if sends and inner.opener == "{" and inner.key is None and self._argument(call, 1, "inputs"):
            return self._tensors(call, models, "inputs")
        if call.function in _REQUESTS and inner.opener == "[" and self._argument(call, 2, "outputs"):
            return self._tensors(call, models, "outputs")
        return None

    def _models_of(self, call: Bracket) -> Sequence[ModelRecord] | None:
        """The models that a call of a repository is about; None where it is something else's."""
        receiver = call.of.rpartition(".")[0]
        if call.function in _FUNCTIONS:
            return self._current if self._is_of_package(call) else None
        if call.function not in (*_REQUESTS, *_BY_NAME) or not receiver:
            return None
        known = self._code.variables.get(receiver)
        if known is not None:
            return known.index() if isinstance(known, bls.ModelRepository) and not known.closed else None
        made = rf"\b{re.escape(receiver)}\s*=[^\n]*\b(ModelRepository|current_repository)\("
        made += rf"|\b(ModelRepository|current_repository)\([^\n]*\bas {re.escape(receiver)}\b"
        if receiver in ("repo", "repository") or receiver.endswith("current_repository()"):
            return self._current
        return self._current if re.search(made, self._code.text) else None

    def _of_tensor(self, outer: Bracket) -> Iterable[str]:
        """The names of a tensor that is made: for a request, for a response, or nobody knows yet."""
        calls = [b.function for b in self._place.brackets]
        request = next((b for b in self._place.brackets if b.function == "InferenceRequest"), None)
        if request is not None:
            return self._tensors(request, self._current, "inputs")
        own = self._own()[1]
        return own if "InferenceResponse" in calls else [*own, *self._called("inputs")]

    def _received(self, function: str) -> Iterable[str]:
        if function == "get_output_tensor_by_name":
            return self._called("outputs")
        return self._own()[0] if self._code.in_model else _specs(_ready_models(self._current), "inputs")

    def _called(self, side: str) -> list[str]:
        """Tensors of the models that requests in this cell name."""
        called = {self._value(*found.groups()) for found in _MODEL_NAME.finditer(self._code.text)}
        models = [m for m in _ready_models(self._current) if m.name in called]
        return _specs(models or _ready_models(self._current), side)

    def _own(self) -> tuple[list[str], list[str]]:
        return tensors_of_cell(self._code.text, self._current)

    def _tensors(self, call: Bracket, models: Sequence[ModelRecord], side: str) -> list[str]:
        """Tensors of the model that a call names; where it does not say, of every one."""
        text = call_text(self._code.text, call)
        name = _MODEL_NAME.search(text) if call.function == "InferenceRequest" else None
        asked = self._value(*name.groups()) if name is not None else ""
        if call.function != "InferenceRequest":
            first = _TEXT.match(text)
            asked = first[1] if first else self._value(None, text.partition(",")[0].strip())
        return _specs([m for m in _ready_models(models) if asked in ("", m.name)], side)

    def _value(self, text: str | None, name: str | None) -> str:
        """The text that is written, or that a variable has."""
        value = text if text is not None else self._code.variables.get(name or "")
        return value if isinstance(value, str) else ""

    def _is_of_package(self, call: Bracket) -> bool:
        """Whether a function is called that is one of this package's."""
        receiver = call.of.rpartition(".")[0] or call.of
        known = self._code.variables.get(receiver)
        if known is not None:
            return known is bls or known is getattr(bls, call.function, None)
        return bool(re.search(rf"\bbls_notebook (as {re.escape(receiver)}\b|import\b)", self._code.text))

    @staticmethod
    def _argument(call: Bracket, position: int, keyword: str) -> bool:
        return call.keyword == keyword if call.keyword else call.argument == position


def _devices() -> list[str]:
    return list(dict.fromkeys([*(device.name for device in bls.list_devices()), "gpu:0"]))


def _names(models: Iterable[ModelRecord]) -> list[str]:
    return list(dict.fromkeys(model.name for model in models))


def _ready_models(models: Iterable[ModelRecord]) -> list[ModelRecord]:
    return [model for model in models if model.state == "READY"]


def _ready(models: Iterable[ModelRecord]) -> list[str]:
    return _names(_ready_models(models))


def _specs(models: Iterable[ModelRecord], side: str) -> list[str]:
    specs: Iterable[TensorSpecRecord] = (spec for model in models for spec in getattr(model, side))
    return list(dict.fromkeys(spec.name for spec in specs))
