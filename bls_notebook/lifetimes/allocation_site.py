"""Find the line that allocated a tensor's array, from the line that made the `Tensor` of it.

A recording notes only where a `Tensor` was made. Its array may be older: a variable, the result of a helper, or a view
of something else. The line is known if the source shows one origin of the array, and unknown otherwise.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bls_notebook.devices.allocation_log import Origin
from bls_notebook.engine import source_of
from bls_notebook.profiling.code_lines import NOWHERE, CodeLine, line_of
from bls_notebook.repository.source import syntax_tree

_CONSTRUCTORS = ("Tensor", "from_dlpack")
_DEEPEST = 12  # variables and helpers in a row
# Functions and methods whose result may be a view of their argument or object.
_VIEWS = frozenset((
    "asarray", "ascontiguousarray", "asanyarray", "reshape", "view", "ravel", "squeeze", "expand_dims",
    "transpose", "swapaxes", "moveaxis", "broadcast_to", "atleast_1d", "atleast_2d", "atleast_3d", "flip",
    "numpy", "detach", "contiguous", "T", "real", "imag",
))  # fmt: skip
# Methods of arrays that return new arrays.
_NEW = frozenset((
    "copy", "astype", "mean", "sum", "max", "min", "argmax", "argmin", "std", "var", "prod", "dot", "round",
    "clip", "cumsum", "repeat", "take", "flatten", "get",
))  # fmt: skip
_LIBRARIES = ("numpy", "cupy", "scipy", "cv2", "bls_notebook")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def allocation_line(place: Origin) -> CodeLine:
    """Return the line that allocated the array of the `Tensor` that was made at a place; NOWHERE if unknown."""
    made = line_of(place)
    lines, tree = lines_and_tree(place[0].co_filename)
    if tree is None or not made.line:
        return NOWHERE
    module = _Module(tree)
    calls = [call for call in module.constructors if call.lineno <= made.line <= (call.end_lineno or call.lineno)]
    found = {module.allocated(call) for call in calls}
    line = found.pop() if len(found) == 1 else None
    if line is None or any(call.lineno <= line <= (call.end_lineno or call.lineno) for call in calls):
        return NOWHERE if line is None else made
    function = module.function_around(line)
    text = lines[line - 1].strip() if line <= len(lines) else ""
    return replace(made, line=line, function=function, text=text[:200])


def lines_and_tree(file: str) -> tuple[Sequence[str], ast.Module | None]:
    """Return the lines of a file or cell, and its syntax tree without magics; None if it has a syntax error."""
    lines = source_of(file)
    return lines, syntax_tree("".join("\n" if line.lstrip().startswith(("%", "!")) else line for line in lines))


class _Module:
    """The syntax tree of a source, with the parent of each node."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) > 1)
        self.constructors = [call for call in calls if _last_name(call.func) in _CONSTRUCTORS]
        self._libraries = {
            name.asname or name.name.partition(".")[0]
            for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))
            for name in node.names
            if (getattr(node, "module", None) or name.name).partition(".")[0] in _LIBRARIES
        }  # fmt: skip

    def allocated(self, call: ast.Call) -> int | None:
        """Return the line that allocated the array of a constructor's call; None if unknown."""
        return self._origin(call.args[1], _DEEPEST)

    def function_around(self, line: int) -> str:
        """Return the qualified name of the function that contains a line; empty at the top level."""
        names = [
            node.name for node in ast.walk(self._tree)
            if isinstance(node, _Function) and node.lineno <= line <= (node.end_lineno or node.lineno)
        ]  # fmt: skip
        return names[-1] if names else ""

    def _origin(self, value: ast.expr, left: int) -> int | None:
        if left == 0:
            return None
        if isinstance(value, (ast.BinOp, ast.UnaryOp, ast.Compare)):
            return value.lineno
        if isinstance(value, (ast.Subscript, ast.Starred)):
            return self._origin(value.value, left - 1)
        if isinstance(value, ast.Attribute):
            return self._origin(value.value, left - 1) if value.attr in _VIEWS else None
        if isinstance(value, ast.Name):
            return self._of_variable(value, left - 1)
        if isinstance(value, (ast.List, ast.Tuple)) and value.elts:
            lines = {self._origin(each, left - 1) for each in value.elts}
            return lines.pop() if len(lines) == 1 else None
        return self._of_call(value, left - 1) if isinstance(value, ast.Call) else None

    def _of_call(self, call: ast.Call, left: int) -> int | None:
        name, of_library = _last_name(call.func), _first_name(call.func) in self._libraries
        if name in _VIEWS and isinstance(call.func, ast.Attribute):
            is_function = of_library and not any(isinstance(node, ast.Call) for node in ast.walk(call.func))
            argument = (call.args[0] if call.args else None) if is_function else call.func.value
            if isinstance(argument, (ast.List, ast.Tuple, ast.Constant, ast.ListComp)):
                return call.lineno
            return None if argument is None else self._origin(argument, left)
        if of_library or (isinstance(call.func, ast.Attribute) and name in _NEW):
            return call.lineno
        own = isinstance(call.func, ast.Name) or _first_name(call.func) in ("self", "cls")
        helpers = [node for node in ast.walk(self._tree) if isinstance(node, _Function) and node.name == name]
        if not own or len(helpers) != 1:
            return None
        returned = [
            node.value for node in ast.walk(helpers[0])
            if isinstance(node, ast.Return) and self._scope(node) is helpers[0]
        ]  # fmt: skip
        return self._origin(returned[0], left) if len(returned) == 1 and returned[0] is not None else None

    def _of_variable(self, name: ast.Name, left: int) -> int | None:
        """Return the origin of a variable: of its last value before the use, if the use always follows it."""
        scope: ast.AST | None = self._scope(name)
        bindings: list[tuple[ast.AST, ast.expr | None]] = []
        while scope is not None and not bindings:  # a lambda or nested function sees the variables around it
            inside = scope if scope is not self._scope(name) else None
            bindings = list(self._bindings(scope, name.id, name if inside is None else None))
            scope = self._scope(scope) if not isinstance(scope, ast.Module) else None
        before = [pair for pair in bindings if getattr(pair[0], "lineno", 0) <= name.lineno]
        if len(bindings) > 1:
            last = before[-1][0] if before else None
            if last is None or not self._always_before(last, name) or len(before) < len(bindings):
                return None
        if not before or before[-1][1] is None:
            return None
        return self._origin(before[-1][1], left)

    def _bindings(self, scope: ast.AST, name: str, use: ast.Name | None) -> Iterator[tuple[ast.AST, ast.expr | None]]:
        """Yield the places in a scope that bind a name, in order, each with the value; None if that is unknown."""
        arguments = getattr(scope, "args", None)
        if isinstance(arguments, ast.arguments):
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            yield from ((each, None) for each in every if each.arg == name)
        for node in sorted(ast.walk(scope), key=lambda n: (getattr(n, "lineno", 0), getattr(n, "col_offset", 0))):
            if isinstance(node, ast.comprehension) and _is_name(node.target, name):
                around = self._parents[node]
                if use is not None and any(each is use for each in ast.walk(around)):
                    yield around, node.iter if isinstance(node.iter, (ast.List, ast.Tuple)) else None
            elif self._scope(node) is not scope:
                continue
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if _is_name(target, name):
                        yield node, node.value
                    elif _has_name(target, name):
                        yield node, None
            elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and _is_name(node.target, name):
                yield node, node.value
            elif isinstance(node, (ast.For, ast.AsyncFor)) and _has_name(node.target, name):
                yield node, None
            elif isinstance(node, ast.withitem) and _has_name(node.optional_vars, name):
                yield self._parents[node], None

    def _always_before(self, binding: ast.AST, use: ast.AST) -> bool:
        """Return whether the statement of a binding is in a block that contains the use, too."""
        around = self._parents.get(binding)
        node: ast.AST | None = use
        while node is not None and node is not around:
            node = self._parents.get(node)
        return node is not None and not isinstance(around, (ast.If, ast.Try, ast.IfExp))

    def _scope(self, node: ast.AST) -> ast.AST:
        parent = self._parents.get(node, self._tree)
        while not isinstance(parent, (ast.Module, _Function, ast.Lambda)):
            parent = self._parents[parent]
        return parent


def _has_name(target: ast.AST | None, name: str) -> bool:
    """Return whether a target binds a name, for example in a tuple."""
    nodes = ast.walk(target) if target is not None else ()
    return any(_is_name(node, name) and isinstance(getattr(node, "ctx", None), ast.Store) for node in nodes)


def _is_name(node: ast.AST | None, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _last_name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _first_name(function: ast.expr) -> str:
    while isinstance(function, (ast.Attribute, ast.Call, ast.Subscript)):
        function = function.func if isinstance(function, ast.Call) else function.value
    return function.id if isinstance(function, ast.Name) else ""
