"""Read one model.py as a syntax tree: its inputs, outputs, requests and imports. Nothing is run.

`NameScope` evaluates constant expressions: it records the values assigned to each name of a function. The value
of an argument, of a loop variable, and of a name that is assigned twice is unknown.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np

from bls_notebook.backends import CLASS_NAME
from bls_notebook.pb_utils.dtypes import DataType, numpy_to_triton_type
from bls_notebook.records import BLSError, source_text
from bls_notebook.repository.source import check_source, python_files, syntax_tree

_MOST_FILES = 1000  # siblings of a model.py to read
_MOST_VISITED = 1 << 25  # nodes, counted as often as they are read: some seconds
_RESOLVED = 16  # nodes that take as long as resolving an expression


@dataclass(frozen=True)
class CalleeRequest:
    """One `InferenceRequest` in a source.

    `model` is empty if unknown. `flags` has the names in the `flags` argument, None without one. `sent` are
    the calls of `exec` and `async_exec` that certainly send this request.
    """

    line: int
    model: str
    version: int | None
    inputs: TensorNames
    outputs: list[str] | None
    keywords: frozenset[str]
    flags: tuple[str, ...] | None
    sent: tuple[ast.Call, ...]
    read: tuple[tuple[str, int], ...]  # outputs read from its response, with the lines
    plain: bool  # whether it has only keyword arguments, none unpacked
    forwards: bool = False  # whether its inputs are `request.inputs()`


@dataclass(frozen=True)
class InputRead:
    """One lookup of an input by name; `guarded` if the source tests the result for None."""

    name: str
    line: int
    guarded: bool


class PythonSource:
    def __init__(self, path: Path, text: str) -> None:
        self.path, self.text = path, text

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree, empty if it has a syntax error."""
        return syntax_tree(self.text) or ast.Module([], [])

    @cached_property
    def mistake(self) -> tuple[int, str] | None:
        """Line and message of its syntax error, or None."""
        try:
            check_source(self.text)
            ast.parse(self.text)
        except SyntaxError as error:
            return error.lineno or 0, error.msg
        except (ValueError, RecursionError, MemoryError) as error:
            return 0, str(error)
        return None

    @cached_property
    def scopes(self) -> list[NameScope]:
        """Its module and functions, outer before inner."""
        out: list[NameScope] = []
        todo: list[tuple[ast.AST, NameScope | None]] = [(self.tree, None)]
        while todo:
            node, outer = todo.pop()
            inner = outer
            if isinstance(node, (ast.Module, Function)):
                inner = NameScope(node, outer)
                out.append(inner)
            todo += ((child, inner) for child in ast.iter_child_nodes(node))
        return out

    @cached_property
    def nodes(self) -> list[tuple[ast.AST, NameScope]]:
        """All nodes, outer before inner, each with the function or module that it is in."""
        scopes = {id(scope.node): scope for scope in self.scopes}
        out: list[tuple[ast.AST, NameScope]] = [(self.tree, scopes[id(self.tree)])]
        for node, scope in out:  # grows
            out += ((child, scopes.get(id(node), scope)) for child in ast.iter_child_nodes(node))
        return out

    def calls_of(self, name: str) -> Iterator[tuple[ast.Call, NameScope]]:
        """Yield calls of functions called `name`, each with its scope."""
        for scope in self.scopes:
            for node in scope.nodes:
                if isinstance(node, ast.Call) and last_name(node.func) == name:
                    yield node, scope

    @cached_property
    def functions(self) -> dict[str, NameScope]:
        """Undecorated functions of the module and methods (``self.name``) of the model, with names of one meaning."""
        methods = self.model_class.body if self.model_class else []
        defined: dict[str, list[NameScope]] = {}
        for scope in self.scopes:
            if isinstance(scope.node, Function):
                owner = "self." if scope.node in methods else "" if scope.node in self.tree.body else "?"
                defined.setdefault(owner + scope.node.name, []).append(scope)
        return {
            name: scope for name, (scope, *others) in defined.items()
            if name[0] != "?" and not others and isinstance(scope.node, Function) and not scope.node.decorator_list
        }  # fmt: skip

    @cached_property
    def words(self) -> frozenset[str]:
        """Words anywhere in the text, also in comments."""
        return frozenset(re.findall(r"\w+", self.text))

    def helpers_mention(self, word: str) -> bool:
        """Return whether another Python file of the model mentions a word."""
        return any(word in source_text(file) for file in self.siblings)

    @cached_property
    def model_class(self) -> ast.ClassDef | None:
        classes = [n for n in self.tree.body if isinstance(n, ast.ClassDef) and n.name == CLASS_NAME]
        return classes[-1] if classes else None

    @cached_property
    def completes(self) -> bool:
        """True if the model defines or may inherit `auto_complete_config`."""
        body = self.model_class.body if self.model_class else []
        return self.inherits or any(isinstance(n, Function) and n.name == "auto_complete_config" for n in body)

    @cached_property
    def inherits(self) -> bool:
        """True if the model's class may have methods of another class."""
        return self.model_class is None or any(last_name(base) != "object" for base in self.model_class.bases)

    @cached_property
    def execute(self) -> Function | None:
        body = self.model_class.body if self.model_class else []
        return next((n for n in reversed(body) if isinstance(n, Function) and n.name == "execute"), None)

    @cached_property
    def siblings(self) -> tuple[Path, ...]:
        """Other Python files below its folder and in the model's folder."""
        files = (*python_files(self.path.parent), *self.path.parent.parent.glob("*.py"))
        return tuple(file for file in sorted(islice(files, _MOST_FILES)) if file != self.path)

    @cached_property
    def outputs(self) -> TensorNames:
        out, any_ = TensorNames(), False
        for call, scope in self.calls_of("InferenceResponse"):
            tensors = argument(call, "output_tensors", 0)
            if tensors is None:
                out += UNKNOWN if spreads(call) else TensorNames()
                continue
            any_ = True
            out += scope.tensors(tensors)
        elsewhere = self.helpers_mention("InferenceResponse")
        return out if any_ and out.names and not self.inherits and not elsewhere else out + UNKNOWN

    @cached_property
    def reads(self) -> tuple[InputRead, ...]:
        """Lookups of inputs by a constant name."""
        out = []
        for call, scope in self.calls_of("get_input_tensor_by_name"):
            name = scope.text(argument(call, "name", 1))
            if name is not None:
                out.append(InputRead(name, call.lineno, not used_at_once(call, scope)))
        return tuple(out)

    @cached_property
    def arrays(self) -> dict[tuple[str, int], KnownArray]:
        """Arrays of created and forwarded tensors, by the tensor's name and line; without tensors that share both."""
        arrays: dict[tuple[str, int], KnownArray] = {}
        for function in ("Tensor", "get_input_tensor_by_name"):
            for call, scope in self.calls_of(function):
                name = scope.text(argument(call, "name", int(function != "Tensor")))
                if name is not None:
                    array = (
                        array_of(scope, argument(call, "", 1)) if function == "Tensor" else KnownArray("", name, True)
                    )
                    arrays[name, call.lineno] = KnownArray() if (name, call.lineno) in arrays else array
        return arrays

    @cached_property
    def first_rows(self) -> tuple[tuple[str, int], ...]:
        """Inputs of which only ``as_numpy()[0]`` is used, with the lines."""
        arrays = ((call, scope, array_of(scope, call).input) for call, scope in self.calls_of("as_numpy"))
        return tuple((name, call.lineno) for call, scope, name in arrays if name and _uses(call, scope) == {"0"})

    @cached_property
    def calls(self) -> tuple[CalleeRequest, ...]:
        dropped = {id(n.value) for scope in self.scopes for n in scope.nodes if isinstance(n, ast.Expr)}
        out: list[CalleeRequest] = []
        for call, scope in self.calls_of("InferenceRequest"):
            if id(call) not in dropped:
                request = _call(call, scope)
                others = () if request.model else self._named_elsewhere(call, scope)
                out += [replace(request, model=model, line=line, plain=False) for model, line in others] or [request]
        return tuple(out)

    def _named_elsewhere(self, call: ast.Call, scope: NameScope) -> list[tuple[str, int]]:
        """Return callees whose name is a parameter of the function, or an attribute of `self`."""
        node = argument(call, "model_name", 4)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            name = self.attribute_text(node.attr)
            return [(name, call.lineno)] if name else []
        if not isinstance(node, ast.Name) or not isinstance(scope.node, Function):
            return []
        names = [parameter.arg for parameter in (*scope.node.args.posonlyargs, *scope.node.args.args)]
        if node.id not in names or scope.values(node.id) != [None]:
            return []
        out = []
        for caller, outer in self.calls_of(scope.node.name):
            position = names.index(node.id) - (names[0] == "self" and isinstance(caller.func, ast.Attribute))
            text = outer.text(argument(caller, node.id, position))
            if text:
                out.append((text, caller.lineno))
        return out

    @cached_property
    def attributes(self) -> dict[str, list[tuple[ast.expr | None, NameScope]]]:
        """The values assigned to each attribute, and to each name in a class; None for an unknown value."""
        out: dict[str, list[tuple[ast.expr | None, NameScope]]] = {}
        in_class = {id(part) for node, _ in self.nodes if isinstance(node, ast.ClassDef) for part in node.body}
        for node, scope in self.nodes:
            value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
            if isinstance(node, ast.AnnAssign) and value is None:
                continue  # it only declares a type
            for target in getattr(node, "targets", [getattr(node, "target", None)]):
                if isinstance(target, ast.Attribute) or (isinstance(target, ast.Name) and id(node) in in_class):
                    out.setdefault(last_name(target), []).append((value, scope))
        return out

    def attribute_text(self, name: str) -> str:
        """Return the string that is an attribute's only value; empty if it has other values."""
        texts = [*{scope.text(value) or "" for value, scope in self.attributes.get(name, ())}]
        return texts[0] if len(texts) == 1 else ""

    def lines_with(self, pattern: str) -> list[int]:
        """Return the numbers of the lines that match a pattern outside comments."""
        lines = enumerate(self.text.splitlines(), 1)
        return [number for number, line in lines if re.search(pattern, line.partition("#")[0])]


def used_at_once(call: ast.Call, scope: NameScope) -> bool:
    """Return whether an attribute of a call's result is used without testing the result."""
    parent = scope.parents.get(id(call))
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    return isinstance(parent, ast.Attribute) if len(names) != 1 else names <= scope.dotted - scope.tested


def _uses(call: ast.Call, scope: NameScope) -> set[str]:
    """Return the indices by which a call's result is subscripted; ``*`` for any other use."""
    used: set[str] = set()
    nodes: list[ast.AST] = [call]
    for node in nodes:  # the loop extends `nodes`
        parent = scope.parents.get(id(node))
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
            name = parent.targets[0].id
            if len(scope.values(name) or ()) != 1 or node is not call:
                return {"*"}
            nodes += (n for n in scope.nodes if isinstance(n, ast.Name) and n.id == name and n is not parent.targets[0])
        elif isinstance(parent, ast.Subscript) and parent.value is node:
            index = parent.slice
            used.add(str(index.value) if isinstance(index, ast.Constant) else "*")
        else:
            used.add("*")
    return used


def _call(call: ast.Call, scope: NameScope) -> CalleeRequest:
    flags = argument(call, "flags", 6)
    version = scope.value(argument(call, "model_version", 5))
    number = version.value if isinstance(version, ast.Constant) and isinstance(version.value, int) else None
    inputs = argument(call, "inputs", 2)
    sent = scope.sent.get(id(call), [])
    return CalleeRequest(
        line=call.lineno,
        model=scope.text(argument(call, "model_name", 4)) or "",
        version=number,
        inputs=UNKNOWN if inputs is None else scope.tensors(inputs),
        outputs=scope.texts(argument(call, "requested_output_names", 3)),
        keywords=frozenset(filter(None, (word.arg for word in call.keywords))),
        flags=None if flags is None else _names_in(scope.value(flags)),
        sent=tuple(sent),
        read=tuple(read for exec_call in sent for read in scope.read.get(id(exec_call), ())),
        plain=not spreads(call) and not call.args,
        forwards=isinstance(inputs, ast.Call) and last_name(inputs.func) == "inputs" and not inputs.args,
    )


def _names_in(node: ast.expr | None) -> tuple[str, ...]:
    if node is None:
        return ("?",)
    names = [last_name(n) for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute))]
    flags = tuple(name for name in names if "FLAG" in name)
    return flags if flags else ("?",)


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


def argument(call: ast.Call, name: str, position: int) -> ast.expr | None:
    """Return an argument of a call, passed by keyword or position, or None."""
    for word in call.keywords:
        if word.arg == name:
            return word.value
    plain = not any(isinstance(node, ast.Starred) for node in call.args[: position + 1])
    return call.args[position] if plain and 0 <= position < len(call.args) else None


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


class NameScope:
    """Values assigned to the names of a module or function."""

    def __init__(self, node: ast.Module | Function, outer: NameScope | None = None) -> None:
        self.node, self.outer = node, outer
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


@dataclass(frozen=True)
class KnownArray:
    """What is certain about an array: its `dtype`, or the input of the model that it has the dtype and shape of."""

    dtype: str = ""  # as in config.pbtxt
    input: str = ""
    whole: bool = False  # whether it also has the input's shape
    made: ast.Call | None = None  # the call of NumPy that creates it


_KEEP_DTYPE = frozenset(
    {"reshape", "copy", "squeeze", "flatten", "ravel", "transpose", "expand_dims", "ascontiguousarray"}
)
_DTYPE_AT = {"zeros": 1, "ones": 1, "empty": 1, "array": 1, "asarray": 1, "full": 2}  # position of the argument `dtype`


def array_of(scope: NameScope, node: ast.expr | None, depth: int = 8) -> KnownArray:
    """Return what is certain about the array that an expression creates."""
    node = scope.value(node)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not depth or spreads(node):
        return KnownArray()
    owner, name = node.func.value, node.func.attr
    if ast.unparse(owner) in ("np", "numpy"):
        if name in _DTYPE_AT:
            dtype = argument(node, "dtype", _DTYPE_AT[name])
            floats = dtype is None and name in ("zeros", "ones", "empty")
            return KnownArray("TYPE_FP64" if floats else _dtype(dtype), made=node)
        if name in _KEEP_DTYPE and node.args:
            return replace(array_of(scope, node.args[0], depth - 1), whole=False, made=None)
        return KnownArray(_dtype(node.func))
    if name == "astype":
        return KnownArray(_dtype(argument(node, "dtype", 0)), made=array_of(scope, owner, depth - 1).made)
    if name in _KEEP_DTYPE:
        return replace(array_of(scope, owner, depth - 1), whole=name == "copy", made=None)
    tensor = scope.value(owner)
    if name == "as_numpy" and isinstance(tensor, ast.Call) and last_name(tensor.func) == "get_input_tensor_by_name":
        return KnownArray("", scope.text(argument(tensor, "name", 1)) or "", True)
    return KnownArray()


def _dtype(node: ast.expr | None) -> str:
    """Return the data type in config.pbtxt that a NumPy data type has; empty if unknown."""
    name = node.value if isinstance(node, ast.Constant) else ast.unparse(node) if node is not None else ""
    if not isinstance(name, str) or not re.fullmatch(r"((np|numpy)\.)?(float|int|uint|bool|double|single)\w*", name):
        return ""
    try:
        return f"TYPE_{DataType(numpy_to_triton_type(np.dtype(name.rpartition('.')[2])) or 0).name}"
    except (TypeError, ValueError):
        return ""
