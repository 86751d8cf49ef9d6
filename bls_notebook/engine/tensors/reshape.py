"""`Reshape`: tensors between the shape that a request has and the one that the model sees (`reshape`).

Mirrors core/src/infer_request.cc (Normalize) and infer_response.cc (Output::Reshape).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from bls_notebook.engine.core.spec import TensorSpec
from bls_notebook.pb_utils.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Reshape:
    """Sizes, without the batch's, before and after; those that vary keep their order.

    `batch`: how many dimensions in front are the batch's: 0 or 1. `before`, `after`: -1 where the size
    varies.
    """

    batch: int
    before: tuple[int, ...]
    after: tuple[int, ...]

    def apply(self, tensor: Tensor) -> None:
        """Change a tensor's shape in place; one that has no such shape stays as it is."""
        wanted = self.of(tensor._array.shape)
        if wanted is not None:
            tensor._array = tensor._array.reshape(wanted)

    def back(self) -> Reshape:
        """The other way round."""
        return Reshape(self.batch, self.after, self.before)

    def of(self, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """The shape that one becomes; None where it would not hold equally many elements."""
        batch, sizes = shape[: self.batch], shape[self.batch :]
        places = [i for i, size in enumerate(self.before) if size == -1]
        if len(batch) < self.batch or (places and places[-1] >= len(sizes)):
            return None
        varying = iter([sizes[i] for i in places])
        wanted = batch + tuple(next(varying) if size == -1 else size for size in self.after)
        return wanted if prod(wanted) == prod(shape) else None


def input_reshapes(specs: Mapping[str, TensorSpec]) -> dict[str, Reshape]:
    """Return what happens to inputs on their way to the model; empty where nothing does."""
    return {
        name: Reshape(len(s.shape) - len(s.dims), s.dims, s.reshape)
        for name, s in specs.items()
        if s.reshape is not None
    }


def output_reshapes(specs: Mapping[str, TensorSpec]) -> dict[str, Reshape]:
    """Return what happens to outputs on their way from the model; empty where nothing does."""
    return {name: there.back() for name, there in input_reshapes(specs).items()}


def reshape_all(tensors: Iterable[Tensor], reshapes: Mapping[str, Reshape]) -> None:
    """Give tensors of nobody else the shape that the other side expects."""
    for tensor in tensors:
        found = reshapes.get(tensor._name)
        if found is not None:
            found.apply(tensor)
