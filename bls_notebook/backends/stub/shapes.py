"""The shapes of a stub's outputs: as configured, sizes that vary taken from the request. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]
_FEW = 8  # the size of what nothing tells the size of


@dataclass(frozen=True, slots=True)
class Declared:
    """An input or output as a model has it: after its reshape, without the batch dimension."""

    name: str
    datatype: str
    dims: Shape


def declared(tensors: Sequence[Mapping[str, Any]]) -> dict[str, Declared]:
    """Return the inputs or outputs of a configuration's JSON form, by name."""
    out: dict[str, Declared] = {}
    for tensor in tensors:
        datatype = str(tensor["data_type"]).removeprefix("TYPE_")
        dims = tensor["reshape"].get("shape", ()) if tensor.get("reshape") is not None else tensor["dims"]
        spec = Declared(tensor["name"], "BYTES" if datatype == "STRING" else datatype, tuple(map(int, dims)))
        out.setdefault(spec.name, spec)
    return out


def output_dims(output: Declared, inputs: Sequence[tuple[Declared, Shape]]) -> Shape:
    """Return the sizes of an output for a request, without the batch; `inputs` are those that it has.

    A size that varies is that of the input that is most like the output: of the same name, else of the same
    rank, else any; at the same place where the size varies there too, else in order, else at the same place
    whether or not it varies there. Without any it is 1; of several, all but the first are 8, since code that
    takes such an output apart counts on more than one.
    """
    if -1 not in output.dims:
        return output.dims
    for spec, sizes in sorted(inputs, key=lambda each: _unlike(output, each[0])):
        found = _matched(output.dims, spec.dims, sizes)
        if found is not None:
            return found
    varying = [size for spec, sizes in inputs for size in _varying(spec.dims, sizes)]
    if len(varying) < output.dims.count(-1):
        for spec, sizes in inputs:
            placed = _in_place(output.dims, spec.dims, sizes)
            if placed is not None:
                return placed
    return _filled(output.dims, iter(varying))


def _unlike(output: Declared, given: Declared) -> tuple[bool, bool, bool]:
    return output.name != given.name, len(output.dims) != len(given.dims), output.datatype != given.datatype


def _matched(dims: Shape, of: Shape, sizes: Shape) -> Shape | None:
    """Sizes for `dims` from those of one input; None where it has too few that vary."""
    if len(dims) == len(of) == len(sizes) and all(o == -1 for d, o in zip(dims, of, strict=True) if d == -1):
        return tuple(s if d == -1 else d for d, s in zip(dims, sizes, strict=True))
    varying = _varying(of, sizes)
    return _filled(dims, iter(varying)) if len(varying) >= dims.count(-1) else None


def _in_place(dims: Shape, of: Shape, sizes: Shape) -> Shape | None:
    """Sizes for `dims` from one input's at the same places, fixed ones too: [-1, -1, 768] after [-1, 77]."""
    wanted = [place for place, dim in enumerate(dims) if dim == -1]
    if wanted[-1] >= min(len(of), len(sizes)) or not any(of[place] == -1 for place in wanted):
        return None
    return tuple(sizes[i] if dim == -1 else dim for i, dim in enumerate(dims))


def _varying(dims: Shape, sizes: Shape) -> list[int]:
    return [size for dim, size in zip(dims, sizes, strict=False) if dim == -1]


def _filled(dims: Shape, varying: Iterator[int]) -> Shape:
    known = list(varying)
    few = dims.count(-1) > 1  # of several sizes the first is mostly a batch, and none of the others 1
    left = iter([*known, *([1] if few and not known else []), *([_FEW if few else 1] * len(dims))])
    return tuple(next(left) if dim == -1 else dim for dim in dims)
