"""Follow the answers of calls through a model's code, by names, to the expressions that may be made of them. Pure.

The analysis is an over-approximation: it follows arguments, results, members, globals and files through the functions
of the model's file and of modules beside it. Functions of one name count as one.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from .kept_state import CHANGING, MUTATORS, file_use

_SENDS = ("exec", "async_exec")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LEAVES = (ast.Return, ast.Break, ast.Continue)
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Label = int | tuple[str, str]
"""The line of a call, or a parameter of a function, which stands for what its callers pass."""
_FILES = "files"


class AnswerFlow:
    """The lines of the calls whose answers each expression may depend on."""

    def __init__(self, trees: Sequence[ast.Module]) -> None:
        self._functions: defaultdict[str, list[_Function]] = defaultdict(list)
        self._around: dict[str, str] = {}  # of functions inside functions
        self._classes: dict[str, list[str]] = {}  # the methods that run without being named
        self._modules = set[str]()  # `np.save(file, answer)` makes nothing of `np`
        for tree in trees:
            self._collect(tree, "")
        self._own = {name: _bound(functions) for name, functions in self._functions.items()}
        self._sends: defaultdict[str, set[int]] = defaultdict(set)
        self._returns: defaultdict[str, set[_Label]] = defaultdict(set)
        self._names: defaultdict[tuple[str, str], set[_Label]] = defaultdict(set)
        self._items: defaultdict[tuple[str, str], set[str]] = defaultdict(set)  # the names of a variable's items
        self._passed: defaultdict[tuple[str, str], set[_Label]] = defaultdict(set)
        self._changed: defaultdict[tuple[str, str], set[_Label]] = defaultdict(set)  # parameters, in place
        for name, functions in self._functions.items():
            for parameter in _parameters(functions):
                self._names[name, parameter].add((name, parameter))
        facts = (self._sends, self._returns, self._names, self._passed, self._changed)
        nodes, size = list(self._nodes()), -1
        while size != (size := sum(len(labels) for fact in facts for labels in fact.values())):
            for name, function, node in nodes:
                self._read(name, function, node)

    def _collect(self, node: ast.AST, around: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, FUNCTIONS):
                self._functions[child.name].append(child)
                self._around[child.name] = around
            elif isinstance(child, ast.ClassDef):
                methods = [each.name for each in child.body if isinstance(each, FUNCTIONS)]
                self._classes[child.name] = [name for name in methods if name.startswith("__")]
            elif isinstance(child, (ast.Import, ast.ImportFrom)):
                self._modules |= {(each.asname or each.name).partition(".")[0] for each in child.names}
            self._collect(child, child.name if isinstance(child, FUNCTIONS) else around)

    def _nodes(self) -> Iterator[tuple[str, _Function, ast.AST]]:
        for name, functions in self._functions.items():
            for function in functions:
                yield from ((name, function, node) for node in _within(function))

    def _read(self, name: str, function: _Function, node: ast.AST) -> None:
        if isinstance(node, ast.Call):
            self._sends[name] |= self._sent(node)
            self._read_call(name, node)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(name, target, self._of(name, node.value))
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            self._assign(name, node.target, self._of(name, node.value))
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            self._assign(name, node.target, self._of(name, node.iter))
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._assign(name, node.optional_vars, self._of(name, node.context_expr))
        elif isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom)) and node.value is not None:
            self._returns[name] |= self._of(name, node.value)
        elif isinstance(node, (ast.Match, ast.Try, ast.With)):  # which of their parts run
            for part, labels in self._decided(name, function, node):
                for target in (t for n in ast.walk(part) if isinstance(n, ast.Assign) for t in n.targets):
                    self._assign(name, target, labels)

    def _read_call(self, name: str, node: ast.Call) -> None:
        called = _name(node.func)
        values = [*node.args, *(keyword.value for keyword in node.keywords)]
        every = set[_Label]().union(*(self._of(name, value) for value in values))
        for value in values:
            if isinstance(value, ast.Lambda):
                others = set[_Label]().union(*(self._of(name, other) for other in values if other is not value))
                for argument in value.args.args:
                    self._assign(name, ast.Name(argument.arg, ast.Store()), others)
        for known in self._called(called):
            functions = self._functions[known]
            parameters = _parameters(functions)
            positional = [a.arg for a in functions[-1].args.args]
            is_method = positional[:1] == ["self"]
            pairs = dict(zip(positional[is_method:], node.args, strict=False))
            pairs |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg in parameters}
            spread = any(isinstance(value, ast.Starred) for value in node.args) or None in {
                k.arg for k in node.keywords
            }
            rest = {a.arg for f in functions for a in (f.args.vararg, f.args.kwarg) if a is not None}
            for parameter in parameters:
                if parameter not in pairs:
                    self._passed[known, parameter] |= every if spread or parameter in rest else set()
                    continue
                self._passed[known, parameter] |= self._of(name, pairs[parameter])
                if changed := self._changed[known, parameter]:
                    own = {each for each in changed if isinstance(each, tuple) and each[0] == known}
                    self._assign(name, pairs[parameter], (changed - own) | (every if own else set()))
        if isinstance(node.func, ast.Attribute):  # parts.append(answer)
            self._assign(name, node.func.value, every, in_place=True)
        if called in CHANGING and node.args:  # np.copyto(parts, answer)
            if called == "setattr" and len(node.args) > 2:
                self._names["", str(getattr(node.args[1], "value", ""))] |= self._of(name, node.args[2])
            put = set[_Label]().union(*(self._of(name, value) for value in node.args[1:]))
            self._assign(name, node.args[0], put, in_place=True)
        if called in ("write", "writelines") or file_use(node)[0]:
            self._names["", _FILES] |= every

    def _assign(self, name: str, target: ast.AST, labels: set[_Label], in_place: bool = False) -> None:
        if not labels:
            return
        if (item := _item(target)) is not None:
            variable = item.partition("[")[0]
            home = self._home(name, variable)
            self._names[home, item] |= labels
            self._items[home, variable].add(item)
        indices = {id(i) for node in ast.walk(target) if isinstance(node, ast.Subscript) for i in ast.walk(node.slice)}
        in_place = in_place or isinstance(target, (ast.Subscript, ast.Attribute))
        for node in ast.walk(target):
            if id(node) in indices:
                continue
            if isinstance(node, ast.Attribute):
                self._names["", node.attr] |= labels
            elif isinstance(node, ast.Name) and node.id not in self._modules | {"self"}:
                if item is None:
                    self._names[self._home(name, node.id), node.id] |= labels
                if in_place:
                    self._changed[name, node.id] |= labels

    def _home(self, function: str, name: str) -> str:
        """Return the function whose variable a name is; "module" for a global variable."""
        while function and name not in self._own[function]:
            function = self._around[function]
        return function or "module"

    def _called(self, name: str) -> tuple[str, ...]:
        """Return the functions that a call of a name runs: itself, or special methods of a class."""
        return (name,) if name in self._functions else tuple(self._classes.get(name, ()))

    def _sent(self, node: ast.Call) -> set[int]:
        if isinstance(node.func, ast.Attribute) and node.func.attr in _SENDS:
            return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        return set().union(*(self._sends[known] for known in self._called(_name(node.func))))

    def _result(self, known: str) -> set[_Label]:
        """Return the origins of a function's result, without its arguments."""
        own = {each for each in self._returns[known] if isinstance(each, tuple) and each[0] == known}
        return self._sends[known] | (self._returns[known] - own)

    def _of(self, function: str, tree: ast.AST) -> set[_Label]:
        labels = set[_Label]()
        items = {id(n.value): name for n in ast.walk(tree) if isinstance(n, ast.Subscript) and (name := _item(n))}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                labels |= self._sent(node)
                called = _name(node.func)
                labels |= set().union(*(self._result(known) for known in self._called(called)))
                if called == "getattr" and len(node.args) > 1:
                    labels |= self._names.get(("", str(getattr(node.args[1], "value", ""))), set())
                if file_use(node)[1]:
                    labels |= self._names.get(("", _FILES), set())
            elif isinstance(node, ast.Name):
                home = self._home(function, node.id)
                labels |= self._names.get((home, node.id), set())
                item = items.get(id(node))  # of one item, or of all
                for each in {item} if item else self._items.get((home, node.id), ()):
                    labels |= self._names.get((home, each), set())
            elif isinstance(node, ast.Attribute):
                labels |= self._names.get(("", node.attr), set())
                if any("property" in ast.dump(d) for f in self._functions.get(node.attr, ()) for d in f.decorator_list):
                    labels |= self._result(node.attr)
        return labels

    def _lines(self, labels: Iterable[_Label]) -> set[int]:
        """Return the lines of labels; for a parameter, the lines of its arguments."""
        seen, todo = set[_Label](), [*labels]
        while todo:
            if (label := todo.pop()) not in seen:
                seen.add(label)
                todo += self._passed.get(label, ()) if isinstance(label, tuple) else ()
        return {label for label in seen if isinstance(label, int)}

    def of(self, function: str, tree: ast.AST) -> set[int]:
        """Return the lines of the calls whose answers an expression in a function may depend on."""
        return self._lines(self._of(function, tree))

    def uses(self) -> dict[int, set[int]]:
        """Map the line of each call to those whose answers its request, or how often it is sent, may be made of."""
        uses: defaultdict[int, set[int]] = defaultdict(set)
        chosen, called = set[int](), set[str]()  # by functions that answers choose; functions that are called by name
        lambdas = set[int]()
        for name, function, node in self._nodes():
            for part, labels in self._decided(name, function, node):
                lines = self._lines(labels)
                for call in ast.walk(part) if lines else ():
                    for line in self._sent(call) if isinstance(call, ast.Call) else ():
                        uses[line] |= lines
            if isinstance(node, ast.Lambda):
                lambdas |= set().union(*(self._sent(n) for n in ast.walk(node.body) if isinstance(n, ast.Call)))
            elif isinstance(node, ast.Call) and (known := self._called(_name(node.func))):
                called.update(known)
            elif isinstance(node, ast.Call) and not isinstance(node.func, ast.Attribute):
                chosen |= self.of(name, node.func)
                if isinstance(node.func, ast.Name) and self._home(name, node.func.id) != "module":
                    chosen |= set().union(*(self.of(name, each) for each in (*node.args, *node.keywords)))
        chosen -= lambdas
        decorated = {
            name
            for name, functions in self._functions.items()
            if any(_name(each) in self._functions for f in functions for each in f.decorator_list)
        }
        for name in (self._functions.keys() - called - {"execute"}) | decorated if chosen else ():
            lambdas |= self._sends[name]
        for line in lambdas if chosen else ():
            uses[line] |= chosen
        return uses

    def _decided(self, name: str, function: _Function, node: ast.AST) -> Iterator[tuple[ast.AST, set[_Label]]]:
        """Yield parts of the code in which calls are sent, with the answers that decide on these."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SENDS:
            receiver = self._of(name, node.func.value)
            yield ast.Call(node.func, [], [], lineno=node.lineno, end_lineno=node.end_lineno), receiver
        elif isinstance(node, ast.BoolOp):
            for number, value in enumerate(node.values[1:], 1):
                yield value, set().union(*(self._of(name, each) for each in node.values[:number]))
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            heads = (part for each in node.generators for part in (each.iter, *each.ifs))
            labels = set[_Label]().union(*(self._of(name, head) for head in heads))
            yield from (
                (part, labels) for part in ast.iter_child_nodes(node) if not isinstance(part, ast.comprehension)
            )
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            yield from ((part, self._of(name, node.iter)) for part in node.body)
        elif isinstance(node, ast.Match):
            subject = self._of(name, node.subject)
            yield from ((case, subject) for case in node.cases)
            yield from self._after(function, node, subject)
        elif isinstance(node, ast.Try):
            labels = set[_Label]().union(*(self._of(name, part) for part in node.body))
            yield from ((handler, labels) for handler in node.handlers)
            yield from self._after(function, node, labels)
        elif isinstance(node, ast.With) and any("suppress" in ast.dump(item.context_expr) for item in node.items):
            labels = set[_Label]().union(*(self._of(name, part) for part in node.body))
            yield from self._after(function, node, labels)

    def _after(
        self, function: _Function, node: ast.Match | ast.Try | ast.With, labels: set[_Label]
    ) -> Iterator[tuple[ast.AST, set[_Label]]]:
        """Yield the statements after one that may leave the function or its loop."""
        parts = [part for case in node.cases for part in case.body] if isinstance(node, ast.Match) else node.body
        if any(isinstance(n, _LEAVES) for part in parts for n in ast.walk(part)):
            after = (n for n in ast.walk(function) if isinstance(n, ast.stmt))
            yield from ((part, labels) for part in after if part.lineno > (node.end_lineno or node.lineno))

    def is_harmless(self, body: Sequence[ast.stmt]) -> bool:
        """Return whether statements only write a message, or do nothing."""
        calls = [node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Call)]
        return all(isinstance(s, (ast.Expr, ast.Pass)) for s in body) and not any(
            self._sent(call) or _name(call.func) in MUTATORS | CHANGING for call in calls
        )


def _name(node: ast.AST) -> str:
    return str(getattr(node, "attr", getattr(node, "id", "")))


def _item(node: ast.AST) -> str | None:
    """Return the name of an item with a constant key: ``results['a']``; None for others."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Constant):
        return f"{node.value.id}[{node.slice.value!r}]"
    return None


def _within(function: _Function) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body, but not of functions in it."""
    todo: list[ast.AST] = [*function.body]
    while todo:
        node = todo.pop()
        if not isinstance(node, FUNCTIONS):
            yield node
            todo += ast.iter_child_nodes(node)


def _parameters(functions: Iterable[_Function]) -> dict[str, None]:
    arguments = [each for function in functions for each in ast.walk(function.args) if isinstance(each, ast.arg)]
    return dict.fromkeys(each.arg for each in arguments if each.arg != "self")


def _bound(functions: Iterable[_Function]) -> set[str]:
    """Return the variables of a function, and of lambdas and comprehensions in it."""
    names, declared = set[str](), set[str]()
    for function in functions:
        names |= {*_parameters([function]), "self"}
        for node in _within(function):
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                declared |= set(node.names)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.arg):
                names.add(node.arg)
    return names - declared
