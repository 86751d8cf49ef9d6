"""Which capabilities are installed, and what each of them adds to the package.

A capability is a folder of the package with a `capability.py`, or another package with an entry point in the group
`bls_notebook.capabilities`. Its `CAPABILITY` is plain data: it names functions and classes by *targets*, "module:name",
that are imported when they are first used. A module that begins with a dot is relative to the capability's package.

The core finds everything of capabilities here, so that a capability can be removed. `names.json` remembers
what the capabilities of this package offer: for a missing one an error names it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from .records.errors import BLSError

_PACKAGE = __name__.rpartition(".")[0]
_FOLDER = Path(__file__).parent
_GROUP = "bls_notebook.capabilities"
_WRITTEN = {
    "names": "bls.{}",
    "magics": "{}",
    "verbs": "%tritonrepo {}",
    "commands": "python -m bls_notebook {}",
    "backends": "the backend {!r}",
    "hooks": "the {}",
    "loaders": "a file of the kind {!r}",
}


_Offered = Mapping[str, Mapping[str, Sequence[str]]]  # keys by capability and kind


class MissingCapabilityError(BLSError, ImportError):
    """What was used belongs to a capability that is not installed."""


@dataclass(frozen=True)
class Drawing:
    """How a value of one class is drawn where it is the value of a cell; each field is a target or empty.

    With none of them, the value's attribute `record` is drawn.
    """

    document: str = ""
    """A function of the record that returns a `Document`; with a widget it gets it as `widget`."""
    many: str = ""
    """The same for a list of such records."""
    widget: str = ""
    """A function of (record, width) that returns the widget that covers the picture, or None."""
    display: str = ""
    """Instead of all that, a function of (value, width, live) that returns a whole `Display`."""


@dataclass(frozen=True)
class Capability:
    """What a capability adds; every value is a target or holds targets.

    Without the capabilities that it needs (by name), a capability is disabled.
    """

    name: str
    needs: tuple[str, ...] = ()
    package: str = ""
    """Dotted name of the package that targets are relative to; by default the folder `name` of this one."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Public names at the top: `bls.NAME`."""
    types: Mapping[str, str] = field(default_factory=dict)
    """More names that can be imported from the capability's package."""
    magics: Mapping[str, str] = field(default_factory=dict)
    """`Magic` objects by name with percent signs, such as ``%%blsprofile``."""
    verbs: Mapping[str, str] = field(default_factory=dict)
    """`Verb` objects of ``%tritonrepo``."""
    commands: Mapping[str, str] = field(default_factory=dict)
    """`Command` objects of ``python -m bls_notebook``."""
    completions: Mapping[str, str] = field(default_factory=dict)
    """Functions of (words, models) that return what Tab offers for an argument, by the argument's metavar."""
    displays: Mapping[str, Drawing] = field(default_factory=dict)
    """How values are drawn, by the target of their class."""
    loaders: Mapping[str, str] = field(default_factory=dict)
    """Functions of a path that read a saved file, by the kind in the file."""
    shell: tuple[str, ...] = ()
    """Functions of a `Notebook` that add to a shell at ``%load_ext`` and return what undoes that."""
    backends: Mapping[str, str] = field(default_factory=dict)
    """Modules with `open_model`, by the name of the backend in config.pbtxt; the target has no ":name"."""
    hooks: Mapping[str, str] = field(default_factory=dict)
    """Functions that the core calls for what it does not do itself, by the core's name for it."""

    def absolute(self, target: str) -> str:
        """Return a target with the whole name of its module."""
        return f"{self.package or f'{_PACKAGE}.{self.name}'}{target}" if target[:1] == "." else target


class Registry:
    """The installed capabilities. (A process has one, `registry`; tests make others.)"""

    def __init__(self, found: Sequence[Capability], offered: _Offered) -> None:
        self._found = {capability.name: capability for capability in found}
        self._offered = offered
        self._scanned = False

    def scan(self) -> None:
        """Add the capabilities of other packages, once."""
        if self._scanned:
            return
        self._scanned = True
        # `entry_points` takes 40 ms where many packages are installed, and mostly finds none.
        if any(f"[{_GROUP}]" in file.read_text("utf-8", "replace") for file in _entry_point_files()):
            from importlib.metadata import entry_points

            for entry in entry_points(group=_GROUP):
                self.add(entry.load())

    def add(self, capability: Capability) -> None:
        """Add a capability of another package; one that is there already stays."""
        self._found.setdefault(capability.name, capability)

    def enabled(self) -> Iterator[Capability]:
        """Return the capabilities whose needs are met."""
        return (capability for capability in self._found.values() if not self._absent(capability))

    def _absent(self, capability: Capability) -> str:
        """The first capability that is not installed and that this one needs, directly or not."""
        for name in capability.needs:
            other = self._found.get(name)
            absent = name if other is None else self._absent(other)
            if absent:
                return absent
        return ""

    def targets(self, kind: str) -> dict[str, str]:
        """Return everything of a kind (a field of `Capability`) that can be used: absolute targets by key."""
        return {
            key: capability.absolute(target)
            for capability in self.enabled()
            for key, target in getattr(capability, kind).items()
        }

    def keys(self, kind: str) -> list[str]:
        """Return the keys of a kind, such as the names of all verbs."""
        return list(self.targets(kind))

    def load(self, kind: str, key: str) -> Any:
        """Import what a capability offers.

        Raises
        ------
        MissingCapabilityError
            It belongs to a capability that is not installed.
        KeyError
            No capability offers it.
        """
        targets = self.targets(kind)
        if key not in targets:
            self.scan()
            targets = self.targets(kind)
        if key not in targets:
            missing = self.missing(kind, key)
            raise MissingCapabilityError(missing) if missing else KeyError(key)
        return load(targets[key])

    def missing(self, kind: str, key: str) -> str:
        """Return one line with the capability that something belongs to; empty if that is none."""
        written = _WRITTEN[kind].format(key)
        for capability in self._found.values():
            absent = self._absent(capability)
            if absent and key in getattr(capability, kind):
                return f"{written} is part of the capability {capability.name!r}, which needs {_absent(absent)}"
        for name, offered in self._offered.items():
            if name not in self._found and key in offered.get(kind, ()):
                return f"{written} is part of {_absent(name)}"
        return ""

    def missing_keys(self, kind: str) -> list[str]:
        """Return what capabilities that are not installed, or lack a need, would offer."""
        known = {key for offered in self._offered.values() for key in offered.get(kind, ())}
        return sorted(known - self.targets(kind).keys())

    def drawing(self, cls: type) -> tuple[Capability, Drawing] | None:
        """Return how values of a class, or of its nearest base class, are drawn; None if not at all."""
        for each in cls.__mro__:
            found = self.drawings().get(f"{each.__module__}:{each.__qualname__}")
            if found is not None:
                return found
        return None

    def drawings(self) -> dict[str, tuple[Capability, Drawing]]:
        """Return how values are drawn, by the absolute target of their class."""
        return {
            capability.absolute(target): (capability, drawing)
            for capability in self.enabled()
            for target, drawing in capability.displays.items()
        }


def _entry_point_files() -> Iterator[Path]:
    for folder in sys.path:
        yield from Path(folder).glob("*-info/entry_points.txt")


def _absent(name: str) -> str:
    return f"the capability {name!r}, which is not installed"


def load(target: str) -> Any:
    """Return what an absolute target names: a module, or something of it."""
    module, _, name = target.partition(":")
    found = import_module(module)
    return getattr(found, name) if name else found


def _built_in() -> list[Capability]:
    folders = sorted(file.parent.name for file in _FOLDER.glob("*/capability.py"))
    modules = [import_module(f"{_PACKAGE}.{folder}.capability") for folder in folders]
    return [import_module(f"{_PACKAGE}.core_capability").CAPABILITY, *(module.CAPABILITY for module in modules)]


@cache
def registry() -> Registry:
    """Return the capabilities of this process."""
    offered = json.loads((_FOLDER / "names.json").read_text(encoding="utf-8"))
    sys.meta_path.append(_MissingFolders(offered))
    return Registry(_built_in(), offered)


class _MissingFolders:
    """Name the capability whose removed folder is imported; asked when no other finder has it."""

    def __init__(self, offered: Mapping[str, Any]) -> None:
        self._offered = offered

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        parts = fullname.split(".")
        if parts[0] == _PACKAGE and len(parts) == 2 and parts[1] in self._offered:
            raise MissingCapabilityError(f"this needs {_absent(parts[1])}", name=fullname)
        return None


def lazily(capability: Capability) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a capability's package, which import its names on first use."""
    package = capability.absolute(".")[:-1]
    targets = {**capability.names, **capability.types}

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in targets:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = load(capability.absolute(targets[name]))
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:  # noqa: N807
        return sorted(targets)

    return __getattr__, __dir__
