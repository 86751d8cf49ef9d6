"""Evaluate expressions of one function or module, without running it.

`NameScope` records the values assigned to each name. The value of an argument, of a loop variable, and of a name that
is assigned twice is unknown; `NameScope.origin` follows calls of the source's own functions, too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeGuard, TypeVar

from bls_notebook.records import BLSError

_MOST_VISITED = 1 << 25  # nodes, counted at each reading: some seconds
_RESOLVED = 16  # nodes that take as long as resolving an expression
_MOST_ORIGINS = 6  # of one value
_MOST_COPIED, _DEEPEST = 400, 24  # nodes of the result of a function, and its depth

Tree = TypeVar("Tree", bound=ast.AST)
Function = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_APPENDS = frozenset({"append", "extend", "insert"})
# Functions that return a tensor, and the position of the argument with its name.
_NAME_AT = {"Tensor": 0, "from_dlpack": 0, "get_input_tensor_by_name": 1, "get_output_tensor_by_name": 1}


def last_name(node: ast.expr) -> str:
    """Return ``c`` for ``a.b.c``; empty if the expression is not a dotted name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_call_of(node: ast.AST | None, *names: str) -> TypeGuard[ast.Call]:
    """Return whether an expression calls a function or method of these names without positional arguments."""
    return isinstance(node, ast.Call) and last_name(node.func) in names and not node.args


def argument(call: ast.Call, name: str, position: int) -> ast.expr | None:
    """Return an argument of a call, passed by keyword or position, or None."""
    for word in call.keywords:
        if word.arg == name:
            return word.value
    plain = not any(isinstance(node, ast.Starred) for node in call.args[: position + 1])
    return call.args[position] if plain and 0 <= position < len(call.args) else None


UNKNOWN_VALUE = ast.Name("?", ast.Load(), lineno=0, col_offset=0)


def _element(value: ast.expr, place: ast.AST) -> ast.expr:
    """Return the expression of one element of a value."""
    return ast.copy_location(ast.Subscript(value, UNKNOWN_VALUE, ast.Load()), place)


def _either(values: list[ast.expr]) -> ast.expr | None:
    """Return a conditional expression of values; None if there are none, or many."""
    if not values or len(values) > _MOST_ORIGINS:
        return None
    value = values[0]
    for other in values[1:]:
        value = ast.copy_location(ast.IfExp(UNKNOWN_VALUE, value, other), value)
    return value


def alternatives(node: ast.expr | None) -> Iterator[ast.expr | None]:
    """Yield the values of a conditional expression, without None constants; any other expression unchanged."""
    if isinstance(node, ast.IfExp):
        for part in (node.body, node.orelse):
            if not (isinstance(part, ast.Constant) and part.value is None):
                yield from alternatives(part)
    else:
        yield node


def arguments_of(call: ast.Call, function: ast.AST) -> dict[str, ast.expr]:
    """Return the arguments that a call passes to a function, by name, with the defaults of others."""
    if not isinstance(function, Function) or spreads(call):
        return {}
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    defaults = dict(zip(reversed(names), reversed(arguments.defaults), strict=False))
    defaults |= {a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None}
    own = names[1:] if names[:1] in (["self"], ["cls"]) else names
    return defaults | dict(zip(own, call.args, strict=False)) | {w.arg: w.value for w in call.keywords if w.arg}


def spreads(call: ast.Call) -> bool:
    """Return whether a call unpacks arguments (``*a``, ``**b``)."""
    return any(isinstance(a, ast.Starred) for a in call.args) or any(w.arg is None for w in call.keywords)


@dataclass(frozen=True)
class TensorNames:
    """Tensor names with the lines that create them; `certain` if the list is complete."""

    names: tuple[tuple[str, int], ...] = ()
    certain: bool = True

    def __add__(self, other: TensorNames) -> TensorNames:
        return TensorNames(self.names + other.names, self.certain and other.certain)


UNKNOWN = TensorNames(certain=False)


class SourceFacts(Protocol):
    """What a scope asks of the source that it is in."""

    @property
    def imported(self) -> Mapping[str, str]: ...  # the dotted name of each imported name
    def helper(
        self, function: ast.expr, scope: NameScope
    ) -> NameScope | None: ...  # the function of the project that a call runs
    def call_sites(self, function: NameScope) -> list[tuple[ast.Call, NameScope]]: ...  # empty if unknown
    def attribute(self, name: str) -> list[tuple[ast.expr | None, NameScope]]: ...  # values of `self.name`


class NameScope:
    """Values assigned to the names of a module or function."""

    def __init__(
        self, node: ast.Module | Function, outer: NameScope | None, source: SourceFacts, owner: str = ""
    ) -> None:
        self.node, self.outer = node, outer
        self.source, self.owner = source, owner  # the owner is the class of a method
        self._module: NameScope = self if outer is None else outer._module
        self._visited = 0  # nodes of the module

    @property
    def nodes(self) -> list[ast.AST]:
        """Nodes of this scope, without the nodes of nested scopes; a BLSError after `_MOST_VISITED` of the module."""
        self._count(len(self._nodes) + 4)  # also of empty scopes
        return self._nodes

    def _count(self, visited: int) -> None:
        self._module._visited += visited
        if self._module._visited > _MOST_VISITED:
            raise BLSError("the source is too long to be analyzed; split it into modules")

    @cached_property
    def _nodes(self) -> list[ast.AST]:
        out: list[ast.AST] = []
        todo: list[ast.AST] = list(self.node.body)
        while todo:
            node = todo.pop()
            out.append(node)
            if not isinstance(node, _SCOPES):
                todo += ast.iter_child_nodes(node)
        return out

    @cached_property
    def parents(self) -> dict[int, ast.AST]:
        """The parent of each node, by the node's `id`."""
        return {id(child): node for node in self.nodes for child in ast.iter_child_nodes(node)}

    @cached_property
    def dotted(self) -> frozenset[str]:
        """Names with an attribute, as in ``name.attribute``."""
        values = (node.value for node in self.nodes if isinstance(node, ast.Attribute))
        return frozenset(value.id for value in values if isinstance(value, ast.Name))

    @cached_property
    def tested(self) -> frozenset[str]:
        """Names in conditions, comparisons and `try` statements."""
        names: set[str] = set()
        todo: list[tuple[ast.AST, bool]] = [(node, False) for node in self.node.body]
        while todo:
            node, tested = todo.pop()
            if tested and isinstance(node, ast.Name):
                names.add(node.id)
            whole, test = tested or isinstance(node, (ast.BoolOp, ast.Compare, ast.Try)), getattr(node, "test", None)
            todo += ((child, whole or child is test) for child in ast.iter_child_nodes(node))
        return frozenset(names)

    @cached_property
    def sent(self) -> dict[int, list[ast.Call]]:
        """Calls of `exec` and `async_exec`, by the `id` of the request that they certainly send."""
        sent: dict[int, list[ast.Call]] = {}
        for node in (node for node in self.nodes if isinstance(node, ast.Call)):
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("exec", "async_exec"):
                sent.setdefault(id(self.value(node.func.value)), []).append(node)
        return sent

    @cached_property
    def read(self) -> dict[int, list[tuple[str, int]]]:
        """Outputs that are read from responses, with the lines, by the `id` of the call that returns the response."""
        read: dict[int, list[tuple[str, int]]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Call) and last_name(node.func) == "get_output_tensor_by_name":
                response = self.value(argument(node, "inference_response", 0))
                response = response.value if isinstance(response, ast.Await) else response
                name = self.text(argument(node, "name", 1))
                if name is not None:
                    read.setdefault(id(response), []).append((name, node.lineno))
        return read

    def inside(self, node: ast.AST, kinds: tuple[type[ast.AST], ...]) -> bool:
        """Return whether a node is below another one of such a kind."""
        parent: ast.AST | None = node
        while parent is not None and not isinstance(parent := self.parents.get(id(parent)), kinds):
            pass
        return parent is not None

    @cached_property
    def yields(self) -> bool:
        return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in self.nodes)

    def uses(self, name: str) -> list[ast.AST | None]:
        """Return the parents of the expressions that read a name."""
        reads = (n for n in self.nodes if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load))
        return [self.parents.get(id(node)) for node in reads]

    @cached_property
    def assignments(self) -> dict[str, list[ast.expr | None]]:
        """The values assigned to each name in this scope; None for an unknown value."""
        assigned: dict[str, list[ast.expr | None]] = {}
        if isinstance(self.node, Function):
            assigned = {node.arg: [None] for node in ast.walk(self.node.args) if isinstance(node, ast.arg)}
        plain_targets: set[int] = set()
        for node in self.nodes:
            pairs: list[tuple[ast.expr, ast.expr | None]] = []
            if isinstance(node, ast.Assign):
                pairs = [(target, node.value) for target in node.targets]
            elif (isinstance(node, ast.AnnAssign) and node.value is not None) or isinstance(node, ast.NamedExpr):
                pairs = [(node.target, node.value)]
            for target, value in pairs:
                if isinstance(target, ast.Name):
                    plain_targets.add(id(target))
                    assigned.setdefault(target.id, []).append(value)
        for node in self.nodes:
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and id(node) not in plain_targets:
                assigned.setdefault(node.id, []).append(None)
        return assigned

    def values(self, name: str) -> list[ast.expr | None] | None:
        """Return all values assigned to a name (None for an unknown value), or None for an unknown name."""
        values = self.assignments.get(name)
        return values if values is not None or self.outer is None else self.outer.values(name)

    def value(self, node: ast.expr | None) -> ast.expr | None:
        """Return an expression, resolving names with exactly one value."""
        self._count(_RESOLVED)  # names that name each other several times have more paths than names
        for _ in range(8):
            if not isinstance(node, ast.Name):
                return node
            values = self.values(node.id)
            node = values[0] if values is not None and len(values) == 1 else None
        return None

    def origin(self, node: ast.expr | None) -> ast.expr | None:
        """Return an expression as `value` does, but follow arguments, loops, `self`, and own functions too.

        A value of several origins is a conditional expression. The name ``?`` is an unknown part.
        """
        self._count(_RESOLVED)
        for _ in range(_MOST_ORIGINS):
            following = self._origin(node)
            if following is None:
                return None if isinstance(node, ast.Name) else node
            node = following
        return None

    def dotted_name(self, node: ast.expr) -> str:
        """Return the name of a function with its module's own name: `numpy.zeros` for `np.zeros`."""
        name = ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""
        first, dot, rest = name.partition(".") if re.fullmatch(r"[\w.]+", name) else ("", "", "")
        return (self.source.imported.get(first, first)) + dot + rest

    def _origin(self, node: ast.expr | None) -> ast.expr | None:
        """Return the expression that an expression gets its value from; None if there is none."""
        if isinstance(node, ast.Name):
            owner: NameScope | None = self
            while owner is not None and node.id not in owner.assignments:
                owner = owner.outer
            return None if owner is None else owner._origin_of_name(node)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            values = self.source.attribute(node.attr)
            value, scope = values[0] if len(values) == 1 else (None, self)
            return value if value is None or scope is self else scope.portable(value)
        return self._inlined(node) if isinstance(node, (ast.Call, ast.Await)) else None

    def _origin_of_name(self, node: ast.Name) -> ast.expr | None:
        values, elements = self.assignments[node.id], self._elements.get(node.id, [])
        if values == [None] and not elements:
            return self._passed_as(node.id)
        known = [value for value in values if value is not None] + elements
        if len(known) == len(values) and len({*map(ast.unparse, known[:9])}) == 1:
            return known[0]
        return self._last_value(node) if len(values) > 1 else None

    def _passed_as(self, name: str) -> ast.expr | None:
        """Return what all calls of the function pass as an argument; None if unknown."""
        if name not in self._arguments:
            self._arguments[name] = None  # also for functions that call themselves
            sites = self.source.call_sites(self)
            passed = [(scope, arguments_of(call, self.node).get(name)) for call, scope in sites[:_MOST_ORIGINS]]
            if passed and len(sites) <= _MOST_ORIGINS and all(value is not None for _, value in passed):
                self._arguments[name] = _either([scope.portable(value) for scope, value in passed])
        return self._arguments[name]

    @cached_property
    def _arguments(self) -> dict[str, ast.expr | None]:
        return {}

    def _last_value(self, name: ast.Name) -> ast.expr | None:
        """Return the value that a name was last assigned before a use, in the same block; None if not certain."""
        assigned: list[tuple[ast.AST, ast.expr]] = []
        for node in self.nodes:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name.id:
                assigned.append((node, node.value))
            elif isinstance(node, ast.AugAssign) and getattr(node.target, "id", "") == name.id:
                assigned.append((node, ast.copy_location(ast.BinOp(node.target, node.op, node.value), node)))
        places = [self._places[id(node)] for node, _ in assigned if id(node) in self._places]
        blocks = {block for block, _ in places}
        if len(blocks) != 1 or not len(places) == len(assigned) == len(self.assignments[name.id]):
            return None
        use: ast.AST | None = name
        while use is not None and self._places.get(id(use), (0, 0))[0] not in blocks:
            use = self.parents.get(id(use))
        if use is None:
            return None
        index = self._places[id(use)][1]
        before = [(place[1], value) for place, (_, value) in zip(places, assigned, strict=True) if place[1] < index]
        return max(before, key=lambda pair: pair[0])[1] if before else None

    @cached_property
    def _places(self) -> dict[int, tuple[int, int]]:
        """The block of each statement, and its number there, by the `id` of the statement."""
        blocks = [getattr(n, part, []) for n in (self.node, *self.nodes) for part in ("body", "orelse", "finalbody")]
        return {id(s): (id(block), i) for block in blocks if isinstance(block, list) for i, s in enumerate(block)}

    @cached_property
    def _elements(self) -> dict[str, list[ast.expr]]:
        """The elements that the variables of loops, and of unpacked values, have."""
        elements: dict[str, list[ast.expr]] = {}

        def bind(target: ast.expr, value: ast.expr) -> None:
            if isinstance(target, ast.Name):
                elements.setdefault(target.id, []).append(value)
            for part in target.elts if isinstance(target, (ast.Tuple, ast.List)) else ():
                bind(part, _element(value, part))

        for node in self.nodes:
            if isinstance(node, (ast.For, ast.comprehension)):
                iterated, target = node.iter, node.target
                name = last_name(iterated.func) if isinstance(iterated, ast.Call) else ""
                if isinstance(iterated, ast.Call) and name in ("zip", "enumerate") and isinstance(target, ast.Tuple):
                    sources = [UNKNOWN_VALUE, *iterated.args[:1]] if name == "enumerate" else iterated.args
                    for part, source in zip(target.elts, sources, strict=False):
                        bind(part, _element(source, part))
                elif name != "items":
                    bind(target, _element(iterated, target))
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Tuple, ast.List)):
                bind(node.targets[0], node.value)
            elif isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
                bind(node.optional_vars, node.context_expr)
        return elements

    @cached_property
    def _results(self) -> list[ast.expr]:
        """The values that a function returns, without None; empty if unknown."""
        values = [node.value for node in self.nodes if isinstance(node, ast.Return)]
        return [] if self.yields else [v for v in values if v is not None and getattr(v, "value", v) is not None]

    @cached_property
    def _inlined_calls(self) -> dict[int, tuple[ast.expr, ast.expr | None]]:
        return {}

    def _inlined(self, node: ast.expr) -> ast.expr | None:
        """Return the value of a call of an own function, in terms of its arguments; None if unknown."""
        if id(node) in self._inlined_calls:
            return self._inlined_calls[id(node)][1]
        self._inlined_calls[id(node)] = node, None  # also for functions that call themselves
        call = node.value if isinstance(node, ast.Await) else node
        function = self.source.helper(call.func, self) if isinstance(call, ast.Call) else None
        if function is None or not isinstance(call, ast.Call) or spreads(call):
            return None
        if isinstance(function.node, ast.AsyncFunctionDef) is not isinstance(node, ast.Await):
            return None
        passed, copied = arguments_of(call, function.node), [_MOST_COPIED]
        value = _either([function.portable(result, passed, copied) for result in function._results])
        self._inlined_calls[id(node)] = node, value
        return value

    def portable(
        self,
        node: ast.expr | None,
        passed: Mapping[str, ast.expr] = {},
        left: list[int] | None = None,
        depth: int = _DEEPEST,
    ) -> ast.expr:
        """Return an expression that means the same in other functions: without names of this one.

        `passed` are expressions for its arguments; `left` is the number of nodes that may still be copied.
        """
        self._count(_RESOLVED)
        left = left if left is not None else [_MOST_COPIED]
        left[0] -= 1
        if node is None or left[0] < 0 or not depth or isinstance(node, ast.Lambda):
            return UNKNOWN_VALUE
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            if node.id in passed:
                return passed[node.id]
            if node.id == "self" or self.values(node.id) is None:
                return node
            return self.portable(self._origin(node), passed, left, depth - 1)
        if isinstance(node, (ast.Call, ast.Await)) and (value := self._inlined(node)) is not None:
            return self.portable(value, passed, left, depth - 1)

        def copied(part: object) -> object:
            if isinstance(part, list):
                return [copied(each) for each in part]
            if isinstance(part, ast.expr):
                return self.portable(part, passed, left, depth - 1)
            return copy(part) if isinstance(part, (ast.keyword, ast.comprehension)) else part

        def copy(whole: Tree) -> Tree:
            fields: dict[str, Any] = {name: copied(value) for name, value in ast.iter_fields(whole)}
            return type(whole)(**fields)

        return ast.copy_location(copy(node), node)

    def text(self, node: ast.expr | None) -> str | None:
        """Return the string that an expression evaluates to, or None if unknown."""
        constant = self.value(node)
        return constant.value if isinstance(constant, ast.Constant) and isinstance(constant.value, str) else None

    def texts(self, node: ast.expr | None) -> list[str] | None:
        """Return the strings of a list, or None if one is unknown."""
        if isinstance(node, ast.Name) and any(self.grows(node.id)):
            return None
        items = self.value(node)
        if not isinstance(items, (ast.List, ast.Tuple)):
            return None
        texts = [self.text(item) for item in items.elts]
        return None if None in texts else [text for text in texts if text is not None]

    def grows(self, name: str) -> Iterator[ast.Call]:
        for node in self.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of = node.func.value
                if node.func.attr in _APPENDS and isinstance(of, ast.Name) and of.id == name:
                    yield node

    def tensors(self, node: ast.expr | None, depth: int = 8) -> TensorNames:
        if node is None or not depth:
            return UNKNOWN
        out = TensorNames()
        if isinstance(node, (ast.List, ast.Tuple)):
            for item in node.elts:
                out += self._tensor(item, depth - 1)
            return out
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.tensors(node.left, depth - 1) + self.tensors(node.right, depth - 1)
        if not isinstance(node, ast.Name):
            return UNKNOWN
        assigned = self.assignments.get(node.id, [None])
        if len(assigned) > 1:
            return UNKNOWN
        out += self.tensors(assigned[0], depth - 1)
        for call in self.grows(node.id):
            added = call.args[-1] if call.args else None
            extends = isinstance(call.func, ast.Attribute) and call.func.attr == "extend"
            out += self.tensors(added, depth - 1) if extends else self._tensor(added, depth - 1)
        return out if self._only_listed(node.id) else out + UNKNOWN

    def _tensor(self, node: ast.expr | None, depth: int) -> TensorNames:
        self._count(_RESOLVED)
        if isinstance(node, ast.Call) and last_name(node.func) in _NAME_AT:
            name = self.text(argument(node, "name", _NAME_AT[last_name(node.func)]))
            return UNKNOWN if name is None else TensorNames(((name, node.lineno),))
        if not isinstance(node, ast.Name) or not depth:
            return UNKNOWN
        tensors = [self._tensor(value, depth - 1) for value in self.assignments.get(node.id, [None])]
        same = len({name for tensor in tensors for name, _ in tensor.names}) == 1
        return tensors[0] if same and all(tensor.certain for tensor in tensors) else UNKNOWN

    def _only_listed(self, name: str) -> bool:
        """Return whether no call or operator can add to a list."""
        for node in self.nodes:
            if isinstance(node, ast.Call) and last_name(node.func) not in ("InferenceResponse", "InferenceRequest"):
                passed = [*node.args, *(word.value for word in node.keywords)]
                if any(isinstance(value, ast.Name) and value.id == name for value in passed):
                    return last_name(node.func) in ("len", "print", "str", "repr")
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                return False
        return True
