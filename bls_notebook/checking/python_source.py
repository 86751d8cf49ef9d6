"""Read one model.py as a syntax tree: its inputs, outputs, requests and imports. Nothing is run."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

from bls_notebook.backends import CLASS_NAME
from bls_notebook.records import source_text
from bls_notebook.repository import API
from bls_notebook.repository.source import check_source, python_files, syntax_tree

from .array_types import KnownArray, array_of
from .name_scope import UNKNOWN, Function, NameScope, TensorNames, argument, is_call_of, last_name, spreads
from .records import names

# Versions of Python and forms of the messages and lines of syntax errors that older ones raise.
_LATER = names()["syntax of later versions"]
_MOST_FILES = 1000  # siblings of a model.py to read
_CALLED_BY_TRITON = frozenset({"self.execute", "self.initialize", "self.finalize"})


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


def later_python(error: str, here: tuple[int, ...] = sys.version_info[:2]) -> str:
    """Return the version of Python, later than `here`, that allows a syntax error's line; empty if none is known.

    `error` is the message and, below it, the line.
    """
    version = next((version for version, form in _LATER if re.search(form, error)), "0.0")
    return version if tuple(map(int, version.split("."))) > here else ""


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
        todo: list[tuple[ast.AST, NameScope | None, str]] = [(self.tree, None, "")]
        while todo:
            node, outer, owner = todo.pop()
            inner = outer
            if isinstance(node, (ast.Module, Function)):
                inner = NameScope(node, outer, self, owner)
                out.append(inner)
            owner = node.name if isinstance(node, ast.ClassDef) else ""
            todo += ((child, inner, owner) for child in ast.iter_child_nodes(node))
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
    def imported(self) -> dict[str, str]:
        """The dotted name of each imported name: of `np`, `numpy`. A mock of Triton's API counts as the API."""
        names, api = {"np": "numpy", "pb_utils": API}, names_of_api(self.tree)
        for node, _ in self.nodes:
            if isinstance(node, ast.Import):
                pairs = [(each.asname or each.name.partition(".")[0], each) for each in node.names]
                names |= {name: each.name if each.asname else name for name, each in pairs}
            elif isinstance(node, ast.ImportFrom):
                names |= {each.asname or each.name: f"{node.module or ''}.{each.name}" for each in node.names}
        return {name: API if name in api else dotted for name, dotted in names.items()}

    def _beside(self, dotted: str) -> PythonSource | None:
        """Return the module beside this file that has a dotted name."""
        path = f"{dotted.strip('.').replace('.', '/')}.py"
        files = [folder / path for folder in (self.path.parent, self.path.parent.parent)]
        file = next((f for f in files if dotted.strip(".") and f != self.path and f.is_file()), None)
        if file is None:
            return None
        return self._modules.setdefault(file, PythonSource(file, source_text(file)))

    @cached_property
    def _modules(self) -> dict[Path, PythonSource]:
        return {}

    @cached_property
    def _methods(self) -> dict[str, dict[str, NameScope | None]]:
        """The methods of each class of the module; None for a name of several meanings."""
        scopes = {id(scope.node): scope for scope in self.scopes}
        classes: dict[str, dict[str, NameScope | None]] = {}
        for node in self.tree.body:
            for method in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(node, ast.ClassDef) and isinstance(method, Function):
                    methods = classes.setdefault(node.name, {})
                    plain = {*map(ast.unparse, method.decorator_list)} <= {"staticmethod", "classmethod"}
                    known = plain and method.name not in methods
                    methods[method.name] = scopes[id(method)] if known else None
        return classes

    def method(self, class_name: str, name: str, depth: int = 4) -> NameScope | None:
        """Return a method of a class of this module, or of a class that it inherits from; None if unknown."""
        if name in self._methods.get(class_name, {}):
            return self._methods[class_name][name]
        node = next((n for n in self.tree.body if isinstance(n, ast.ClassDef) and n.name == class_name), None)
        for base in node.bases if node is not None and depth else ():
            module, _, base_name = self.imported.get(ast.unparse(base), f".{ast.unparse(base)}").rpartition(".")
            source = self._beside(module) if module else self
            found = None if source is None else source.method(base_name, name, depth - 1)
            if found is not None:
                return found
        return None

    def helper(self, function: ast.expr, scope: NameScope) -> NameScope | None:
        """Return the function of this source, or of a module beside it, that a call runs; None if unknown."""
        if isinstance(function, ast.Name) and function.id in self.functions:
            return self.functions[function.id]
        module, _, name = scope.dotted_name(function).rpartition(".")
        if name and module == "self":
            outer: NameScope | None = scope
            while outer is not None and not outer.owner:
                outer = outer.outer
            return None if outer is None else self.method(outer.owner, name)
        if name and (source := self._beside(module)) is not None:
            return source.functions.get(name)
        made = scope.origin(function.value) if isinstance(function, ast.Attribute) else None
        if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and isinstance(function, ast.Attribute):
            return self.method(made.func.id, function.attr)
        return None

    def call_sites(self, function: NameScope) -> list[tuple[ast.Call, NameScope]]:
        """Return the calls of a function of this source, with their scopes; empty if others may call it."""
        name = next((name for name, scope in self.functions.items() if scope is function), "")
        uses = self._uses.get(name, [])
        sites = [(call, scope) for call, scope in uses if isinstance(call, ast.Call) and not spreads(call)]
        return sites if len(sites) == len(uses) and name not in _CALLED_BY_TRITON else []

    @cached_property
    def _uses(self) -> dict[str, list[tuple[ast.AST | None, NameScope]]]:
        """The calls of each name (``name`` or ``self.name``), and None for other uses."""
        uses: dict[str, list[tuple[ast.AST | None, NameScope]]] = {}
        called = {id(node.func): node for node, _ in self.nodes if isinstance(node, ast.Call)}
        for node, scope in self.nodes:
            own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
            if own or isinstance(node, ast.Name):
                name = f"self.{last_name(node)}" if own and isinstance(node, ast.Attribute) else getattr(node, "id", "")
                uses.setdefault(name, []).append((called.get(id(node)), scope))
        return uses

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

    def attribute(self, name: str) -> list[tuple[ast.expr | None, NameScope]]:
        """Return the values assigned to `self.name`."""
        return self.attributes.get(name, [])

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
        forwards=is_call_of(inputs, "inputs"),
    )


def _names_in(node: ast.expr | None) -> tuple[str, ...]:
    if node is None:
        return ("?",)
    names = [last_name(n) for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute))]
    flags = tuple(name for name in names if "FLAG" in name)
    return flags if flags else ("?",)


def names_of_api(tree: ast.Module) -> set[str]:
    """Return the names under which a source imports Triton's module."""
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.Import))
    return {alias.asname or API for node in imports for alias in node.names if alias.name == API}
