"""Branches of a model's code on the answers of its callees, those that no run reached, and requests made of answers.

`marked_source` returns the same program with a mark at the beginning of each such branch; a run adds the numbers of
the marks that it passes to `REACHED`. The analysis of names is an over-approximation within each function.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

REACHED: set[int] = set()
_MARK = "__import__({!r}, fromlist=['REACHED']).REACHED.add({})"
_SENDS = ("exec", "async_exec")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.comprehension)
_Lines = tuple[int, int]


@dataclass(frozen=True)
class Branch:
    """A branch on the answers of calls that were sent at the lines ``sources``; ``words`` say that no run reached it.

    ``test`` is the line of its condition, ``function`` and ``loop`` are the lines around it.
    """

    number: int
    words: str
    sources: frozenset[int]
    test: int
    function: _Lines
    loop: _Lines | None

    def may_control(self, line: int) -> bool:
        """Return whether a call at a line may be sent after the condition."""
        first, last = self.function
        if not first <= line <= last or line >= self.test:
            return True
        return self.loop is not None and self.loop[0] <= line <= self.loop[1]


def marked_source(text: str) -> tuple[str, list[Branch], dict[int, set[int]]]:
    """Return a source with marks, empty without branches on answers; these branches; and requests made of answers.

    The last maps the line of a call to the lines of the calls whose answers its request may be made of.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return "", [], {}
    answers = _Answers(tree)
    uses, marker = answers.uses(), _Marker(answers)
    marked = ast.fix_missing_locations(marker.visit(tree))
    return (ast.unparse(marked) if marker.branches else ""), marker.branches, uses


class _Answers:
    """The lines of the calls whose answers each expression may depend on."""

    def __init__(self, tree: ast.Module) -> None:
        self._functions = {node.name: node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)}
        self._sends: dict[str, set[int]] = {name: set() for name in self._functions}
        self._names: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        imports = (node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom)))
        # `np.save(file, answer)` makes nothing of `np`.
        self._modules = {(each.asname or each.name).partition(".")[0] for node in imports for each in node.names}
        size = -1
        while size != (size := sum(map(len, (*self._sends.values(), *self._names.values())))):
            for name, function in self._functions.items():
                for node in ast.walk(function):
                    self._read(name, node)

    def _read(self, function: str, node: ast.AST) -> None:
        if isinstance(node, ast.Call):
            self._sends[function] |= self._sent(node)
            called = self._called(node)
            if called is not None:
                parameters = [argument.arg for argument in called.args.args]
                parameters = parameters[isinstance(node.func, ast.Attribute) and parameters[:1] == ["self"] :]
                for parameter, value in zip(parameters, node.args, strict=False):
                    self._names[called.name, parameter] |= self.of(function, value)
            if isinstance(node.func, ast.Attribute):  # parts.append(answer)
                for value in node.args:
                    self._assign(function, node.func.value, self.of(function, value))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(function, target, self.of(function, node.value))
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            self._assign(function, node.target, self.of(function, node.value))
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            self._assign(function, node.target, self.of(function, node.iter))
        elif isinstance(node, (ast.Match, ast.Try)):  # which of their parts run
            for part, lines in self._decided(function, node):
                for target in (t for n in ast.walk(part) if isinstance(n, ast.Assign) for t in n.targets):
                    self._assign(function, target, lines)

    def _assign(self, function: str, target: ast.AST, lines: set[int]) -> None:
        if (item := _item(target)) is not None:
            self._names[function, item] |= lines
            return
        indices = {id(i) for node in ast.walk(target) if isinstance(node, ast.Subscript) for i in ast.walk(node.slice)}
        for node in ast.walk(target):
            if id(node) in indices:
                continue
            if isinstance(node, ast.Attribute):
                self._names["", node.attr] |= lines
            elif isinstance(node, ast.Name) and node.id not in self._modules | {"self"}:
                self._names[function, node.id] |= lines

    def _called(self, node: ast.Call) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        return self._functions.get(getattr(node.func, "attr", getattr(node.func, "id", "")))

    def _sent(self, node: ast.Call) -> set[int]:
        if isinstance(node.func, ast.Attribute) and node.func.attr in _SENDS:
            return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        called = self._called(node)
        return set() if called is None else self._sends[called.name]

    def of(self, function: str, tree: ast.AST) -> set[int]:
        lines = set[int]()
        items = {id(n.value): name for n in ast.walk(tree) if isinstance(n, ast.Subscript) and (name := _item(n))}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                lines |= self._sent(node)
            elif isinstance(node, ast.Name):
                lines |= self._names.get((function, node.id), set())
                item = items.get(id(node))  # of one item, or of all
                for (where, name), answers in self._names.items():
                    if where == function and (name == item if item else name.startswith(f"{node.id}[")):
                        lines |= answers
            elif isinstance(node, ast.Attribute):
                lines |= self._names.get(("", node.attr), set())
        return lines

    def uses(self) -> dict[int, set[int]]:
        """Map the line of each call to those whose answers its request, or how often it is sent, may be made of."""
        uses: defaultdict[int, set[int]] = defaultdict(set)
        chosen, called = set[int](), set[str]()  # by functions that answers choose; functions that are called by name
        for name, function in self._functions.items():
            for node in ast.walk(function):
                for part, lines in self._decided(name, node):
                    for call in ast.walk(part) if lines else ():
                        for line in self._sent(call) if isinstance(call, ast.Call) else ():
                            uses[line] |= lines
                if isinstance(node, ast.Call) and (known := self._called(node)) is not None:
                    called.add(known.name)
                elif isinstance(node, ast.Call) and not isinstance(node.func, ast.Attribute):
                    chosen |= self.of(name, node.func)
        for name in self._functions.keys() - called - {"execute"} if chosen else ():
            for line in self._sends[name]:
                uses[line] |= chosen
        return uses

    def _decided(self, function: str, node: ast.AST) -> Iterator[tuple[ast.AST, set[int]]]:
        """Yield parts of the code in which calls are sent, with the answers that decide on these."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SENDS:
            receiver = self.of(function, node.func.value)
            yield ast.Call(node.func, [], [], lineno=node.lineno, end_lineno=node.end_lineno), receiver
        elif isinstance(node, ast.BoolOp):
            for number, value in enumerate(node.values[1:], 1):
                yield value, set().union(*(self.of(function, each) for each in node.values[:number]))
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            heads = (part for each in node.generators for part in (each.iter, *each.ifs))
            lines = set().union(*(self.of(function, head) for head in heads))
            yield from ((part, lines) for part in ast.iter_child_nodes(node) if not isinstance(part, ast.comprehension))
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            yield from ((part, self.of(function, node.iter)) for part in node.body)
        elif isinstance(node, ast.Match):
            yield from ((case, self.of(function, node.subject)) for case in node.cases)
        elif isinstance(node, ast.Try):
            lines = set().union(*(self.of(function, part) for part in node.body))
            yield from ((handler, lines) for handler in node.handlers)
            if any(isinstance(n, (ast.Return, ast.Break, ast.Continue)) for part in node.body for n in ast.walk(part)):
                after = (n for n in ast.walk(self._functions[function]) if isinstance(n, ast.stmt))
                yield from ((part, lines) for part in after if part.lineno > (node.end_lineno or node.lineno))

    def is_harmless(self, body: Sequence[ast.stmt]) -> bool:
        """Return whether statements only write a message, or do nothing."""
        calls = (node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Call))
        return all(isinstance(s, (ast.Expr, ast.Pass)) for s in body) and not any(map(self._sent, calls))


def _item(node: ast.AST) -> str | None:
    """Return the name of an item with a constant key: ``results['a']``; None for others."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Constant):
        return f"{node.value.id}[{node.slice.value!r}]"
    return None


class _Marker(ast.NodeTransformer):
    def __init__(self, answers: _Answers) -> None:
        self.branches: list[Branch] = []
        self._answers = answers
        self._around: list[ast.AST] = []

    def visit(self, node: ast.AST) -> ast.AST:
        self._around.append(node)
        try:
            marks = [*self._marks(node)]  # numbered before those of inner branches
            self.generic_visit(node)
            for part, number in marks:
                _insert(node, part, number)
            return node
        finally:
            self._around.pop()

    def _marks(self, node: ast.AST) -> Iterator[tuple[str, int]]:
        if not isinstance(node, (ast.If, ast.While, ast.IfExp)):
            return
        function = next((each for each in reversed(self._around) if isinstance(each, _FUNCTIONS)), None)
        if function is None:
            return
        sources = frozenset(self._answers.of(function.name, node.test))
        statements = [] if isinstance(node, ast.IfExp) else [*node.body, *node.orelse]
        if not sources or _is_error_check(node.test) or (statements and self._answers.is_harmless(statements)):
            return
        loop = next((each for each in reversed(self._around) if isinstance(each, _LOOPS) and each is not node), None)
        around = None if loop is None else _lines_of(loop)
        for part in ("body",) if isinstance(node, ast.While) else ("body", "orelse"):
            number = len(self.branches)
            words = _words(node, part)
            self.branches.append(Branch(number, words, sources, node.lineno, _lines_of(function), around))
            yield part, number


def _is_error_check(test: ast.expr) -> bool:
    """Return whether a condition only asks for an error, which is among the changes of each answer."""
    test = test.operand if isinstance(test, ast.UnaryOp) else test
    return isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute) and test.func.attr == "has_error"


def _words(node: ast.If | ast.While | ast.IfExp, part: str) -> str:
    inside = getattr(node, part)
    if isinstance(inside, list) and inside:
        return f"line {inside[0].lineno} was never reached; a request that reaches it, or code without it, settles it"
    value, other = ("false", "true") if part == "body" else ("true", "false")
    settles = f"a request for which it is {other}, or code without it, settles it"
    return f"the condition in line {node.lineno} was always {value}; {settles}"


def _lines_of(node: ast.AST) -> _Lines:
    lines = [n.lineno for n in ast.walk(node) if hasattr(n, "lineno")]
    return min(lines), max([*lines, getattr(node, "end_lineno", 0) or 0])


def _insert(node: ast.AST, part: str, number: int) -> None:
    mark = ast.parse(_MARK.format(__name__, number), mode="eval").body
    inside = getattr(node, part)
    if isinstance(inside, list):
        setattr(node, part, [ast.Expr(mark), *inside])
    else:
        pair = ast.Tuple([mark, inside], ast.Load())
        setattr(node, part, ast.Subscript(pair, ast.Constant(1), ast.Load()))
