"""What the names in a module stand for: its functions, the methods of its model, and what it imports."""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from bls_notebook.backends.python import CLASS_NAME

Def = ast.FunctionDef | ast.AsyncFunctionDef
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_AGAIN = frozenset({"range", "enumerate", "zip", "list", "tuple", "sorted", "dict", "reversed"})
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def within(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node, and what it is made of; not what is inside of functions defined there."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, SCOPES):
            yield from within(child)
        else:
            yield child


@dataclass(eq=False)
class Function:
    """A function of the module, or a method of its model."""

    node: Def
    method: bool

    def __post_init__(self) -> None:
        arguments = self.node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
        names = [a.arg for a in every]
        decorators = {d.id for d in self.node.decorator_list if isinstance(d, ast.Name)}
        self.plain = decorators <= {"staticmethod", "classmethod"} and len(decorators) == len(
            self.node.decorator_list
        )
        bound = self.method and "staticmethod" not in decorators and bool(names)
        self.self_name = names[0] if bound else ""
        self.parameters = frozenset(names[1:] if bound else names)
        self.is_async = isinstance(self.node, ast.AsyncFunctionDef)
        self.locals = self.parameters | {
            n.id
            for n in within_body(self.node)
            if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)
        }

    @property
    def name(self) -> str:
        return self.node.name


def within_body(node: Def) -> Iterator[ast.AST]:
    """Yield what a function's body is made of."""
    for statement in node.body:
        yield from within(statement)


class Module:
    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.imports: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name if alias.asname else alias.name.partition(".")[0]
                    self.imports[alias.asname or top] = top
            elif isinstance(node, ast.ImportFrom) and not node.level:
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        self.model = next(
            (n for n in reversed(tree.body) if isinstance(n, ast.ClassDef) and n.name == CLASS_NAME), None
        )
        methods = self.model.body if self.model is not None else []
        self.functions = _once(tree.body, False)
        self.methods = _once(methods, True)
        stored = {
            n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
        }
        self.methods = {name: f for name, f in self.methods.items() if name not in stored}
        self.globals = {
            n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        self.every = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | {
            n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)
        }

    @property
    def own(self) -> list[Function]:
        """Its functions and methods."""
        return [*self.functions.values(), *self.methods.values()]

    def function_of(self, called: ast.expr, where: Function) -> Function | None:
        """Return the module's own function that is called; None for any other."""
        if isinstance(called, ast.Name) and called.id not in where.locals:
            return self.functions.get(called.id)
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            owner = called.value.id
            if owner == where.self_name != "":
                return self.methods.get(called.attr)
        return None

    def imported(self, called: ast.expr, where: Function) -> str:
        """Return the whole name of a function of a library; empty for any other."""
        parts: list[str] = []
        while isinstance(called, ast.Attribute):
            parts.append(called.attr)
            called = called.value
        if not isinstance(called, ast.Name):
            return ""
        name = called.id
        if name in self.imports:
            return ".".join([self.imports[name], *reversed(parts)])
        known = name in where.locals or name in self.globals or name in self.functions
        if not parts and not known and hasattr(builtins, name):
            return f"builtins.{name}"
        return ""


def _once(body: list[ast.stmt], method: bool) -> dict[str, Function]:
    """Functions that are defined once, and not given another value."""
    names = Counter(n.name for n in body if isinstance(n, SCOPES[:2]))
    for statement in body:
        if not isinstance(statement, SCOPES):
            names.update(
                n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            )
    return {n.name: Function(n, method) for n in body if isinstance(n, SCOPES[:2]) and names[n.name] == 1}


def goes_again(node: ast.expr, function: Function) -> bool:
    """Whether an expression gives the same again when a loop goes through it twice."""
    if isinstance(node, (ast.List, ast.Tuple, ast.ListComp, ast.Constant)):
        return True
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.value.id == function.self_name != ""
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) and not node.keywords else ""
        known = name in _AGAIN and name not in function.locals
        return known and (name == "range" or all(goes_again(each, function) for each in node.args))
    if not isinstance(node, ast.Name):
        return False
    if node.id == "requests" and node.id in function.parameters:
        return True
    uses = [n for n in within_body(function.node) if isinstance(n, ast.Name) and n.id == node.id]
    values = [
        n.value
        for n in within_body(function.node)
        if isinstance(n, ast.Assign) and any(isinstance(t, ast.Name) and t.id == node.id for t in n.targets)
    ]
    stores = sum(not isinstance(n.ctx, ast.Load) for n in uses)
    lists = all(not isinstance(v, ast.Name) and not _lazy(v) and goes_again(v, function) for v in values)
    return bool(values) and stores == len(values) and lists and node.id not in function.parameters


def _lazy(node: ast.expr) -> bool:
    lazy = {"zip", "enumerate", "reversed"}
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in lazy
