"""The modules of one instance of a model.

On Triton each instance is a process of its own, whose path ends with the folders of the version and of the model. Here
the modules beside model.py are imported once for each instance, under the names that they have on Triton, and are found
by whatever runs on behalf of that instance, also by libraries and on other threads (`code_owner.py`): two models'
`helper.py` never meet, nor does either meet a notebook's, and each reload is fresh. Installed packages and the standard
library come first and are shared, as Python has them. While GPUs are simulated, `cupy` is what stands in for it there;
that is for models alone, the notebook's own `import cupy` stays as it is.

Guarantees: nothing of a model is found by code that runs for somebody else (`module_names.py`); a failed
import leaves nothing behind; nothing is written beside the files.
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
import weakref
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from bls_notebook import pb_utils
from bls_notebook.devices.registry import simulated_cupy
from bls_notebook.engine.exception_text import HOME, ModelHome, labels
from bls_notebook.engine.waiting.interrupts import may_be_interrupted
from bls_notebook.repository.source.model_source import SourcePlace

from .code_owner import follow
from .module_names import ModelFinder, ModuleName, make_way, named, shared_names, top_of

_PB_UTILS = ("triton_python_backend_utils", "c_python_backend_utils")
SHARED = frozenset({*sys.stdlib_module_names, *sys.builtin_module_names, *_PB_UTILS})
Places = Mapping[str, SourcePlace]
_SUFFIXES = tuple(importlib.machinery.all_suffixes())
FINDER = ModelFinder()


@functools.cache
def _site_packages() -> frozenset[str]:
    import sysconfig  # first needed when a model is loaded

    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")} - {None, ""}
    users = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return frozenset({*paths, *site.getsitepackages(), *users})


class ModuleHome(ModelHome):
    """Where the modules of one instance live: in folders, that of the version before that of the model.

    `places` says for files, by their paths, what debuggers and people know them by.
    """

    def __init__(self, model: str, version: int, folders: Sequence[Path], places: Places | None = None) -> None:
        self.model = model
        self.version = version
        self._places = places or {}
        self.sources: dict[str, list[str]] = {}
        self.owner: Any = None  # the LoadedModel, once there is one
        self.instance: Any = None  # its Instance, where that is known
        self.reference = weakref.ref(self)
        self.folders = [str(f) for f in folders]
        self._roots = [os.path.abspath(folder) for folder in self.folders]
        self._own: set[str] = set()  # top-level names, as far as they have been asked for
        self._foreign: set[str] = set()
        self._ended = False
        self.builtins = {**vars(builtins), "__import__": self._import, HOME: self}
        follow()
        FINDER.install()
        make_way([name for name in _importable(self.folders) if self.owns(name)])

    @property
    def modules(self) -> dict[str, ModuleType]:
        """The instance's own modules, by name."""
        return {str(key): sys.modules[key] for key in self._keys() if key in sys.modules}

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
        try:
            assert spec.loader is not None
            spec.loader.exec_module(module)
        except BaseException:
            sys.modules.pop(spec.name, None)
            raise
        if package:
            setattr(parent, tail, module)
        return module

    def forget(self) -> None:
        """Take this home's modules out of `sys.modules`, for good."""
        self._ended = True
        for key in self._keys():
            sys.modules.pop(key, None)

    def owns(self, top: str) -> bool:
        """Whether a top-level name is that of a module of the instance's own."""
        if top in self._own:
            return True
        if top in self._foreign or top in SHARED:
            return False
        # What merely lies in the notebook's folder does not count: it will not be there on Triton.
        own = self._path()
        installed = [entry for entry in sys.path if entry in _site_packages() or entry in own]
        found = PathFinder.find_spec(top, [*installed, *self.folders])
        if found is None:
            return False
        place = found.origin or next(iter(found.submodule_search_locations or ()), "")
        own_one = self._within(place)
        (self._own if own_one else self._foreign).add(top)
        return own_one

    def _path(self) -> list[str]:
        """Where the instance's own modules are looked for: also where its code has put parts of its folder.

        Triton's folders come last on the path, so what is installed wins.
        """
        added = [entry for entry in sys.path if isinstance(entry, str) and self._within(entry)]
        return [*added, *self.folders]

    def _within(self, place: str) -> bool:
        place = os.path.abspath(place)
        return any(place == root or place.startswith(root + os.sep) for root in self._roots)

    def find_spec(self, name: str, path: Sequence[str] | None) -> ModuleSpec | None:
        """Return where a module of the instance's own is."""
        if self._ended:
            raise ModuleNotFoundError(f"No module named {name!r}: model {self.model!r} has been unloaded", name=name)
        spec = PathFinder.find_spec(name, self._path() if path is None else list(path))
        if spec is None:
            return None
        if spec.submodule_search_locations is not None:
            # Of a package without __init__.py it is an object that looks into `sys.path` again and again.
            spec.submodule_search_locations = list(spec.submodule_search_locations)
        if isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Source(name, spec.loader.path, self)
        return named(spec, self)

    def compile(self, file: str) -> CodeType:
        """Return the code of a file, as it is now."""
        with open(file, "rb") as opened:
            source = importlib.util.decode_source(opened.read())
        name, place = file, self._places.get(file)
        if place is not None:
            name, source = place.file, place.numbered(source)
            labels[name] = place.label
        # Lines for tracebacks, kept also when the file changes or goes away; of classes, sought by its path.
        lines = source.splitlines(True)
        self.sources[name] = lines
        linecache.cache[file] = linecache.cache[name] = (len(source), None, lines, name)
        code: CodeType = compile(source, name, "exec", dont_inherit=True)
        return code

    def written(self, file: str) -> tuple[str, SourcePlace] | None:
        """Return what was run of a file, and where that was written; None where it has not been run."""
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
        if full in _PB_UTILS:  # whatever a test has put in its place
            return pb_utils
        top = top_of(full)
        if top in self._foreign or not top or (level and not fromlist):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        if self.owns(top):
            if top not in shared_names:
                make_way((top,))
            return self._import_own(full, fromlist)
        if top == "cupy" and (stand_in := simulated_cupy()) is not None:
            found = _inside(stand_in, name)
            return found if fromlist else stand_in
        module = builtins.__import__(name, globals, locals, fromlist or (), level)
        if top != "cupy":
            self._foreign.add(top)
        return module

    @staticmethod
    def _absolute(name: str, globals: Mapping[str, Any] | None, level: int) -> str:
        """The whole name of a relative import; empty where Python is to say what is wrong with it."""
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
                if error.name != f"{full}.{missing}":  # something that it imports is not there
                    raise
        return module

    def _get(self, full: str) -> ModuleType:
        """Import by the instance's own name, so that no other instance waits while this one imports."""
        name = ModuleName(full, self)
        name.asleep = True
        try:  # with a list of names, for without it the top-level module would be looked up by its plain name
            return builtins.__import__(name, None, None, ["__name__"])
        except ModuleNotFoundError as error:
            if isinstance(error.name, ModuleName):
                error.name = str(error.name)
            raise


class _Source(SourceFileLoader):
    """Runs a file as the code of one instance; nothing compiled is kept beside it, or taken from there."""

    def __init__(self, name: str, path: str, home: ModuleHome) -> None:
        super().__init__(name, path)
        self._home = home

    def get_code(self, fullname: str) -> CodeType:
        return self._home.compile(self.path)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update({"__builtins__": self._home.builtins, HOME: self._home})
        super().exec_module(module)


def _importable(folders: Sequence[str]) -> Iterator[str]:
    for folder in folders:
        try:
            names = os.listdir(folder)
        except OSError:  # the load will say what is wrong with it
            continue
        for name in names:
            if name.endswith(_SUFFIXES) or os.path.isdir(os.path.join(folder, name)):
                yield name.partition(".")[0]


def _inside(stand_in: Any, full: str) -> ModuleType:
    found = stand_in
    for name in full.split(".")[1:]:
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise ModuleNotFoundError(f"No module named {full!r}: {error}", name=full) from error
    return found  # type: ignore[no-any-return]


for _function in (
    ModuleHome.load,
    ModuleHome._import,
    _Source.exec_module,
):  # which run code of models, and of what they import
    may_be_interrupted(_function.__code__)
