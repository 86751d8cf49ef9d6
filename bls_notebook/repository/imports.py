"""A private import system for each instance of a model.

On Triton each instance is a process of its own, whose path ends with the folders of the version and of
the model. Here the modules beside model.py are imported into a table of the instance's own: two models'
`helper.py` never meet, each reload is fresh, and lazy imports find the right file on any thread, because
it is the module's own ``__builtins__`` that hold the importer. Installed packages and the standard
library come first and are shared, as Python has them. While GPUs are simulated, `cupy` is what stands in
for it there; that is for models alone, the notebook's own `import cupy` stays as it is.

Guarantees: nothing of a model is put under a name that other code imports; a failed import leaves
nothing behind.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.machinery
import importlib.util
import itertools
import linecache
import sys
import sysconfig
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from bls_notebook.devices.registry import simulated_cupy
from bls_notebook.engine.description import HOME, ModelHome

__all__ = ["ModuleHome"]

_numbers = itertools.count()
_SHARED = (
    frozenset(sys.stdlib_module_names)
    | frozenset(sys.builtin_module_names)
    | {"triton_python_backend_utils", "c_python_backend_utils"}
)
_SITE = [p for p in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")} if p]


class ModuleHome(ModelHome):
    """Where the modules of one instance live.

    Parameters
    ----------
    model : str
    version : int
    folders : sequence of Path
        Searched in this order: the version's, then the model's.
    shown : str, optional
        What files are called in tracebacks instead of their path: this, and their name.
    """

    def __init__(self, model: str, version: int, folders: Sequence[Path], shown: str | None = None) -> None:
        self.model = model
        self.version = version
        # Without dots, so that pickle finds a module by its name without looking for parents.
        self._label = f"{model}@{version}#{next(_numbers)}".replace(".", "_")
        self._shown = shown
        self.sources: dict[str, list[str]] = {}
        self.owner: Any = None  # the LoadedModel, once there is one
        self.instance: Any = None  # its Instance, where that is known
        self._folders = [str(f) for f in folders]
        self._modules: dict[str, ModuleType] = {}
        self._foreign: set[str] = set()  # top-level names that are not the model's own
        self._importlib = _Importlib(self)
        self._lock = threading.RLock()
        self._builtins = dict(vars(builtins))
        self._builtins["__import__"] = self._import

    @property
    def modules(self) -> dict[str, ModuleType]:
        """The instance's own modules, by name."""
        return self._modules

    def load(self, name: str, file: Path) -> ModuleType:
        """Import a file as the instance's main module, named ``<version>.<stem>`` as on Triton."""
        package, _, _ = name.rpartition(".")
        module = self._new_module(name, str(file), package)
        self._run(module, file)
        return module

    def forget(self) -> None:
        """Take this home's modules out of `sys.modules`."""
        with self._lock:
            for module in self._modules.values():
                if sys.modules.get(module.__name__) is module:
                    del sys.modules[module.__name__]
            self._modules.clear()

    # -- the `__import__` of the model's code -----------------------------------------------------

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        full = name
        if level:
            package = str((globals or {}).get("__package__") or "")
            parts = package.split(".") if package else []
            if level > len(parts):
                raise ImportError("attempted relative import beyond top-level package")
            parts = parts[: len(parts) - (level - 1)]
            full = ".".join([*parts, name] if name else parts)
        top = full.partition(".")[0]
        if not self._is_own(top):
            if top == "importlib":
                return self._import_importlib(full, fromlist)
            if top == "cupy" and (stand_in := simulated_cupy()) is not None:
                found = _inside(stand_in, full)
                return found if fromlist else stand_in
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        module = self.import_module(full)
        if not fromlist:
            return module if level else self.import_module(top)
        for item in fromlist:
            if item == "*":
                items: Sequence[str] = getattr(module, "__all__", ())
            else:
                items = (item,)
            for each in items:
                if not hasattr(module, each) and hasattr(module, "__path__"):
                    try:
                        self.import_module(f"{full}.{each}")
                    except ModuleNotFoundError:
                        pass
        return module

    def _import_importlib(self, full: str, fromlist: Sequence[str] | None) -> ModuleType:
        module = importlib.import_module(full)
        for item in fromlist or ():
            if item != "*" and not hasattr(module, item):
                importlib.import_module(f"{full}.{item}")
        return self._importlib if full == "importlib" or not fromlist else module

    def _is_own(self, top: str) -> bool:
        if top in self._foreign:
            return False
        if top in self._modules:
            return True
        own = (
            top not in _SHARED
            and self._find(top, self._folders) is not None
            # Triton's folders come last on the path: what is installed wins. What merely lies in the
            # notebook's folder does not count: it will not be there on Triton.
            and importlib.machinery.PathFinder.find_spec(top, _SITE) is None
        )
        if not own:
            self._foreign.add(top)
        return own

    @staticmethod
    def _find(name: str, path: Sequence[str]) -> Any:
        return importlib.machinery.PathFinder.find_spec(name, list(path))

    def import_module(self, full: str) -> ModuleType:
        """Return one of the instance's own modules, imported if it is not yet."""
        with self._lock:
            found = self._modules.get(full)
            if found is not None:
                return found
            parent_name, _, tail = full.rpartition(".")
            path: Sequence[str] = self._folders
            parent = None
            if parent_name:
                parent = self.import_module(parent_name)
                path = list(getattr(parent, "__path__", ()))
            spec = self._find(tail, path)
            if spec is None:
                raise ModuleNotFoundError(f"No module named {full!r}", name=full)
            package = full if spec.submodule_search_locations is not None else parent_name
            module = self._new_module(full, spec.origin or "", package)
            if spec.submodule_search_locations is not None:
                module.__path__ = list(spec.submodule_search_locations)
            try:
                if spec.origin and spec.origin.endswith(".py"):
                    self._run(module, Path(spec.origin))
                elif spec.loader is not None and spec.origin:
                    extension = importlib.util.module_from_spec(spec)
                    spec.loader.exec_module(extension)
                    self._modules[full] = module = extension
            except BaseException:
                self._modules.pop(full, None)
                sys.modules.pop(module.__name__, None)
                raise
            if parent is not None:
                setattr(parent, tail, module)
            return module

    def _new_module(self, full: str, file: str, package: str) -> ModuleType:
        module = ModuleType(f"{self._label}:{full.replace('.', ':')}")
        module.__file__ = file
        module.__package__ = package
        vars(module).update({"__builtins__": self._builtins, HOME: self, "__bls_package__": package})
        self._modules[full] = module
        sys.modules[module.__name__] = module  # for pickle, dataclasses and typing
        return module

    def _run(self, module: ModuleType, file: Path) -> None:
        source = importlib.util.decode_source(file.read_bytes())
        name = str(file) if self._shown is None else f"{self._shown}/{file.name}"
        # Lines for tracebacks, kept also when the file changes or goes away.
        lines = source.splitlines(True)
        self.sources[name] = lines
        linecache.cache[name] = (len(source), None, lines, name)
        exec(compile(source, name, "exec", dont_inherit=True), vars(module))


def _inside(stand_in: Any, full: str) -> ModuleType:
    """A module of the namespace that stands in for `cupy`, by its whole name."""
    found = stand_in
    for name in full.split(".")[1:]:
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise ModuleNotFoundError(f"No module named {full!r}: {error}", name=full) from error
    return found  # type: ignore[no-any-return]


class _Importlib(ModuleType):
    """`importlib` as a model sees it: `import_module` finds the model's own modules too."""

    def __init__(self, home: ModuleHome) -> None:
        super().__init__("importlib")
        self._home = home

    def import_module(self, name: str, package: str | None = None) -> ModuleType:
        """Import a module by name, one of the model's own where it is."""
        full = importlib.util.resolve_name(name, package) if name.startswith(".") else name
        top = full.partition(".")[0]
        if self._home._is_own(top):
            return self._home.import_module(full)
        if top == "cupy" and (stand_in := simulated_cupy()) is not None:
            return _inside(stand_in, full)
        return importlib.import_module(name, package)

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib, name)
