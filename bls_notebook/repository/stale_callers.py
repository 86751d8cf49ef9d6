"""`Callers`: tells of models of cells that call a model whose inputs or outputs have changed since.

Which models call which is known from their sources, where they name what they call plainly, and from what
they have called so far (`LoadedModel.calls`). Nothing is refused: a caller may well fit.

Guarantees: a caller is told of when what it calls changes, and once when it is called itself; it is as before
when it is loaded again, or when what it calls is again as the caller knew it. Safe from any thread.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from bls_notebook.engine import logs
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.server import Server
from bls_notebook.engine.core.spec import ModelSpec, TensorSpec
from bls_notebook.records.raw_events import LogLine

from .model_index import Index
from .source.syntax import syntax_tree


def called_models(source: str) -> frozenset[str]:
    """Return the models that requests in a source name by a plain text."""
    tree = syntax_tree(source)
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call)) if tree is not None else ()
    names = (_named(call) for call in calls if ast.unparse(call.func).endswith("InferenceRequest"))
    return frozenset(filter(None, names))


def _named(call: ast.Call) -> str:
    given = [word.value for word in call.keywords if word.arg == "model_name"] or call.args[4:5]
    value = given[0].value if given and isinstance(given[0], ast.Constant) else ""
    return value if isinstance(value, str) else ""


class Callers:
    """Who calls whom in a repository."""

    def __init__(self, server: Server, index: Index) -> None:
        self._server, self._index = server, index
        self._lock = threading.Lock()
        self._last: dict[str, ModelSpec] = {}  # of each model, as it was loaded last

    def loaded(self, name: str, spec: ModelSpec) -> tuple[str, ...]:
        """Take note of a model that serves now; return what there is to say of those that call it."""
        with self._lock:
            before, self._last[name] = self._last.get(name), spec
            if before is None or not any(_differences(before, spec)):
                return ()
            told = (self._tell(caller, name, before, spec) for caller in self._of(name))
            return tuple(filter(None, told))

    def clear(self) -> None:
        with self._lock:
            self._last.clear()

    def _of(self, callee: str) -> Iterator[LoadedModel]:
        for name in self._server.names():
            for version, model in self._server.serving(name).items():
                of_cell = self._index.record(name, version).source == "cell"
                if of_cell and name != callee and callee in model.calls:
                    yield model

    def _tell(self, caller: LoadedModel, name: str, before: ModelSpec, now: ModelSpec) -> str:
        knew = caller.outdated.setdefault(name, before)
        if not any(_differences(knew, now)):
            del caller.outdated[name]
        said = [
            f"it calls '{callee}', which changed since: {'; '.join(_differences(spec, self._last[callee]))}"
            for callee, spec in caller.outdated.items()
        ]
        words = f"{', and '.join(said)}. Correct its cell, or run it again if it fits." if said else ""
        self._index.remark(caller.name, caller.version, f"stale: {words}" if words else "")
        _say_once(caller, words)
        return f"model '{caller.name}' may not fit any more: {words}" if name in caller.outdated else ""


def _say_once(model: Any, words: str) -> None:
    """Have something logged when a model gets its next request."""
    if isinstance(model.check, _FirstRequest):
        model.check = model.check.then
    if words:
        model.check = _FirstRequest(model, words)


class _FirstRequest:
    """Stands in for the check of a model's requests until the first one comes."""

    def __init__(self, model: Any, words: str) -> None:
        self._model, self._words, self.then = model, words, model.check

    def problem(self, request: Any) -> str | None:
        """Say it, and return what is wrong with the request."""
        if self._model.check is self:
            self._model.check = self.then
            logs.write(LogLine("warning", self._model.name, f"stale: {self._words}", "", 0, False))
        return self.then.problem(request)  # type: ignore[no-any-return]


def _differences(before: ModelSpec, now: ModelSpec) -> Iterator[str]:
    yield from _tensors("input", before.inputs, now.inputs)
    yield from _tensors("output", before.outputs, now.outputs)
    if before.decoupled != now.decoupled:
        yield "it is decoupled now" if now.decoupled else "it is not decoupled any more"


def _tensors(kind: str, before: Mapping[str, TensorSpec], now: Mapping[str, TensorSpec]) -> Iterator[str]:
    for name in dict.fromkeys([*before, *now]):
        was, is_now = (_told(tensors[name]) if name in tensors else "" for tensors in (before, now))
        if was != is_now:
            both = f"was {was}, is {is_now}"
            yield f"{kind} {name} {both if was and is_now else 'is gone' if was else f'is new: {is_now}'}"


def _told(tensor: TensorSpec) -> str:
    return f"{tensor.datatype} {list(tensor.shape)}" + (", optional" if tensor.optional else "")
