"""Compares what a model answers with what its configuration declares, which Triton does not.

Most responses of a model look like the one before: `shape` and `has_seen` know what was last found to
be right, and only what differs from that is compared with the configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import intern

from bls_notebook.engine.core.spec import ModelSpec
from bls_notebook.pb_utils.tensor import Tensor

from .request_check import output_reshapes

_KEPT = 20  # lines


class OutputCheck:
    """Finds where the outputs of one model version differ from its configuration.

    `spec`: of the completed configuration.
    `strict`: whether a difference fails the request.
    `datatype`: of the only output; empty where there are several.
    `shape`: of the only output, as it was last found to be right.
    `reshapes`: what happens to outputs on their way from the model.
    `noted`: whether an execution of the model ever had a warning of its own, or of a model that it called.
    """

    __slots__ = ("_decoupled", "_seen", "_spec", "datatype", "found", "noted", "reshapes", "shape", "strict")

    def __init__(self, spec: ModelSpec, strict: bool = False) -> None:
        self.strict = strict
        self.reshapes = output_reshapes(spec.outputs)
        self._spec = spec
        self._decoupled = spec.decoupled
        only = next(iter(spec.outputs.values())) if len(spec.outputs) == 1 else None
        self.datatype = "" if only is None else intern(only.datatype)  # so that comparing is quick
        self.shape: tuple[int, ...] | None = None
        self.noted = False
        self.found: dict[str, None] = {}  # what was ever said, for those who ask what went wrong
        self._seen: dict[str, tuple[str, tuple[int, ...]]] = {}

    def has_seen(self, tensors: Sequence[Tensor]) -> bool:
        """Whether each of the outputs looks as the last one of its name that was right."""
        if self.noted:
            return False
        seen = self._seen
        return all(seen.get(t._name) == (t._datatype, t._array.shape) for t in tensors)

    def warnings(self, tensors: Sequence[Tensor], requested: tuple[str, ...]) -> tuple[str, ...]:
        """Say what differs, one line each; of a name that is there twice the last tensor counts.

        An empty line at the end says that there may be warnings of other kinds: see `note`.
        """
        by_name = {tensor._name: tensor for tensor in tensors}
        found = []
        for name, tensor in by_name.items():
            problems = self._problems(tensor)
            if not problems:
                self._seen[name] = (tensor._datatype, tensor._array.shape)
                if self.datatype:
                    self.shape = tensor._array.shape
                if self.noted:
                    self.shape = None
            found += [f"model '{self._spec.name}', output '{name}': {problem}" for problem in problems]
        if tensors or not self._decoupled:  # a last response without outputs is how streams end
            found += [
                f"model '{self._spec.name}', output '{name}': missing, though it was asked for and the "
                "configuration declares it"
                for name in requested
                if name not in by_name
            ]
        if found and len(self.found) < _KEPT:
            self.found.update(dict.fromkeys(found))
        return (*found, "") if self.noted else tuple(found)

    def note(self) -> None:
        """From now on have every response looked at: its execution may have warnings."""
        self.noted, self.shape = True, None

    def _problems(self, tensor: Tensor) -> list[str]:
        spec = self._spec.outputs.get(tensor._name)
        if spec is None:
            declared = ", ".join(self._spec.outputs) or "none"
            return [f"not in the configuration, so it is dropped; outputs declared there: {declared}"]
        found = []
        if tensor._datatype != spec.datatype:
            found.append(
                f"got {tensor._datatype}, the configuration says {spec.datatype}; Triton passes it on, so "
                "convert the array or change data_type"
            )
        shape, wanted = tensor._array.shape, spec.model_shape
        if len(shape) != len(wanted) or any(w not in (-1, s) for s, w in zip(shape, wanted, strict=True)):
            batch = " (the first is the batch)" if self._spec.max_batch_size else ""
            what, advice = "configuration", "Triton passes it on, so change the array or dims"
            reshape = self.reshapes.get(tensor._name)
            if reshape is not None and reshape.of(shape) is None:
                what = "configuration's reshape"
                advice = (
                    "Triton cuts such an output off, or fills it up with other memory, so change the array or reshape"
                )
            found.append(f"got shape {list(shape)}, the {what} says {list(wanted)}{batch}; {advice}")
        return found
