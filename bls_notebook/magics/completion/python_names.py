"""What Python code at a cursor may go on with: models, tensors, files, Triton's names in cells of models.

Names of models and tensors stand inside quotes: ``repo.infer("``, ``model_name="``,
``get_input_tensor_by_name(request, "``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import bls_notebook as bls

from .config_fields import enumeration
from .own_tensors import tensors_of_cell
from .paths import paths
from .place import Bracket, CodePosition, call_text, place_of, without_magics
from .triton_names import Code

if TYPE_CHECKING:
    from bls_notebook.records.repository import ModelRecord, TensorSpecRecord

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
