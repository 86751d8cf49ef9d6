"""Completions in Python code: names of models, tensors and devices in strings, and Triton's API in cells of models.

Strings such as ``repo.infer("``, ``model_name="`` and ``get_input_tensor_by_name(request, "``: the signature of the
called function determines the kind of name. Unfinished code need not parse, so it is read token by token up to the
cursor. jedi knows Triton's API from the stubs package; the cell is extended by two facts that jedi cannot infer: the
import of `pb_utils` and the type of the argument of `execute`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

import jedi

import bls_notebook as bls

from .config_fields import enumeration

if TYPE_CHECKING:
    from bls_notebook.records import ModelRecord

_LITERAL = re.compile(
    r"""(?P<comment>\#[^\n]*)
    |(?P<prefix>[A-Za-z]{0,2})(?P<quote>\"{3}|'{3})(?:\\.|[^\\])*?(?:(?P<end>(?P=quote))|\Z)
    |(?P<letters>[A-Za-z]{0,2})(?P<mark>["'])(?P<text>(?:\\.|(?!(?P=mark))[^\n\\])*)(?:(?P<close>(?P=mark))|\n|\\?\Z)""",
    re.VERBOSE | re.DOTALL,
)
_PAIR = re.compile(r"\([^()\[\]{}]*\)|\[[^()\[\]{}]*\]|\{[^()\[\]{}]*\}")
_MAGIC = re.compile(r"^[^\S\n]*[%!][^\n]*", re.MULTILINE)


@dataclass(frozen=True)
class Bracket:
    """A bracket that is open at the cursor.

    `of` is the expression before it, such as ``repo.infer``; `argument` the number of commas in it; `keyword` the name
    of the current keyword argument; `key` the string before the last colon.
    """

    opener: str
    of: str
    start: int
    argument: int
    keyword: str
    key: str

    @property
    def function(self) -> str:
        """The called function's name without its prefix."""
        return self.of.rpartition(".")[2] if self.opener == "(" else ""


def _masked(code: str) -> str:
    """Replace literals and comments by as many underscores and blanks; leave an unfinished string as it is."""

    def mask(literal: re.Match[str]) -> str:
        if literal.end() == len(code) and not (literal["comment"] or literal["end"] or literal["close"]):
            return literal[0]
        return (" " if literal["comment"] else "_") * len(literal[0])

    return _LITERAL.sub(mask, code)


def _folded(code: str) -> str:
    """Replace brackets that are closed, and what they enclose, by as many underscores."""
    while (folded := _PAIR.sub(lambda pair: "_" * len(pair[0]), code)) != code:
        code = folded
    return code


def _open_brackets(code: str, masked: str) -> list[Bracket]:
    """Return the brackets that are open at the end of the code, the outermost first."""
    folded, brackets = _folded(masked), []
    starts = [bracket.start() for bracket in re.finditer(r"[(\[{]", folded)]
    for start, end in zip(starts, [*starts[1:], len(folded)], strict=True):
        before, inside = re.search(r"[\w.]*\Z", folded[:start]), folded[start + 1 : end]
        last = code[end - len(inside.rpartition(",")[2]) : end]
        keyword, key = re.match(r"\s*(\w+)\s*=(?!=)", last), re.match(r"""\s*["'](\w*)["']\s*:""", last)
        of = code[before.start() : start] if before else ""
        words = keyword[1] if keyword else "", key[1] if key else ""
        brackets.append(Bracket(folded[start], of, start, inside.count(","), *words))
    return brackets


def _arguments(code: str, bracket: Bracket) -> str:
    """Return the text inside a bracket, up to its end or the end of the code."""
    end = re.search(r"[)\]}]", _folded(_masked(code)[bracket.start + 1 :]))
    return code[bracket.start + 1 :][: end.start() if end else None]


_CELL = re.compile(r"^%%triton(?:model|config)\s+(?:[^\n]*?\s)??([A-Za-z][\w.\-]*)")
_OPTION = re.compile(r"""--(input|output)\s+["']?([A-Za-z_][^\s"']*)""")
_ADDED = re.compile(r"""\badd_(input|output)\(\s*\{[^}]*?["']name["']\s*:\s*["']([^"'\n]+)["']""")

_IN_MODEL = ("%%tritonmodel", "%%bls")
_IMPORT = "import triton_python_backend_utils as pb_utils\n"
_EXECUTE = re.compile(r"(\bdef\s+execute\(\s*self\s*,\s*\w+)(?=\s*[,)])")
_TYPED = r"\1: 'list[pb_utils.InferenceRequest]'"
_MODULES = ("triton_python_backend_utils", "bls_notebook.pb_utils")


@dataclass(frozen=True)
class Code:
    """An unfinished cell, the position of the cursor in it, and the notebook's variables."""

    text: str
    cursor: int
    variables: Mapping[str, Any]

    @property
    def before(self) -> str:
        return self.text[: self.cursor]

    @property
    def in_model(self) -> bool:
        """True in a cell that is a model or the body of an `execute`."""
        return self.text.startswith(_IN_MODEL)

    def names(self) -> list[str]:
        """Return the public names of Triton's API that complete the code at the cursor."""
        return list(dict.fromkeys(name.name for name in self._jedi("complete") if not name.name.startswith("_")))

    def help(self) -> str:
        """Return signature and docstring of the part of Triton's API at the cursor, or of the function called there."""
        for method in ("infer", "get_signatures"):
            for name in self._jedi(method):
                return str(name.docstring())
        return ""

    def _jedi(self, method: str) -> list[Any]:
        """Call a method of `jedi.Script` at the cursor; return the results that belong to Triton's module."""
        if not self.in_model or "\n" not in self.before:
            return []
        text, before = (_IMPORT + _EXECUTE.sub(_TYPED, part.partition("\n")[2]) for part in (self.text, self.before))
        lines = before.split("\n")
        names = getattr(jedi.Script(text), method)(len(lines), len(lines[-1]))
        return [name for name in names if str(name.module_name).startswith(_MODULES)]


_TEXT = re.compile(r"""\s*[rR]?["']([^"'\n]+)["']""")
_MODEL_NAME = re.compile(r"""\bmodel_name\s*=\s*(?:[rR]?["']([^"'\n]+)["']|([^\W\d]\w*))""")
_ENUMERATIONS = {"data_type": "DataType", "kind": "ModelInstanceGroup.Kind"}
_MODELS = ("model_name", "model", "models", "name", "names", "only", "value")


def in_python(code: Code, current: Sequence[ModelRecord]) -> tuple[str, list[str]] | None:
    """Return the text to replace and its completions; None to leave completion to IPython.

    `current` are the models of the current repository.
    """
    before = _MAGIC.sub(lambda line: " " * len(line[0]), code.before)
    masked = _masked(before)
    literal = _LITERAL.search(masked)
    if literal is None:
        name = re.search(r"\.(\w*)\Z", masked)
        own = code.names() if name else []
        return (name[1], own) if name and own else None
    fragment, brackets = literal["text"], _open_brackets(before, masked[: literal.start()])
    if fragment is None or not brackets or ("f" in literal["letters"].lower() and "{" in fragment):
        return None
    names = _Strings(code, brackets, current).names()
    return None if names is None else (fragment, [name for name in names if name.startswith(fragment)])


class _Strings:
    """Completions of a string in a call."""

    def __init__(self, code: Code, brackets: Sequence[Bracket], current: Sequence[ModelRecord]) -> None:
        self._code, self._brackets, self._current = code, brackets, current

    def names(self) -> Iterable[str] | None:
        """Return the possible strings; None if any text is possible."""
        inner = self._brackets[-1]
        if inner.opener == "{" and inner.key:
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
            return self._new_tensor_names()
        if parameter == "name" and call.function.endswith("put_tensor_by_name"):
            return self._received_names(call.function)
        if parameter == "name" and call.function in ("get_input_config_by_name", "get_output_config_by_name"):
            return self._own("input" if "input" in call.function else "output")
        if parameter not in _MODELS:
            return None
        also_unloaded = "load" in call.function or "ready" in call.function
        return dict.fromkeys(model.name for model in self._models_of(call) if also_unloaded or model.state == "READY")

    def _parameter(self, call: Bracket) -> str:
        """Return the name of the parameter that the current argument sets; "" if the function is unknown."""
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
        """Return the called function if it belongs to Triton's API, a repository or this package."""
        receiver, name = call.of.rpartition(".")[0], call.function
        if name in bls.pb_utils.__all__:
            function = getattr(bls.pb_utils, name)
        elif self._repository(receiver) is not None:
            function = getattr(bls.ModelRepository, name, None)
        else:
            own, value = getattr(bls, name, None), self._code.variables.get(receiver or name)
            is_own = value is bls or value is own or receiver in ("bls", "bls_notebook")
            function = own if is_own else None
        return function if callable(function) else None

    def _repository(self, receiver: str) -> Sequence[ModelRecord] | None:
        """Return the models of the repository with this variable name; None if it is no repository."""
        value = self._code.variables.get(receiver)
        if value is not None or not receiver:
            return value.index() if isinstance(value, bls.ModelRepository) and not value.closed else None
        is_named = receiver in ("repo", "repository") or receiver.endswith("current_repository()")
        return self._current if is_named else None

    def _models_of(self, call: Bracket) -> Sequence[ModelRecord]:
        models = self._repository(call.of.rpartition(".")[0])
        return self._current if models is None else models

    def _new_tensor_names(self) -> Iterable[str]:
        """Return the possible names of a new tensor: for a request, for a response, or for either."""
        request = next((b for b in self._brackets if b.function == "InferenceRequest"), None)
        if request is not None:
            return self._tensors(request, "inputs")
        own = self._own("output")
        is_response = any(b.function == "InferenceResponse" for b in self._brackets)
        return own if is_response else [*own, *self._callee_tensors("inputs")]

    def _received_names(self, function: str) -> Iterable[str]:
        if function == "get_output_tensor_by_name":
            return self._callee_tensors("outputs")
        return self._own("input") if self._code.in_model else _tensors_of(self._current, "inputs")

    def _callee_tensors(self, side: str) -> list[str]:
        """Return the tensors of the models to which this cell sends requests, or else of all models."""
        callees = {self._value(*match.groups()) for match in _MODEL_NAME.finditer(self._code.text)}
        return _tensors_of([m for m in self._current if m.name in callees], side) or _tensors_of(self._current, side)

    def _own(self, side: str) -> list[str]:
        """Return the inputs or outputs of the model in this cell: those in its text, and of its loaded version."""
        line, _, body = self._code.text.partition("\n")
        declared = [*_OPTION.findall(line), *_ADDED.findall(body)] if line.startswith("%%tritonmodel") else []
        model = _CELL.match(line)
        loaded = _tensors_of([m for m in self._current if model and m.name == model[1]], f"{side}s")
        return list(dict.fromkeys([*(tensor for kind, tensor in declared if kind == side), *loaded]))

    def _tensors(self, call: Bracket, side: str) -> list[str]:
        """Return the tensors of the model that a call names, or of all models."""
        text = _arguments(self._code.text, call)
        if call.function == "InferenceRequest":
            name = _MODEL_NAME.search(text)
            model = self._value(*name.groups()) if name is not None else ""
        else:
            first = _TEXT.match(text)
            model = first[1] if first else self._value(None, text.partition(",")[0].strip())
        return _tensors_of([m for m in self._models_of(call) if model in ("", m.name)], side)

    def _value(self, text: str | None, name: str | None) -> str:
        """Return the literal text, or the value of the variable `name` if it is text."""
        value = text if text is not None else self._code.variables.get(name or "")
        return value if isinstance(value, str) else ""


def _tensors_of(models: Iterable[ModelRecord], side: str) -> list[str]:
    loaded = (model for model in models if model.state == "READY")
    return list(dict.fromkeys(spec.name for model in loaded for spec in getattr(model, side)))
