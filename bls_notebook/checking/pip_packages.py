"""The distributions that provide the modules a model imports.

Guarantee: a distribution is never a guess, because `pip install` of a guessed name runs a stranger's code. The
project asks for it, or it is in `distributions.json`, or known from the metadata of what is installed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import distribution, distributions, packages_distributions
from importlib.util import find_spec
from pathlib import Path

from .declared_packages import normalized

_TABLE = json.loads(Path(__file__).with_name("distributions.json").read_text("utf-8"))


def _entry(table: str, module: str) -> str:
    """Return a table's entry for a dotted name, else for the nearest parent, else an empty string."""
    while module and module not in _TABLE[table]:
        module = module.rpartition(".")[0]
    return str(_TABLE[table].get(module, ""))


@cache
def installed_distributions() -> Mapping[str, list[str]]:
    """Return the names of the installed distributions by top-level module; takes some 0.3 s."""
    found = dict(packages_distributions())
    for each in distributions() if sys.version_info < (3, 11) else ():  # there, only those with top_level.txt
        for name in {path.parts[0].removesuffix(".py") for path in each.files or () if path.suffix == ".py"}:
            found.setdefault(name, []).append(each.metadata["Name"])
    return found


def distribution_of(module: str) -> str:
    """Return the argument of `pip install` for a module, given its dotted name; empty if it is not certain."""
    known = _entry("distributions", module)
    if known or _entry("words", module):
        return known
    top = module.partition(".")[0]
    names = set(installed_distributions().get(top, ()))
    spec = find_spec(top) if len(names) == 1 else None
    # A module without a file is a namespace of several distributions; one with a direct URL is not from an index.
    certain = spec and spec.origin and not any(distribution(name).read_text("direct_url.json") for name in names)
    return names.pop() if certain else ""


def declared_as(module: str, declared: Mapping[str, str]) -> str:
    """Return the argument of `pip install` with which a project asks for a module; empty if it is not certain."""
    known, prefix = distribution_of(module), _entry("prefixes", module)
    parts = module.split(".")
    names = [re.split(r"[<\[]", known.strip("'"))[0], *("-".join(parts[:end]) for end in range(len(parts), 0, -1))]
    of_builds = (declared[name] for name in sorted(declared) if prefix and name.startswith(prefix))
    return next(filter(None, (*(declared.get(normalized(name), "") for name in names), *of_builds)), "")


_WITH_GPU = "only with a GPU"
_UNKNOWN = "the distribution is unknown", "the project's files say how to install it"


def install_advice(modules: Iterable[str], command: str, declared: Mapping[str, str] | None = None) -> str:
    """Return how to install modules: one `command` for the known distributions, and words for the others.

    `declared` are the packages that the project asks for, see `declared_packages`.
    """
    declared = declared or {}
    own = {module: declared_as(module, declared) for module in modules}
    known = {module: name or distribution_of(module) for module, name in own.items()}
    names = " ".join(dict.fromkeys(filter(None, known.values())))
    words = {
        module: _entry("words", module) if not own[module] or _entry("distributions", module) else "" for module in own
    }
    for module in [m for m, name in known.items() if not name and words[m] in ("", _WITH_GPU)]:
        unknown = _UNKNOWN[normalized(module.partition(".")[0]) in declared]
        words[module] = "; ".join(filter(None, (unknown, words[module])))
    return "; ".join(
        ([f"`{command} {names}`"] if names else []) + [f"`{m}`: {text}" for m, text in words.items() if text]
    )


def installed_as(module: str) -> str:
    """Return the prefix of a module's package name in requirement files; builds of a package differ in the rest."""
    return _entry("prefixes", module) or re.split(r"[<\[]", distribution_of(module).strip("'") or module)[0].lower()


def is_brought(module: str, declared: Iterable[str]) -> bool:
    """Return whether a package that a project asks for, by its normalized name, brings a module as a dependency."""
    return not set(_entry("brought by", module).split()).isdisjoint(declared)
