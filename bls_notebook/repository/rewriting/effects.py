"""What a piece of code reads and writes: variables, what they hold, the log, and requests that it sends.

A variable is its name, what it holds the name after a star; an attribute of the model is ``self.name``.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from .aliases import ARGUMENTS, Aliases, root
from .known import Kind, function_kind, method_kind
from .names import Function, Module

CALLS, LOG = "#calls", "#log"
Exit = tuple[bool, str]
"""Whether a response with an error is why, and how: raise, return, continue or break."""
_QUIET_CONTEXTS = ("torch.no_grad", "torch.inference_mode", "numpy.errstate", "contextlib.suppress")


@dataclass
class Effects:
    """What code reads and writes; ``unknown`` says where it does what cannot be seen (`line: code`)."""

    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    exits: set[Exit] = field(default_factory=set)
    unknown: str = ""

    def add(self, other: Effects) -> None:
        self.reads |= other.reads
        self.writes |= other.writes
        self.exits |= other.exits
        self.unknown = self.unknown or other.unknown

    def conflicts(self, other: Effects) -> set[str]:
        """Return what makes their order matter; that both send requests does not."""
        found = self.writes & (other.reads | other.writes) | self.reads & other.writes
        return found - {CALLS}


class Reader:
    """Reads the code of a module's functions."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._summaries: dict[Function, Effects | None] = {}
        self._aliases: dict[Function, Aliases] = {}
        self.sends: set[ast.Call] = set()  # which calls send a request

    def aliases(self, function: Function) -> Aliases:
        if function not in self._aliases:
            self._aliases[function] = Aliases(self.module, function)
        return self._aliases[function]

    def of(self, nodes: Iterable[ast.AST], function: Function, skip: Container[ast.AST] = ()) -> Effects:
        """Return what code of a function does, some parts of it left out."""
        reading = _Reading(self, function, skip)
        for node in nodes:
            reading.visit(node)
        return reading.found

    def summary(self, function: Function) -> Effects:
        """Return what a function does that its caller may notice, to `ARGUMENTS` too."""
        if function not in self._summaries:
            self._summaries[function] = None
            self._summaries[function] = self._summary(function)
        found = self._summaries[function]
        return Effects(unknown=f"{function.name} calls itself") if found is None else found

    def _summary(self, function: Function) -> Effects:
        inner = self.of(function.node.body, function)
        own = function.locals

        def kept(names: set[str]) -> set[str]:
            return {n for n in names if n.lstrip("*") not in own}

        exits = {(error, how) for error, how in inner.exits if how == "raise"}
        return Effects(kept(inner.reads), kept(inner.writes), exits, inner.unknown)


class _Reading(ast.NodeVisitor):
    def __init__(self, reader: Reader, function: Function, skip: Container[ast.AST]) -> None:
        self._reader, self._function, self._skip = reader, function, skip
        self._module, self._aliases = reader.module, reader.aliases(function)
        self._own: list[str] = []  # loops around
        self._error = self._caught = False
        self.found = Effects()

    def visit(self, node: ast.AST) -> None:
        """Read a node, unless it is left out."""
        if node not in self._skip:
            super().visit(node)

    # -- what is read and written --------------------------------------------------------------------

    def _reads(self, name: str) -> None:
        self.found.reads |= {name, *(f"*{each}" for each in self._aliases.reach(name))}

    def _writes(self, name: str) -> None:
        """What a variable holds is changed."""
        if name:
            self.found.writes |= {f"*{each}" for each in self._aliases.same(name)}

    def _unknown(self, node: ast.AST, why: str = "may do more than can be seen") -> None:
        code = " ".join(ast.unparse(node).split())
        code = code if len(code) <= 60 else f"{code[:57]}..."
        self.found.unknown = self.found.unknown or f"line {getattr(node, 'lineno', 0)}: `{code}` {why}"

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.found.writes.add(node.id)
            return
        own = self._module.function_of(node, self._function)
        if own is not None:  # it may be called by whoever gets it
            self._calls_own(ast.Call(node, [], []), own)
        elif node.id == self._function.self_name:
            self._reads("self")
        elif node.id not in self._module.imports:
            self._reads(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = root(node, self._function)
        if isinstance(node.ctx, ast.Load):
            own = self._module.function_of(node, self._function)
            if own is not None:
                self._calls_own(ast.Call(node, [], []), own)
            elif name == f"self.{node.attr}":
                self._reads(name)
            else:
                self.visit(node.value)
        else:
            if name == f"self.{node.attr}":
                self.found.writes.add(name)
            else:
                self.visit(node.value)
            self._writes(name)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.visit(node.value)
        self.visit(node.slice)
        if not isinstance(node.ctx, ast.Load):
            self._writes(root(node, self._function))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        name = root(node.target, self._function)
        if name:
            self._reads(name)
            self._writes(name)
        self.visit(node.target)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute):
            self.visit(node.func.value)
        for each in (*node.args, *node.keywords):
            self.visit(each)
        if node in self._reader.sends:
            self.found.writes.add(CALLS)
            return
        own = self._module.function_of(node.func, self._function)
        if own is not None:
            self._calls_own(node, own)
            return
        kind = self._kind(node)
        if kind == "log":
            self.found.writes.add(LOG)
        elif kind == "unknown":
            self._unknown(node)
        elif kind == "mutates":
            if isinstance(node.func, ast.Attribute) and not self._module.imported(node.func, self._function):
                self._writes(root(node.func.value, self._function))
            else:
                self._writes_to_arguments(node)
        if any(k.arg in ("out", "dst", "inplace") for k in node.keywords):
            self._writes_to_arguments(node)

    def _kind(self, node: ast.Call) -> Kind:
        name = self._module.imported(node.func, self._function)
        kind = function_kind(name) if name else "unknown"
        if kind == "unknown" and isinstance(node.func, ast.Attribute):
            of = ast.unparse(node.func.value)
            return method_kind(node.func.attr, of) if not name or "log" in of.lower() else kind
        return kind

    def _calls_own(self, node: ast.Call, own: Function) -> None:
        does = self._reader.summary(own)
        self.found.add(Effects(does.reads, {w for w in does.writes if w != f"*{ARGUMENTS}"}, does.exits))
        if does.unknown:
            self._unknown(node, f"calls code that cannot be judged ({does.unknown})")
        if f"*{ARGUMENTS}" in does.writes:
            self._writes_to_arguments(node)

    def _writes_to_arguments(self, node: ast.Call) -> None:
        for each in (*node.args, *(k.value for k in node.keywords)):
            for name in self._aliases.roots(each):
                self._writes(name)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        """It is made here; calls of it are not judged."""
        for name in self._aliases.roots(node):
            self._reads(name)
        self.found.writes.add(node.name)

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef  # noqa: N815 - as `ast` names them

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.visit(node.iter)
        for each in node.ifs:
            self.visit(each)
        if node.is_async:
            self._unknown(node.iter)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        self.found.writes |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}

    visit_ImportFrom = visit_Import  # noqa: N815 - as `ast` names them

    def visit_Global(self, node: ast.stmt) -> None:
        self._unknown(node)

    visit_Nonlocal = visit_Yield = visit_YieldFrom = visit_Global  # type: ignore[assignment]  # noqa: N815

    # -- the ways out --------------------------------------------------------------------------------

    def _exit(self, how: str, inner: ast.AST | None) -> None:
        if how in ("break", "continue") and self._own:
            return
        self.found.exits.add((self._error, "caught" if how == "raise" and self._caught else how))
        if inner is not None:
            self.visit(inner)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._exit("raise", node.exc)

    def visit_Assert(self, node: ast.Assert) -> None:
        before = self._error
        fine = isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)
        self._error = before or (fine and is_error_test(node.test.operand))  # type: ignore[attr-defined]
        self._exit("raise", node.test)
        self._error = before
        if node.msg is not None:
            self.visit(node.msg)

    def visit_Return(self, node: ast.Return) -> None:
        self._exit("return", node.value)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._exit("continue", None)

    def visit_Break(self, node: ast.Break) -> None:
        self._exit("break", None)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        before = self._error
        self._error = before or is_error_test(node.test)
        self._all(node.body)
        self._error = before
        self._all(node.orelse)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        if isinstance(node, ast.AsyncFor):
            self._unknown(node.iter)
        self.visit(node.iter)
        self.visit(node.target)
        self._looped(node)

    visit_AsyncFor = visit_For  # noqa: N815 - as `ast` names them

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self._looped(node)

    def _looped(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        self._own.append("loop")
        self._all(node.body)
        self._own.pop()
        self._all(node.orelse)

    def visit_Try(self, node: ast.Try) -> None:
        before, self._caught = self._caught, True
        self._all(node.body)
        self._caught = before
        self._all([*node.handlers, *node.orelse, *node.finalbody])

    visit_TryStar = visit_Try  # type: ignore[assignment]  # noqa: N815

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            called = item.context_expr
            name = self._module.imported(called.func, self._function) if isinstance(called, ast.Call) else ""
            if name not in _QUIET_CONTEXTS or isinstance(node, ast.AsyncWith):
                self._unknown(called)
            self.visit(item)
        self._all(node.body)

    visit_AsyncWith = visit_With  # noqa: N815 - as `ast` names them

    def _all(self, body: Iterable[ast.AST]) -> None:
        for each in body:
            self.visit(each)


def is_error_test(test: ast.expr) -> bool:
    """Whether it asks of a response whether it has an error, and nothing else."""
    if isinstance(test, ast.BoolOp):
        return all(map(is_error_test, test.values))
    if isinstance(test, ast.NamedExpr):
        test = test.value
    if isinstance(test, ast.Compare):
        if not isinstance(test.ops[0], ast.IsNot) or len(test.ops) > 1:
            return False
        test = test.left
    return (
        isinstance(test, ast.Call)
        and isinstance(test.func, ast.Attribute)
        and (test.func.attr in ("has_error", "error") and not test.args)
    )
