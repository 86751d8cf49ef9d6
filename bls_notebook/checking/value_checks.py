"""Check how a model uses values of surprising types: bytes, `Tensor`s, the parameters of its configuration."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .api_checks import is_tested, kind_of
from .array_types import array_of
from .checked_model import CheckedModel, data_type
from .name_scope import UNKNOWN_VALUE, NameScope, alternatives
from .python_source import PythonSource
from .records import Finding

_OF_ARRAYS = frozenset({
    "T", "argmax", "astype", "copy", "decode", "dtype", "flatten", "item", "max", "mean", "min", "ndim", "numpy",
    "ravel", "reshape", "size", "squeeze", "sum", "tobytes", "tolist", "transpose",
})  # fmt: skip
_OF_ITEMS = frozenset({
    "len", "list", "tuple", "set", "zip", "enumerate", "iter", "sorted", "sum", "max", "min", "any", "all",
})  # fmt: skip
_OF_LISTS = frozenset({"append", "extend", "insert", "sort", "index", "remove"})
_OF_TEXTS = frozenset({"lower", "upper", "strip", "lstrip", "rstrip"})  # methods of bytes that return bytes
_TAKE_TEXT = frozenset({"startswith", "endswith", "split", "find", "count", "replace"})  # methods of texts
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def value_findings(model: CheckedModel) -> Iterator[Finding]:
    """Yield uses of values that raise, or that never do what they say."""
    code = model.newest()
    if code is None or code.mistake:
        return
    rewrites = re.search(r"param\w*(\[['\"\w.]+\]|['\"]\])\s*=[^=]|param\w*\.update\(", code.text)
    for node, scope in code.nodes:
        line = getattr(node, "lineno", 0)
        if name := _compared_bytes(model, scope, node):
            what = node.subject if isinstance(node, ast.Match) else node
            yield model.in_code("bytes-compared", code, line, name=name, what=ast.unparse(what)[:80])
        for used in _used_as_array(scope, node):
            if kind_of(scope, used) == "Tensor" and not is_tested(scope, used):
                line = getattr(node, "lineno", used.lineno)
                yield model.in_code("tensor-no-array", code, line, what=_written(node, used))
        yield from _parameter_findings(model, code, scope, node) if not rewrites else ()


def _written(node: ast.AST, used: ast.expr) -> str:
    """Return the expression that uses a value, or only the value if it is a statement."""
    return ast.unparse(node if isinstance(node, ast.expr) else used)[:80]


def _used_as_array(scope: NameScope, node: ast.AST) -> Iterator[ast.expr]:
    """Yield the values that a node can use only if they are arrays."""
    if isinstance(node, ast.Subscript):
        yield node.value
    elif isinstance(node, ast.Attribute):
        called = isinstance(parent := scope.parents.get(id(node)), ast.Call) and parent.func is node
        if isinstance(node.ctx, ast.Load) and (node.attr in _OF_ARRAYS or (node.attr == "shape" and not called)):
            yield node.value
    elif isinstance(node, (ast.For, ast.comprehension)):
        yield node.iter
    elif isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Mod):
        sides = node.left, node.right
        yield from sides if not any(isinstance(scope.origin(side), (ast.List, ast.Tuple)) for side in sides) else ()
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield node.operand
    elif isinstance(node, ast.AugAssign):
        yield node.target
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], _ORDER):
        yield from (node.left, node.comparators[0])
    elif isinstance(node, ast.Call):
        module, _, name = scope.dotted_name(node.func).rpartition(".")
        takes_dlpack = name in ("from_dlpack", "array_equal")
        if (not module and name in _OF_ITEMS | {"float", "int"}) or (
            module.split(".")[0] == "numpy" and not takes_dlpack
        ):
            for value in node.args:
                yield from value.elts if module and isinstance(value, (ast.List, ast.Tuple)) else (value,)
        elif module == "torch" and name in ("from_numpy", "tensor", "as_tensor"):
            yield from node.args[:1]


def _compared_bytes(model: CheckedModel, scope: NameScope, node: ast.AST) -> str:
    """Return the text input of which an element is compared with a `str`; "" for other nodes."""
    pairs: list[tuple[ast.expr, list[ast.expr]]] = []
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        one, other = node.left, node.comparators[0]
        if isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            pairs = [(one, [other]), (other, [one])]
        elif isinstance(node.ops[0], (ast.In, ast.NotIn)):
            pairs = [(one, _members(scope, other)), (other, [one])]
    elif isinstance(node, ast.Subscript):
        pairs = [(node.slice, _keys(scope, node.value))]
    elif isinstance(node, ast.Match):
        cases = [case.pattern.value for case in node.cases if isinstance(case.pattern, ast.MatchValue)]
        pairs = [(node.subject, cases)]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        if node.func.attr in _TAKE_TEXT:
            pairs = [(node.func.value, node.args[:1])]
        elif node.func.attr == "get":
            pairs = [(node.args[0], _keys(scope, node.func.value))]
    for value, others in pairs:
        if others and all(kind_of(scope, other) == "string" for other in others):
            name = _text_element(model, scope, value)
            if name and not is_tested(scope, value):
                return name
    return ""


def _members(scope: NameScope, node: ast.expr) -> list[ast.expr]:
    """Return the elements of a list, tuple or set, and the keys of a dict."""
    members = scope.origin(node)
    return list(members.elts) if isinstance(members, (ast.List, ast.Tuple, ast.Set)) else _keys(scope, node)


def _keys(scope: NameScope, node: ast.expr) -> list[ast.expr]:
    keys = scope.origin(node)
    return [key for key in keys.keys if key is not None] if isinstance(keys, ast.Dict) else []


def _text_element(model: CheckedModel, scope: NameScope, node: ast.expr | None, depth: int = 8) -> str:
    """Return the input of type STRING of which an expression is an element or the array; "" if it is not certain."""
    names = {_of_text(model, scope, value, depth) for value in alternatives(scope.origin(node))} if depth else set()
    return names.pop() if len(names) == 1 else ""


def _of_text(model: CheckedModel, scope: NameScope, value: ast.expr | None, depth: int) -> str:
    if isinstance(value, ast.Subscript):
        owner = scope.origin(value.value)
        if isinstance(owner, (ast.ListComp, ast.GeneratorExp)):
            return _text_element(model, scope, owner.elt, depth - 1)
        return _text_element(model, scope, value.value, depth - 1)
    method = value.func if isinstance(value, ast.Call) else None
    if isinstance(method, ast.Attribute) and method.attr in _OF_TEXTS | {"item", "tolist"}:
        return _text_element(model, scope, method.value, depth - 1)
    array = array_of(scope, value)
    tensor = model.inputs.get(array.input) if not (array.dtype or array.parts) else None
    return array.input if tensor is not None and data_type(tensor) == "TYPE_STRING" else ""


def _parameter_findings(model: CheckedModel, code: PythonSource, scope: NameScope, node: ast.AST) -> Iterator[Finding]:
    """Yield uses of the configuration's parameters as a list, and of one of them as a text."""
    wrong = value = None
    if isinstance(node, ast.Subscript):
        index, owner = scope.origin(node.slice), node.value
        if _is_parameters(scope, owner) and (_is_position(scope, index) or isinstance(node.slice, ast.Slice)):
            wrong = owner
        elif isinstance(getattr(index, "value", None), str):
            wrong = _parameters_iterated(scope, owner)
    elif isinstance(node, ast.Attribute):
        if node.attr in _OF_LISTS and _is_parameters(scope, node.value):
            wrong = node.value
        elif not hasattr(str, node.attr):
            wrong = _parameters_iterated(scope, node.value)
        elif not hasattr(dict, node.attr) and _is_parameter(scope, node.value):
            value = node.value
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("int", "float") and len(node.args) == 1:
        value = node.args[0] if _is_parameter(scope, node.args[0]) else None
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
        text = kind_of(scope, node.comparators[0]) in ("string", "number")
        value = node.left if text and _is_parameter(scope, node.left) else None
    if wrong is not None:
        yield model.in_code("parameters-list", code, wrong.lineno, what=ast.unparse(wrong)[:80])
    if value is not None:
        yield model.in_code("parameters-list:value", code, value.lineno, what=ast.unparse(value)[:80])


def _is_position(scope: NameScope, index: ast.expr | None) -> bool:
    """Return whether an index is a number, or counts one up."""
    if isinstance(index, ast.Subscript):
        of_range = scope.origin(index.value)
        return isinstance(of_range, ast.Call) and ast.unparse(of_range.func) == "range"
    return isinstance(index, ast.Constant) and isinstance(index.value, int)


def _key_of(node: ast.expr | None) -> tuple[ast.expr | None, object]:
    """Return the owner and the constant key of ``owner[key]`` or ``owner.get(key)``; None if it is neither."""
    if isinstance(node, ast.Subscript):
        return node.value, getattr(node.slice, "value", None) if isinstance(node.slice, ast.Constant) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        return node.func.value, getattr(node.args[0], "value", None)
    return None, None


def _is_parameters(scope: NameScope, node: ast.expr | None) -> bool:
    """Return whether an expression is `parameters` of the model's configuration."""
    owner, key = _key_of(scope.origin(node))
    if key != "parameters" or owner is None:
        return False
    made = scope.origin(owner)
    text = ast.unparse(owner if made is None else made)
    return "model_config" in text or (
        "config" in ast.unparse(owner) and not re.search(r"load\(|open\(|safe_load", text)
    )


def _is_parameter(scope: NameScope, node: ast.expr | None) -> bool:
    owner, key = _key_of(scope.origin(node))
    return isinstance(key, str) and _is_parameters(scope, owner)


def _parameters_iterated(scope: NameScope, node: ast.expr) -> ast.expr | None:
    """Return `parameters` of the configuration if an expression is one of the keys that iterating it yields."""
    element = scope.origin(node)
    iterated = element.value if isinstance(element, ast.Subscript) and element.slice is UNKNOWN_VALUE else None
    return iterated if iterated is not None and _is_parameters(scope, iterated) else None
