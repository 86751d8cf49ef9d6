"""Names of models' modules in `sys.modules`, each visible only to the code of its instance.

`pickle`, `importlib`, `dataclasses` and many others look up modules by name, some of them in C. On Triton each instance
is a process; here two instances and the notebook may each have a module `helper`. So the key of such a module is a
string that equals ``"helper"`` only while its instance owns the running code. Then every lookup of the name, in Python
or in C, finds the module of the instance that asks.

Guarantees: code that an instance does not own never finds its modules, and still finds its own modules of the same
name. A name that belongs to a model's module is no plain string in `sys.modules`, unless other code assigns it, because
a plain string would be found first. Lookups of all other names are unchanged.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Collection
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bls_notebook.engine.exception_text import ModelHome

from .code_owner import running_home

if TYPE_CHECKING:
    import weakref
    from collections.abc import Sequence

shared_names: set[str] = set()  # top-level names for which a model has, or had, a module


class ModuleName(str):
    """The name of an instance's module; with home None, of a shared module that such instances cannot see."""

    __slots__ = ("asleep", "home")
    asleep: bool
    home: weakref.ref[ModelHome] | None

    def __new__(cls, name: str, home: Any) -> ModuleName:
        new = super().__new__(cls, name)
        new.home = None if home is None else home.reference
        new.asleep = False
        return new

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if other.__class__ is ModuleName:
            return self.home is other.home and str.__eq__(self, other)
        if not isinstance(other, str) or isinstance(other, _Plain) or not str.__eq__(self, other):
            return False
        if self.asleep:
            return False
        home: Any = running_home()
        if self.home is None:
            return home is None or not home.owns(top_of(self))
        return home is not None and self.home is home.reference

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __reduce__(self) -> Any:
        return str, (str(self),)


class _Plain(str):
    """Equal to plain text only, never to a `ModuleName`."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return other.__class__ is str and str.__eq__(self, other)


def top_of(name: str) -> str:
    """Return the first part of a dotted name, as a plain string."""
    return str(name).partition(".")[0]


def make_way(names: Collection[str]) -> None:
    """Hide shared modules of these top-level names from the instances that have such modules themselves."""
    shared_names.update(names)
    modules: dict[str, ModuleType] = sys.modules
    hidden = {name for name in names if _Plain(name) in modules}
    if not hidden:
        return
    for name in [name for name in list(modules) if name.__class__ is str and top_of(name) in hidden]:
        module = modules.get(_Plain(name))
        if module is None:
            continue
        key = ModuleName(name, None)
        key.asleep = True  # otherwise it would equal the plain name, and the assignment would not replace the key
        modules[key] = module
        key.asleep = False
        modules.pop(_Plain(name), None)


def named(spec: ModuleSpec, home: Any) -> ModuleSpec:
    """Change a spec so that the module is registered under its `ModuleName`; `__name__` stays a plain string."""
    loader: Any = spec.loader
    if loader is not None and not hasattr(loader, "exec_module"):
        return spec
    spec.loader = _Naming(spec, loader)  # type: ignore[assignment]
    spec.name = ModuleName(spec.name, home)
    return spec


class _Naming:
    """Sets a module's plain name before the real loader runs it."""

    def __init__(self, spec: ModuleSpec, loader: Any) -> None:
        if loader is None:  # as importlib does for a package without __init__.py
            loader = _NamespaceLoader.__new__(_NamespaceLoader)
            loader._path = spec.submodule_search_locations
        self._spec = spec
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # while `copy` creates an object without `__init__`
            raise AttributeError(name)
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        create = getattr(self._loader, "create_module", None)
        if create is None:
            return None
        key, spec.name = spec.name, str(spec.name)
        try:
            made: ModuleType | None = create(spec)
        finally:
            spec.name = key
        return made

    def exec_module(self, module: ModuleType) -> None:
        spec, name = self._spec, str(self._spec.name)
        spec.loader = module.__loader__ = self._loader
        module.__name__ = name
        module.__package__ = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
        if isinstance(self._loader, _NamespaceLoader):
            module.__file__ = None
        self._loader.exec_module(module)


_NamespaceLoader: Any = getattr(importlib.machinery, "NamespaceLoader", None)
if _NamespaceLoader is None:  # Python 3.10
    import importlib._bootstrap_external as _external

    _NamespaceLoader = _external._NamespaceLoader


class ModelFinder:
    """Finds the modules of the instance that imports; the first entry of `sys.meta_path`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module: an instance's own module for its code, the shared one for other code."""
        name = str(fullname)
        top = top_of(name)
        if isinstance(fullname, ModuleName):
            home: Any = None if fullname.home is None else fullname.home()
        else:
            home = running_home()
            if home is not None and not home.owns(top):
                home = None
        if home is not None:
            make_way((top,))
            own_spec: ModuleSpec | None = home.find_spec(name, path)
            return own_spec
        if top not in shared_names:
            return None
        for finder in sys.meta_path:
            find: Any = getattr(finder, "find_spec", None)
            spec = None if find is None or finder is self else find(name, path, target)
            if spec is not None:
                return named(spec, None)
        return None

    def install(self) -> None:
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
