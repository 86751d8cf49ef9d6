"""Find what a model's code needs besides the model's own files, by reading its sources.

`Reader` evaluates the constant parts of paths and names; an unknown part of a path is ``*``. A statement about a path
is certain for the known part before the first ``*``.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from bls_notebook.checking.python_source import PythonSource, Scope, argument, last_name
from bls_notebook.repository.source.layout import shown_path
from bls_notebook.repository.source.syntax import undefined_names

_TRITON = "triton_python_backend_utils"
_CONTROL = ("load_model", "unload_model")
# Names of functions (`opens`: their first argument is a file or folder; `may_open`: it may also be something else, such
# as a model on a hub), folders that each server has (`of_system`), names that reach the kernel's state, and texts.
_DATA = json.loads(Path(__file__).with_name("model_needs.json").read_text("utf-8"))
_TEXTS: dict[str, str] = _DATA["texts"]
_KERNEL: dict[str, str] = _DATA["kernel"]
_ENVIRONMENT = ("environ", "environb")
_BUILTINS = frozenset(dir(builtins)) - {"get_ipython", "display", "_"}


@dataclass
class CodeNeeds:
    """What the sources of a model need. Each text of ``lines`` begins with a file and line of the model."""

    lines: list[str] = field(default_factory=list)
    requested: set[str] = field(default_factory=set)  # models that its requests name
    loads: set[str] = field(default_factory=set)  # models that `pb_utils.load_model` names
    controls: bool = False  # calls load_model or unload_model
    late: bool = False  # calls them in `initialize` or on import, which fails while a server starts
    imports: dict[str, str] = field(default_factory=dict)  # modules imported by name at run time, with the place
    search: list[str] = field(default_factory=list)  # folders that it adds to sys.path


def code_needs(folder: Path, path: str, text: str, place: Path | None = None) -> CodeNeeds:
    """Return the needs of one Python file: `path` in the model's folder; `place` if it lies elsewhere."""
    reader = Reader(folder, PythonSource(place or folder / path, text), path, outside=place is not None)
    for node, scope in reader.nodes:
        reader.read(node, scope)
    reader.finish()
    return reader.needs


class Reader:
    """Reads one source; see `code_needs`."""

    def __init__(self, folder: Path, code: PythonSource, path: str, outside: bool) -> None:
        self.folder, self.code, self.path = folder, code, path
        self.needs = CodeNeeds()
        self._root = str(code.path if outside else folder)
        self._paths: dict[str, int] = {}  # outside of the folder, with the line
        self._seen: set[str] = set()  # all absolute paths
        self._variables: dict[str, int] = {}  # environment variables that it reads, with the line
        self._sets: set[str] = set()  # those that it sets
        self._said: dict[str, list[int]] = {}  # texts, with their lines

    @cached_property
    def nodes(self) -> list[tuple[ast.AST, Scope]]:
        """All nodes, outer before inner, each with the function or module that it is in."""
        scopes = {id(scope.node): scope for scope in self.code.scopes}
        out: list[tuple[ast.AST, Scope]] = [(self.code.tree, scopes[id(self.code.tree)])]
        for node, scope in out:  # grows
            inner = scopes.get(id(node), scope)
            out += ((child, inner) for child in ast.iter_child_nodes(node))
        return out

    @cached_property
    def _attributes(self) -> dict[str, list[tuple[ast.expr, Scope]]]:
        """The values assigned to each attribute of `self` and each name of a class."""
        out: dict[str, list[tuple[ast.expr, Scope]]] = {}
        for node, scope in self.nodes:
            value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) else None
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in targets:
                if isinstance(target, ast.Attribute) and value is not None:
                    out.setdefault(target.attr, []).append((value, scope))
            for inner in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Name):
                    out.setdefault(inner.targets[0].id, []).append((inner.value, scope))
        return out

    @cached_property
    def _modules(self) -> tuple[set[str], dict[str, str]]:
        """The names of Triton's module in the source, and the names of its functions."""
        modules, functions = {_TRITON}, dict[str, str]()
        for node, _ in self.nodes:
            if isinstance(node, ast.Import):
                modules |= {alias.asname for alias in node.names if alias.name == _TRITON and alias.asname}
            elif isinstance(node, ast.ImportFrom) and node.module == _TRITON:
                functions |= {alias.asname or alias.name: alias.name for alias in node.names}
        return modules, functions

    def _of_triton(self, func: ast.expr) -> str:
        """Return the name of a function of Triton's module; empty for another one."""
        modules, functions = self._modules
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id in modules:
            return func.attr
        return functions.get(func.id, "") if isinstance(func, ast.Name) else ""

    def say(self, line: int, text: str, **facts: str) -> None:
        """Note a need of a line: a text of the data file, filled with facts."""
        self._said.setdefault(_TEXTS[text].format(**facts), []).append(line)

    def value(self, node: ast.expr | None, scope: Scope, depth: int = 12) -> str | None:
        """Return the text that an expression evaluates to, with ``*`` for unknown parts; None if all is unknown."""
        if node is None or not depth:
            return None
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.Name):
            if node.id == "__file__":
                return str(self.code.path)
            values = scope.values(node.id)
            return self.value(values[0], scope, depth - 1) if values is not None and len(values) == 1 else None
        if isinstance(node, ast.Attribute):
            return self._attribute(node, scope, depth - 1)
        if isinstance(node, ast.Subscript):
            return self._item(node, scope, depth - 1)
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Div)):
            left = self.value(node.left, scope, depth - 1)
            right = self.value(node.right, scope, depth - 1) or "*"
            joined = os.path.join(left or "", right) if isinstance(node.op, ast.Div) else f"{left}{right}"
            return None if left is None else joined
        if isinstance(node, ast.JoinedStr):
            texts = [
                (self.value(part.value if isinstance(part, ast.FormattedValue) else part, scope, depth - 1)) or "*"
                for part in node.values
            ]
            return "".join(texts) if texts and texts[0] != "*" else None
        return self._call(node, scope, depth - 1) if isinstance(node, ast.Call) else None

    def _attribute(self, node: ast.Attribute, scope: Scope, depth: int) -> str | None:
        if node.attr == "parent":
            path = self.value(node.value, scope, depth)
            return None if path is None else os.path.dirname(path)
        assigned = self._attributes.get(node.attr, [])
        own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls", "TritonPythonModel")
        return self.value(*assigned[0], depth) if own and len(assigned) == 1 else None

    def _item(self, node: ast.Subscript, scope: Scope, depth: int) -> str | None:
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if key == "model_repository":
            return str(self.folder)
        if key == "model_name":
            return self.folder.name
        if key == "model_version":
            return self.path.partition("/")[0] if self.path[:1].isdigit() else None
        if isinstance(node.value, ast.Attribute) and node.value.attr == "parents" and isinstance(key, int):
            path = self.value(node.value.value, scope, depth)
            parents = () if path is None else Path(path).parents
            return str(parents[key]) if 0 <= key < len(parents) else None
        return None

    def _call(self, node: ast.Call, scope: Scope, depth: int) -> str | None:
        name, func = last_name(node.func), node.func
        owner = func.value if isinstance(func, ast.Attribute) else None
        if name in ("join", "joinpath", "Path", "PurePath"):
            first = [owner] if name == "joinpath" or (name == "join" and not _is_module(owner)) else []
            parts = [self.value(part, scope, depth) for part in (*first, *node.args)]
            if not parts or parts[0] is None or (name == "join" and first):  # "," .join(...)
                return None
            return os.path.join(parts[0], *(part or "*" for part in parts[1:]))
        if name in ("getcwd", "cwd"):
            return os.getcwd()
        if name == "home" and not node.args:
            return str(Path.home())
        if name == "get_model_dir":
            return str(self.code.path.parent)
        inner = self.value(node.args[0] if node.args else owner, scope, depth)
        if inner is None:
            return None
        if name == "dirname":
            return os.path.dirname(inner)
        if name in ("expanduser", "expandvars"):
            return os.path.expanduser(inner) if name == "expanduser" else None
        return inner if name in _DATA["same"] else None

    def _known(self, node: ast.expr | None, scope: Scope) -> str | None:
        text = self.value(node, scope)
        return None if text is None or "*" in text else text

    # Statements

    def read(self, node: ast.AST, scope: Scope) -> None:
        """Note what one node needs."""
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            if "__main__" in names:
                self._kernel(node.lineno, "`__main__`", "the notebook's variables")
            for alias in node.names if names == ["builtins"] and isinstance(node, ast.ImportFrom) else ():
                if alias.name not in _BUILTINS:
                    self._kernel(node.lineno, f"`builtins.{alias.name}`", "names that this process added")
        elif isinstance(node, ast.Attribute):
            if node.attr in _KERNEL:
                self._kernel(node.lineno, f"`{node.attr}`", _KERNEL[node.attr])
            elif isinstance(node.value, ast.Name) and node.value.id == "builtins" and node.attr not in _BUILTINS:
                self._kernel(node.lineno, f"`builtins.{node.attr}`", "names that this process added")
        elif isinstance(node, ast.Name) and node.id in _KERNEL:
            self._kernel(node.lineno, f"`{node.id}`", _KERNEL[node.id])
        elif isinstance(node, ast.Subscript):
            self._subscript(node, scope)
        elif isinstance(node, ast.Compare) and last_name(node.comparators[-1]) in _ENVIRONMENT:
            self._variable(node.left, scope, node.lineno)
        if isinstance(node, ast.Call):
            self._read_call(node, scope)
        if isinstance(node, (ast.Call, ast.BinOp, ast.JoinedStr, ast.Subscript, ast.Constant, ast.Attribute)):
            self._path(self.value(node, scope), node)

    def _kernel(self, line: int, name: str, what: str) -> None:
        self.say(line, "kernel", name=name, what=what)

    def _subscript(self, node: ast.Subscript, scope: Scope) -> None:
        if last_name(node.value) in _ENVIRONMENT:
            if isinstance(node.ctx, ast.Load):
                self._variable(node.slice, scope, node.lineno)
            elif (name := self._known(node.slice, scope)) is not None:
                self._sets.add(name)
        elif last_name(node.value) == "modules" and self._known(node.slice, scope) == "__main__":
            self._kernel(node.lineno, "`__main__`", "the notebook's variables")

    def _variable(self, node: ast.expr | None, scope: Scope, line: int) -> None:
        name = self._known(node, scope)
        if name is None:
            self.say(line, "variable")
        else:
            self._variables.setdefault(name, line)

    def _read_call(self, call: ast.Call, scope: Scope) -> None:
        name, func = last_name(call.func), call.func
        owner = func.value if isinstance(func, ast.Attribute) else None
        first = argument(call, {"open": "file", "import_module": "name"}.get(name, "path"), 0)
        control = self._of_triton(func)
        if control in _CONTROL:
            self._control(call, control, scope)
        elif name == "getenv" or (name in ("get", "pop") and owner is not None and last_name(owner) in _ENVIRONMENT):
            self._variable(argument(call, "key", 0), scope, call.lineno)
        elif name == "expandvars":
            for variable in re.findall(r"\$\{?(\w+)", self._known(first, scope) or ""):
                self._variables.setdefault(variable, call.lineno)
        elif name == "get" and owner is not None and last_name(owner) == "modules":
            if self._known(first, scope) == "__main__":
                self._kernel(call.lineno, "`__main__`", "the notebook's variables")
        elif name in ("import_module", "__import__"):
            module = self._known(first, scope)
            if module == "__main__":
                self._kernel(call.lineno, "`__main__`", "the notebook's variables")
            elif module is None:
                self.say(call.lineno, "module")
            elif not module.startswith("."):
                self.needs.imports.setdefault(module.partition(".")[0], f"{self.path}, line {call.lineno}")
        elif name == "getattr" and isinstance(first, ast.Name) and first.id == "builtins" and len(call.args) > 1:
            attribute = self._known(call.args[1], scope) or "..."
            if attribute not in _BUILTINS:
                self._kernel(call.lineno, f"`builtins.{attribute}`", "names that this process added")
        elif name in ("append", "insert", "extend", "addsitedir") and (
            name == "addsitedir" or (owner is not None and ast.unparse(owner) == "sys.path")
        ):
            added = call.args[-1] if call.args else call
            for node in added.elts if isinstance(added, (ast.List, ast.Tuple)) else [added]:
                if folder := self._known(node, scope):
                    self.needs.search.append(os.path.normpath(os.path.join(os.getcwd(), folder)))
        elif name in (*_DATA["opens"], *_DATA["may_open"]) and not _writes(call, 1):
            plain = owner is None or ast.unparse(owner) in _DATA["file_modules"]
            self._path(
                self.value(first, scope), call, "file" if plain and name in (*_DATA["opens"], "load") else "maybe"
            )
        elif name in _DATA["path_methods"] and owner is not None and not _writes(call, 0):
            self._path(self.value(owner, scope), call, "file")

    def _control(self, call: ast.Call, function: str, scope: Scope) -> None:
        self.needs.controls = True
        in_method = getattr(scope.node, "name", "")
        self.needs.late |= not in_method or in_method in ("initialize", "__init__") or self._from_initialize(in_method)
        names = self._names(argument(call, "model_name", 0), scope)
        if function == "load_model" and argument(call, "files", 2) is None:
            self.needs.loads |= names
            if not names:
                self.say(call.lineno, "load")

    def _names(self, node: ast.expr | None, scope: Scope) -> set[str]:
        """Return all values of an expression that names a model; empty if some are unknown."""
        text = self._known(node, scope)
        if text is not None or node is None:
            return {text} if text else set()
        if isinstance(node, ast.IfExp):
            parts = [self._names(part, scope) for part in (node.body, node.orelse)]
        else:
            if isinstance(node, ast.Name):  # perhaps the variable of a loop
                loops = (n for n, _ in self.nodes if isinstance(n, (ast.For, ast.comprehension)))
                items = [loop.iter for loop in loops if isinstance(loop.target, ast.Name) and loop.target.id == node.id]
            else:
                items = [node.value] if isinstance(node, ast.Subscript) else []
            found = scope.value(items[0]) if len(items) == 1 else None
            values = found.values if isinstance(found, ast.Dict) and isinstance(node, ast.Subscript) else None
            values = found.elts if isinstance(found, (ast.List, ast.Tuple, ast.Set)) else values
            parts = [self._names(value, scope) for value in values or ()]
        return set().union(*parts) if all(parts) else set()

    def _from_initialize(self, name: str) -> bool:
        """Whether `initialize` calls a function, directly or not, as far as the names show."""
        called, reached = {"initialize"}, set[str]()
        while called:
            reached |= called
            bodies = [scope for scope in self.code.scopes if getattr(scope.node, "name", "") in called]
            inside = (node for scope in bodies for node in scope.nodes if isinstance(node, ast.Call))
            called = {last_name(node.func) for node in inside} - reached
        return name in reached

    def _path(self, path: str | None, node: ast.expr, opened: str = "") -> None:
        """Note a path that leads out of the model's folder; `opened`: a function takes it as a "file", or "maybe"."""
        certain = (path or "").partition("*")[0]
        if path is None or not certain or len(path) > 1000 or "\0" in path or "\n" in path or "://" in path:
            return
        if certain.startswith("~"):
            path = os.path.expanduser(path)
        elif not os.path.isabs(certain):
            local = certain.startswith(("./", "../")) or os.path.exists(certain)
            if (opened == "file" or (opened and local)) and not certain.startswith("$") and not self._changes_directory:
                self.say(node.lineno, "relative", path=path)
            return
        target = os.path.normpath(path)
        self._seen.add(target)
        literal = isinstance(node, (ast.Constant, ast.JoinedStr)) or isinstance(getattr(node, "op", None), ast.Add)
        known = opened or not literal or ("*" not in path and os.path.isfile(target))
        if known and target != "/" and not any(_within(target, place) for place in (self._root, *_DATA["of_system"])):
            self._paths.setdefault(target, node.lineno)

    @cached_property
    def _changes_directory(self) -> bool:
        """Whether the code makes a folder of the model the working directory."""
        return any(
            isinstance(node, ast.Call) and last_name(node.func) == "chdir"
            and _within(self._known(node.args[0] if node.args else None, scope) or "", self._root)
            for node, scope in self.nodes
        )  # fmt: skip

    def finish(self) -> None:
        """Add what is known only at the end."""
        for target, line in self._paths.items():
            longer = (*(self._seen - {target}), *self.needs.search)
            if not any(_within(other, target) for other in longer):  # else it is a part of a path, or searched
                self._outside(target, line)
        if names := {name: line for name, line in self._variables.items() if name not in self._sets}:
            self.say(min(names.values()), "variables", names=", ".join(f"`{name}`" for name in sorted(names)))
        requests = {
            node.lineno: self._names(argument(node, "model_name", 4), scope) for node, scope in self.nodes
            if isinstance(node, ast.Call) and last_name(node.func) == "InferenceRequest"
        }  # fmt: skip
        for name, line in undefined_names(self.code.text).items():
            if name not in _KERNEL:
                self.say(line, "undefined", name=name)
        for request in self.code.calls:
            callees = {request.model} if request.model else requests.get(request.line, set())
            self.needs.requested |= callees
            if not callees:
                self.say(request.line, "callee")
        for text, lines in sorted(self._said.items(), key=lambda item: min(item[1])):
            numbers = ", ".join(map(str, sorted(set(lines))))
            self.needs.lines.append(f"{self.path}, line{'s' * (len(set(lines)) > 1)} {numbers}: {text}")

    def _outside(self, target: str, line: int) -> None:
        repository = str(self.folder.parent)
        if _within(target, repository) and target != repository:
            model, _, rest = os.path.relpath(target, repository).partition("/")
            self.say(line, "sibling", file=rest or ".", model=model)
        else:
            self.say(line, "outside", path=shown_path(Path(target)))


def _is_module(node: ast.expr | None) -> bool:
    """Whether an expression is `os.path`, or a name of it."""
    return node is None or last_name(node) in ("path", "osp", "posixpath", "os_path")


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _writes(call: ast.Call, position: int) -> bool:
    """Whether a call opens a file for writing only."""
    mode = argument(call, "mode", position)
    text = mode.value if isinstance(mode, ast.Constant) and isinstance(mode.value, str) else ""
    return last_name(call.func) == "open" and any(letter in text for letter in "wax") and "+" not in text


def parameter_needs(folder: Path, parameters: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parameters of a configuration whose values are paths that are not exported."""
    for key in sorted(parameters):
        value = str(parameters[key].string_value)
        if not value or not value.isprintable() or len(value) > 1000:
            continue
        place = value.replace("$$TRITON_MODEL_DIRECTORY", str(folder))
        target = os.path.normpath(os.path.join(os.getcwd(), place))
        exists, is_absolute = os.path.exists(target), os.path.isabs(place)
        environment = " of environment" if key == "EXECUTION_ENV_PATH" else ""
        if _within(target, str(folder)):
            text = "" if exists or "$$" not in value else "parameter missing"
        elif environment or (exists and (is_absolute or "/" in value or "." in value)):
            text = "parameter outside" if is_absolute else "parameter relative"
        else:
            text = "parameter unknown" if is_absolute else ""
        if text:
            yield _TEXTS[text + environment].format(key=key, value=value)
