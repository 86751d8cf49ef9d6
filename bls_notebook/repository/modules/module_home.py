"""`ModuleHome`: the modules of one instance of a model.

On Triton each instance is a process, whose path ends with the folders of the version and of the model. Here the modules
beside model.py are imported once per instance, under their names on Triton. All code that the instance owns finds them,
including libraries and other threads (`code_owner.py`). So the `helper.py` of two models and of the notebook are
different modules, and each reload imports new ones. Installed packages and the standard library come first and are
shared. The modules of Triton's API are the instance's own; some names come only after the import of model.py
(`stub_modules.py`). While GPUs are simulated, a model's `import cupy` returns a substitute; the notebook's does not.

Guarantees: only code that an instance owns finds its modules (`module_names.py`). A failed import leaves no module
behind. No file is written.
"""

from __future__ import annotations

import builtins
import functools
import importlib.machinery
import importlib.util
import linecache
import os
import site
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from bls_notebook.devices.registry import simulated_cupy
from bls_notebook.engine.exception_text import HOME, ModelHome, labels
from bls_notebook.pb_utils.stub_modules import API, C_API, add_names, c_module, utils_module
from bls_notebook.records.regular_file import MAX_CODE, read_file

from .code_owner import install
from .model_breakpoint import breakpoint_builtin
from .module_names import ModelFinder, ModuleName, make_way, named, shared_names, top_of

SHARED = frozenset({*sys.stdlib_module_names, *sys.builtin_module_names, C_API})
_SUFFIXES = tuple(importlib.machinery.all_suffixes())
FINDER = ModelFinder()
_added: dict[str, set[str]] = {}  # folders outside of models that model.py files added to `sys.path`, with the models


@dataclass(frozen=True)
class SourcePlace:
    """The place where the user wrote a source: a file, or a cell."""

    file: str  # file name for debuggers, breakpoints and tracebacks
    label: str  # name of the file in displays and messages
    line: int = 1  # number of the source's first line in the file
    text: str | None = None  # code to run in place of the source

    def numbered(self, source: str) -> str:
        """Return the code to run, with blank lines before it so that its lines have the file's numbers."""
        return "\n" * (self.line - 1) + (source if self.text is None else self.text)


Places = Mapping[str, SourcePlace]


@functools.cache
def _site_packages() -> frozenset[str]:
    import sysconfig  # first needed when a model is loaded

    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")} - {None, ""}
    users = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return frozenset({*paths, *site.getsitepackages(), *users})


def noted_source(file: str, place: SourcePlace | None) -> tuple[str, str]:
    """Return the name and the text under which a file is run, and note its lines for tracebacks."""
    source = importlib.util.decode_source(read_file(file, MAX_CODE))
    name = file
    if place is not None:
        name, source = place.file, place.numbered(source)
        labels[name] = place.label
    # Tracebacks need these lines even after the file has changed; `inspect` searches the lines of classes by path.
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    if place is None or place.text is None:  # a variant's text is not the file's
        linecache.cache[file] = linecache.cache[name]
    return name, source


class ModuleHome(ModelHome):
    """The modules of one instance, found in `folders`: the version's before the model's.

    `places` maps the paths of files to the places where the user wrote them.
    """

    def __init__(self, model: str, version: int, folders: Sequence[Path], places: Places | None = None) -> None:
        self.model = model
        self.version = version
        self._places = places or {}
        self.sources: dict[str, list[str]] = {}
        self.owner: Any = None  # the LoadedModel, once it exists
        self.instance: Any = None  # its Instance, once it is known
        self.reference = weakref.ref(self)
        self.folders = [str(f) for f in folders]
        self._roots = [os.path.abspath(folder) for folder in self.folders]
        self._search: list[str] = []  # `sys.path` as the code left it, if it added own folders
        self._before: list[str] = []  # `sys.path` before the code ran
        self.warnings: dict[str, None] = {}  # an ordered set
        self._own: set[str] = set()  # cache of `owns`: top-level names
        self._foreign: set[str] = set()
        self._ended = False
        # `Thread`s and `Future`s of executors; by ID, because a thread of a user's class may not be hashable.
        self._started: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self.builtins = {**vars(builtins), **breakpoint_builtin(), "__import__": self._import, HOME: self}
        install()
        FINDER.install()
        self._api = {C_API: c_module()}
        if not self.owns(API):  # else the user's own copy is imported, as on a server
            self._api[API] = utils_module()
        self._own |= {API, C_API}
        self._foreign -= {API, C_API}
        make_way([API, C_API, *(name for name in _importable(self.folders) if self.owns(name))])
        for name, module in self._api.items():  # for libraries, and `importlib`
            key = ModuleName(name, self)
            key.asleep = True
            sys.modules[key] = module
            key.asleep = False

    @property
    def modules(self) -> dict[str, ModuleType]:
        """The instance's own modules, by name, without those of Triton's API."""
        keys = [key for key in self._keys() if str(key) not in self._api]
        return {str(key): sys.modules[key] for key in keys if key in sys.modules}

    def note_started(self, work: threading.Thread | Future[Any]) -> None:
        self._started[id(work)] = work

    def has_threads(self) -> bool:
        started = [work for reference in self._started.valuerefs() if (work := reference()) is not None]
        return any(work.is_alive() if isinstance(work, threading.Thread) else not work.done() for work in started)

    def _keys(self) -> list[str]:
        return [key for key in list(sys.modules) if isinstance(key, ModuleName) and key.home is self.reference]

    def load(self, name: str, file: Path) -> ModuleType:
        """Import a file as the instance's main module, named ``<version>.<stem>`` as on Triton."""
        package, _, tail = name.rpartition(".")
        if package:
            parent = self._get(package)
        loader = _Source(name, str(file), self)
        spec = importlib.util.spec_from_file_location(name, file, loader=loader)
        assert spec is not None
        spec = named(spec, self)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        before = self._before = sys.path.copy()
        try:
            assert spec.loader is not None
            spec.loader.exec_module(module)
        except BaseException:
            sys.modules.pop(spec.name, None)
            raise
        finally:
            own = [entry for entry in sys.path if entry not in before and self._within(entry)]
            self._search = sys.path.copy() if own else []
            for entry in own:  # where other code would find the modules
                sys.path.remove(entry)
            for entry in sys.path:
                if sys.path.count(entry) > before.count(entry):
                    _added.setdefault(entry, set()).add(self.model)
        if package:
            setattr(parent, tail, module)
        add_names(self._get(API))  # the user's own copy, if there is one
        return module

    def forget(self) -> None:
        """Remove this home's modules from `sys.modules`; no more can be imported."""
        self._ended = True
        for key in self._keys():
            sys.modules.pop(key, None)

    def owns(self, top: str) -> bool:
        """Return whether a top-level name belongs to a module of this instance."""
        if top in self._own:
            return True
        if top in self._foreign or top in SHARED:
            return False
        # The notebook's folder is not searched: it does not exist on Triton.
        own = self.path()
        installed = [entry for entry in [*self._search, *sys.path] if entry in _site_packages() or entry in own]
        spec = PathFinder.find_spec(top, [*installed, *self.folders])
        if spec is None:
            return False
        is_own = self._within(_file_of(spec))
        (self._own if is_own else self._foreign).add(top)
        return is_own

    def path(self) -> list[str]:
        """Return the search path of the instance's modules: its folders, after subfolders that its code added.

        Triton's folders come last on the path, so installed packages win.
        """
        return [*filter(self._within, [*self._search, *sys.path]), *self.folders]

    def _within(self, place: object) -> bool:
        place = os.path.abspath(place) if isinstance(place, str) else ""
        return any(place == root or place.startswith(root + os.sep) for root in self._roots)

    def find_spec(self, name: str, path: Sequence[str] | None) -> ModuleSpec | None:
        """Return the import spec of one of the instance's modules; None if there is none."""
        if self._ended:
            raise ModuleNotFoundError(f"No module named {name!r}: model {self.model!r} has been unloaded", name=name)
        spec = PathFinder.find_spec(name, self.path() if path is None else list(path))
        if spec is None:
            return None
        if spec.submodule_search_locations is not None:
            # For a package without __init__.py this is an object that follows changes of `sys.path`.
            spec.submodule_search_locations = list(spec.submodule_search_locations)
        if isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Source(name, spec.loader.path, self)
        return named(spec, self)

    def compile(self, file: str) -> CodeType:
        name, source = noted_source(file, self._places.get(file))
        self.sources[name] = source.splitlines(True)
        code: CodeType = compile(source, name, "exec", dont_inherit=True)
        return code

    def written(self, file: str) -> tuple[str, SourcePlace] | None:
        """Return the code that was run of a file, and its place; None if the file has not been run."""
        place = self._places.get(file) or SourcePlace(file, os.path.basename(file))
        lines = self.sources.get(place.file)
        return None if lines is None else ("".join(lines[place.line - 1 :]), place)

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        full = name if not level else self._absolute(name, globals, level)
        if full in self._api:  # even if a test has put something else into `sys.modules`
            return self._api[full]
        top = top_of(full)
        if top in self._foreign or not top or (level and not fromlist):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        if self.owns(top):
            if top not in shared_names:
                make_way((top,))
            return self._import_own(full, fromlist)
        if top == "cupy" and (substitute := simulated_cupy()) is not None:
            found = _inside(substitute, name)
            return found if fromlist else substitute
        module = builtins.__import__(name, globals, locals, fromlist or (), level)
        if top != "cupy":
            self._foreign.add(top)
            self._compare(top)
        return module

    def _compare(self, top: str) -> None:
        """Warn if a module is not the one that a process of this model alone would import."""
        others = {e for e in _added if self.model not in _added[e] and sys.path.count(e) <= self._before.count(e)}
        spec = getattr(sys.modules.get(top), "__spec__", None) if others and top not in SHARED else None
        got = os.path.realpath(_file_of(spec))
        if spec is None or not any(got.startswith(os.path.realpath(entry) + os.sep) for entry in others):
            return
        wanted = PathFinder.find_spec(top, [entry for entry in sys.path if entry not in others])
        adds = any("sys.path" in line for lines in self.sources.values() for line in lines)
        if adds if wanted is None else os.path.realpath(_file_of(wanted)) == got:
            return  # it may add a folder only if no other model has
        there = "does not find it" if wanted is None else f"imports {_file_of(wanted)}"
        self.warnings[
            f"its module {top!r} is {got}, because another model changed `sys.path`; a server, where each model is a "
            f"process, {there}. Put {top} beside model.py"
        ] = None

    @staticmethod
    def _absolute(name: str, globals: Mapping[str, Any] | None, level: int) -> str:
        """Return the absolute name of a relative import; empty if it is invalid, so that Python reports the error."""
        package = str((globals or {}).get("__package__") or "").split(".")
        if level > len(package) or not package[0]:
            return ""
        return ".".join([*package[: len(package) - level + 1], *([name] if name else [])])

    def _import_own(self, full: str, fromlist: Sequence[str] | None) -> ModuleType:
        parts = full.split(".")
        modules = [self._get(".".join(parts[: end + 1])) for end in range(len(parts))]
        if not fromlist:
            return modules[0]
        module = modules[-1]
        names = [n for item in fromlist for n in (getattr(module, "__all__", ()) if item == "*" else (item,))]
        for missing in [n for n in names if hasattr(module, "__path__") and not hasattr(module, n)]:
            try:
                self._get(f"{full}.{missing}")
            except ModuleNotFoundError as error:
                if error.name != f"{full}.{missing}":  # raised by an import inside that module
                    raise
        return module

    def _get(self, full: str) -> ModuleType:
        """Import under the instance's `ModuleName`, so that the import lock does not block other instances."""
        name = ModuleName(full, self)
        name.asleep = True
        try:  # with a fromlist: without one, Python would look up the top-level module by its plain name
            return builtins.__import__(name, None, None, ["__name__"])
        except ModuleNotFoundError as error:
            if isinstance(error.name, ModuleName):
                error.name = str(error.name)
            raise


class _Source(SourceFileLoader):
    """Runs a file as the code of one instance, without reading or writing cached bytecode."""

    def __init__(self, name: str, path: str, home: ModuleHome) -> None:
        super().__init__(name, path)
        self._home = home

    def get_code(self, fullname: str) -> CodeType:
        return self._home.compile(self.path)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update({"__builtins__": self._home.builtins, HOME: self._home})
        super().exec_module(module)


def _file_of(spec: ModuleSpec | None) -> str:
    """Return the file of a module, or the folder of a package without one; empty if unknown."""
    return "" if spec is None else spec.origin or next(iter(spec.submodule_search_locations or ()), "")


def _importable(folders: Sequence[str]) -> Iterator[str]:
    for folder in folders:
        try:
            names = os.listdir(folder)
        except OSError:  # the load reports the error
            continue
        for name in names:
            if name.endswith(_SUFFIXES) or os.path.isdir(os.path.join(folder, name)):
                yield name.partition(".")[0]


def _inside(substitute: Any, full: str) -> ModuleType:
    try:
        return functools.reduce(getattr, full.split(".")[1:], substitute)  # type: ignore[no-any-return]
    except AttributeError as error:
        raise ModuleNotFoundError(f"No module named {full!r}: {error}", name=full) from error
