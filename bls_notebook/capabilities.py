"""The registry of installed capabilities, and `Capability`, the declaration of one.

A capability is a folder of the package with a `capability.py`, or another package with an entry point in the group
`bls_notebook.capabilities`. Its `CAPABILITY` is plain data: it names functions and classes by *targets*, "module:name",
that are imported when they are first used. A module that begins with a dot is relative to the capability's package.

The core reaches capabilities only through this registry, so that each can be removed. `names.json` lists the names of
all capabilities of this package; with it, the error for a missing name says which capability is missing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
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
    """A name, magic or file belongs to a capability that is not installed."""


@dataclass(frozen=True)
class Drawing:
    """The display of a class: how a cell shows a value of it. Each field is a target or empty.

    If all are empty, the value's attribute `record` is displayed.
    """

    document: str = ""
    """A function of the record that returns a `Document`. If there is a widget, it gets it as `widget`."""
    many: str = ""
    """The same for a list of such records."""
    widget: str = ""
    """A function of (record, width) that returns the widget that covers the static picture, or None."""
    display: str = ""
    """Replaces the other three: a function of (value, width, live) that returns a whole `Display`."""


@dataclass(frozen=True)
class Capability:
    """The declaration of a capability; the values of its mappings are targets.

    A capability is disabled unless all the capabilities in `needs` are installed.
    """

    name: str
    needs: tuple[str, ...] = ()
    package: str = ""
    """Dotted name of the package that targets are relative to; by default the folder `name` of this package."""
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
    """Functions of (words, models) that return the Tab completions of an argument, by the argument's metavar."""
    displays: Mapping[str, Drawing] = field(default_factory=dict)
    """Displays of values, by the target of their class."""
    loaders: Mapping[str, str] = field(default_factory=dict)
    """Functions of a path that read a saved file, by the kind in the file."""
    shell: tuple[str, ...] = ()
    """Functions of a `Notebook` that extend a shell at ``%load_ext`` and return a function that undoes it."""
    backends: Mapping[str, str] = field(default_factory=dict)
    """Modules with `open_model`, by the name of the backend in config.pbtxt; the target has no ":name"."""
    hooks: Mapping[str, str] = field(default_factory=dict)
    """Functions that the core calls, by the core's name for the task, such as ``simulated GPUs``."""

    def absolute(self, target: str) -> str:
        """Return a target with the full name of its module."""
        return f"{self.package or f'{_PACKAGE}.{self.name}'}{target}" if target[:1] == "." else target


class Registry:
    """The installed capabilities. (A process has one, `registry()`; tests make others.)"""

    def __init__(self, installed: Sequence[Capability], offered: _Offered) -> None:
        self._installed = {capability.name: capability for capability in installed}
        self._offered = offered
        self._scanned = False

    def scan(self) -> None:
        """Add the capabilities of other packages, once."""
        if self._scanned:
            return
        self._scanned = True
        # `entry_points` takes 40 ms if many packages are installed, so first check whether any file has the group.
        if any(f"[{_GROUP}]" in file.read_text("utf-8", "replace") for file in _entry_point_files()):
            from importlib.metadata import entry_points

            for entry in entry_points(group=_GROUP):
                self.add(entry.load())

    def add(self, capability: Capability) -> None:
        """Add a capability of another package, unless one with this name is installed."""
        self._installed.setdefault(capability.name, capability)

    def enabled(self) -> Iterator[Capability]:
        """Return the capabilities whose needs are installed."""
        return (capability for capability in self._installed.values() if not self._absent(capability))

    def _absent(self, capability: Capability) -> str:
        """Return the first capability that this one needs, directly or not, and that is not installed; "" for none."""
        for name in capability.needs:
            other = self._installed.get(name)
            absent = name if other is None else self._absent(other)
            if absent:
                return absent
        return ""

    def targets(self, kind: str) -> dict[str, str]:
        """Return the absolute targets of the enabled capabilities of a kind (a field of `Capability`), by key."""
        return {
            key: capability.absolute(target)
            for capability in self.enabled()
            for key, target in getattr(capability, kind).items()
        }

    def keys(self, kind: str) -> list[str]:
        """Return the keys of a kind, such as the names of all verbs."""
        return list(self.targets(kind))

    def load(self, kind: str, key: str) -> Any:
        """Import and return the target of a kind and key.

        Raises MissingCapabilityError if the key belongs to a capability that is not installed, else KeyError.
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
        """Return one line that names the missing capability of a key; "" if no missing capability has the key."""
        written = _WRITTEN[kind].format(key)
        for capability in self._installed.values():
            absent = self._absent(capability)
            if absent and key in getattr(capability, kind):
                return f"{written} is part of the capability {capability.name!r}, which needs {_absent(absent)}"
        for name, offered in self._offered.items():
            if name not in self._installed and key in offered.get(kind, ()):
                return f"{written} is part of {_absent(name)}"
        return ""

    def missing_keys(self, kind: str) -> list[str]:
        """Return the keys of capabilities that are not installed or are disabled."""
        known = {key for offered in self._offered.values() for key in offered.get(kind, ())}
        return sorted(known - self.targets(kind).keys())

    def drawing(self, cls: type) -> tuple[Capability, Drawing] | None:
        """Return the display of a class or of its nearest base class that has one, or None."""
        for base in cls.__mro__:
            drawing = self.drawings().get(f"{base.__module__}:{base.__qualname__}")
            if drawing is not None:
                return drawing
        return None

    def drawings(self) -> dict[str, tuple[Capability, Drawing]]:
        """Return the displays, by the absolute target of their class."""
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
    """Import and return an absolute target: a module, or an attribute of one."""
    module_name, _, name = target.partition(":")
    module = import_module(module_name)
    return getattr(module, name) if name else module


def _built_in() -> list[Capability]:
    folders = sorted(file.parent.name for file in _FOLDER.glob("*/capability.py"))
    found: list[Capability] = [import_module(f"{_PACKAGE}.{folder}.capability").CAPABILITY for folder in folders]
    for capability in found:
        _import_lazily(capability)
    return [import_module(f"{_PACKAGE}.core_capability").CAPABILITY, *found]


def _import_lazily(capability: Capability) -> None:
    """Make a capability's package import its names on first use."""
    package = sys.modules[capability.absolute(".")[:-1]]
    targets = {**capability.names, **capability.types}

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in targets:
            raise AttributeError(f"module {package.__name__!r} has no attribute {name!r}")
        value = load(capability.absolute(targets[name]))
        setattr(package, name, value)
        return value

    vars(package).update(__getattr__=__getattr__, __dir__=lambda: sorted(targets))


@cache
def registry() -> Registry:
    """Return the capabilities of this process."""
    offered = json.loads((_FOLDER / "names.json").read_text(encoding="utf-8"))
    sys.meta_path.append(_MissingFolders(offered))
    return Registry(_built_in(), offered)


class _MissingFolders:
    """An import finder, the last one, that raises MissingCapabilityError for the folder of a removed capability."""

    def __init__(self, offered: Mapping[str, Any]) -> None:
        self._offered = offered

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        parts = fullname.split(".")
        if parts[0] == _PACKAGE and len(parts) == 2 and parts[1] in self._offered:
            raise MissingCapabilityError(f"this needs {_absent(parts[1])}", name=fullname)
        return None
