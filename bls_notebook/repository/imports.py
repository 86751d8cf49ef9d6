"""A private import system for each instance of a model.

On Triton each instance is a process of its own, whose path ends with the folders of the version and of
the model. Here the modules beside model.py are imported into a table of the instance's own: two models'
`helper.py` never meet, each reload is fresh, and lazy imports find the right file on any thread, because
it is the module's own ``__builtins__`` that hold the importer. Installed packages and the standard
library come first and are shared, as Python has them.

Guarantees: nothing of a model is put under a name that other code imports; a failed import leaves
nothing behind.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.machinery
import importlib.util
import linecache
import sys
import sysconfig
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["HOME", "ModuleHome"]

HOME = "__bls_home__"

_SITE = [p for p in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")} if p]


class ModuleHome:
    """Where the modules of one instance live.

    Parameters
    ----------
    label : str
        Prefix of the modules' names in `sys.modules`, such as ``add_sub.1``; unique to the model version.
    folders : sequence of Path
        Searched in this order: the version's, then the model's.
    """

    def __init__(self, label: str, folders: Sequence[Path]) -> None:
        self.label = label
        self.owner: Any = None  # the LoadedModel, once there is one
        self._folders = [str(f) for f in folders]
        self._modules: dict[str, ModuleType] = {}
        self._lock = threading.RLock()
        self._builtins = dict(vars(builtins))
        self._builtins["__import__"] = self._import

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
            package = str((globals or {}).get("__bls_package__") or "")
            parts = package.split(".") if package else []
            if level - 1 > len(parts) or not parts:
                raise ImportError("attempted relative import beyond top-level package")
            parts = parts[: len(parts) - (level - 1)]
            full = ".".join([*parts, name] if name else parts)
        top = full.partition(".")[0]
        if not self._is_own(top):
            if full == "importlib" or full.startswith("importlib."):
                return (
                    _Importlib(self)
                    if not fromlist and full == "importlib"
                    else builtins.__import__(name, globals, locals, fromlist or (), level)
                )
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

    def _is_own(self, top: str) -> bool:
        if top in self._modules:
            return True
        if top in sys.stdlib_module_names or top in sys.builtin_module_names:
            return False
        if top in ("triton_python_backend_utils", "c_python_backend_utils"):
            return False
        if self._find(top, self._folders) is None:
            return False
        # Triton's folders come last on the path: what is installed wins. What merely lies in the
        # notebook's folder does not count: it will not be there on Triton.
        return importlib.machinery.PathFinder.find_spec(top, _SITE) is None

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
            spec = self._find(full, path)
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
        module = ModuleType(f"{self.label}.{full.rpartition('.')[2]}")
        module.__file__ = file
        module.__package__ = ""
        vars(module).update({"__builtins__": self._builtins, HOME: self, "__bls_package__": package})
        self._modules[full] = module
        sys.modules[module.__name__] = module  # for pickle, dataclasses and typing
        return module

    @staticmethod
    def _run(module: ModuleType, file: Path) -> None:
        source = file.read_text(encoding="utf-8")
        # Lines for tracebacks, kept also when the file changes or goes away.
        linecache.cache[str(file)] = (len(source), None, source.splitlines(True), str(file))
        exec(compile(source, str(file), "exec", dont_inherit=True), vars(module))


class _Importlib(ModuleType):
    """`importlib` as a model sees it: `import_module` finds the model's own modules too."""

    def __init__(self, home: ModuleHome) -> None:
        super().__init__("importlib")
        self._home = home

    def import_module(self, name: str, package: str | None = None) -> ModuleType:
        """Import a module by name, one of the model's own where it is."""
        if not name.startswith(".") and self._home._is_own(name.partition(".")[0]):
            return self._home.import_module(name)
        return importlib.import_module(name, package)

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib, name)
