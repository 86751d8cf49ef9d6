"""Certain facts about the data types of arrays that a source creates: NumPy's rules, without running them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bls_notebook.pb_utils.dtypes import DATATYPE_OF_DTYPE, DataType, triton_to_numpy_type

from .name_scope import NameScope, alternatives, argument, last_name, spreads

_MOST_ITEMS = 32  # of a list, to look at


@dataclass(frozen=True)
class KnownArray:
    """The certain facts about an array: its `dtype`, or the input of the model that it has the dtype and shape of.

    With `parts`, its dtype follows from theirs by a `rule`: "result" is NumPy's for operators, "float" makes integers
    FP64 too, "sum" INT64. "same" is unknown unless they are equal; so is "array", which makes arrays of numbers.
    """

    dtype: str = ""  # as in config.pbtxt; "int" and "float" are numbers of Python
    input: str = ""
    whole: bool = False  # whether it also has the input's shape
    made: ast.Call | None = None  # the call of NumPy that creates it
    parts: tuple[KnownArray, ...] = ()
    rule: str = ""
    scalar: bool = False  # whether it may be a scalar, with which operators differ between releases of NumPy


_KEEP_DTYPE = frozenset({
    "reshape", "copy", "squeeze", "flatten", "ravel", "transpose", "expand_dims", "ascontiguousarray", "swapaxes",
    "moveaxis", "flip", "roll", "tile", "repeat", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_to", "sort",
    "clip", "abs", "absolute", "negative", "tolist",
})  # fmt: skip
_REDUCED = frozenset({"max", "min", "amax", "amin"})
_LIKE = frozenset({"zeros_like", "ones_like", "empty_like"})
_FLOATS = frozenset({"mean", "std", "var", "exp", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tanh"})
_REDUCED_FLOATS = frozenset({"mean", "std", "var", "sum"})
_COMBINED = frozenset({"concatenate", "stack", "vstack", "hstack", "dstack", "column_stack"})
_OPERATORS = frozenset({"add", "subtract", "multiply", "maximum", "minimum", "dot", "matmul"})
_INDICES = frozenset({"argmax", "argmin", "argsort", "searchsorted"})
_FP64 = frozenset({"linspace", "logspace", "geomspace"}) | frozenset(
    {f"random.{name}" for name in ("rand", "randn", "random", "random_sample", "uniform", "normal", "standard_normal")}
)
# Position of the argument `dtype`.
_DTYPE_AT = {"zeros": 1, "ones": 1, "empty": 1, "array": 1, "asarray": 1, "full": 2, "eye": 3, "identity": 1}
_DTYPE_AT |= {"linspace": 5, "logspace": 5, "mean": 2, "sum": 2, "std": 2, "var": 2, "arange": 3}
_SMALL = frozenset({"TYPE_INT8", "TYPE_UINT8", "TYPE_INT16", "TYPE_UINT16"})
_INT64, _DOUBLE = "TYPE_INT64", "TYPE_FP64"


def array_of(scope: NameScope, node: ast.expr | None, depth: int = 8) -> KnownArray:
    """Return the certain facts about the array that an expression creates."""
    arrays = [_array_of(scope, each, depth) for each in alternatives(scope.origin(node))] if depth else []
    if len(arrays) == 1:
        return arrays[0]
    return KnownArray(parts=tuple(arrays), rule="same", scalar=True) if arrays else KnownArray()


def _array_of(scope: NameScope, node: ast.expr | None, depth: int) -> KnownArray:
    def known(part: ast.expr | None) -> KnownArray:
        return array_of(scope, part, depth - 1)

    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return KnownArray(type(node.value).__name__)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        return replace(known(node.operand), whole=False, made=None)
    if isinstance(node, ast.BinOp):
        rule = "float" if isinstance(node.op, ast.Div) else "result"
        return KnownArray(parts=(known(node.left), known(node.right)), rule=rule)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        array = known(node.left)
        return KnownArray("TYPE_BOOL") if array.input and not array.scalar else KnownArray()
    if isinstance(node, ast.Subscript):
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        keeps = all(isinstance(i, ast.Slice) or getattr(i, "value", i) in (None, ...) for i in index)
        items = _items(scope, node.value, known)
        array = KnownArray(parts=items, rule="same") if items else known(node.value)
        return replace(array, whole=False, made=None, scalar=array.scalar or not keeps)
    if isinstance(node, ast.Attribute) and node.attr == "T":
        return replace(known(node.value), whole=False, made=None)
    if not isinstance(node, ast.Call) or spreads(node):
        return KnownArray()
    module, _, name = scope.dotted_name(node.func).partition(".")
    if module in ("float", "int", "len") and not name:
        return KnownArray("float" if module == "float" else "int")
    if module == "numpy" and not name.startswith("linalg"):
        return _made(scope, node, name, known)
    return _converted(scope, node, node.func, known) if isinstance(node.func, ast.Attribute) else KnownArray()


def _made(scope: NameScope, call: ast.Call, name: str, known: Callable[[ast.expr | None], KnownArray]) -> KnownArray:
    """Return the certain facts about the result of a function of NumPy."""
    dtype = argument(call, "dtype", _DTYPE_AT.get(name, -1))
    first = call.args[0] if call.args else None
    if any(keyword.arg == "out" for keyword in call.keywords):
        return KnownArray()
    if dtype is not None:
        return KnownArray(_dtype(dtype), made=call)
    if name in ("zeros", "ones", "empty", "eye", "identity") or name in _FP64:
        return KnownArray(_DOUBLE, made=call if name in _DTYPE_AT else None)
    if name == "full":
        return KnownArray(parts=(known(argument(call, "fill_value", 1)),), rule="array", made=call)
    if name in ("array", "asarray"):
        parts = _items(scope, first, known)
        return KnownArray(parts=parts or (known(first),), rule="array", made=call)
    if name == "arange":
        return _array(tuple(map(known, call.args)), "result")
    if name in _KEEP_DTYPE | _LIKE:
        return replace(known(first), whole=False, made=None)
    if name in _REDUCED:
        return replace(known(first), whole=False, made=None, scalar=True)
    if name in _FLOATS or name == "sum":
        parts = _items(scope, first, known) or (known(first),)
        rule = "sum" if name == "sum" else "float"
        return replace(_array(parts, rule), scalar=name in _REDUCED_FLOATS)
    if name in _COMBINED:
        return _array(_items(scope, first, known), "result")
    if name in _OPERATORS or name in ("divide", "true_divide"):
        return _array(tuple(map(known, call.args[:2])), "result" if name in _OPERATORS else "float")
    if name == "where" and len(call.args) == 3:
        return _array((known(call.args[1]), known(call.args[2])), "result")
    return KnownArray(_INT64 if name in _INDICES else _dtype(call.func))


def _array(parts: tuple[KnownArray, ...], rule: str) -> KnownArray:
    return KnownArray(parts=(KnownArray(parts=parts, rule=rule),), rule="array") if parts else KnownArray()


def _converted(
    scope: NameScope, call: ast.Call, method: ast.Attribute, known: Callable[[ast.expr | None], KnownArray]
) -> KnownArray:
    """Return the certain facts about the result of a method."""
    name, owner = method.attr, method.value
    if name == "astype":
        return KnownArray(_dtype(argument(call, "dtype", 0)), made=known(owner).made)
    if name == "as_numpy":
        tensor = scope.origin(owner)
        is_input = isinstance(tensor, ast.Call) and last_name(tensor.func) == "get_input_tensor_by_name"
        name = scope.text(argument(tensor, "name", 1)) or "" if isinstance(tensor, ast.Call) and is_input else ""
        return KnownArray("", name, True) if name else KnownArray()
    if any(keyword.arg in ("dtype", "out") for keyword in call.keywords):
        return KnownArray()
    array = known(owner)
    if name in _KEEP_DTYPE:
        return replace(array, whole=name == "copy", made=None)
    if name in _REDUCED:
        return replace(array, whole=False, made=None, scalar=True)
    if name in _REDUCED_FLOATS:
        return KnownArray(parts=(array,), rule="sum" if name == "sum" else "float", scalar=True)
    return KnownArray(_INT64) if name in _INDICES and (array.input or array.dtype) else KnownArray()


def _items(
    scope: NameScope, node: ast.expr | None, known: Callable[[ast.expr | None], KnownArray]
) -> tuple[KnownArray, ...]:
    """Return the certain facts about the elements of a list; empty if it is no list."""
    items = scope.origin(node)
    if isinstance(node, ast.Name) and any(scope.grows(node.id)):
        return (KnownArray(),)
    if isinstance(items, (ast.ListComp, ast.GeneratorExp)):
        return (known(items.elt),)
    if not isinstance(items, (ast.List, ast.Tuple)):
        return ()
    nested = [_items(scope, item, known) or (known(item),) for item in items.elts[:_MOST_ITEMS]]
    return tuple(dict.fromkeys(part for parts in nested for part in parts)) or (KnownArray(),)


def dtype_of(array: KnownArray, inputs: Callable[[str], str]) -> str:
    """Return an array's data type as in config.pbtxt; empty if unknown. `inputs` returns the type of an input."""
    dtype = _resolved(array, inputs)
    return "" if dtype in ("int", "float") else dtype


def _resolved(array: KnownArray, inputs: Callable[[str], str]) -> str:
    """Return an array's data type, or the type of a Python number."""
    if not array.parts:
        return array.dtype or (inputs(array.input) if array.input else "")
    types = [_resolved(part, inputs) for part in array.parts]
    if array.rule == "array":
        types = [{"int": _INT64, "float": _DOUBLE}.get(dtype, dtype) for dtype in types]
    is_copy = array.rule in ("same", "array")
    if "" in types or (not is_copy and not {"TYPE_STRING", "TYPE_BF16", "TYPE_BOOL"}.isdisjoint(types)):
        return ""
    if is_copy:
        return types[0] if len(set(types)) == 1 else "float" if set(types) == {"int", "float"} else ""
    numbers = [dtype for dtype in types if dtype in ("int", "float")]
    arrays = [dtype for dtype in types if dtype not in numbers]
    scalars = {dtype for part, dtype in zip(array.parts, types, strict=True) if part.scalar}
    mixed = bool(scalars - {"int", "float"}) and len(set(types)) > 1
    if mixed or (numbers and not _SMALL.isdisjoint(arrays)):
        return ""
    number = "float" if "float" in numbers else "int" if numbers else ""
    combined = number
    if arrays:
        result = np.result_type(*(_numpy(dtype) for dtype in arrays))
        combined = _DOUBLE if number == "float" and result.kind in "iu" else f"TYPE_{_triton(result)}"
    if array.rule == "float" and ("INT" in combined or combined == "int"):
        return "" if not _SMALL.isdisjoint(types) else _DOUBLE
    return _INT64 if array.rule == "sum" and "INT" in combined else combined


def _numpy(dtype: str) -> np.dtype[Any]:
    return np.dtype(triton_to_numpy_type(DataType[dtype.removeprefix("TYPE_")]))


def _triton(dtype: np.dtype[Any]) -> str:
    return DATATYPE_OF_DTYPE.get(dtype, "INVALID")


def _dtype(node: ast.expr | None) -> str:
    """Return the data type in config.pbtxt that a NumPy data type has; empty if unknown."""
    name = node.value if isinstance(node, ast.Constant) else ast.unparse(node) if node is not None else ""
    if not isinstance(name, str) or not re.fullmatch(r"((np|numpy)\.)?(float|int|uint|bool|double|single)\w*", name):
        return ""
    try:
        return f"TYPE_{_triton(np.dtype(name.rpartition('.')[2]))}"
    except (TypeError, ValueError):
        return ""
