"""Explain why a model failed to load, and which command fixes it. Pure, apart from the search for missing modules."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from bls_notebook.backends import DIED, ErrorFacts
from bls_notebook.checking.declared_packages import declared_packages
from bls_notebook.checking.discovery import is_model, project_folders
from bls_notebook.checking.pip_packages import declared_as, distribution_of, install_advice
from bls_notebook.checking.python_source import later_python
from bls_notebook.checking.server_files import located
from bls_notebook.engine import describe, facts_of, place
from bls_notebook.records import ACTIONS, FrameRecord, Remedy, first_line, listed, remedy, source_text
from bls_notebook.repository.config import scan
from bls_notebook.repository.source import imported_files, shown_path, syntax_tree

from .model_environment import ModelEnvironment

_LONGEST = 240
_API = "triton_python_backend_utils"
_PROVIDED = sys.stdlib_module_names | {_API, "c_python_backend_utils"}
_INSTALLED = re.compile(r"/(?:site|dist)-packages/")
# Actions as in `records.remedy_words`; reasons by kind, or kind and case: why, remedy, and the flags that are true; and
# names of modules, classes and functions that tell causes apart.
_DATA = json.loads(Path(__file__).with_name("failure_reasons.json").read_text("utf-8"))
_TO_INSTALL = re.compile(_DATA["to install"])
_NAMED = re.compile(
    r"""pip[\d.]* install (?:-U |--upgrade )?['"]?([A-Za-z][\w.-]*)(?![\w/:+-])|[Nn]o module named ['"]?([\w.]+)"""
)
_ATTRIBUTE = re.compile(r"module '([\w.]+)' has no attribute '(\w+)'")
_DEFAULT = re.compile(r"mutable default <class '([\w.]+)'> for field")  # of a dataclass
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_LIBRARY = re.compile(r"([\w.+-]+\.so[\w.]*): cannot open shared object file")
_VARIABLE = re.compile(r"""\bos\.(?:getenv|environ\.get)\(\s*['"](\w+)['"]\s*\)""")  # without a default
_SEARCHED = re.compile(r"""\bsys\.path\.(?:append|insert)\(\s*(?:\d+\s*,\s*)?['"](/[^'"\n]+)['"]""")
PATH = re.compile(r"(?:^|[\s'\"`(=:])((?:/(?!/)|\.{0,2}\b[\w.-]+/)[\w./+@-]*[\w+@-])")
_ABSENT = re.compile(
    r"(?i)no such file|does ?n[o']t exist|not found"
    r"|(can ?not|can't|could ?n[o']t|unable to|failed to) (be )?(open|load|find|read)"
)
_OTHER_PYTHONS = {name: versions for versions, names in _DATA["other Pythons"].items() for name in names.split()}
_HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


@dataclass(frozen=True)
class ModelPlaces:
    """The places of a model's files: its main file, its repository, and the outermost folder of the project."""

    source: Path
    repository: Path
    project: Path
    environment: ModelEnvironment | None = None  # None: the kernel's

    @property
    def python(self) -> tuple[int, ...]:
        """The version of the Python that runs the model."""
        return sys.version_info[:2] if self.environment is None else self.environment.version

    @property
    def around(self) -> tuple[Path, Path, Path]:
        """The folders in which `located` looks for files of a server."""
        return self.project, self.repository, self.source.parent


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
    """The backend's model file is missing, empty, or a Git LFS pointer; `code`: it is source, not weights."""
    case = "file:pointer" if pointer else "file:code" if code else "file:empty" if file.exists() else "file"
    facts = {"file": f"{file.parent.name}/{file.name}", "folder": shown_path(file.parent), "place": shown_path(file)}
    return reason_of(case, name, **facts)


def too_slow(name: str, seconds: float, line: str) -> FailureReason:
    """Its import or `initialize` exceeded the time limit; `line` is where it was then, if that is known."""
    where = f": it was in {line}" if line else ""
    return reason_of("time", name, seconds=seconds, where=where, longer=max(60, round(seconds * 5)))


def of_error(
    name: str, error: BaseException, places: ModelPlaces, gpu: str, parameters: Mapping[str, str] | None = None
) -> FailureReason:
    """Return the reason for a load error, whose cause is the exception of the model's code.

    `gpu` describes this machine's GPUs. `--fill` can set the configuration's `parameters`.
    """
    cause = error.__cause__ or error
    chain = facts_of(cause)
    if chain[0].kind == DIED:
        return _of_crash(name, chain[0].text, describe(cause, name).frames)
    own = chain[0].is_a("bls_notebook.backends.protocol.BackendError")  # its text needs no class
    message = str(error) if cause is error else chain[0].text if own else chain[0].message
    message = first_line(message, 2 * _LONGEST if own or cause is error else _LONGEST)  # ours end with the remedy
    message = message.removeprefix(f"model {name!r}: ").removeprefix(f"model '{name}': ")
    first = first_line(chain[-1].message, _LONGEST)
    if cause is not error and first.partition(": ")[2] not in message:
        message += f" (from {first})"
    reason = _of_chain(name, chain, places, gpu, parameters or {})
    return replace(reason, why=": ".join(filter(None, (reason.why, message))))


def of_request(name: str, problem: str, places: ModelPlaces) -> str | Remedy:
    """Return the remedy if a request failed because its code imports a missing module; else an empty string."""
    missing = _NO_MODULE.search(problem)
    return "" if missing is None else _of_module(name, missing[1], False, places).remedy


def _of_crash(name: str, text: str, frames: Sequence[FrameRecord]) -> FailureReason:
    """Return the reason of a process that has ended: its signal or status, the line, and its last words."""
    why, _, words = text.partition("is not healthy: ")[2].partition(". Its last words:\n")
    if own := [frame for frame in frames if frame.model]:
        why += f" in {place(own[-1])}"
    spoken = words.partition("Fatal Python error")[0].strip()
    if spoken:
        why += f"; it wrote: {first_line(spoken.splitlines()[-1], _LONGEST)}"
    return replace(reason_of("crash:killed" if "SIGKILL" in why else "crash", name), why=why)


def _of_chain(
    name: str, chain: Sequence[ErrorFacts], places: ModelPlaces, gpu: str, parameters: Mapping[str, str]
) -> FailureReason:
    """Return the reason by the types, origins and texts of exceptions; `why` is empty if these say nothing."""
    texts, here = [error.message for error in chain], ".".join(map(str, places.python))
    for error in chain:
        if other := _other_python(error, places.python):
            return reason_of("python", name, what=other[0], versions=other[1], here=here)
        if error.is_a("ModuleNotFoundError") and not error.name:  # a library's, because of another one
            error = next(filter(_is_of_module, chain), error)
        if _is_of_module(error):
            by_backend = any(each.is_a("bls_notebook.backends.protocol.BackendError") for each in chain)
            return _of_module(name, error.name, error.loaded, None if by_backend else places)
        if library := _LIBRARY.search(error.text):
            return reason_of("library", name, file=library[1])
        raised_in, _, file = error.origin
        installed = (error.name or raised_in).partition(".")[0]
        if error.is_a("ImportError") and installed not in _PROVIDED and not _TO_INSTALL.search(error.message):
            file = file if _INSTALLED.search(file) else error.path or str(places.project)
            if not Path(file).is_relative_to(places.project) or _INSTALLED.search(file):
                return reason_of("package:broken", name, package=installed)
        copy = places.source.with_name(f"{_API}.py")
        if (match := _ATTRIBUTE.search(error.text)) and match[1] == _API and copy.is_file():
            return reason_of("api", name, file=shown_path(copy))
        if match and _INSTALLED.search(error.owner_file):
            package, module = match[1].partition(".")[0], f"{match[1]}.{match[2]}"
            return reason_of("package:attribute", name, package=package, module=module)
        if error.is_a("PermissionError") and error.filename:
            return reason_of("file:denied", name, file=error.filename)
        if error.kind == "KeyError" and raised_in == "os":
            return reason_of("env", name, key=error.key)
        if keys := _unset_variables(error, places):
            return reason_of("env:unset" if len(keys) == 1 else "env:several", name, key=keys[0], keys=", ".join(keys))
        if error.is_a("subprocess.CalledProcessError") and error.status == 127:  # as shells say it
            return reason_of("program", name)
        folder = _pretrained_folder(error)
        if file := folder or (error.filename if error.is_a("FileNotFoundError") else ""):
            if raised_in == "subprocess" and not _is_working_folder(error, file):
                return reason_of("file:program", name, file=file)
            return _of_file(name, file, places, parameters, "file:pretrained" if folder else "file:needed")
    if fill := to_fill(name, "\n".join(texts), parameters, False):
        return reason_of("template", name, **fill)
    categories = set(map(_category, chain))
    if case := next((case for case in ("gpu", "network") if case in categories), ""):
        return reason_of(case, name, gpu=gpu)
    if any(re.search(_DATA["versions of Python"], text) for text in texts):
        return reason_of("python:named", name, here=here)
    for text in filter(_TO_INSTALL.search, texts):
        modules = [module for found in _NAMED.findall(text) if (module := "".join(found).rstrip("."))]
        install = _install(modules, places)
        if places.environment is not None and modules:
            return reason_of("install:made" if places.environment.made else "install:known", name, install=install)
        is_known = install.python.startswith("`pip install")
        return reason_of("install:known" if is_known else "install", name, install=install)
    if "network:hub" in categories:
        return reason_of("network:hub", name)
    for text, file in ((t, path) for t in texts for path in PATH.findall(t) if not os.path.exists(path)):
        if located(file, *places.around) or os.path.isabs(file) or _ABSENT.search(text):
            return _of_file(name, file, places, parameters, "file:named")
    return reason_of("file:unnamed" if any("No such file or directory" in text for text in texts) else "error", name)


def _is_of_module(error: ErrorFacts) -> bool:
    return error.is_a("ModuleNotFoundError") and bool(error.name) and error.kind != "PackageNotFoundError"


def _of_file(name: str, file: str, places: ModelPlaces, parameters: Mapping[str, str], case: str) -> FailureReason:
    """Return the reason for a missing file; `case` is that of a file that neither the project nor an option has."""
    if (found := located(file, *places.around)) and found.place.exists():
        if not found.mounted:
            return reason_of("file:started", name, file=file, found=found, folder=shown_path(found.folder))
        whole = not os.path.lexists(found.mounted) and os.path.isdir(os.path.dirname(found.mounted))
        link = (found.folder, found.mounted) if whole else (found.place, file)
        return reason_of("file:mounted", name, file=file, found=found, origin=link[0], target=link[1])
    if fill := to_fill(name, file, parameters, True):
        return reason_of("file:fill", name, file=f"{file}{_GUESS if os.path.isabs(file) else ''}", **fill)
    elsewhere = not Path(file).is_relative_to(places.project)
    guess = f": {found}" if found else _GUESS if elsewhere else ", which the project does not contain"
    shown = file if elsewhere else shown_path(Path(file))
    return replace(reason_of(case, name, file=f"{shown}{guess}"), unknown=elsewhere)


_GUESS = ", which is missing here and may exist on your server"


def _is_working_folder(error: ErrorFacts, file: str) -> bool:
    """Return whether a program could not start because its working folder is missing."""
    return bool(error.frames) and file == error.frames[-1][3].get("cwd")


def _other_python(error: ErrorFacts, here: tuple[int, ...]) -> tuple[str, str] | None:
    """Return the name that is part of other versions of Python, and the versions; None if that is not certain."""
    if error.syntax:
        text = "\n".join(error.syntax)
        if any(re.search(form, text) for form in _DATA["syntax of Python 2"]):
            return "the syntax", "Python 2"
        newer = later_python(text, here)
        return ("the syntax", f"Python from {newer}") if newer else None
    owner, missing = "", error.name
    if error.is_a("AttributeError"):
        owner = f"{error.owner}."
    elif error.is_a("ImportError") and (match := re.match(r"cannot import name '(\w+)'", error.text)):
        owner, missing = f"{missing}.", match[1]
    elif error.is_a("ValueError") and (match := _DEFAULT.match(error.text)):
        unhashable = match[1] not in ("list", "dict", "set")  # which no version allows
        return (f"a default value of the class {match[1]}", "Python before 3.11") if unhashable else None
    elif not error.is_a("NameError"):
        return None
    versions = _OTHER_PYTHONS.get(f"{owner}{missing}")
    return (f"`{owner}{missing}`", versions) if versions else None


def _unset_variables(error: ErrorFacts, places: ModelPlaces) -> list[str]:
    """Return the environment variables without a value that decided an error of the project's code.

    An error about None is decided by the values in its statement, and a `raise` by those that its condition tests.
    """
    frames = [(Path(file), line) for _, _, file, _, line in error.frames if not _INSTALLED.search(file)]
    file, line = next((f for f in reversed(frames) if f[0].is_relative_to(places.project)), (places.source, 0))
    tree = syntax_tree(source_text(file)) if line and file.is_file() else None
    text = "" if tree is None else _deciding_values(tree, line, "NoneType" in error.text)
    return [key for key in dict.fromkeys(_VARIABLE.findall(text)) if key not in os.environ]


def _deciding_values(tree: ast.Module, line: int, about_none: bool) -> str:
    """Return the source of a line's statement, or of the condition of its `raise`, and of its variables' values."""
    nodes = list(ast.walk(tree))
    here = [n for n in nodes if isinstance(n, ast.stmt) and n.lineno <= line <= (n.end_lineno or 0)]
    inner = max(here, key=lambda statement: statement.lineno, default=None)
    deciding: list[ast.AST] = [n.test for n in nodes if isinstance(n, ast.If) and inner in n.body]
    if not isinstance(inner, ast.Raise):
        deciding = [inner] if inner is not None and about_none else []
    names = {ast.unparse(n) for each in deciding for n in ast.walk(each) if isinstance(n, (ast.Name, ast.Attribute))}
    assigned = [(n.targets, n.value) for n in nodes if isinstance(n, ast.Assign)]
    assigned += [([n.target], n.value) for n in nodes if isinstance(n, ast.AnnAssign) and n.value is not None]
    values = [value for targets, value in assigned if names.intersection(map(ast.unparse, targets))]
    return "\n".join(map(ast.unparse, (*deciding, *values)))


def _pretrained_folder(error: ErrorFacts) -> str:
    """Return the folder in which a hub's library misses files; empty if it looks for them on the hub."""
    if (error.is_a("OSError") and error.errno is None) or error.is_a("ValueError"):
        for module, _, _, variables, _ in error.frames:
            if module.partition(".")[0] in _DATA["hubs"]:
                value = variables.get("pretrained_model_name_or_path") or variables.get("repo_id") or ""
                if value[:1] in ("/", ".") or (value and os.path.isdir(value)):
                    has_config = error.is_a("ValueError") and Path(value, "config.json").is_file()
                    return "" if has_config else value
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


def _category(error: ErrorFacts) -> str:
    """Return ``gpu``, ``network`` or ``network:hub`` if an exception's class or origin is about it, else ""."""
    module, function, _ = error.origin
    classes = set(error.classes)
    names = {name for dotted in (module, *classes) for name in dotted.split(".")}
    from_torch = module == "torch.serialization" and function in _DATA["gpu functions of torch.serialization"]
    if names.intersection(_DATA["gpu names"]) or classes.intersection(_DATA["gpu classes"]) or from_torch:
        return "gpu"
    if classes.intersection(_DATA["hub classes"]):  # some are network classes, too
        return "network:hub"
    if classes.intersection(_DATA["network classes"]) and not error.is_a("BrokenPipeError"):
        return "network"
    is_from_hub = error.is_a("OSError") and error.errno is None and module.partition(".")[0] in _DATA["hubs"]
    return "network:hub" if is_from_hub else ""


def _of_module(name: str, module: str, loaded: bool, places: ModelPlaces | None) -> FailureReason:
    """Return the reason for a missing module that the model's code imports, or its backend (no `places`).

    `loaded`: the code has imported the module's package.
    """
    first = module.partition(".")[0]
    if places is not None and (folder := _mounted_folder(first, places.source, places.around)):
        return _of_file(name, folder, places, {}, "file:needed")
    module_folder = None if places is None else _project_folder(first, places.source.parent, places.project)
    if module_folder is not None:
        place = shown_path(module_folder)
        file = module_folder.joinpath(*module.split("."))
        if not file.is_dir() and not file.with_name(f"{file.name}.py").is_file():
            return reason_of("module:missing", name, module=module, place=place)
        return reason_of("module", name, module=module, place=place)
    if versions := _OTHER_PYTHONS.get(first):
        here = ".".join(map(str, places.python)) if places is not None else _HERE
        return reason_of("python", name, what=f"`{first}`", versions=versions, here=here)
    if loaded and module != first:  # another version or another package of this name
        return reason_of("package:other", name, package=first, module=module)
    if places is not None and not declared_as(first, declared_packages(places.project, places.source.parent)):
        files = [file.stem for file in places.source.parent.glob("*.py")]
        if similar := get_close_matches(first, [] if distribution_of(first) else files, 1, 0.85):
            shown = shown_path(places.source.with_name(f"{similar[0]}.py"))
            return reason_of("module:similar", name, module=first, file=shown)
    others = _missing_modules(places) if places is not None else ()
    modules = [module, *(m for m in others if m != first)]
    packages = f"the package {module} is" if len(modules) == 1 else f"the packages {', '.join(modules)} are"
    environment = None if places is None else places.environment
    case = "package" if environment is None else "package:made" if environment.made else "package:environment"
    return reason_of(case, name, packages=packages, install=_install(modules, places))


def _install(modules: Sequence[str], places: ModelPlaces | None) -> Remedy:
    """Return how to install modules, by the names that the project uses."""
    declared = {} if places is None else declared_packages(places.project, places.source.parent)
    if places is not None and (environment := places.environment) is not None:
        if environment.made:
            words = f"add {listed(modules, 12)} to the project's requirements, and try again with"
            return Remedy(f"{words} `install=True`", *[f"{words} `--install`"] * 2)
        return Remedy(install_advice(modules, f"{environment.python} -m pip install", declared))
    pip = "pip install", "%pip install", "python -m pip install"
    return Remedy(*(install_advice(modules, command, declared) for command in pip))


def _project_folder(module: str, folder: Path, top: Path) -> Path | None:
    """Return the folder in the project `top` that contains a top-level module, nearest to the model's `folder`."""
    above = [folder, *(place for place in folder.parents if place.is_relative_to(top))]
    for inside in (here / part for here in above for part in ("", "src", "lib")):
        if _has_module(inside, module):
            return inside
    if distribution_of(module) or _is_installed(module):  # a folder of this name elsewhere means little
        return None
    for here, folders, files in project_folders(top):
        if f"{module}.py" in files or (module in folders and (here / module / "__init__.py").is_file()):
            return here
    return None


def _has_module(folder: Path, module: str) -> bool:
    """Return whether a folder has a top-level module: a file, or a package, often without __init__.py."""
    parts = folder / module
    package = (any(parts.glob("*.py")) or any(parts.glob("*/*.py"))) and not is_model(parts)
    return package or (folder / f"{module}.py").is_file()


def _mounted_folder(module: str, source: Path, around: tuple[Path, Path, Path]) -> str:
    """Return the folder, missing here, that a source adds to `sys.path`, if the project's copy has a module; or ""."""
    for folder in _SEARCHED.findall(source_text(source)):
        found = None if os.path.exists(folder) else located(folder, *around)
        if found is not None and _has_module(found.place, module):
            return str(folder)
    return ""


def _missing_modules(places: ModelPlaces) -> list[str]:
    """Return the modules, not of the project, that a source and its helper modules import and that are missing here."""
    missing: dict[str, None] = {}
    top, environment, pending = places.project, places.environment, [places.source]
    for file in pending:  # grows

        def folders(module: str, folder: Path = file.parent) -> list[Path]:
            place = None if module in _PROVIDED else _project_folder(module, folder, top)
            return [place] if place is not None else []

        tree = syntax_tree(source_text(file))
        for module, _, files in imported_files(file, tree, folders) if tree is not None else ():
            pending += [f for f in files if f not in pending]
            known = ("", *missing, *_PROVIDED)
            if not (files or module in known or _is_installed(module, environment) or folders(module)):
                missing |= {} if _mounted_folder(module, file, places.around) else {module: None}
    return list(missing)


def _is_installed(module: str, environment: ModelEnvironment | None = None) -> bool:
    if environment is not None:
        return environment.has(module)
    with suppress(ValueError):  # of modules without a spec
        return module in sys.modules or find_spec(module) is not None
    return False
