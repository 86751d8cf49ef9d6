"""Analyse a model's source without running it: imports, called models, the model class, and undefined names.

A model cannot use variables of the notebook, neither here nor on Triton, and on Triton no modules of the notebook's
folder. The warnings say so before the first request fails. Sources that may define names dynamically (``from x import
*``, `globals()`, `exec`, a base class) cause no warning. Source with a syntax error has no tree and raises nothing.
(CPython 3.11 counts the depth of a tree for all threads together, so it can reject good source.)
"""

from __future__ import annotations

import ast
import builtins
import dis
import importlib.machinery
import inspect
import os
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from types import CodeType

from bls_notebook.backends.python import CLASS_NAME
from bls_notebook.records.advice import nearest
from bls_notebook.repository.modules.module_home import FINDER, SHARED

from .model_folders import working_folder

TIMES = 5  # attempts: other code in this process parses without our lock, which can fail ours
_IMPORT = re.compile(r"\b(?:import|from)\b[\w.\s\\]+")
_MOST_PREFIXES = 10**8  # characters
_lock = threading.Lock()


def syntax_tree(source: str) -> ast.Module | None:
    """Return the syntax tree of a module's source; None if it has a syntax error or is nested too deeply."""
    for _ in range(TIMES):
        try:
            check_source(source)
            with _lock:
                return ast.parse(source)
        except SystemError:
            continue
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    return None


def check_source(source: str) -> None:
    """Raise ValueError if CPython's parser needs gigabytes for an import: it keeps all prefixes of a dotted name."""
    if any(len(found[0]) * found[0].count(".") > _MOST_PREFIXES for found in _IMPORT.finditer(source)):
        raise ValueError("the name of an imported module is too long")


def called_models(source: str) -> frozenset[str]:
    """Return the model names that appear as literals in `InferenceRequest(...)` calls."""
    tree = syntax_tree(source)
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call)) if tree is not None else ()
    names = (_literal_model_name(call) for call in calls if ast.unparse(call.func).endswith("InferenceRequest"))
    return frozenset(filter(None, names))


def _literal_model_name(call: ast.Call) -> str:
    """Return the `model_name` argument if it is a string literal, else an empty string."""
    arguments = [keyword.value for keyword in call.keywords if keyword.arg == "model_name"] or call.args[4:5]
    value = arguments[0].value if arguments and isinstance(arguments[0], ast.Constant) else ""
    return value if isinstance(value, str) else ""


_Function = ast.FunctionDef | ast.AsyncFunctionDef
_OTHER_METHODS = ("initialize", "finalize", "auto_complete_config", "is_ready")


def model_class_warnings(source: str, model: str) -> tuple[str, ...]:
    """Return a warning if the model's class has no `execute` that can be called."""
    tree = syntax_tree(source)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)] if tree else []
    cls = next((node for node in reversed(classes) if node.name == CLASS_NAME), None)
    if tree is None or cls is None:
        return ()
    problem = _execute_problem(tree, cls)
    if problem is None:
        return ()
    line, reason = problem
    return (f"model '{model}', line {line}: {reason}; every request will fail: def execute(self, requests):",)


def _execute_problem(tree: ast.Module, cls: ast.ClassDef) -> tuple[int, str] | None:
    execute = next((n for n in reversed(cls.body) if isinstance(n, _Function) and n.name == "execute"), None)
    if execute is not None:
        parameters = [*execute.args.posonlyargs, *execute.args.args]
        if len(parameters) < 2 and not execute.args.vararg and not execute.decorator_list:
            return execute.lineno, "execute must have two parameters, self and requests"
        return None
    own = [n.name for n in cls.body if isinstance(n, _Function) and n.name not in _OTHER_METHODS]
    bases = [b for b in cls.bases if not (isinstance(b, ast.Name) and b.id == "object")]
    if bases or cls.keywords or cls.decorator_list or _sets_execute(tree):
        return None
    for node in tree.body:
        if isinstance(node, _Function) and node.name == "execute":
            return node.lineno, f"execute is outside of class {CLASS_NAME}; indent it"
    similar = nearest("execute", own)
    hint = f" (it has {similar})" if similar else ""
    return cls.lineno, f"class {CLASS_NAME} has no execute{hint}"


def _sets_execute(tree: ast.Module) -> bool:
    """Return whether code may define `execute` dynamically instead of by `def`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("execute", "__getattr__", "__dict__"):
            return True
        if isinstance(node, ast.Name) and node.id in ("execute", "setattr", "vars", "locals"):
            return True
        if isinstance(node, _Function) and node.name in ("__getattr__", "__getattribute__"):
            return True
    return False


# IPython adds names to the builtins of this process; they do not exist on Triton.
_BUILTINS = frozenset(dir(builtins)) - {"__IPYTHON__", "_", "display", "get_ipython"}
_OF_MODULES = frozenset(
    f"__{name}__"
    for name in (
        *("annotations", "builtins", "cached", "class", "conditional_annotations", "debug", "dict", "doc"),
        *("file", "loader", "module", "name", "package", "path", "qualname", "spec"),
    )
)
_MAKES_NAMES = frozenset({"exec", "globals", "vars", "locals"})
# Instructions that read a module's names; `LOAD_NAME` also reads a class's names.
_READS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})


def undefined_name_warnings(source: str, model: str, notebook_names: Collection[str] | None = None) -> tuple[str, ...]:
    """Return a warning for each name that the source reads and never defines; names of the notebook get another."""
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
    """Return the names that a module reads and never defines, each with the first line that reads it.

    Empty for source that cannot be compiled: loading it reports the error.
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
    candidates = {n.id for n in nodes if isinstance(n, ast.Name)} - defined - _BUILTINS - _OF_MODULES
    candidates |= _MAKES_NAMES - defined
    read: dict[str, int] = {}
    for code in _codes(module):
        if candidates.isdisjoint(code.co_names):  # disassembly is slow
            continue
        is_function = code.co_flags & inspect.CO_OPTIMIZED
        undefined = candidates if is_function else candidates - _stored(code)  # a class body defines names, too
        starts, line = dict(dis.findlinestarts(code)), 0
        for op in dis.get_instructions(code):
            line = starts.get(op.offset) or line
            if op.opname in _READS and op.argval in undefined:
                read[op.argval] = min(line, read.get(op.argval, line))
    return {} if read.keys() & _MAKES_NAMES else dict(sorted(read.items(), key=lambda item: (item[1], item[0])))


def _stored(code: CodeType, *by: str) -> set[str]:
    by = by or ("STORE_NAME", "DELETE_NAME")
    return {op.argval for op in dis.get_instructions(code) if op.opname in by}


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and those nested in it, except annotations, which are not evaluated."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and constant.co_name != "__annotate__":
            yield from _codes(constant)


def imported_modules(tree: ast.AST, needed: bool = False) -> dict[str, int]:
    """Return the top-level names of the modules that a source imports, each with its first line.

    With `needed`, omit imports in a ``try`` that catches a failing import, and imports for type checking.
    """
    first_lines: dict[str, int] = {}
    for node in import_statements(tree, needed):
        if isinstance(node, ast.ImportFrom) and node.level:
            continue
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        for name in names:
            top = name.partition(".")[0]
            first_lines[top] = min(node.lineno, first_lines.get(top, node.lineno))
    return first_lines


def import_statements(tree: ast.AST, needed: bool = False) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the import statements of a source; `needed`: see `imported_modules`."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop(0)
        if needed and isinstance(node, ast.Try) and any(map(_catches_imports, node.handlers)):
            pending += [*node.orelse, *node.finalbody]
        elif needed and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += node.orelse
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        else:
            pending += ast.iter_child_nodes(node)


def imported_files(
    file: Path, tree: ast.AST, folders: Callable[[str], Iterable[Path]]
) -> Iterator[tuple[str, int, list[Path]]]:
    """Yield the needed imports of a source: the top-level name ("" if relative), the line, and the files that it runs.

    `folders` returns the folders in which a top-level module may be.
    """
    for node in import_statements(tree, needed=True):
        level, package = (node.level, node.module or "") if isinstance(node, ast.ImportFrom) else (0, "")
        for name in (f"{package}.{alias.name}".strip(".") for alias in node.names):
            top, *_ = parts = name.split(".")
            files = []
            for folder in [*file.parents][level - 1 : level] if level else folders(top):
                paths = [folder.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
                files += [f for path in paths for f in (Path(f"{path}.py"), path / "__init__.py") if f.is_file()]
            yield "" if level else top, node.lineno, files


def _catches_imports(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or any(
        name in ast.unparse(handler.type) for name in ("ImportError", "ModuleNotFoundError", "Exception")
    )


def stray_import_warnings(source: str, model: str) -> tuple[str, ...]:
    """Return a warning for each module that the source imports from the notebook's folder."""
    return tuple(
        f"model '{model}', line {line}: module '{name}' exists only in the notebook's folder, which a server lacks; "
        "export, serve and prove copy it beside the model"
        for name, line in stray_imports(source).items()
    )


def stray_imports(source: str) -> dict[str, int]:
    """Return the modules that a source imports from the notebook's folder, each with its first line."""
    tree = syntax_tree(source)
    if tree is None:
        return {}  # loading it reports the syntax error
    lines = imported_modules(tree)
    here = working_folder()
    real_path = os.path.realpath(here)
    elsewhere = [entry for entry in sys.path if os.path.realpath(entry) != real_path]  # "" is the current folder
    if len(elsewhere) == len(sys.path):
        return {}  # the notebook's folder is not on the path
    strays = {n: line for n, line in lines.items() if n not in SHARED and _is_only_in(n, here, elsewhere)}
    return dict(sorted(strays.items(), key=lambda item: (item[1], item[0])))


def _is_only_in(name: str, here: Path, elsewhere: list[str]) -> bool:
    find = importlib.machinery.PathFinder.find_spec
    if find(name, [str(here)]) is None or find(name, elsewhere) is not None:
        return False
    checked = (importlib.machinery.PathFinder, FINDER)
    others = (finder for finder in sys.meta_path if finder not in checked)
    return not any(_finds(finder, name) for finder in others)  # for example of an editable install


def _finds(finder: object, name: str) -> bool:
    find = getattr(finder, "find_spec", None)
    try:
        return find is not None and find(name, None) is not None
    except Exception:
        return False
