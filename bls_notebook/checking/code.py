"""`Code`: one model.py, read as a tree: what it reads, makes, sends and imports. Nothing is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

from bls_notebook.backends.python import CLASS_NAME
from bls_notebook.repository.source.syntax import syntax_tree

from .values import UNKNOWN, Function, Names, Tensors, argument, last_name, spreads

_MOST_FILES = 1000  # beside a model.py that are looked at


@dataclass(frozen=True)
class Call:
    """One `InferenceRequest` that a source makes.

    `model` is empty where that cannot be told, `inputs` and `outputs` are uncertain or None then. `flags` has
    the names in what is given for them, None for nothing. `sent` are the calls of `exec` and `async_exec`
    that are certain to be of this request.
    """

    line: int
    model: str
    version: int | None
    inputs: Tensors
    outputs: list[str] | None
    given: frozenset[str]
    flags: tuple[str, ...] | None
    sent: tuple[ast.Call, ...]
    read: tuple[tuple[str, int], ...]  # outputs that are looked up in its response, with the lines
    plain: bool  # whether all its arguments can be seen


@dataclass(frozen=True)
class Read:
    """One look for an input by its name; `guarded` where the source is ready for there being none."""

    name: str
    line: int
    guarded: bool


class Code:
    def __init__(self, path: Path, text: str) -> None:
        self.path, self.text = path, text

    @cached_property
    def tree(self) -> ast.Module:
        """Its tree; an empty one where it has none."""
        return syntax_tree(self.text) or ast.Module([], [])

    @cached_property
    def mistake(self) -> tuple[int, str] | None:
        """The line and what is wrong with its syntax."""
        try:
            ast.parse(self.text)
        except SyntaxError as error:
            return error.lineno or 0, error.msg
        except (ValueError, RecursionError, MemoryError) as error:
            return 0, str(error)
        return None

    @cached_property
    def _scopes(self) -> list[Names]:
        out: list[Names] = []
        todo: list[tuple[ast.AST, Names | None]] = [(self.tree, None)]
        while todo:
            node, outer = todo.pop()
            inner = outer
            if isinstance(node, (ast.Module, Function)):
                inner = Names(node, outer)
                out.append(inner)
            todo += ((child, inner) for child in ast.iter_child_nodes(node))
        return out

    def _calls(self, name: str) -> Iterator[tuple[ast.Call, Names]]:
        """Calls of what has such a last name, each with its scope."""
        for scope in self._scopes:
            for node in scope.nodes:
                if isinstance(node, ast.Call) and last_name(node.func) == name:
                    yield node, scope

    def mentions(self, word: str) -> bool:
        """Whether a name stands anywhere in it."""
        return re.search(rf"\b{re.escape(word)}\b", self.text) is not None

    @cached_property
    def model_class(self) -> ast.ClassDef | None:
        """The class that Triton makes instances of."""
        found = [n for n in self.tree.body if isinstance(n, ast.ClassDef) and n.name == CLASS_NAME]
        return found[-1] if found else None

    @cached_property
    def completes(self) -> bool:
        """Whether the model completes its own configuration, or may get the method from elsewhere."""
        found = self.model_class
        if found is None or any(last_name(base) != "object" for base in found.bases):
            return True
        return any(isinstance(n, Function) and n.name == "auto_complete_config" for n in found.body)

    @cached_property
    def execute(self) -> Function | None:
        body = self.model_class.body if self.model_class else []
        return next((n for n in reversed(body) if isinstance(n, Function) and n.name == "execute"), None)

    @cached_property
    def siblings(self) -> tuple[Path, ...]:
        """Other Python files in its folder and those below it, and in the model's folder."""
        files = (*self.path.parent.rglob("*.py"), *self.path.parent.parent.glob("*.py"))
        return tuple(file for file in sorted(islice(files, _MOST_FILES)) if file != self.path)

    # -- tensors -------------------------------------------------------------------------------------

    @cached_property
    def made(self) -> Tensors:
        out, any_ = Tensors(), False
        for call, scope in self._calls("InferenceResponse"):
            given = argument(call, "output_tensors", 0)
            if given is None:
                out += UNKNOWN if spreads(call) else Tensors()
                continue
            any_ = True
            out += scope.tensors(given)
        found = self.model_class
        inherits = found is None or any(last_name(base) != "object" for base in found.bases)
        elsewhere = any("InferenceResponse" in _text(file) for file in self.siblings)
        return out if any_ and out.names and not inherits and not elsewhere else out + UNKNOWN

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """The inputs that it looks for by a plain name."""
        out = []
        for call, scope in self._calls("get_input_tensor_by_name"):
            name = scope.text(argument(call, "name", 1))
            if name is not None:
                out.append(Read(name, call.lineno, not _used_at_once(call, scope)))
        return tuple(out)

    @cached_property
    def first_rows(self) -> tuple[tuple[str, int], ...]:
        """Inputs of which nothing but ``as_numpy()[0]`` is used, with the lines."""
        out = []
        for call, scope in self._calls("as_numpy"):
            found = scope.value(call.func.value) if isinstance(call.func, ast.Attribute) else None
            if isinstance(found, ast.Call) and last_name(found.func) == "get_input_tensor_by_name":
                name = scope.text(argument(found, "name", 1))
                if name is not None and _uses(call, scope) == {"0"}:
                    out.append((name, call.lineno))
        return tuple(out)

    # -- requests ------------------------------------------------------------------------------------

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        dropped = {id(n.value) for scope in self._scopes for n in scope.nodes if isinstance(n, ast.Expr)}
        found = self._calls("InferenceRequest")
        out: list[Call] = []
        for each, scope in found:
            if id(each) not in dropped:
                made = _call(each, scope)
                others = () if made.model else self._named_elsewhere(each, scope)
                out += [replace(made, model=model, line=line, plain=False) for model, line in others] or [
                    made
                ]
        return tuple(out)

    def _named_elsewhere(self, call: ast.Call, scope: Names) -> list[tuple[str, int]]:
        """The models of a request whose function is given their names, or finds one in an attribute."""
        given = argument(call, "model_name", 4)
        if (
            isinstance(given, ast.Attribute)
            and isinstance(given.value, ast.Name)
            and given.value.id == "self"
        ):
            name = self._attributes.get(given.attr)
            return [(name, call.lineno)] if name else []
        if not isinstance(given, ast.Name) or not isinstance(scope.node, Function):
            return []
        names = [each.arg for each in (*scope.node.args.posonlyargs, *scope.node.args.args)]
        if given.id not in names or scope.values(given.id) != [None]:
            return []
        out = []
        for sent, outer in self._calls(scope.node.name):
            place = names.index(given.id) - (names[0] == "self" and isinstance(sent.func, ast.Attribute))
            text = outer.text(argument(sent, given.id, place))
            if text:
                out.append((text, sent.lineno))
        return out

    @cached_property
    def _attributes(self) -> dict[str, str]:
        """Attributes of self that are given one text, and nothing else anywhere."""
        given: dict[str, set[str]] = {}
        for scope in self._scopes:
            for node in scope.nodes:
                targets = [*node.targets] if isinstance(node, ast.Assign) else []
                targets += [node.target] if isinstance(node, (ast.AnnAssign, ast.AugAssign)) else []
                for target in targets:
                    if isinstance(target, ast.Attribute) and isinstance(node, (ast.Assign, ast.AnnAssign)):
                        given.setdefault(target.attr, set()).add(scope.text(node.value) or "")
                    elif isinstance(target, ast.Attribute):
                        given.setdefault(target.attr, set()).add("")
        return {name: next(iter(texts)) for name, texts in given.items() if len(texts) == 1}

    def lines_with(self, pattern: str) -> list[int]:
        """Return the lines that have a pattern in them, comments aside."""
        found = re.compile(pattern)
        lines = (line.partition("#")[0] for line in self.text.splitlines())
        return [number for number, line in enumerate(lines, 1) if found.search(line)]


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _used_at_once(call: ast.Call, scope: Names) -> bool:
    """Whether an attribute of a call's value is used without a look whether there is any."""
    names: set[str] = set()
    for node in scope.nodes:
        if isinstance(node, ast.Attribute) and node.value is call:
            return True
        if isinstance(node, ast.Assign) and node.value is call:
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    if len(names) != 1:
        return False
    name = names.pop()
    used = False
    for node in scope.nodes:
        if isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Assert, ast.BoolOp, ast.Compare, ast.Try)):
            inside = ast.walk(
                node.test if isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Assert)) else node
            )
            if any(isinstance(n, ast.Name) and n.id == name for n in inside):
                return False
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used |= node.value.id == name
    return used


def _uses(call: ast.Call, scope: Names) -> set[str]:
    """How the value of a call is used: the indices by which, and ``*`` for any other use."""
    parents = {id(child): node for node in scope.nodes for child in ast.iter_child_nodes(node)}
    used: set[str] = set()
    nodes: list[ast.AST] = [call]
    for node in nodes:  # grows
        parent = parents.get(id(node))
        if (
            isinstance(parent, ast.Assign)
            and len(parent.targets) == 1
            and isinstance(parent.targets[0], ast.Name)
        ):
            name = parent.targets[0].id
            if len(scope.values(name) or ()) != 1 or node is not call:
                return {"*"}
            nodes += (
                n
                for n in scope.nodes
                if isinstance(n, ast.Name) and n.id == name and n is not parent.targets[0]
            )
        elif isinstance(parent, ast.Subscript) and parent.value is node:
            index = parent.slice
            used.add(str(index.value) if isinstance(index, ast.Constant) else "*")
        else:
            used.add("*")
    return used


def _call(call: ast.Call, scope: Names) -> Call:
    flags = argument(call, "flags", 6)
    version = scope.value(argument(call, "model_version", 5))
    number = version.value if isinstance(version, ast.Constant) and isinstance(version.value, int) else None
    inputs = argument(call, "inputs", 2)
    return Call(
        line=call.lineno,
        model=scope.text(argument(call, "model_name", 4)) or "",
        version=number,
        inputs=UNKNOWN if inputs is None else scope.tensors(inputs),
        outputs=scope.texts(argument(call, "requested_output_names", 3)),
        given=frozenset(filter(None, (word.arg for word in call.keywords))),
        flags=None if flags is None else _names_in(scope.value(flags)),
        sent=tuple(_sent(call, scope)),
        read=tuple(_read_of(call, scope)),
        plain=not spreads(call) and not call.args,
    )


def _names_in(node: ast.expr | None) -> tuple[str, ...]:
    if node is None:
        return ("?",)
    names = [last_name(n) for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute))]
    flags = tuple(name for name in names if "FLAG" in name)
    return flags if flags else ("?",)


def _sent(call: ast.Call, scope: Names) -> Iterator[ast.Call]:
    for node in scope.nodes:
        func = node.func if isinstance(node, ast.Call) else None
        if not isinstance(node, ast.Call) or not isinstance(func, ast.Attribute):
            continue
        if func.attr in ("exec", "async_exec") and scope.value(func.value) is call:
            yield node


def _read_of(call: ast.Call, scope: Names) -> Iterator[tuple[str, int]]:
    sent = list(_sent(call, scope))
    for node in scope.nodes:
        if isinstance(node, ast.Call) and last_name(node.func) == "get_output_tensor_by_name":
            response = scope.value(argument(node, "inference_response", 0))
            response = response.value if isinstance(response, ast.Await) else response
            name = scope.text(argument(node, "name", 1))
            if name is not None and any(response is each for each in sent):
                yield name, node.lineno
