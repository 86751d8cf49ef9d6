"""Ensembles: the models of their steps (members), and the checks that these exist and fit together.

`check_members` rejects what Triton rejects once the members are loaded, and determines whether the ensemble is
decoupled. Mirrors core/src/ensemble_scheduler/ensemble_utils.cc and model_repository_manager.cc.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from bls_notebook.engine.core.model_spec import ModelSpec, TensorSpec
from bls_notebook.engine.errors import BLSError, ModelLoadError
from bls_notebook.records.visible_text import first_line
from bls_notebook.repository.config import ModelConfigMessage
from bls_notebook.repository.config.validation import cache_refused
from bls_notebook.repository.source.model_source import ModelSource

MOST_NESTED = 64  # ensembles in ensembles; each one needs a part of the stack


class Dependencies:
    """The loaded ensembles with their members, and the models loaded by name. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ensembles: dict[str, tuple[ModelSource, frozenset[str]]] = {}
        self._explicit: set[str] = set()

    def want(self, source: ModelSource, members: Collection[str]) -> None:
        """Record the members of an ensemble; without members, forget that the model was an ensemble."""
        with self._lock:
            if members:
                self._ensembles[source.name] = (source, frozenset(members))
            else:
                self._ensembles.pop(source.name, None)

    def add_explicit(self, name: str) -> None:
        """Record that a model was loaded by name, and not only as a member of an ensemble."""
        with self._lock:
            self._explicit.add(name)

    def forget(self, name: str) -> frozenset[str]:
        """Forget a model; return its members."""
        with self._lock:
            self._explicit.discard(name)
            return self._ensembles.pop(name, (None, frozenset[str]()))[1]

    def clear(self) -> None:
        with self._lock:
            self._ensembles.clear()
            self._explicit.clear()

    def wanted(self, name: str) -> ModelSource | None:
        """Return the source of an ensemble's last load; None if it was unloaded."""
        with self._lock:
            return self._ensembles.get(name, (None, None))[0]

    def users(self, name: str) -> list[ModelSource]:
        with self._lock:
            return [source for source, members in self._ensembles.values() if name in members]

    def all_users(self, name: str) -> list[str]:
        """Return the ensembles that need a model, also through other ensembles; each follows its members."""
        seen, finished = {name}, list[str]()
        stack = [(name, iter(self.users(name)))]
        while stack:
            user = next((user.name for user in stack[-1][1] if user.name not in seen), None)
            if user is None:
                finished.append(stack.pop()[0])
            else:
                seen.add(user)
                stack.append((user, iter(self.users(user))))
        return finished[-2::-1]

    def orphans(self, names: Iterable[str]) -> list[str]:
        """Return the models among `names` that were not loaded by name and that no ensemble needs."""
        with self._lock:
            explicit = set(self._explicit)
        return [n for n in sorted(names) if n not in explicit and not self.users(n)]


class CircularEnsembleError(ModelLoadError):
    """Ensembles that are steps of each other."""


def refuse_ensemble(
    ensemble: str, words: str, remedy: str = "", kind: type[ModelLoadError] = ModelLoadError
) -> NoReturn:
    """Raise for an ensemble that cannot be loaded; `words` is Triton's error text."""
    first = first_line(words, 1000)
    remedy = f"; {remedy}" if remedy else ""
    message = f"ensemble {ensemble!r} could not be loaded: {first}{remedy}"
    raise kind(message, ensemble, f"load failed for model '{ensemble}': {words}\n")


def members_of(config: ModelConfigMessage) -> list[str]:
    """Return the models of an ensemble's steps, each once; empty for other models."""
    return list(dict.fromkeys(step.model_name for step in config.ensemble_scheduling.step))


def members_of_source(source: ModelSource) -> list[str]:
    """Return the keys of the models of a source's steps; empty if its configuration is invalid."""
    try:
        names = members_of(source.parsed_config()) if "ensemble" in str(source.config) else []
        return [source.steps.get(name, ("", name))[1] for name in names]
    except (BLSError, RecursionError):
        return []  # the load reports the error


def lock_order(source: ModelSource, find: Callable[[str], ModelSource]) -> list[str]:
    """Return an ensemble and all models that it needs, steps first, in the same order on all threads; [] for others.

    `find` returns the source of a model.
    """
    heights: dict[str, int] = {}  # larger than those of the steps

    def visit(source: ModelSource, path: tuple[str, ...]) -> None:
        height = 0
        for member in filter(None, members_of_source(source) if len(path) < MOST_NESTED else ()):
            if member not in heights and member not in path:
                try:
                    visit(find(member), (*path, member))
                except BLSError:  # the load reports it
                    heights[member] = 0
            height = max(height, heights.get(member, 0) + 1)
        heights[source.name] = height

    if members_of_source(source):
        visit(source, (source.name,))
    return sorted(heights, key=lambda name: (heights[name], name))


def refuse_missing(ensemble: str, member: str) -> NoReturn:
    """Raise for an ensemble with a step whose model does not exist."""
    refuse_ensemble(
        ensemble,
        f"ensemble {ensemble} contains models that are not available or ambiguous: {member}",
        f"define '{member}' in a cell, or put it into the repository",
    )


def refuse_member(ensemble: str, member: str, error: BLSError) -> NoReturn:
    """Raise for an ensemble with a step whose model cannot be loaded."""
    reason = str(getattr(error, "reason", "") or error)
    inner = reason.removeprefix(f"load failed for model '{member}': ").rstrip("\n")
    if isinstance(error, CircularEnsembleError):
        refuse_ensemble(ensemble, inner, kind=CircularEnsembleError)
    if not reason.startswith("load failed for model"):
        refuse_missing(ensemble, member)
    words = f"ensemble '{ensemble}' depends on '{member}' which has no loaded version. "
    refuse_ensemble(ensemble, f"{words}Model '{member}' loading failed with error: {inner}")


@dataclass
class _Node:
    """A tensor of an ensemble, with the datatype and shape of the first model that names it."""

    model: str
    datatype: str = ""
    dims: tuple[int, ...] = ()
    full: tuple[int, ...] = ()
    decoupled: bool = False
    label: int = 0  # of the decoupled step that the tensor originates from
    visited: bool = False
    before: list[_Node] = field(default_factory=list)
    after: list[_Node] = field(default_factory=list)
    siblings: _Node | None = None  # shared by all outputs of one step


def _matches(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    return len(first) == len(second) and all(-1 in (a, b) or a == b for a, b in zip(first, second, strict=True))


def _node(model: str, batching: bool, tensor: TensorSpec, dims: tuple[int, ...]) -> _Node:
    return _Node(model, tensor.datatype, dims, ((-1,) if batching else ()) + dims)


def _join(ensemble: str, tensors: dict[str, _Node], name: str, node: _Node) -> _Node:
    """Record a tensor, or compare it with the recorded one of this name."""
    known = tensors.setdefault(name, node)
    where = f"in ensemble {ensemble}, ensemble tensor {name}: "
    difference = ""
    if known.datatype != node.datatype:
        one, two = (f"TYPE_{'STRING' if n.datatype == 'BYTES' else n.datatype}" for n in (known, node))
        difference = "data type"
    elif not _matches(known.dims, node.dims) and not _matches(known.full, node.full):
        one, two = (f"[{','.join(map(str, n.full))}]" for n in (known, node))
        difference = "shape"
    if difference:
        first, second = (f"is inferred from model {n.model}" for n in (known, node))
        refuse_ensemble(ensemble, f"{where}inconsistent {difference}: {one} {first} while {two} {second}")
    return known


def _own(tensor: TensorSpec) -> tuple[int, ...]:
    return tensor.dims if tensor.reshape is None else tensor.reshape


def check_members(spec: ModelSpec, find: Callable[[str, int], ModelSpec | None]) -> bool:
    """Reject an ensemble whose steps do not fit together; return whether it is decoupled.

    `find` returns the spec of a loaded model by name and version, or None.
    """
    name, batching = spec.name, spec.max_batch_size > 0
    tensors = {t.name: _node(name, batching, t, _own(t)) for t in spec.inputs.values()}
    sink = _Node(name)
    for output in spec.outputs.values():
        node = tensors.setdefault(output.name, _node(name, batching, output, _own(output)))
        sink.before.append(node)
        node.after.append(sink)
    for step in spec.config.ensemble_scheduling.step:
        member = find(step.model_name, step.model_version)
        if member is None:
            lacking = f"whose required version {step.model_version} is not loaded"
            lacking = "which has no loaded version" if step.model_version == -1 else lacking
            refuse_ensemble(name, f"ensemble '{name}' depends on '{step.model_name}' {lacking}.")
        if 0 < member.max_batch_size < spec.max_batch_size:
            refuse_ensemble(
                name,
                f"ensemble {name} allows maximum batch size {spec.max_batch_size}, but it contains model "
                f"{member.name} which only allows maximum batch size to be {member.max_batch_size}",
                f"lower the ensemble's max_batch_size, or raise that of '{member.name}'",
            )
        _map_step(name, step, member, tensors)
    decoupled = _labels(name, [tensors[i] for i in spec.inputs])
    if decoupled and spec.response_cache:
        refuse_ensemble(name, cache_refused(name, "'decoupled' transaction policy"), "leave response_cache out")
    return decoupled


def _map_step(ensemble: str, step: Any, member: ModelSpec, tensors: dict[str, _Node]) -> None:
    batching = member.max_batch_size > 0
    within = f"in ensemble {ensemble},"
    for name, tensor in sorted(step.input_map.items()):
        if name not in member.inputs:
            words = f"ensemble tensor {tensor} is mapping to non-existing input {name} in model {member.name}"
            existing = f"inputs of '{member.name}': {', '.join(member.inputs)}"
            refuse_ensemble(ensemble, f"{within} {words}", existing)
    for input_spec in member.inputs.values():
        if input_spec.name in step.input_map:
            node = _node(member.name, batching, input_spec, input_spec.dims)
            _join(ensemble, tensors, step.input_map[input_spec.name], node)
        elif not input_spec.optional:
            words = f"input {input_spec.name} in model {member.name} is not mapped to any ensemble tensors"
            refuse_ensemble(ensemble, f"{within} {words}", "add it to the step's input_map")
    siblings = _Node(member.name)
    for name, tensor in sorted(step.output_map.items()):
        output_spec = member.outputs.get(name)
        if output_spec is None:
            words = f"ensemble tensor {tensor} is mapped from non-existing output {name} in model"
            existing = f"outputs of '{member.name}': {', '.join(member.outputs)}"
            refuse_ensemble(ensemble, f"{within} {words} {member.name}", existing)
        node = _join(ensemble, tensors, tensor, _node(member.name, batching, output_spec, output_spec.dims))
        node.siblings = siblings
        node.decoupled = member.decoupled
        for source in step.input_map.values():
            node.before.append(tensors[source])
            tensors[source].after.append(node)


def _labels(ensemble: str, inputs: list[_Node]) -> bool:
    """Follow the tensors from the inputs; reject a step with inputs from different decoupled steps."""
    count = 0
    pending = list(inputs)
    for node in pending:
        node.visited = True
    for node in pending:  # grows
        for after in node.after:
            if after.visited or not all(b.visited for b in after.before):
                continue
            label = after.before[0].label
            if any(b.label != label for b in after.before):
                words = "receives inputs originated from different decoupled models"
                refuse_ensemble(ensemble, f"in ensemble {ensemble}, step of model '{after.model}' {words}")
            group = after.siblings
            if group is not None and group.visited:
                after.label = group.label
            else:
                count += after.decoupled
                after.label = count if after.decoupled else label
                if group is not None:
                    group.label, group.visited = after.label, True
            after.visited = True
            pending.append(after)
    return count > 0
