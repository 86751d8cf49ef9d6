"""Read a model's source as a syntax tree: its imports, its model class, and names that nothing defines.

A model's source does not see variables of the notebook, here or on Triton, nor modules in the notebook's folder on
Triton; the warnings say so before the first request fails. Sources that may get names from elsewhere (``from x import
*``, `globals()`, `exec`, a base class) cause no warning. Source that cannot be parsed has no tree, and nothing is
raised. (CPython 3.11 counts the depth of a tree for all threads together, so it can reject good source.)
"""

from __future__ import annotations

import ast
import builtins
import dis
import importlib.machinery
import inspect
import os
import sys
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from types import CodeType

from bls_notebook.backends.python import CLASS_NAME
from bls_notebook.records.advice import nearest
from bls_notebook.repository.modules.module_home import FINDER, SHARED

TIMES = 5  # others in this process parse too, and hold no lock of ours
_lock = threading.Lock()


def syntax_tree(source: str) -> ast.Module | None:
    """Return the tree of a module's source; None where there is none, or it is too deep for anybody."""
    for _ in range(TIMES):
        try:
            with _lock:
                return ast.parse(source)
        except SystemError:
            continue
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    return None


def called_models(source: str) -> frozenset[str]:
    """Return the models that requests in a source name by a plain text."""
    tree = syntax_tree(source)
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call)) if tree is not None else ()
    names = (_named(call) for call in calls if ast.unparse(call.func).endswith("InferenceRequest"))
    return frozenset(filter(None, names))


def _named(call: ast.Call) -> str:
    given = [word.value for word in call.keywords if word.arg == "model_name"] or call.args[4:5]
    value = given[0].value if given and isinstance(given[0], ast.Constant) else ""
    return value if isinstance(value, str) else ""


_Function = ast.FunctionDef | ast.AsyncFunctionDef
_OTHERS = ("initialize", "finalize", "auto_complete_config", "is_ready")


def model_class_warnings(source: str, model: str) -> tuple[str, ...]:
    """Return a line for what keeps `execute` of the model's class from being called."""
    tree = syntax_tree(source)
    found = [node for node in tree.body if isinstance(node, ast.ClassDef)] if tree else []
    cls = next((node for node in reversed(found) if node.name == CLASS_NAME), None)
    if tree is None or cls is None:
        return ()
    problem = _problem(tree, cls)
    if problem is None:
        return ()
    line, words = problem
    return (f"model '{model}', line {line}: {words}; every request will fail: def execute(self, requests):",)


def _problem(tree: ast.Module, cls: ast.ClassDef) -> tuple[int, str] | None:
    execute = next((n for n in reversed(cls.body) if isinstance(n, _Function) and n.name == "execute"), None)
    if execute is not None:
        every = [*execute.args.posonlyargs, *execute.args.args]
        if len(every) < 2 and not execute.args.vararg and not execute.decorator_list:
            return execute.lineno, "execute takes the model and the requests"
        return None
    own = [n.name for n in cls.body if isinstance(n, _Function) and n.name not in _OTHERS]
    bases = [b for b in cls.bases if not (isinstance(b, ast.Name) and b.id == "object")]
    if bases or cls.keywords or cls.decorator_list or _sets_execute(tree):
        return None
    for node in tree.body:
        if isinstance(node, _Function) and node.name == "execute":
            return node.lineno, f"execute is outside of class {CLASS_NAME}; indent it"
    close = nearest("execute", own)
    meant = f" (it has {close})" if close else ""
    return cls.lineno, f"class {CLASS_NAME} has no execute{meant}"


def _sets_execute(tree: ast.Module) -> bool:
    """Whether the name may be given in another way than by `def`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("execute", "__getattr__", "__dict__"):
            return True
        if isinstance(node, ast.Name) and node.id in ("execute", "setattr", "vars", "locals"):
            return True
        if isinstance(node, _Function) and node.name in ("__getattr__", "__getattribute__"):
            return True
    return False


# IPython puts names of its own into the builtins of the process; Triton's process has none of them.
_BUILTINS = frozenset(dir(builtins)) - {"__IPYTHON__", "_", "display", "get_ipython"}
_OF_MODULES = frozenset(
    f"__{name}__"
    for name in (
        *("annotations", "builtins", "cached", "class", "conditional_annotations", "debug", "dict", "doc"),
        *("file", "loader", "module", "name", "package", "path", "qualname", "spec"),
    )
)
_MAKES_NAMES = frozenset({"exec", "globals", "vars", "locals"})
# By which names of the module are read; those of a class are read by `LOAD_NAME` too.
_READS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})


def undefined_name_warnings(source: str, model: str, notebook_names: Collection[str] | None = None) -> tuple[str, ...]:
    """Return a line for each name that the source reads and never defines, some variables of the notebook."""
    lines = []
    for name, line in undefined_names(source).items():
        where = f"model '{model}', line {line}"
        if name in (notebook_names or ()):
            why = f"notebook variable '{name}' will not exist on Triton, nor does the model see it here"
            lines.append(f"{where}: {why}; define or import it in the model")
        else:
            lines.append(f"{where}: '{name}' is not defined in the model; define or import it there")
    return tuple(lines)


def undefined_names(source: str) -> dict[str, int]:
    """Return the names that a module reads and never defines, with the first line that reads each.

    Source that cannot be compiled has none: it has worse problems.
    """
    tree = syntax_tree(source)
    nodes = [] if tree is None else list(ast.walk(tree))
    if tree is None or any(isinstance(n, ast.ImportFrom) and n.names[0].name == "*" for n in nodes):
        return {}
    try:
        module = compile(tree, "model.py", "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError, RecursionError, SystemError):
        return {}
    defined = _stored(module)
    if any(isinstance(n, ast.Global) for n in nodes):
        defined |= {name for code in _codes(module) for name in _stored(code, "STORE_GLOBAL")}
    may_lack = {n.id for n in nodes if isinstance(n, ast.Name)} - defined - _BUILTINS - _OF_MODULES
    may_lack |= _MAKES_NAMES - defined
    read: dict[str, int] = {}
    for code in _codes(module):
        if may_lack.isdisjoint(code.co_names):  # taking instructions apart takes long
            continue
        lacks = may_lack if code.co_flags & inspect.CO_OPTIMIZED else may_lack - _stored(code)  # of a class
        starts, line = dict(dis.findlinestarts(code)), 0
        for op in dis.get_instructions(code):
            line = starts.get(op.offset) or line
            if op.opname in _READS and op.argval in lacks:
                read[op.argval] = min(line, read.get(op.argval, line))
    if read.keys() & _MAKES_NAMES:
        return {}
    return dict(sorted(read.items(), key=lambda item: (item[1], item[0])))


def _stored(code: CodeType, *by: str) -> set[str]:
    by = by or ("STORE_NAME", "DELETE_NAME")
    return {op.argval for op in dis.get_instructions(code) if op.opname in by}


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A module's code, and all within it but that of annotations, which nobody runs."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType) and each.co_name != "__annotate__":
            yield from _codes(each)


def imported_modules(tree: ast.AST, needed: bool = False) -> dict[str, int]:
    """Return the top-level names of the modules that a source imports, with the first line of each.

    Only those `needed`: not what it can do without, in a ``try`` that catches a failing import, or for type checking.
    """
    out: dict[str, int] = {}
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop(0)
        if needed and isinstance(node, ast.Try) and any(map(_catches_imports, node.handlers)):
            todo += [*node.orelse, *node.finalbody]
            continue
        if needed and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        else:
            todo += ast.iter_child_nodes(node)
            continue
        for name in names:
            top = name.partition(".")[0]
            out[top] = min(node.lineno, out.get(top, node.lineno))
    return out


def _catches_imports(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or any(
        name in ast.unparse(handler.type) for name in ("ImportError", "ModuleNotFoundError", "Exception")
    )


def stray_import_warnings(source: str, model: str) -> tuple[str, ...]:
    """Return a line for each module that the source imports from the notebook's folder."""
    return tuple(
        f"model '{model}', line {line}: module '{name}' is found in the notebook's folder only, and will not "
        f"exist on Triton; install it, or keep the model in a folder with {name} beside its model.py"
        for name, line in stray_imports(source).items()
    )


def stray_imports(source: str) -> dict[str, int]:
    """Return the top-level modules of the notebook's folder that a module imports, with the first lines."""
    tree = syntax_tree(source)
    if tree is None:
        return {}  # it has worse problems
    lines = imported_modules(tree)
    try:
        here = Path.cwd()
    except OSError:  # it has gone, and nobody finds anything there
        return {}
    elsewhere = [entry for entry in sys.path if not _is(entry, here)]
    if len(elsewhere) == len(sys.path):
        return {}  # the notebook's folder is not looked into
    strays = {n: line for n, line in lines.items() if n not in SHARED and _lies_in(n, here, elsewhere)}
    return dict(sorted(strays.items(), key=lambda item: (item[1], item[0])))


def _is(entry: str, folder: Path) -> bool:
    return os.path.realpath(entry) == os.path.realpath(folder)  # "" is the current folder


def _lies_in(name: str, here: Path, elsewhere: list[str]) -> bool:
    find = importlib.machinery.PathFinder.find_spec
    if find(name, [str(here)]) is None or find(name, elsewhere) is not None:
        return False
    passed = (importlib.machinery.PathFinder, FINDER)
    others = (finder for finder in sys.meta_path if finder not in passed)
    return not any(_finds(finder, name) for finder in others)  # installed for editing, perhaps


def _finds(finder: object, name: str) -> bool:
    find = getattr(finder, "find_spec", None)
    try:
        return find is not None and find(name, None) is not None
    except Exception:
        return False
