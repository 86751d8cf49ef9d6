"""Check a model's Python source: syntax, undefined names, names of Triton's API, files, GPUs and packages.

Names of the API are looked up in the module that a server's models have; a missing name is no problem inside `try`, or
if the source tests for it with `hasattr` or `getattr`. A package counts as installed if the model has a packed
environment or changes `sys.path`, or if a file near the models that builds an image or an environment (a Dockerfile,
requirements) mentions it.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from platform import python_version
from typing import Any

from bls_notebook.backends import CLASS_NAME
from bls_notebook.checking.declared_packages import declared_packages
from bls_notebook.checking.pip_packages import install_advice, installed_as, is_brought
from bls_notebook.records import nearest, source_text
from bls_notebook.repository import API, NAMES, NEEDED, add_names, utils_module
from bls_notebook.repository.source import (
    imported_files,
    model_class_warnings,
    shown_path,
    undefined_names,
    working_folder,
)

from .checked_model import CheckedModel
from .discovery import project_files, project_of
from .import_time import import_time_findings
from .name_scope import NameScope, argument, is_call_of, last_name, spreads
from .python_source import PythonSource, later_python, names_of_api
from .records import Finding, finding, names
from .server_files import located

_WARNING_LINE = re.compile(r"^model '.*?', line (\d+): ")
# Functions whose first argument is a file name (`opens`). Modules in nvcr.io/nvidia/tritonserver:<yy.mm>-py3 besides
# the standard library (`in_image`; some only in some releases): packages of the server and of its OpenAI-compatible
# frontend (server/build.py, python/openai/requirements.txt). Backends whose images have unknown further packages.
_NAMES = names()


def source_findings(model: CheckedModel) -> Iterator[Finding]:
    """Yield problems of a model's code: it does not load, requests fail, or a server behaves differently."""
    for code in model.codes.values():
        if code.mistake:
            line, why = code.mistake
            later = later_python("\n".join([why, *code.text.splitlines()[line - 1 : line]]))
            rule = "code-syntax:later" if later else "code-syntax"
            yield model.in_code(rule, code, line, why=why, later=later, here=python_version())
        else:
            yield from _code_findings(model, code)
    folders = dict.fromkeys([*(code.path.parent for code in model.codes.values()), model.folder])
    for file in (folder / name for folder in folders for name in (f"{API}.py", f"{API}/__init__.py")):
        if file.is_file():
            yield _shadow_finding(model, file)


def _shadow_finding(model: CheckedModel, file: Path) -> Finding:
    """Return a finding about a file that a server imports in place of its API."""
    text = source_text(file) or "import *"
    lacking = [] if re.search(r"import \*|sys\.modules|globals", text) else [n for n in NEEDED if n not in text]
    rule = "file-shadows:mock" if lacking else "file-shadows"
    return finding(rule, model.name, shown_path(file), name=API, what=", ".join(lacking))


def _code_findings(model: CheckedModel, code: PythonSource) -> Iterator[Finding]:
    defined = {n.asname or n.name for node in code.tree.body if isinstance(node, ast.ImportFrom) for n in node.names}
    if code.model_class is None and not defined & {CLASS_NAME, "*"} and not code.lines_with(rf"\b{CLASS_NAME}\b"):
        classes = (n for n in code.tree.body if isinstance(n, ast.ClassDef) and "def execute(" in ast.unparse(n))
        yield model.in_code("code-no-class", code, next((node.lineno for node in classes), 0))
    for warning in model_class_warnings(code.text, model.name):
        place = _WARNING_LINE.match(warning)
        what, _, mend = _WARNING_LINE.sub("", warning).partition("; ")
        yield model.in_code("code-no-execute", code, int(place[1]) if place else 0, what=what, mend=mend)
    for name, line in undefined_names(code.text).items():
        yield model.in_code("code-undefined", code, line, name=name)
    for name, line, owner, close in missing_names(code):
        mend = f"Did you mean `{owner}.{close}`?" if close else f"`dir({owner})` lists the names."
        yield model.in_code("code-no-such-name", code, line, owner=owner, name=name, mend=mend)
    yield from import_time_findings(model, code)
    yield from _file_findings(model, code)
    yield from _encoding_findings(model, code)
    yield from _environment_variable_findings(model, code)
    yield from _fixed_device_findings(model, code)


def _file_findings(model: CheckedModel, code: PythonSource) -> Iterator[Finding]:
    """Yield files of the model that are opened by a path relative to its folder, and absent files with full paths."""
    reported: set[str] = set()
    looks = re.search(r"exists|is_?file|FileNotFound|makedirs|mkdir", code.text)
    for scope, node in ((s, n) for s in code.scopes for n in s.nodes):
        if not isinstance(node, ast.Call) or last_name(node.func) not in _NAMES["opens"]:
            continue
        name = _path(code, scope, argument(node, "file", 0))
        if not name or name in reported or name.startswith("~") or len(name) > 200 or "\0" in name:
            continue
        if os.path.isabs(name):
            mode = argument(node, "mode", 1) if last_name(node.func) == "open" else None
            reads = mode is None or (scope.text(mode) or "w")[0] == "r"
            known = looks or os.path.exists(name) or scope.inside(node, (ast.Try,))
            if reads and not known and not _is_mounted(model, code, name):
                reported.add(name)
                yield model.in_code("file-absent", code, node.lineno, name=name)
            continue
        folder = next((f for f in (code.path.parent, model.folder) if os.path.isfile(f / name)), None)
        if folder is None or "chdir" in code.words:
            continue
        reported.add(name)
        version = "args['model_version'], " if folder == code.path.parent else ""
        yield model.in_code("file-relative", code, node.lineno, name=name, version=version)


def _path(code: PythonSource, scope: NameScope, node: ast.expr | None, depth: int = 8) -> str:
    """Return the path that an expression evaluates to; empty if unknown."""
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
        return code.attribute_text(node.attr)
    value = scope.value(node) if depth else None
    if isinstance(value, ast.Call) and last_name(value.func) in ("join", "Path"):  # os.path.join
        parts = [_path(code, scope, part, depth - 1) for part in value.args]
        return os.path.join(*parts) if parts and all(parts) else ""
    return scope.text(value) or ""


def _is_mounted(model: CheckedModel, code: PythonSource, file: str) -> bool:
    """Return whether the project has a file that a server has under this path."""
    repository = model.folder.parent
    found = located(file, project_of(repository, repository), repository, code.path.parent)
    return found is not None and bool(found.why) and found.place.exists()


def _encoding_findings(model: CheckedModel, code: PythonSource) -> Iterator[Finding]:
    """Yield a note if text files are opened in the process's default encoding."""
    lines = [call.lineno for call in ast.walk(code.tree) if isinstance(call, ast.Call) and _is_text(call)]
    if lines and not code.lines_with(r"\bimport\b.*\bopen\b|\bdef open\b"):
        times = f", {len(lines)} times" if len(lines) > 1 else ""
        yield model.in_code("file-encoding", code, min(lines), times=times)


def _is_text(call: ast.Call) -> bool:
    """Return whether a call certainly opens a text file without `encoding=`."""
    if spreads(call) or argument(call, "encoding", -1) is not None:
        return False
    name = last_name(call.func)
    if isinstance(call.func, ast.Name):
        mode = argument(call, "mode", 1)
        plain = mode is None or isinstance(mode, ast.Constant)
        return name == "open" and plain and len(call.args) < 4 and "b" not in str(getattr(mode, "value", ""))
    return (name == "read_text" and not call.args) or (name == "write_text" and len(call.args) == 1)


def _environment_variable_findings(model: CheckedModel, code: PythonSource) -> Iterator[Finding]:
    """Yield a note about required environment variables."""
    lines: dict[str, int] = {}
    assigned: set[str] = set()
    for node in ast.walk(code.tree):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("os.environ", "environ"):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if isinstance(key, str) and isinstance(node.ctx, ast.Load):
                lines.setdefault(key, node.lineno)
            elif isinstance(key, str):
                assigned.add(key)
    needed = {key: line for key, line in lines.items() if key not in assigned}
    if needed and "KeyError" not in code.words:
        names = ", ".join(needed)
        yield model.in_code("environment-variable", code, next(iter(needed.values())), names=names)


def _fixed_device_findings(model: CheckedModel, code: PythonSource) -> Iterator[Finding]:
    """Yield findings if the code names a GPU that contradicts the instance groups."""
    line = _names_a_gpu(code)
    if not line or "is_available" in code.words:
        return
    groups = model.given.instance_group
    on_gpus = {device for group in groups for device in group.gpus}
    if groups and all(group.kind == group.KIND_CPU for group in groups):
        yield model.in_code("device-unasked", code, line)
    if len(on_gpus) > 1 and "model_instance_device_id" not in code.words:
        yield model.in_code("device-fixed", code, line, what=", ".join(map(str, sorted(on_gpus))))


def _names_a_gpu(code: PythonSource) -> int:
    """Return the line of `initialize` that uses a GPU unconditionally, or 0."""
    body = code.model_class.body if code.model_class else []
    todo: list[ast.AST] = [n for n in body if isinstance(n, ast.FunctionDef) and n.name == "initialize"]
    lines = []
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.If, ast.IfExp, ast.Try, ast.BoolOp)):
            continue
        if is_call_of(node, "cuda") or (isinstance(node, ast.Constant) and node.value in ("cuda", "cuda:0")):
            lines.append(getattr(node, "lineno", 0))
        todo += ast.iter_child_nodes(node)
    return min(lines, default=0)


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_UTILS = utils_module()
add_names(_UTILS)


def missing_names(code: PythonSource) -> Iterator[tuple[str, int, str, str]]:
    """Yield each missing name as written, its line, its module or class, and the nearest existing name."""
    aliases = names_of_api(code.tree) - _reassigned_names(code.tree)
    harmless = tolerated(code.tree)
    reported: set[str] = set()
    for node in ast.walk(code.tree):
        if id(node) in harmless:
            continue
        if isinstance(node, ast.ImportFrom) and node.module == API and not node.level:
            for alias in node.names:
                if alias.name != "*" and not hasattr(_UTILS, alias.name) and alias.name not in harmless:
                    yield alias.name, node.lineno, API, nearest(alias.name, NAMES)
        elif isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            owner, owner_name = _resolve_owner(node.value, aliases)
            if owner is None or hasattr(owner, node.attr) or node.attr in harmless or name in reported:
                continue
            reported.add(name)
            yield name, node.lineno, owner_name, nearest(node.attr, dir(owner))


def _resolve_owner(node: ast.expr, aliases: set[str]) -> tuple[Any, str]:
    """Return the module or class that an expression certainly denotes, and its name; else None and an empty string."""
    if isinstance(node, ast.Name):
        return (_UTILS, node.id) if node.id in aliases else (None, "")
    if not isinstance(node, ast.Attribute):
        return None, ""
    owner, name = _resolve_owner(node.value, aliases)
    value = getattr(owner, node.attr, None) if owner is not None else None
    return (value, f"{name}.{node.attr}") if isinstance(value, type) else (None, "")


def _reassigned_names(tree: ast.Module) -> set[str]:
    """Return names that functions assign, and that the module assigns after it has imported them.

    Other assignments of the module are fallbacks, for a process without Triton's API.
    """
    fallbacks = _fallbacks(tree)
    imported = next((n.lineno for n in tree.body if any(map(_imports_api, ast.walk(n)))), 0)
    nodes = [n for n in tree.body if isinstance(n, ast.Assign) and n.lineno > imported]
    functions = [n for n in ast.walk(tree) if isinstance(n, (*_FUNCTIONS, ast.Lambda)) and id(n) not in fallbacks]
    inner = [n for function in functions for n in ast.walk(function)]
    names = {n.id for n in inner if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    targets = {
        t.id for n in nodes for t in n.targets if isinstance(t, ast.Name) and getattr(n.value, "value", 0) is not None
    }
    return names | targets | {n.arg for n in inner if isinstance(n, ast.arg)}


def _fallbacks(tree: ast.Module) -> set[int]:
    """Return the nodes that run only if Triton's API cannot be imported."""
    tries = [node for node in ast.walk(tree) if isinstance(node, ast.Try) and any(map(_imports_api, node.body))]
    return {id(node) for guarded in tries for handler in guarded.handlers for node in ast.walk(handler)}


def _imports_api(node: ast.AST) -> bool:
    return isinstance(node, ast.Import) and any(alias.name == API for alias in node.names)


def _catches(handler: ast.ExceptHandler, node: ast.Try) -> bool:
    """Return whether a handler expects a missing name; a broad handler does if it guards one statement."""
    caught = "" if handler.type is None else ast.unparse(handler.type)
    return "AttributeError" in caught or "ImportError" in caught or len(node.body) == 1


def tolerated(tree: ast.Module) -> set[int | str]:
    """Return nodes that may fail without harm or never run, and names that the source tests for or sets."""
    out: set[int | str] = {*_fallbacks(tree)}
    lazy = any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body)
    for node in [node for node in ast.walk(tree) if id(node) not in out]:
        if isinstance(node, ast.Try) and any(_catches(handler, node) for handler in node.handlers):
            out |= {id(inner) for part in node.body for inner in ast.walk(part)}
        elif isinstance(node, ast.With) and "suppress" in ast.unparse(node.items[0]):
            out |= {id(inner) for inner in ast.walk(node)}
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            out.add(node.attr)
        elif isinstance(node, ast.Call) and last_name(node.func) in ("hasattr", "getattr", "setattr"):
            texts = (n.value for n in node.args if isinstance(n, ast.Constant))
            out |= {text for text in texts if isinstance(text, str)}
        for part in ("annotation", "returns") if lazy else ():
            if isinstance(getattr(node, part, None), ast.AST):
                out |= {id(inner) for inner in ast.walk(getattr(node, part))}
    return out


_BUILDS = re.compile(r"(?i)dockerfile|requirements|environment|conda|pyproject|setup\.|pipfile|readme|compose|\.sh$")
_MOST_BUILD_FILES, _MOST_IMPORTS = 100, 1000  # of a folder; of a source


def package_findings(
    model: CheckedModel, others: Mapping[str, CheckedModel], build_texts: dict[Path, str]
) -> Iterator[Finding]:
    """Yield findings about packages that NVIDIA's server image lacks, imported by model.py or its helper modules.

    `build_texts` caches, for one check, the files of a folder that build an image.
    """
    code = model.newest()
    if code is None or code.mistake or "EXECUTION_ENV_PATH" in model.config.parameters:
        return
    if any(other.config.backend in _NAMES["other_images"] for other in others.values()):
        return
    beside = model.folder.parent if model.place is None else working_folder()
    if beside not in build_texts:
        build_texts[beside] = _build_texts(beside)
    known = sys.stdlib_module_names.union(_NAMES["in_image"])
    own_folders = (code.path.parent, code.path.parent.parent)
    sources, missing = [code], set[str]()
    for source in sources:  # the loop extends `sources`
        if any(not _OWN_FOLDER.search(source.text.splitlines()[n - 1]) for n in source.lines_with(r"\bsys\.path\b")):
            return  # modules may come from anywhere
        lines: dict[str, int] = {}
        imports = imported_files(source.path, source.tree, lambda name: own_folders)
        for name, line, files in islice(imports, max(0, _MOST_IMPORTS - len(missing))):
            paths = {other.path for other in sources}
            sources += [PythonSource(f, source_text(f)) for f in dict.fromkeys(files) if f not in paths]
            if not (files or name in known or name in missing or any((f / name).exists() for f in own_folders)):
                prefixes = "|".join(re.escape(each).replace("_", "[-_]") for each in (installed_as(name), name.lower()))
                if not re.search(rf"\b({prefixes})", build_texts[beside]):
                    lines[name] = min(line, lines.get(name, line))
        missing |= lines.keys()
        declared = declared_packages(project_of(beside, beside), model.folder) if lines else ()
        lines = {name: line for name, line in lines.items() if not is_brought(name, declared)}
        if lines:
            names, install = ", ".join(lines), install_advice(lines, "RUN pip install")
            yield model.in_code("package-missing", source, next(iter(lines.values())), names=names, install=install)


# A line that adds the source's own folder to `sys.path`.
_OWN_FOLDER = re.compile(
    r"(append|insert)\((\d, )?(str\()?(os\.path\.dirname\([\w.]*\(?__file__|Path\(__file__\)(\.parent){1,2})\)*$"
)


def _build_texts(folder: Path) -> str:
    """Return the text of files that build an image or an environment: a project's, or those of a folder's parents."""
    project = project_of(folder, folder)
    files = project_files(project, _BUILDS)[:_MOST_BUILD_FILES]
    for place in list(folder.parents)[:2] if project == folder and not (folder / ".git").exists() else ():
        with suppress(OSError):
            files += [file for file in sorted(place.iterdir()) if _BUILDS.search(file.name)][:_MOST_BUILD_FILES]
    return "\n".join(source_text(file).lower() for file in files)
