"""The names of models' modules in `sys.modules`: each is there for the code of its own instance alone.

`pickle`, `importlib`, `dataclasses` and many more look modules up by their names, some of them in C. On
Triton each instance is a process of its own; here two of them, and the notebook, may each have a `helper`.
So the keys of such modules are texts that equal ``"helper"`` only while code runs on behalf of their own
instance: every lookup of the name, in Python or in C, finds the module of who is asking.

Guarantees: other code finds neither these modules nor a gap where its own of the same name is. A name that a
model has is never a plain text in `sys.modules`, unless somebody assigns it there: those lookups would come
first. Lookups of all other names are as they were.
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

shared_names: set[str] = set()  # top-level names that a model has, or had, a module of its own for


class ModuleName(str):
    """The name of a module, as one instance's code knows it; or everybody else's, where there is no home."""

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
        home = _asking()
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


def _asking() -> Any:
    """The home (`imports.ModuleHome`) of the code that looks a name up; None for nobody's."""
    return running_home()


def top_of(name: str) -> str:
    """Return the first part of a dotted name, as plain text."""
    return str(name).partition(".")[0]


def make_way(names: Collection[str]) -> None:
    """Have modules of these top-level names, where others have such, found by others only."""
    shared_names.update(names)
    modules: dict[str, ModuleType] = sys.modules
    taken = {name for name in names if _Plain(name) in modules}
    if not taken:
        return
    for name in [name for name in list(modules) if name.__class__ is str and top_of(name) in taken]:
        module = modules.get(_Plain(name))
        if module is None:
            continue
        key = ModuleName(name, None)
        key.asleep = True  # or this would be taken for an assignment to the plain name
        modules[key] = module
        key.asleep = False
        modules.pop(_Plain(name), None)


def named(spec: ModuleSpec, home: Any) -> ModuleSpec:
    """Have a module put under its name for one home; itself and its classes know the plain one."""
    loader: Any = spec.loader
    if loader is not None and not hasattr(loader, "exec_module"):
        return spec
    spec.loader = _Naming(spec, loader)  # type: ignore[assignment]
    spec.name = ModuleName(spec.name, home)
    return spec


class _Naming:
    """Gives a module its plain name, and hands over to the loader that it has from then on."""

    def __init__(self, spec: ModuleSpec, loader: Any) -> None:
        if loader is None:  # as importlib does for a package without __init__.py
            loader = _NamespaceLoader.__new__(_NamespaceLoader)
            loader._path = spec.submodule_search_locations
        self._spec = spec
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # of a copy that is being made
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
    """Finds the modules of whoever imports; the first of `sys.meta_path`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is: for a model its own, for others theirs."""
        name = str(fullname)
        top = top_of(name)
        if isinstance(fullname, ModuleName):
            home: Any = None if fullname.home is None else fullname.home()
        else:
            home = _asking()
            if home is not None and not home.owns(top):
                home = None
        if home is not None:
            make_way((top,))
            found: ModuleSpec | None = home.find_spec(name, path)
            return found
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
