"""Find the needs of a model's code besides the model's own files, by reading its sources.

The constant parts of paths and names are evaluated; an unknown part is ``*``. A statement about a path is certain for
the part before the first ``*``.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from bls_notebook.checking.name_scope import NameScope, argument, last_name
from bls_notebook.checking.python_source import PythonSource
from bls_notebook.repository.source import shown_path, undefined_names

# Names of functions (`opens`: their first argument is a file or folder; `may_open`: it may also be something else, such
# as a model on a hub), folders that each server has (`of_system`), names that reach the kernel's state, and texts.
_DATA = json.loads(Path(__file__).with_name("model_needs.json").read_text("utf-8"))
_TEXTS: dict[str, str] = _DATA["texts"]
_KERNEL: dict[str, str] = _DATA["kernel"]
_BUILTINS = frozenset(dir(builtins)) - {"get_ipython", "display", "_"}
_ENVIRONMENT = ("environ", "environb")
_TRITON, _CONTROLS = "triton_python_backend_utils", ("load_model", "unload_model")
_FUNCTIONS: dict[str, Callable[..., str]] = {
    **dict.fromkeys(("join", "joinpath", "Path", "PurePath"), os.path.join),
    **dict.fromkeys(_DATA["same"], lambda path: str(path)),
    **{name: getattr(os.path, name) for name in ("dirname", "expanduser")},
    **dict.fromkeys(("getcwd", "cwd"), os.getcwd),
    "home": lambda *_: str(Path.home()),
}


@dataclass
class CodeNeeds:
    """Needs of a model's sources. Each text of ``lines`` begins with a file and line of the model."""

    lines: list[str] = field(default_factory=list)
    requested: set[str] = field(default_factory=set)  # models that its requests name
    loads: set[str] = field(default_factory=set)  # models that `pb_utils.load_model` names
    controls: bool = False  # calls load_model or unload_model
    late: bool = False  # calls them in `initialize` or on import, which fails while a server starts
    imports: dict[str, str] = field(default_factory=dict)  # modules imported by name at run time, with the place
    search: list[str] = field(default_factory=list)  # folders that it adds to sys.path

    def add(self, more: CodeNeeds) -> None:
        for name, value in vars(more).items():
            setattr(self, name, getattr(self, name) + value if isinstance(value, list) else getattr(self, name) | value)


def code_needs(folder: Path, path: str, text: str, place: Path | None = None) -> CodeNeeds:
    """Return the needs of one Python file: `path` in the model's folder; `place` if it lies elsewhere."""
    return _Reader(folder, PythonSource(place or folder / path, text), path, place is not None).read()


class _Reader:
    def __init__(self, folder: Path, code: PythonSource, path: str, outside: bool) -> None:
        self.folder, self.code, self.path = folder, code, path
        self.needs = CodeNeeds()
        self._own = (str(code.path if outside else folder), *_DATA["of_system"])
        self._paths: dict[str, int] = {}  # absolute ones, with the line; 0 if the path is no need
        self._variables: dict[str, int] = {}  # environment variables, with the line; 0 if the code sets it
        self._said: dict[str, set[int]] = {}  # texts, with their lines

    @cached_property
    def _of_triton(self) -> dict[str, str]:
        """Triton's functions that control models, by each expression that names one."""
        out: dict[str, str] = {}
        imports = (node for node, _ in self.code.nodes if isinstance(node, (ast.Import, ast.ImportFrom)))
        for alias, module in ((alias, getattr(node, "module", "")) for node in imports for alias in node.names):
            name = alias.asname or alias.name
            if alias.name == _TRITON:
                out |= {f"{name}.{function}": function for function in _CONTROLS}
            elif module == _TRITON and alias.name in _CONTROLS:
                out[name] = alias.name
        return out

    def say(self, line: int, text: str, **facts: str) -> None:
        """Note a need of a line: a text of the data file, filled with facts."""
        self._said.setdefault(_TEXTS[text].format(**facts), set()).add(line)

    def value(self, node: ast.expr | None, scope: NameScope, depth: int = 12) -> str | None:
        """Return the text that an expression evaluates to, ``*`` for unknown parts; None if its start is unknown."""
        depth -= 1
        match node:
            case _ if not depth:
                return None
            case ast.Constant(value=str(text)):
                return text
            case ast.Name(id="__file__"):
                return str(self.code.path)
            case ast.Name(id=name):
                values = scope.values(name)
                return self.value(values[0], scope, depth) if values is not None and len(values) == 1 else None
            case ast.Attribute(attr="parent", value=inner):
                path = self.value(inner, scope, depth)
                return None if path is None else os.path.dirname(path)
            case ast.Attribute(attr=name, value=ast.Name(id="self" | "cls" | "TritonPythonModel")):
                assigned = self.code.attributes.get(name, [])
                return self.value(*assigned[0], depth) if len(assigned) == 1 else None
            case ast.Subscript(slice=ast.Constant(value="model_repository" | "model_name" as name)):
                return str(self.folder) if name == "model_repository" else self.folder.name
            case ast.Subscript(slice=ast.Constant(value="model_version")):
                return self.path.partition("/")[0] if self.path[:1].isdigit() else None
            case ast.Subscript(value=ast.Attribute(attr="parents", value=inner), slice=ast.Constant(value=int(number))):
                path = self.value(inner, scope, depth)
                parents = () if path is None else Path(path).parents
                return str(parents[number]) if 0 <= number < len(parents) else None
            case ast.BinOp(left=left, op=ast.Add() | ast.Div() as op, right=right):
                first, second = self.value(left, scope, depth), self.value(right, scope, depth) or "*"
                joined = os.path.join(first or "", second) if isinstance(op, ast.Div) else f"{first}{second}"
                return None if first is None else joined
            case ast.JoinedStr(values=parts):
                inside = (part.value if isinstance(part, ast.FormattedValue) else part for part in parts)
                texts = [self.value(part, scope, depth) for part in inside]
                return "".join(text or "*" for text in texts) if texts and texts[0] is not None else None
            case ast.Call(func=func, args=arguments) if (function := _FUNCTIONS.get(last_name(func))) is not None:
                owner = self.value(func.value, scope, depth) if isinstance(func, ast.Attribute) else None
                given = ([owner] if owner is not None else []) + [self.value(part, scope, depth) for part in arguments]
                try:
                    return None if given[:1] == [None] else function(*(text or "*" for text in given))
                except TypeError:  # another function of this name
                    return None
        return None

    def _known(self, node: ast.expr | None, scope: NameScope) -> str | None:
        text = self.value(node, scope)
        return None if text is None or "*" in text else text

    def _names(self, node: ast.expr | None, scope: NameScope) -> set[str]:
        """Return all values of an expression that names a model; empty if some are unknown."""
        text = self._known(node, scope)
        found: ast.expr | None = None
        match node:
            case _ if text is not None:
                return {text}
            case ast.IfExp(body=body, orelse=orelse):
                found = ast.List(elts=[body, orelse])
            case ast.Subscript(value=value):
                found = scope.value(value)
            case ast.Name(id=name):  # perhaps the variable of a loop
                loops = (n for n, _ in self.code.nodes if isinstance(n, (ast.For, ast.comprehension)))
                items = [loop.iter for loop in loops if isinstance(loop.target, ast.Name) and loop.target.id == name]
                found = scope.value(items[0]) if len(items) == 1 else None
        values = found.values if isinstance(found, ast.Dict) else getattr(found, "elts", ())
        parts = [self._names(value, scope) for value in values]
        return set().union(*parts) if all(parts) else set()

    def read(self) -> CodeNeeds:
        for node, scope in self.code.nodes:
            line = getattr(node, "lineno", 0)
            match node:
                case ast.ImportFrom(module="builtins", names=names):
                    self._builtins(line, *(alias.name for alias in names))
                case ast.ImportFrom(module="__main__"):
                    self._kernel(line, "__main__")
                case ast.Import(names=names) if any(alias.name == "__main__" for alias in names):
                    self._kernel(line, "__main__")
                case ast.Attribute(value=ast.Name(id="builtins"), attr=name):
                    self._builtins(line, name)
                case ast.Attribute(attr=name) | ast.Name(id=name) if name in _KERNEL:
                    self._kernel(line, name)
                case ast.Subscript(value=owner, slice=key, ctx=context) if last_name(owner) in _ENVIRONMENT:
                    if isinstance(context, ast.Load):
                        self._variable(key, scope, line)
                    else:
                        self._variables[self._known(key, scope) or ""] = 0
                case ast.Subscript(value=owner, slice=key) if last_name(owner) == "modules":
                    self._main(key, scope, line)
                case ast.Compare(left=left, comparators=[*_, owner]) if last_name(owner) in _ENVIRONMENT:
                    self._variable(left, scope, line)
                case ast.Call():
                    self._read_call(node, scope)
            if isinstance(node, (ast.Call, ast.BinOp, ast.JoinedStr, ast.Subscript, ast.Constant, ast.Attribute)):
                self._path(self.value(node, scope), node)
        self._finish()
        return self.needs

    def _kernel(self, line: int, name: str) -> None:
        self.say(line, "kernel", name=name, what=_KERNEL.get(name, "names that this process added"))

    def _builtins(self, line: int, *names: str) -> None:
        for name in names:
            if name not in _BUILTINS:
                self._kernel(line, f"builtins.{name}")

    def _main(self, node: ast.expr | None, scope: NameScope, line: int) -> bool:
        is_main = self._known(node, scope) == "__main__"
        if is_main:
            self._kernel(line, "__main__")
        return is_main

    def _variable(self, node: ast.expr | None, scope: NameScope, line: int) -> None:
        name = self._known(node, scope)
        if name is None:
            self.say(line, "variable")
        else:
            self._variables.setdefault(name, line)

    def _read_call(self, call: ast.Call, scope: NameScope) -> None:
        name, line = last_name(call.func), call.lineno
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        of = "" if owner is None else ast.unparse(owner)
        first = argument(call, {"open": "file", "import_module": "name", "getenv": "key"}.get(name, "path"), 0)
        if function := self._of_triton.get(ast.unparse(call.func)):
            self._control(call, function, scope)
        elif name == "getenv" or (name in ("get", "pop") and of.endswith(_ENVIRONMENT)):
            self._variable(first, scope, line)
        elif name == "expandvars":
            for variable in re.findall(r"\$\{?(\w+)", self._known(first, scope) or ""):
                self._variables.setdefault(variable, line)
        elif name == "get" and of.endswith("modules"):
            self._main(first, scope, line)
        elif name in ("import_module", "__import__"):
            module = self._known(first, scope)
            if module is None:
                self.say(line, "module")
            elif not self._main(first, scope, line) and not module.startswith("."):
                self.needs.imports.setdefault(module.partition(".")[0], f"{self.path}, line {line}")
        elif name == "getattr" and isinstance(first, ast.Name) and first.id == "builtins" and len(call.args) > 1:
            self._builtins(line, self._known(call.args[1], scope) or "...")
        elif name == "addsitedir" or (name in ("append", "insert", "extend") and of == "sys.path"):
            added = call.args[-1] if call.args else call
            for node in added.elts if isinstance(added, (ast.List, ast.Tuple)) else [added]:
                if folder := self._known(node, scope):
                    self.needs.search.append(os.path.abspath(folder))
        elif name in _DATA["path_methods"] and owner is not None and self.value(owner, scope) is not None:
            self._path(self.value(owner, scope), call, "" if _writes(call, 0) else "file")
        elif name in (*_DATA["opens"], *_DATA["may_open"]) and not _writes(call, 1):
            certain = (not of or of in _DATA["file_modules"]) and name in (*_DATA["opens"], "load")
            self._path(self.value(first, scope), call, "file" if certain else "maybe")

    def _control(self, call: ast.Call, function: str, scope: NameScope) -> None:
        method, reached, called = getattr(scope.node, "name", ""), set[str](), {"initialize", "__init__"}
        while called:
            reached |= called
            bodies = (other for other in self.code.scopes if getattr(other.node, "name", "") in called)
            called = {last_name(n.func) for body in bodies for n in body.nodes if isinstance(n, ast.Call)} - reached
        self.needs.controls = True
        self.needs.late |= not method or method in reached
        if function == "load_model" and argument(call, "files", 2) is None:
            names = self._names(argument(call, "model_name", 0), scope)
            self.needs.loads |= names
            if not names:
                self.say(call.lineno, "load")

    def _path(self, path: str | None, node: ast.expr, opened: str = "") -> None:
        """Note a path; `opened`: a function takes it as a "file", or "maybe"."""
        certain = (path or "").partition("*")[0]
        if path is None or certain in ("", "/") or len(path) > 1000 or not path.isprintable() or "://" in path:
            return
        if certain.startswith("~"):
            path = os.path.expanduser(path)
        elif not os.path.isabs(certain):
            local = certain.startswith(("./", "../")) or os.path.exists(certain)
            if (opened == "file" or (opened and local)) and not certain.startswith("$") and not self._changes_directory:
                self.say(node.lineno, "relative", path=path)
            return
        target = os.path.normpath(path)
        literal = isinstance(node, (ast.Constant, ast.JoinedStr)) or isinstance(getattr(node, "op", None), ast.Add)
        is_path = bool(opened) or not literal or ("*" not in path and os.path.isfile(target))
        is_need = is_path and target != "/" and not any(_within(target, place) for place in self._own)
        self._paths[target] = self._paths.get(target) or node.lineno * is_need

    @cached_property
    def _changes_directory(self) -> bool:
        """True if the code makes a folder of the model the working directory."""
        calls = ((n, scope) for n, scope in self.code.nodes if isinstance(n, ast.Call) and last_name(n.func) == "chdir")
        return any(_within(self._known(argument(n, "path", 0), scope) or "", self._own[0]) for n, scope in calls)

    def _finish(self) -> None:
        repository = str(self.folder.parent)
        for target, line in self._paths.items():
            longer = (*(self._paths.keys() - {target}), *self.needs.search)
            if not line or any(_within(other, target) for other in longer):  # a part of a path, or searched
                continue
            if _within(target, repository) and target != repository:
                model, _, rest = os.path.relpath(target, repository).partition("/")
                self.say(line, "sibling", file=rest or ".", model=model)
            else:
                self.say(line, "outside", path=shown_path(Path(target)))
        if read := {name: line for name, line in self._variables.items() if line}:
            self.say(min(read.values()), "variables", names=", ".join(f"`{name}`" for name in sorted(read)))
        for name, line in undefined_names(self.code.text).items():
            if name not in _KERNEL:
                self.say(line, "undefined", name=name)
        requests = {
            node.lineno: self._names(argument(node, "model_name", 4), scope) for node, scope in self.code.nodes
            if isinstance(node, ast.Call) and last_name(node.func) == "InferenceRequest"
        }  # fmt: skip
        for request in self.code.calls:
            callees = {request.model} if request.model else requests.get(request.line, set())
            self.needs.requested |= callees
            if not callees:
                self.say(request.line, "callee")
        for text, lines in sorted(self._said.items(), key=lambda item: min(item[1])):
            numbers = ", ".join(map(str, sorted(lines)))
            self.needs.lines.append(f"{self.path}, line{'s' if len(lines) > 1 else ''} {numbers}: {text}")


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _writes(call: ast.Call, position: int) -> bool:
    """Return True if a call opens a file for writing only."""
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
        target, is_absolute = os.path.abspath(place), os.path.isabs(place)
        environment = " of environment" if key == "EXECUTION_ENV_PATH" else ""
        if _within(target, str(folder)):
            text = "" if os.path.exists(target) or "$$" not in value else "parameter missing"
        elif environment or (os.path.exists(target) and (is_absolute or "/" in value or "." in value)):
            text = "parameter outside" if is_absolute else "parameter relative"
        else:
            text = "parameter unknown" if is_absolute else ""
        if text:
            yield _TEXTS[text + environment].format(key=key, value=value)
