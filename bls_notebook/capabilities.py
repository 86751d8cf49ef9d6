"""The registry of installed capabilities, and `Capability`, the declaration of one.

A capability is a folder of the package with a `capability.py`, or another package with an entry point in the group
`bls_notebook.capabilities`. Its `CAPABILITY` is plain data: it names functions and classes by *targets*, "module:name",
that are imported when they are first used. A module that begins with a dot is relative to the capability's package.

The core reaches capabilities only through this registry.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from .lazy_names import import_lazily, load

_PACKAGE = __name__.rpartition(".")[0]
_FOLDER = Path(__file__).parent
_GROUP = "bls_notebook.capabilities"


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
    """The declaration of a capability; the values of its mappings are targets."""

    name: str
    needs: tuple[str, ...] = ()
    """Other capabilities that one of its modules imports when it is imported."""
    uses: tuple[str, ...] = ()
    """Other capabilities that it imports only inside functions: only those functions need them."""
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

    def __init__(self, installed: Sequence[Capability]) -> None:
        self._installed = {capability.name: capability for capability in installed}
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

    def installed(self) -> list[Capability]:
        """Return the capabilities, the core's own declaration first."""
        return list(self._installed.values())

    def targets(self, kind: str) -> dict[str, str]:
        """Return the absolute targets of a kind (a field of `Capability`), by key."""
        return {
            key: capability.absolute(target)
            for capability in self._installed.values()
            for key, target in getattr(capability, kind).items()
        }

    def keys(self, kind: str) -> list[str]:
        """Return the keys of a kind, such as the names of all verbs."""
        return list(self.targets(kind))

    def load(self, kind: str, key: str) -> Any:
        """Import and return the target of a kind and key; KeyError if no capability has the key."""
        targets = self.targets(kind)
        if key not in targets:
            self.scan()
            targets = self.targets(kind)
        return load(targets[key])

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
            for capability in self._installed.values()
            for target, drawing in capability.displays.items()
        }


def _entry_point_files() -> Iterator[Path]:
    for folder in sys.path:
        yield from Path(folder).glob("*-info/entry_points.txt")


def _built_in() -> list[Capability]:
    folders = sorted(file.parent.name for file in _FOLDER.glob("*/capability.py"))
    found: list[Capability] = [import_module(f"{_PACKAGE}.{folder}.capability").CAPABILITY for folder in folders]
    for each in found:
        targets = {name: each.absolute(target) for name, target in {**each.names, **each.types}.items()}
        import_lazily(each.absolute(".")[:-1], targets)
    return [import_module(f"{_PACKAGE}.core_capability").CAPABILITY, *found]


@cache
def registry() -> Registry:
    """Return the capabilities of this process."""
    return Registry(_built_in())
