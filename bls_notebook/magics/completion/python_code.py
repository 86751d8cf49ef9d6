"""Completions in Python code: names of models, tensors and devices inside quotes, Triton's names in cells of models.

Such quotes are ``repo.infer("``, ``model_name="``, ``get_input_tensor_by_name(request, "``. The signature of the
called function says what the argument is. The code is being written and need not parse, so it is read token by
token up to the cursor. jedi knows Triton's names from the stubs package; it is told what it cannot see in a
cell: that `pb_utils` is imported, and the type of what `execute` receives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

import jedi

import bls_notebook as bls

from .config_fields import enumeration
from .magic_lines import paths

if TYPE_CHECKING:
    from bls_notebook.records.repository import ModelRecord

_TOKEN = re.compile(
    r"""\#[^\n]*|[^\S\n]+|\\\n
    |(?P<prefix>[A-Za-z]{0,2})(?:
        (?P<triple>\"{3}|'{3})(?P<lines>(?:\\.|(?!(?P=triple)).)*)(?P<end>(?P=triple)?)
        |(?P<quote>["'])(?P<line>(?:\\.|(?!(?P=quote))[^\n\\])*)\\?(?P<close>(?P=quote)?))
    |(?P<name>[^\W\d]\w*)
    |(?P<mark>==|[<>!:]=|->|\d[\w.]*|.)""",
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


def position_of(code: str) -> CodePosition:
    """Return where the end of the code is."""
    position = CodePosition()
    said, string = "", ""  # the expression that ends here, as far as it is names; the string before
    for kind, text, start, prefix in _tokens(code):
        inner = position.brackets[-1] if position.brackets else None
        if kind == "open":
            if "f" in prefix.lower() and "{" in text:
                return CodePosition()
            return CodePosition(position.brackets, code[start], text)
        if kind == "string":
            said, string = "", text
        elif kind == "name":
            said = said + text if said.endswith(".") else text
        elif text in "([{":
            position.brackets.append(Bracket(text, said, start))
            said = ""
        elif text in _CLOSING:
            closed = position.brackets.pop() if inner is not None and inner.opener == _CLOSING[text] else None
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
    position.fragment = said
    return position


def call_text(code: str, bracket: Bracket) -> str:
    """Return what a bracket holds, up to its end or that of the code."""
    depth = 0
    for kind, text, start, _ in _tokens(code[bracket.start :]):
        depth += (text in "([{") - (text in _CLOSING) if kind == "mark" else 0
        if depth == 0:
            return code[bracket.start + 1 : bracket.start + start]
    return code[bracket.start + 1 :]


def _tokens(code: str) -> Iterator[tuple[str, str, int, str]]:
    """Kind, text, start and prefix of each token; a string has its text without quotes, ``open`` if it has no end."""
    for found in _TOKEN.finditer(code):
        if found["triple"] or found["quote"]:
            is_closed = found["end"] or found["close"] or found.end() < len(code)
            text = found["lines"] if found["triple"] else found["line"]
            yield "string" if is_closed else "open", text, found.start(), found["prefix"]
        elif found["name"] or found["mark"]:
            yield str(found.lastgroup), found[0], found.start(), ""


_CELL = re.compile(r"^%%triton(?:model|config)\s+(?:[^\n]*?\s)??([A-Za-z][\w.\-]*)")
_OPTION = re.compile(r"""--(input|output)\s+["']?([A-Za-z_][^\s"']*)""")
_ADDED = re.compile(r"""\badd_(input|output)\(\s*\{[^}]*?["']name["']\s*:\s*["']([^"'\n]+)["']""")

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


_TEXT = re.compile(r"""\s*[rR]?["']([^"'\n]+)["']""")
_MODEL_NAME = re.compile(r"""\bmodel_name\s*=\s*(?:[rR]?["']([^"'\n]+)["']|([^\W\d]\w*))""")
_ENUMERATIONS = {"data_type": "DataType", "kind": "ModelInstanceGroup.Kind"}
_FOLDERS, _FILES = ("paths", "folder"), ("path", "place", "recording")  # parameters that take them
_MODELS = ("model_name", "model", "models", "name", "names", "only", "value")


def in_python(code: Code, current: Sequence[ModelRecord]) -> tuple[str, list[str]] | None:
    """Return the text to replace and what may stand there; None where that is IPython's to say.

    ``current`` are the models of the current repository.
    """
    position = position_of(without_magics(code.before))
    if not position.quote:
        _, dot, begun = position.fragment.rpartition(".")
        own = code.names() if dot and code.before.endswith(begun or ".") else []
        return (begun, own) if own else None
    if not position.brackets or "\n" in position.fragment:
        return None
    names = _Strings(code, position, current).names()
    return None if names is None else (position.fragment, [n for n in names if n.startswith(position.fragment)])


class _Strings:
    """Finds what a string in a call may be."""

    def __init__(self, code: Code, position: CodePosition, current: Sequence[ModelRecord]) -> None:
        self._code, self._brackets, self._current = code, position.brackets, current
        self._fragment = position.fragment

    def names(self) -> Iterable[str] | None:
        """Return the names that fit; None where any text does."""
        inner = self._brackets[-1]
        if inner.opener == "{" and inner.key is not None:
            return enumeration(_ENUMERATIONS[inner.key]) if inner.key in _ENUMERATIONS else None
        if inner.opener == "(":
            return self._argument(inner)
        call = self._brackets[-2] if len(self._brackets) > 1 else inner
        sides = {"inputs": ("{", "inputs"), "outputs": ("[", "outputs"), "requested_output_names": ("[", "outputs")}
        opener, side = sides.get(self._parameter(call), ("", ""))
        return self._tensors(call, side) if inner.opener == opener else None

    def _argument(self, call: Bracket) -> Iterable[str] | None:
        parameter = self._parameter(call)
        if parameter == "preferred_memory":
            return dict.fromkeys([*(device.name for device in bls.list_devices()), "gpu:0"])
        if parameter == "name" and call.function == "Tensor":
            return self._of_new_tensor()
        if parameter == "name" and call.function.endswith("put_tensor_by_name"):
            return self._received(call.function)
        if parameter == "name" and call.function in ("get_input_config_by_name", "get_output_config_by_name"):
            return self._own("input" if "input" in call.function else "output")
        if parameter in _FOLDERS or parameter in _FILES:
            return [path[1:] for path in paths(f'"{self._fragment}', folders=parameter in _FOLDERS)]
        if parameter not in _MODELS:
            return None
        also_unloaded = "load" in call.function or "ready" in call.function
        models = self._models_of(call)
        return dict.fromkeys(model.name for model in models if also_unloaded or model.state == "READY")

    def _parameter(self, call: Bracket) -> str:
        """The parameter that an argument of a call is for; empty if the function is not known."""
        if call.keyword:
            return call.keyword
        function = self._function(call)
        if function is None:
            return ""
        named = [p for p in signature(function).parameters.values() if p.name != "self"]
        rest = next((at for at, p in enumerate(named) if p.kind is Parameter.VAR_POSITIONAL), call.argument)
        at = min(call.argument, rest)
        return named[at].name if at < len(named) else ""

    def _function(self, call: Bracket) -> Callable[..., Any] | None:
        """The function of Triton, of a repository or of this package that is called."""
        receiver, name = call.of.rpartition(".")[0], call.function
        if name in bls.pb_utils.__all__:
            found = getattr(bls.pb_utils, name)
        elif self._repository(receiver) is not None:
            found = getattr(bls.ModelRepository, name, None)
        else:
            found = getattr(bls, name, None) if self._is_of_package(receiver or call.of, name) else None
        return found if callable(found) else None

    def _repository(self, receiver: str) -> Sequence[ModelRecord] | None:
        """The models of the repository that a name is; None where it is something else."""
        known = self._code.variables.get(receiver)
        if known is not None or not receiver:
            return known.index() if isinstance(known, bls.ModelRepository) and not known.closed else None
        made = rf"\b{re.escape(receiver)}\s*=[^\n]*\b(ModelRepository|current_repository)\("
        made += rf"|\b(ModelRepository|current_repository)\([^\n]*\bas {re.escape(receiver)}\b"
        if receiver in ("repo", "repository") or receiver.endswith("current_repository()"):
            return self._current
        return self._current if re.search(made, self._code.text) else None

    def _models_of(self, call: Bracket) -> Sequence[ModelRecord]:
        models = self._repository(call.of.rpartition(".")[0])
        return self._current if models is None else models

    def _is_of_package(self, receiver: str, function: str) -> bool:
        known = self._code.variables.get(receiver)
        if known is not None:
            return known is bls or known is getattr(bls, function, None)
        return bool(re.search(rf"\bbls_notebook (as {re.escape(receiver)}\b|import\b)", self._code.text))

    def _of_new_tensor(self) -> Iterable[str]:
        """The names of a tensor that is made: for a request, for a response, or nobody knows yet."""
        request = next((b for b in self._brackets if b.function == "InferenceRequest"), None)
        if request is not None:
            return self._tensors(request, "inputs")
        own = self._own("output")
        is_response = any(b.function == "InferenceResponse" for b in self._brackets)
        return own if is_response else [*own, *self._called("inputs")]

    def _received(self, function: str) -> Iterable[str]:
        if function == "get_output_tensor_by_name":
            return self._called("outputs")
        return self._own("input") if self._code.in_model else _tensors_of(self._current, "inputs")

    def _called(self, side: str) -> list[str]:
        """Tensors of the models that requests in this cell name."""
        called = {self._value(*found.groups()) for found in _MODEL_NAME.finditer(self._code.text)}
        return _tensors_of([m for m in self._current if m.name in called], side) or _tensors_of(self._current, side)

    def _own(self, side: str) -> list[str]:
        """Inputs or outputs of the model that this cell defines: as the cell says, and as the model has them."""
        line, _, body = self._code.text.partition("\n")
        said = [*_OPTION.findall(line), *_ADDED.findall(body)] if line.startswith("%%tritonmodel") else []
        named = _CELL.match(line)
        loaded = _tensors_of([m for m in self._current if named and m.name == named[1]], f"{side}s")
        return list(dict.fromkeys([*(tensor for each, tensor in said if each == side), *loaded]))

    def _tensors(self, call: Bracket, side: str) -> list[str]:
        """Tensors of the model that a call names; where it does not say, of every one."""
        text = call_text(self._code.text, call)
        if call.function == "InferenceRequest":
            name = _MODEL_NAME.search(text)
            asked = self._value(*name.groups()) if name is not None else ""
        else:
            first = _TEXT.match(text)
            asked = first[1] if first else self._value(None, text.partition(",")[0].strip())
        return _tensors_of([m for m in self._models_of(call) if asked in ("", m.name)], side)

    def _value(self, text: str | None, name: str | None) -> str:
        """The text that is written, or that a variable has."""
        value = text if text is not None else self._code.variables.get(name or "")
        return value if isinstance(value, str) else ""


def _tensors_of(models: Iterable[ModelRecord], side: str) -> list[str]:
    loaded = (model for model in models if model.state == "READY")
    return list(dict.fromkeys(spec.name for model in loaded for spec in getattr(model, side)))
