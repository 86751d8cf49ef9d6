"""Finds names that a model's source reads but never defines: variables of the notebook, and misspelt ones.

In the notebook a cell's model does not see them either; this says so before its first request fails. A
static look at the source: nothing is run. Where names may come from elsewhere (``from x import *``,
`globals()`, `exec`), nothing is said at all.
"""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
from collections.abc import Collection, Iterator
from types import CodeType

from .syntax import syntax_tree

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


def undefined_name_warnings(
    source: str, model: str, notebook_names: Collection[str] | None = None
) -> tuple[str, ...]:
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
