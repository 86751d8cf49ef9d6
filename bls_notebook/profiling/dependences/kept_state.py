"""State that a model keeps between requests, found in its code: members, globals, closures, files.

A run shows state only if answers to equal requests differ soon: a callee that changes its answer at every 25th request
looks stateless. The analysis is an over-approximation, but takes installed packages to keep nothing.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from bls_notebook.records import source_text
from bls_notebook.repository.source import imported_modules

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_START = ("initialize", "__init__", "finalize", "auto_complete_config", "__post_init__", "__del__")
_MODEL = "TritonPythonModel"
MUTATORS = frozenset({
    "add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "fill", "insert", "pop", "popitem",
    "popleft", "put", "put_nowait", "remove", "reverse", "rotate", "send", "set", "setdefault", "sort", "subtract",
    "update", "write", "writelines", "move_to_end", "get_nowait", "copy_", "add_", "mul_", "zero_", "fill_",
})  # fmt: skip
CHANGING = frozenset({
    "next", "setattr", "delattr", "heappush", "heappop", "copyto", "shuffle", "insort", "anext", "setitem", "putmask",
    "place", "at", "put", "put_along_axis", "fill_diagonal",
})  # fmt: skip
_LOGS = frozenset({
    "increment", "observe", "print", "debug", "info", "warning", "error", "exception", "log", "log_info", "log_warn",
})  # fmt: skip
_READERS = frozenset({"load", "loadtxt", "read_text", "read_bytes", "exists", "is_file", "listdir", "glob", "getsize",
                      "stat", "getmtime", "fromfile", "read_csv", "iterdir", "scandir"})  # fmt: skip
_WRITERS = frozenset({"save", "savez", "savetxt", "write_text", "write_bytes", "touch", "mkdir", "makedirs", "unlink",
                      "remove", "rename", "replace", "tofile", "dump", "to_csv", "utime", "symlink"})  # fmt: skip
_FILES = frozenset({"os", "path", "Path", "np", "numpy", "torch", "pickle", "json", "shutil", "joblib", "pd", "pandas"})
_STORES = frozenset({"sqlite3", "shelve", "dbm", "redis", "pymongo", "psycopg2", "sqlalchemy", "diskcache", "lmdb"})
_PACKAGES = {"site-packages", "dist-packages"}
FILES = "files"
_Root = tuple[str, str]
"""An object that outlives a request: ("member", its name), ("global", name), or ("shared", a module or `FILES`)."""


class KeptState(NamedTuple):
    """The state of one model.

    ``own`` names the state that it keeps and reads again, with the line that changes it; "" if nothing was found.
    ``changed`` and ``touched`` are the modules and files beyond the model that its requests change, and use.
    """

    own: str = ""
    changed: Mapping[str, str] = {}
    touched: frozenset[str] = frozenset()

    def shared_with(self, other: KeptState) -> str:
        """Return what another model uses of the state that this one changes; "" for nothing."""
        return next((words for key, words in self.changed.items() if key in other.touched), "")


def state_of(folder: Path) -> KeptState:
    """Return the state of the model in a version folder, with the modules that it imports and no package installed."""
    trees, todo, outside = dict[str, ast.Module](), dict[str, Path](), set[str]()
    for file in sorted(folder.rglob("*.py")):
        todo[".".join(file.relative_to(folder).with_suffix("").parts)] = file
    while todo:
        name, file = todo.popitem()
        try:
            trees[name] = ast.parse(source_text(file))
        except (SyntaxError, ValueError):
            continue
        for other in imported_modules(trees[name]).keys() - trees.keys() - todo.keys() - sys.stdlib_module_names:
            path = Path(getattr(sys.modules.get(other), "__file__", None) or "")
            if path.suffix == ".py" and other != "bls_notebook" and not _PACKAGES & {*path.parts}:
                todo[other] = path
                outside.add(other)
    return kept_state(trees, outside)


def kept_state(trees: Mapping[str, ast.Module], outside: Collection[str] = ()) -> KeptState:
    """Return the state of a model in the code of its modules; other models may use the `outside` ones."""
    return _Code(trees, outside).state


class _Code:
    """The functions that serve requests, and the names in each that outlive a request."""

    def __init__(self, modules: Mapping[str, ast.Module], outside: Collection[str]) -> None:
        self._modules, self._home, self._outside = modules, dict[_Function, str](), outside
        self._around: dict[ast.AST, ast.AST] = {}
        self._by_name: defaultdict[str, list[_Function]] = defaultdict(list)
        self._imports: dict[str, dict[str, str]] = {}
        self._whole: dict[str, set[str]] = {}  # names of modules themselves
        self._globals: dict[str, set[str]] = {}
        for name, tree in self._modules.items():
            for node in ast.walk(tree):
                self._around.update(dict.fromkeys(ast.iter_child_nodes(node), node))
                if isinstance(node, _FUNCTIONS):
                    self._home[node] = name
                    self._by_name[getattr(node, "name", "")].append(node)
            self._imports[name] = dict(_imported(tree))
            modules_only = (n for n in ast.walk(tree) if isinstance(n, ast.Import))
            self._whole[name] = {a.asname or a.name.partition(".")[0] for n in modules_only for a in n.names}
            self._globals[name] = {t for statement in tree.body for t in _bound(statement)} - {*self._imports[name]}
        self._serving = self._reached()
        self._roots: defaultdict[tuple[_Function, str], set[_Root]] = defaultdict(set)
        size = -1
        while size != (size := sum(map(len, self._roots.values()))):
            for function in self._serving:
                self._read_aliases(function)

    def _reached(self) -> list[_Function]:
        """Return the functions that requests may run: `execute`, the functions that it names, and so on."""
        todo, reached = [*self._by_name["execute"]], dict[_Function, None]()
        always = [f for n, fs in self._by_name.items() for f in fs if n[:2] == "__" and n not in _START]
        todo += always + self._by_name["forward"] + self._made_at_start()
        while todo:
            function = todo.pop()
            if function in reached:
                continue
            reached[function] = None
            for node in _within(function):
                name = _name(node)
                if isinstance(node, _FUNCTIONS):
                    todo.append(node)
                elif isinstance(node, (ast.Name, ast.Attribute)) and name not in _START:
                    todo += self._by_name.get(name, ())
        return list(reached)

    def _made_at_start(self) -> list[_Function]:
        """Return the functions that models make, or pass on, before the first request: closures and callbacks."""
        made = [f for f in self._home if self._function_of(f) is not None]
        for tree in self._modules.values():
            called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
            values = (n for n in ast.walk(tree) if isinstance(n, (ast.Name, ast.Attribute)) and n not in called)
            made += [f for n in values for f in self._by_name.get(_name(n), ())]
        return [f for f in made if getattr(f, "name", "") not in _START]

    @cached_property
    def _fresh(self) -> set[str]:
        """The classes that requests instantiate for themselves: only a local variable has such an object."""
        calls: defaultdict[str, list[bool]] = defaultdict(list)
        for tree in self._modules.values():
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    function = self._function_of(node)
                    local = function in self._serving and not isinstance(self._around[node], ast.Call)
                    statement = self._around[node]
                    targets = statement.targets if isinstance(statement, ast.Assign) else []
                    calls[node.func.id].append(local and all(isinstance(t, ast.Name) for t in targets))
        return {name for name, local in calls.items() if all(local)} - {_MODEL}

    def _function_of(self, node: ast.AST) -> _Function | None:
        while (above := self._around.get(node)) is not None:
            if isinstance(above, _FUNCTIONS):
                return above
            node = above
        return None

    def _class_of(self, function: _Function) -> str:
        above = self._around.get(function)
        return above.name if isinstance(above, ast.ClassDef) else ""

    # An object outlives a request if its name leads to a member, a global, or a default.

    def roots(self, function: _Function, node: ast.AST | None) -> set[_Root]:
        """Return the places whose value an expression may be, or be a part of."""
        if isinstance(node, ast.Attribute):
            above = node.value
            if isinstance(above, ast.Call) and getattr(above.func, "id", "") == "type" and above.args:
                above = above.args[0]
            elif isinstance(above, ast.Attribute) and above.attr == "__class__":
                above = above.value
            first = function.args.args[:1]
            if isinstance(above, ast.Name) and first and above.id == first[0].arg and self._class_of(function):
                kind = "fresh" if self._class_of(function) in self._fresh else "member"
                return set() if kind == "fresh" else {("member", node.attr)}
            if isinstance(above, ast.Name) and (module := self._imports[self._home[function]].get(above.id)):
                if module in sys.stdlib_module_names:
                    return {("shared", f"{module}.{node.attr}")}
                return {self._global(module, node.attr)}
            if isinstance(above, ast.Name) and above.id in self._classes:
                return {("member", node.attr)}
            return self.roots(function, above)
        if isinstance(node, (ast.Subscript, ast.Starred, ast.Await, ast.NamedExpr)):
            return self.roots(function, node.value)
        if isinstance(node, ast.IfExp):
            return self.roots(function, node.body) | self.roots(function, node.orelse)
        if isinstance(node, ast.BoolOp):
            return set().union(*(self.roots(function, value) for value in node.values))
        if isinstance(node, ast.Call):
            name = _name(node.func)
            if name == "getattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
                return self.roots(function, ast.Attribute(node.args[0], str(node.args[1].value), ast.Load()))
            if name in ("vars", "globals"):
                return {("global", name)}
            if isinstance(node.func, ast.Attribute) and name in ("get", "setdefault", "values", "items", "view"):
                return self.roots(function, node.func.value)
            cached = {("global", name) for called in self._called(node) if "cache" in _decorators(called)}
            return cached.union(*(self._roots.get((called, "return"), ()) for called in self._called(node)))
        return self._named(function, node.id) if isinstance(node, ast.Name) else set()

    def _is_module(self, function: _Function, node: ast.AST) -> bool:
        return getattr(node, "id", "") in self._whole[self._home[function]]

    @cached_property
    def _classes(self) -> set[str]:
        return {n.name for tree in self._modules.values() for n in ast.walk(tree) if isinstance(n, ast.ClassDef)}

    def _named(self, function: _Function, name: str) -> set[_Root]:
        if (found := self._roots.get((function, name))) is not None:
            return found
        around: _Function | None = function
        while around is not None:
            if around is not function and name in _locals(around):
                # A variable of a function around: kept if that one does not run for each request.
                return set() if around in self._serving else {("global", name)}
            if around is function and name in _locals(function):
                return set()
            around = self._function_of(around)
        home = self._home[function]
        if module := self._imports[home].get(name):
            return {self._global(module, name)}
        return {self._global(home, name)} if name in self._globals[home] or name in self._by_name else set()

    def _global(self, module: str, name: str) -> _Root:
        is_own = module in self._modules and module not in self._outside
        return ("global", name) if is_own else ("shared", module)

    def _read_aliases(self, function: _Function) -> None:
        for parameter, default in (*_defaults(function), *self._bound_by_partial(function)):
            if not isinstance(default, (ast.Constant, ast.Name, ast.Attribute, ast.UnaryOp, ast.Tuple)):
                self._roots[function, parameter].add(("global", parameter))
        for node in _within(function):
            values = (getattr(node, name, None) for name in ("value", "iter", "context_expr"))
            value = next((each for each in values if each is not None), None)
            for target in _targets(node) if value is not None else ():
                if isinstance(target, ast.Name) and target.id in _locals(function):
                    self._add(function, target.id, self._parts(function, value))
            if isinstance(node, ast.Return):
                self._add(function, "return", self._parts(function, node.value))
            elif isinstance(node, ast.Call):
                for called in self._called(node):
                    parameters = [a.arg for a in called.args.args]
                    parameters = parameters[bool(self._class_of(called)) :]
                    for parameter, argument in zip(parameters, node.args, strict=False):
                        self._add(called, parameter, self.roots(function, argument))

    def _bound_by_partial(self, function: _Function) -> Iterator[tuple[str, ast.expr]]:
        calls = (n for tree in self._modules.values() for n in ast.walk(tree) if isinstance(n, ast.Call) and n.args)
        for node in calls:
            if _name(node.func) == "partial" and function in self._by_name.get(_name(node.args[0]), ()):
                yield from zip((a.arg for a in function.args.args), node.args[1:], strict=False)

    def _called(self, node: ast.Call) -> list[_Function]:
        return self._by_name.get(_name(node.func), [])

    def _parts(self, function: _Function, value: ast.AST | None) -> set[_Root]:
        parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else [value]
        return set().union(*(self.roots(function, part) for part in parts))

    def _add(self, function: _Function, name: str, roots: set[_Root]) -> None:
        if roots:
            self._roots[function, name] |= roots

    # Changes, and reads elsewhere.

    @cached_property
    def state(self) -> KeptState:
        """The state that requests change, and read."""
        own, shared = dict[_Root, int](), dict[str, str]()
        touched, ignored = set[str](), set[ast.AST]()
        for function in self._serving:
            for roots, node, parts in self._changes(function):
                ignored |= parts
                for root in roots:
                    if root[0] == "shared":
                        shared.setdefault(root[1], f"`{root[1]}` (line {node.lineno})")
                    else:
                        own[root] = min(own.get(root, node.lineno), node.lineno)
            touched |= {root[1] for n in _within(function) for root in self.roots(function, n) if root[0] == "shared"}
            writes, reads = _files(function)
            if writes:
                shared.setdefault(FILES, f"files (line {writes})")
            touched |= {FILES} if reads else set()
        if any(self._uses_store(name) for name in self._modules):
            shared.setdefault(FILES, "a database")
            touched.add(FILES)
        reading = {root for f in self._serving for root in self._reads(f, ignored)}
        words = [
            f"`{'self.' * (kind == 'member')}{name}` (line {line})"
            for (kind, name), line in sorted(own.items(), key=lambda item: item[1])
            if name in ("globals", "vars", "__dict__")
            or ((kind, name) in reading and not self._is_harmless((kind, name)))
        ]
        used = {root[1] for root in reading if root[0] == "shared"} | (touched & {FILES})
        both = [words for key, words in shared.items() if key in used]
        return KeptState((*words, *both, "")[0], shared, frozenset(touched))

    @cached_property
    def _changing(self) -> frozenset[str]:
        """The names of functions that change their first argument, also under other names."""
        nodes = [node for tree in self._modules.values() for node in ast.walk(tree)]
        aliases = {n.asname for n in nodes if isinstance(n, ast.alias) and n.asname and n.name in CHANGING}
        assigned = (n for n in nodes if isinstance(n, ast.Assign) and _name(n.value) in CHANGING)
        return CHANGING | aliases | {_name(target) for n in assigned for target in n.targets}

    def _is_part(self, function: _Function, target: ast.AST) -> bool:
        """Return whether a variable is a slice: `part += 1` changes the array that it is a part of."""
        name = getattr(target, "id", "")
        values = (n.value for n in _within(function) if isinstance(n, ast.Assign) and name in map(_name, n.targets))
        return any(isinstance(v, ast.Subscript) and isinstance(v.slice, (ast.Slice, ast.Tuple)) for v in values)

    def _uses_store(self, name: str) -> bool:
        """Return whether a module uses the name of a database's package that it imports."""
        stores = {each for each, module in self._imports[name].items() if module in _STORES}
        return any(isinstance(node, ast.Name) and node.id in stores for node in ast.walk(self._modules[name]))

    def _changes(self, function: _Function) -> Iterator[tuple[set[_Root], Any, set[ast.AST]]]:
        """Yield the objects that a function changes, where, and the parts of the code that only change them."""
        declared = {n for node in _within(function) if isinstance(node, (ast.Global, ast.Nonlocal)) for n in node.names}
        for node in _within(function):
            for target in _targets(node):
                roots = self.roots(function, target) if isinstance(target, (ast.Attribute, ast.Subscript)) else set()
                is_part = isinstance(node, ast.AugAssign) and self._is_part(function, target)
                if isinstance(target, ast.Name) and (target.id in declared or is_part):
                    roots = self._named(function, target.id)
                if roots:
                    value = getattr(node, "value", None)
                    parts = set(ast.walk(value)) if value is not None and len(_targets(node)) == 1 else set()
                    same = {n for n in parts if self.roots(function, n) <= roots}
                    yield roots, target, {*_chain(target), *same}
            if isinstance(node, ast.Call):
                name = _name(node.func)
                changed = [keyword.value for keyword in node.keywords if keyword.arg == "out"]
                receiver = getattr(node.func, "value", None)  # `np.add(...)` changes nothing of `np`
                if name in MUTATORS and receiver is not None and not self._is_module(function, receiver):
                    changed.append(receiver)
                changed += node.args[:1] if name in self._changing else []
                if name == "setattr" and not all(isinstance(each, ast.Constant) for each in node.args[1:2]):
                    yield {("global", "vars")}, node, set()
                for value in changed:
                    if name == "setattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
                        value = ast.Attribute(value, str(node.args[1].value), ast.Load())
                    if roots := self.roots(function, value):
                        alone = isinstance(self._around.get(node), ast.Expr) and name != "next"
                        yield roots, node, {node.func, *_chain(value)} if alone else set()

    def _reads(self, function: _Function, ignored: set[ast.AST]) -> set[_Root]:
        logs = {
            part
            for node in _within(function)
            if isinstance(node, ast.Call) and _name(node.func) in _LOGS
            for part in ast.walk(node)
        }
        return {
            root
            for node in _within(function)
            if isinstance(node, (ast.Name, ast.Attribute, ast.Call)) and node not in ignored and node not in logs
            for root in self.roots(function, node)
            if not isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del))
        }

    def _is_harmless(self, root: _Root) -> bool:
        """Return whether each request sets a member before it reads it, or the first one sets it for all."""
        stores = [
            (function, node)
            for function in self._serving
            for node in _within(function)
            if isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Store)
            if root in (self.roots(function, node) or self._named(function, getattr(node, "id", "")))
        ]
        changes = [node for f in self._serving for roots, node, _ in self._changes(f) if root in roots]
        if len(stores) != len(changes):
            return False  # changed in place, too
        return all(self._is_set_first(root, *store) or self._is_set_once(root, *store) for store in stores)

    def _is_set_first(self, root: _Root, function: _Function, store: ast.AST) -> bool:
        if isinstance(function, (ast.AsyncFunctionDef, ast.Lambda)):
            return False
        statement = self._around.get(store)
        others = {f for f in self._serving for n in _within(f) if root in self.roots(f, n)} - {function}
        value = getattr(statement, "value", None)
        above = statement
        while (above := self._around.get(above)) is not function:  # type: ignore[arg-type]
            if not isinstance(above, (ast.For, ast.With)):
                return False
        nodes = [n for n in _within(function) if isinstance(n, (ast.Attribute, ast.Name)) and root in
                 self.roots(function, n)]  # fmt: skip
        first = min(nodes, key=lambda n: (n.lineno, n.col_offset))
        reads_itself = any(root in self.roots(function, n) for n in ast.walk(value)) if value is not None else True
        return isinstance(statement, ast.Assign) and first is store and not reads_itself and (
            not others or getattr(function, "name", "") == "execute"
        )  # fmt: skip

    def _is_set_once(self, root: _Root, function: _Function, store: ast.AST) -> bool:
        statement = self._around.get(store)
        test = self._around.get(statement) if statement is not None else None
        if not isinstance(statement, ast.Assign) or not isinstance(test, ast.If) or statement not in test.body:
            return False
        asked = {r for n in ast.walk(test.test) for r in self.roots(function, n)}
        is_absent = "hasattr" in ast.dump(test.test) or (root in asked and "None" in ast.dump(test.test))
        first = {a.arg for a in function.args.args[:1]}
        used = {n.id for n in ast.walk(statement.value) if isinstance(n, ast.Name)}
        return is_absent and not (used & (_locals(function) - first))


def _name(node: ast.AST | None) -> str:
    """Return the name of a variable, or the last one of `a.b.c`; "" for other expressions."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


def _decorators(function: _Function) -> str:
    return " ".join(map(ast.dump, getattr(function, "decorator_list", ())))


def _within(function: _Function) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body; of functions in it, only the definition."""
    todo: list[ast.AST] = list(function.body) if isinstance(function.body, list) else [function.body]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            todo += ast.iter_child_nodes(node)
        elif isinstance(node, ast.ClassDef):
            todo += node.body


def _locals(function: _Function) -> set[str]:
    arguments = function.args
    names = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    names |= {a.arg for a in (arguments.vararg, arguments.kwarg) if a is not None}
    declared = set[str]()
    for node in _within(function):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            declared |= set(node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names - declared


def _defaults(function: _Function) -> Iterator[tuple[str, ast.expr]]:
    arguments = function.args
    yield from zip((a.arg for a in arguments.args[::-1]), arguments.defaults[::-1], strict=False)
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    yield from ((a.arg, default) for a, default in pairs if default is not None)


def _targets(node: ast.AST) -> list[ast.AST]:
    """Return the targets that a statement assigns or deletes."""
    targets: list[ast.AST] = []
    if isinstance(node, (ast.Assign, ast.Delete)):
        targets = list(node.targets)
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.AsyncFor)):
        targets = [node.target]
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        targets = [node.optional_vars]
    flat = list[ast.AST]()
    while targets:
        target = targets.pop()
        targets += target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
        flat += [] if isinstance(target, (ast.Tuple, ast.List)) else [target]
    return flat


def _chain(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a target and what it is a part of: `self.cache` and `self` of `self.cache[key]`."""
    yield node
    if isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        yield from _chain(node.value)


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a module binds, functions and classes apart."""
    for node in ast.walk(statement) if not isinstance(statement, (*_FUNCTIONS, ast.ClassDef)) else ():
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names that imports bind, with their modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((a.asname or a.name.partition(".")[0], a.name.partition(".")[0]) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").partition(".")[0]
            yield from ((a.asname or a.name, module or a.name) for a in node.names)


def _files(function: _Function) -> tuple[int, bool]:
    """Return the line of a function that writes a file, 0 for none, and whether it reads one."""
    uses = [(node.lineno, *file_use(node)) for node in _within(function) if isinstance(node, ast.Call)]
    return next((line for line, writes, _ in uses if writes), 0), any(reads for _, _, reads in uses)


def file_use(node: ast.Call) -> tuple[bool, bool]:
    """Return whether a call writes a file, or opens one to write, and whether it reads one."""
    name = _name(node.func)
    receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
    if name == "open":
        mode = next((k.value for k in node.keywords if k.arg == "mode"), None)
        values = [a.value for a in [*node.args[receiver is None :], mode] if isinstance(a, ast.Constant)]
        text = next((str(v) for v in values), "r")
        return any(c in text for c in "wax+"), "r" in text or "+" in text
    if name not in (*_READERS, *_WRITERS):
        return False, False
    base = _name(receiver)
    is_path = name[-5:] in ("_text", "bytes") or base in _FILES or isinstance(receiver, (ast.Call, ast.BinOp))
    return is_path and name in _WRITERS, is_path and name in _READERS
