"""Finds a model class whose `execute` is missing or cannot be called: Triton loads it, and then fails.

A static look at the source: nothing is run. Of a class that gets its methods from elsewhere nothing is said.
"""

from __future__ import annotations

import ast

from bls_notebook.backends.python import CLASS_NAME
from bls_notebook.records.advice.known import nearest

from .syntax import syntax_tree

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
    """The line and what is wrong there."""
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
