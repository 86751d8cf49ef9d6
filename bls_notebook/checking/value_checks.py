"""Check how a model uses values that are not what they seem: bytes, `Tensor`s, the parameters of its configuration."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .api_checks import kind_of
from .checked_model import CheckedModel, data_type
from .python_source import NameScope, PythonSource, array_of, last_name
from .records import Finding

_OF_ARRAYS = frozenset({
    "T", "argmax", "astype", "copy", "decode", "dtype", "flatten", "item", "max", "mean", "min", "ndim", "numpy",
    "ravel", "reshape", "size", "squeeze", "sum", "tobytes", "tolist", "transpose",
})  # fmt: skip
_BLOCKING = (
    "time.sleep",
    "requests.get",
    "requests.post",
    "requests.put",
    "requests.request",
    "urllib.request.urlopen",
)
_WAITS = ("asyncio.gather", "asyncio.sleep", "asyncio.wait", "asyncio.wait_for")


def value_findings(model: CheckedModel) -> Iterator[Finding]:
    """Yield uses of values that raise, or that never do what they say."""
    code = model.newest()
    if code is None or code.mistake:
        return
    for node, scope in code.nodes:
        if isinstance(node, ast.Compare) and (name := _compared_bytes(model, scope, node)):
            yield model.in_code("bytes-compared", code, node.lineno, name=name, what=ast.unparse(node))
        elif isinstance(node, (ast.For, ast.comprehension)) and _is_read_as_list(code, node):
            yield model.in_code("parameters-list", code, node.iter.lineno, what=ast.unparse(node.iter))
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            owner = node.value
            if isinstance(owner, ast.Attribute) and owner.attr == "shape":
                owner = owner.value
            if _is_tensor(scope, owner):
                yield model.in_code("tensor-no-array", code, node.lineno, what=ast.unparse(node))
        elif isinstance(node, ast.Attribute) and node.attr in _OF_ARRAYS:
            if isinstance(node.ctx, ast.Load) and _is_tensor(scope, node.value):
                yield model.in_code("tensor-no-array", code, node.lineno, what=ast.unparse(node))
        elif isinstance(node, ast.Call):
            yield from _async_findings(model, code, scope, node)


def _async_findings(model: CheckedModel, code: PythonSource, scope: NameScope, call: ast.Call) -> Iterator[Finding]:
    """Yield calls that block the event loop of an async function, and waits that it does not await."""
    name = ast.unparse(call.func)
    if not isinstance(scope.node, ast.AsyncFunctionDef):
        return
    if name in _BLOCKING:
        yield model.in_code("async-blocks", code, call.lineno, what=name)
    parent = scope.parents.get(id(call))
    if name in _WAITS and isinstance(parent, (ast.Expr, ast.Subscript, ast.For, ast.Attribute)):
        yield model.in_code("wait-not-awaited", code, call.lineno, what=name)


def _is_tensor(scope: NameScope, node: ast.expr) -> bool:
    """Return whether an expression is certainly a `pb_utils.Tensor`."""
    value = scope.value(node)
    if isinstance(value, ast.Subscript) and not isinstance(value.slice, ast.Slice):
        owner = scope.value(value.value)
        return isinstance(owner, ast.Call) and last_name(owner.func) == "output_tensors" and not owner.args
    return kind_of(scope, node) == "Tensor"


def _compared_bytes(model: CheckedModel, scope: NameScope, node: ast.Compare) -> str:
    """Return the text input of which an element is compared with a `str`; "" for other comparisons."""
    if len(node.ops) != 1 or not isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
        return ""
    for one, other in ((node.left, node.comparators[0]), (node.comparators[0], node.left)):
        if kind_of(scope, other) == "string" and (name := _text_element(model, scope, one)):
            return name
    return ""


def _text_element(model: CheckedModel, scope: NameScope, node: ast.expr) -> str:
    """Return the input of type STRING of which an expression is an element; "" if it is not certain."""
    value, steps = scope.value(node), 0
    while value is not None:
        if isinstance(value, ast.Subscript) and not isinstance(value.slice, ast.Slice):
            value, steps = scope.value(value.value), steps + 1
        elif isinstance(value, ast.Call) and last_name(value.func) in ("item", "tolist"):
            steps += last_name(value.func) == "item"
            value = scope.value(value.func.value) if isinstance(value.func, ast.Attribute) else None
        else:
            break
    array = array_of(scope, value) if steps else None
    tensor = model.inputs.get(array.input) if array and not array.dtype else None
    return array.input if array and tensor is not None and data_type(tensor) == "TYPE_STRING" else ""


def _is_read_as_list(code: PythonSource, loop: ast.For | ast.comprehension) -> bool:
    """Return whether a loop over the configuration's parameters, which are a dict, reads fields of its items."""
    iterated = loop.iter
    of_get = isinstance(iterated, ast.Call) and last_name(iterated.func) == "get" and bool(iterated.args)
    key = iterated.args[0] if of_get and isinstance(iterated, ast.Call) else getattr(iterated, "slice", None)
    if not (isinstance(key, ast.Constant) and key.value == "parameters" and isinstance(loop.target, ast.Name)):
        return False
    nodes = (node for node in ast.walk(code.tree) if isinstance(node, ast.Subscript))
    reads = [node for node in nodes if isinstance(getattr(node.slice, "value", None), str)]
    return any(isinstance(node.value, ast.Name) and node.value.id == loop.target.id for node in reads)
