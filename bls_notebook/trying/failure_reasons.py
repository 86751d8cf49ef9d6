"""Explain why a model failed to load, and which command fixes it. Pure, apart from the search for missing modules."""

from __future__ import annotations

import json
import os
import re
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from traceback import walk_tb

from bls_notebook.backends import BackendError
from bls_notebook.checking.discovery import IGNORED, is_model
from bls_notebook.checking.pip_packages import distribution_of, install_advice
from bls_notebook.engine import describe, traceback_of
from bls_notebook.records import ACTIONS, Remedy, first_line, remedy, source_text
from bls_notebook.repository.config import scan
from bls_notebook.repository.source import imported_files, shown_path, syntax_tree, walk

_LONGEST = 240
_API = "triton_python_backend_utils"
_MOST_FOLDERS = 2000  # of a project that are searched
_PROVIDED = sys.stdlib_module_names | {_API, "c_python_backend_utils"}
_INSTALLED = re.compile(r"/(?:site|dist)-packages/")
# Actions as in `records.remedy_words`; reasons by kind, or kind and case: why, remedy, and the flags that are true; and
# names of modules, classes and functions that tell causes apart.
_DATA = json.loads(Path(__file__).with_name("failure_reasons.json").read_text("utf-8"))


@dataclass(frozen=True)
class FailureReason:
    """Reason why a model is not real, and the remedy, with code in backticks; `kind` is the category.

    `broken`: the model's files or code are at fault, as opposed to something that is missing on this machine.
    `unknown`: a file outside of the project is missing, which may exist on a server.
    """

    why: str
    remedy: str | Remedy
    kind: str = ""
    broken: bool = False
    unknown: bool = False


def reason_of(case: str, name: str, **facts: object) -> FailureReason:
    """Make the reason of a case by filling its texts with facts; `name` is the model's."""
    why, template, *flags = _DATA["reasons"][case]
    action = remedy(template, ACTIONS | _DATA["actions"], name=name, **facts)
    kind = case.partition(":")[0]
    return FailureReason(why.format(name=name, **facts), action, kind, **dict.fromkeys(flags, True))


def missing_file(name: str, file: Path, pointer: bool, code: bool = False) -> FailureReason:
    """The backend's model file is missing, or a Git LFS pointer; `code`: it is source, not weights."""
    case = "file:pointer" if pointer else "file:code" if code else "file"
    facts = {"file": f"{file.parent.name}/{file.name}", "folder": shown_path(file.parent), "place": shown_path(file)}
    return reason_of(case, name, **facts)


def too_slow(name: str, seconds: float, line: str) -> FailureReason:
    """Its import or `initialize` exceeded the time limit; `line` is where it was then, if that is known."""
    where = f": it was in {line}" if line else ""
    return reason_of("time", name, seconds=seconds, where=where, longer=max(60, round(seconds * 5)))


def of_error(
    name: str, error: BaseException, source: Path, top: Path, gpu: str, parameters: Mapping[str, str] | None = None
) -> FailureReason:
    """Return the reason for a load error, whose cause is the exception of the model's code.

    `source` is the model's main file, `top` the outermost folder of the project, `gpu` describes this
    machine's GPUs. `--fill` can set the configuration's `parameters`.
    """
    cause = error.__cause__ or error
    chain = list(_chain(cause))
    text = [describe(exception).message for exception in chain]
    message = first_line(text[0] if cause is not error else str(error), _LONGEST)
    message = message.removeprefix(f"model {name!r}: ").removeprefix(f"model '{name}': ")
    if cause is not error and (first := first_line(text[-1], _LONGEST)) not in message:
        message += f" (from {first})"
    reason = _of_chain(name, chain, source, top, gpu, parameters or {})
    return replace(reason, why=": ".join(filter(None, (reason.why, message))))


def _of_chain(
    name: str, chain: Sequence[BaseException], source: Path, top: Path, gpu: str, parameters: Mapping[str, str]
) -> FailureReason:
    """Return the reason by the types and origins of exceptions; `why` is empty if these say nothing."""
    for error in chain:
        module = error.name if isinstance(error, ModuleNotFoundError) else None
        if isinstance(module, str):
            by_backend = any(isinstance(each, BackendError) for each in chain)
            return _of_module(name, module, None if by_backend else source, top)
        raised_in, _, file = _origin(error)
        installed = (getattr(error, "name", None) or raised_in).partition(".")[0]
        if isinstance(error, ImportError) and installed not in _PROVIDED:
            file = file if _INSTALLED.search(file) else error.path or str(top)
            if not Path(file).is_relative_to(top) or _INSTALLED.search(file):
                return reason_of("package:broken", name, package=installed)
        if type(error) is KeyError and raised_in == "os":
            return reason_of("env", name, key=error.args[0])
        folder = _pretrained_folder(error)
        named = error.filename if isinstance(error, FileNotFoundError) else None
        if file := folder or str(os.fspath(named or "")):
            if raised_in == "subprocess" and "/" not in file:
                return reason_of("file:program", name, file=file)
            fill = to_fill(name, file, parameters, True)
            elsewhere = os.path.isabs(file) and not Path(file).is_relative_to(top)
            guess = ", which is missing here and may exist on your server" if elsewhere else ""
            case = "file:fill" if fill else "file:pretrained" if folder else "file:needed"
            reason = reason_of(case, name, file=f"{file}{guess}", **fill)
            return replace(reason, broken=not (fill or elsewhere or folder), unknown=elsewhere)
    if fill := to_fill(name, "\n".join(describe(error).message for error in chain), parameters, False):
        return reason_of("template", name, **fill)
    categories = set(map(_category, chain))
    case = next((case for case in ("gpu", "network", "network:hub") if case in categories), "error")
    return reason_of(case, name, gpu=gpu)


def _pretrained_folder(error: BaseException) -> str:
    """Return the folder in which a hub's library misses files; empty if it looks for them on the hub."""
    if (isinstance(error, OSError) and error.errno is None) or isinstance(error, ValueError):
        for frame, _ in walk_tb(traceback_of(error)):
            if str(frame.f_globals.get("__name__")).partition(".")[0] in _DATA["hubs"]:
                value = frame.f_locals.get("pretrained_model_name_or_path") or frame.f_locals.get("repo_id")
                if isinstance(value, (str, Path)) and (str(value)[:1] in ("/", ".") or os.path.isdir(value)):
                    has_config = isinstance(error, ValueError) and Path(value, "config.json").is_file()
                    return "" if has_config else str(value)
    return ""


def to_fill(name: str, text: str, parameters: Mapping[str, str], paths: bool) -> dict[str, str]:
    """Return the option and the value that fill the first unfilled template in a text; empty if there is none.

    If `paths`, the text is a path, and a parameter that is the path or a folder above it also counts.
    """
    for parameter in parameters.values():
        for template in scan(f'name: "{parameter}"') if "${" in parameter else ():
            if template.written in text:
                return {"option": template.key, "value": "VALUE"}
    for key, value in parameters.items():
        if paths and len(value) > 1 and (text == value or text.startswith(value.rstrip("/") + "/")):
            return {"option": f"{name}.{key}", "value": "PATH"}
    return {}


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and its causes: explicit ones, and handled ones whose text it repeats."""
    chain: list[BaseException] = []
    while error is not None and error not in chain and len(chain) < 16:
        chain.append(error)
        yield error
        cause, context = error.__cause__, error.__context__
        if cause is None and context is not None and not error.__suppress_context__:
            cause = context if (text := describe(context).text) and text in describe(error).text else None
        error = cause


def _category(error: BaseException) -> str:
    """Return ``gpu``, ``network`` or ``network:hub`` if an exception's class or origin is about it, else ""."""
    module, function, _ = _origin(error)
    classes = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    names = {name for dotted in (module, *classes) for name in dotted.split(".")}
    from_torch = module == "torch.serialization" and function in _DATA["gpu functions of torch.serialization"]
    if names.intersection(_DATA["gpu names"]) or classes.intersection(_DATA["gpu classes"]) or from_torch:
        return "gpu"
    if classes.intersection(_DATA["network classes"]) and not isinstance(error, BrokenPipeError):
        return "network"
    is_from_hub = isinstance(error, OSError) and error.errno is None and module.partition(".")[0] in _DATA["hubs"]
    return "network:hub" if is_from_hub else ""


def _origin(error: BaseException) -> tuple[str, str, str]:
    """Return the module, function and file that raised an exception; empty if unknown."""
    for frame, _ in deque(walk_tb(traceback_of(error)), 1):
        return str(frame.f_globals.get("__name__")), frame.f_code.co_name, frame.f_code.co_filename
    return "", "", ""


def _of_module(name: str, module: str, source: Path | None, top: Path) -> FailureReason:
    """Return the reason for a missing module that `source` imports, or the model's backend (None)."""
    first = module.partition(".")[0]
    module_folder = None if source is None else _project_folder(first, source.parent, top)
    if module_folder is not None:
        place = shown_path(module_folder)
        file = module_folder.joinpath(*module.split("."))
        if not file.is_dir() and not file.with_name(f"{file.name}.py").is_file():
            return reason_of("module:missing", name, module=module, place=place)
        return reason_of("module", name, module=module, place=place)
    if first in sys.modules and module != first:  # another version or another package of this name
        return reason_of("package:other", name, package=first, module=module)
    modules = [module, *(m for m in (_missing_modules(source, top) if source is not None else ()) if m != first)]
    packages = f"the package {module} is" if len(modules) == 1 else f"the packages {', '.join(modules)} are"
    pip = "pip install", "%pip install", "python -m pip install"
    install = Remedy(*(install_advice(modules, command) for command in pip))
    return reason_of("package", name, packages=packages, install=install)


def _project_folder(module: str, folder: Path, top: Path) -> Path | None:
    """Return the folder in the project `top` that contains a top-level module, nearest to the model's `folder`."""
    above = [folder, *(place for place in folder.parents if place.is_relative_to(top))]
    for inside in (place / part for place in above for part in ("", "src", "lib")):
        parts = inside / module  # often a package without __init__.py
        package = (any(parts.glob("*.py")) or any(parts.glob("*/*.py"))) and not is_model(parts)
        if package or (inside / f"{module}.py").is_file():
            return inside
    if distribution_of(module) or _is_installed(module):  # a folder of this name elsewhere means little
        return None
    for name, folders, files in islice(walk(top), _MOST_FOLDERS):
        folders[:] = sorted(f for f in folders if f not in IGNORED and not f.startswith("."))
        if f"{module}.py" in files or (module in folders and Path(name, module, "__init__.py").is_file()):
            return Path(name)
    return None


def _missing_modules(source: Path, top: Path) -> list[str]:
    """Return the modules, not of the project, that a source and its helper modules import and that are missing here."""
    missing: dict[str, None] = {}
    pending = [source]
    for file in pending:  # grows

        def folders(module: str, folder: Path = file.parent) -> list[Path]:
            place = None if module in _PROVIDED else _project_folder(module, folder, top)
            return [place] if place is not None else []

        tree = syntax_tree(source_text(file))
        for module, _, files in imported_files(file, tree, folders) if tree is not None else ():
            pending += [f for f in files if f not in pending]
            if not (files or module in ("", *missing, *_PROVIDED) or _is_installed(module) or folders(module)):
                missing[module] = None
    return list(missing)


def _is_installed(module: str) -> bool:
    with suppress(ValueError):  # of modules without a spec
        return module in sys.modules or find_spec(module) is not None
    return False
