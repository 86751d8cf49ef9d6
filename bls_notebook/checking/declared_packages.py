"""The packages that a project asks pip for, in the forms in which projects write them down.

These are requirement files, ``pip install`` in Dockerfiles, scripts and guides, the part of pip in an environment.yml,
pyproject.toml, setup.py and setup.cfg, Pipfiles, and lock files. Conda's packages, and packages in a file that sets an
index of its own, have no argument for pip, whose packages of these names may be others.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bls_notebook.records import source_text

from .discovery import project_files

_LISTS = re.compile(r"(?i)(requirement|constraint|packages)s?[\w.-]*\.(txt|in)$|^requirements$")
_TOML = ("pyproject.toml", "Pipfile", "poetry.lock", "uv.lock", "pdm.lock")
_COMMANDS = r"dockerfile|\.(sh|md|rst|ya?ml)$|^makefile$|^containerfile$"
_OTHERS = "|".join(map(re.escape, (*_TOML, "Pipfile.lock", "setup.py", "setup.cfg")))
_FILES = re.compile(rf"(?i){_LISTS.pattern[4:]}|{_COMMANDS}|^({_OTHERS})$")
_VCS = re.compile(
    r"\s*['\"]?((?:git|hg|svn|bzr)\+[^\s'\"#]*?/(?P<last>[\w.-]+?)(?:\.git)?(?:@[^\s'\"#]+)?"
    r"(?:#(?:[^\s'\"]*&)?egg=(?P<egg>[\w.-]+)[^\s'\"]*|#[^\s'\"]*)?)(?=['\"\s]|$)"
)
# Commands at the beginning of a line or of a quotation, or behind another command: no prose.
PIP_INSTALL = re.compile(
    r"""(?m)(?:^[ \t>$!%-]*|[`;&|("']\s*|(?:\b(?:RUN|sudo|uv)|\s-m)\s+)"""
    r"pip[\d.]*\s+install\s+((?:\\\n|[^\n;&|`#])*)"
)
_REQUIREMENT = re.compile(r"\s*['\"]?([A-Za-z0-9][\w.-]*)(\[[\w\s,.-]+\])?\s*(@\s*[^\s;'\"]+)?(?![\w/:.+-])")
INDEX = re.compile(r"(?m)(?:^|\s)(-i|--index-url|--extra-index-url|-f|--find-links)[\s=]")
_HAS_VALUE = re.compile(r"-[rcet]|--(requirement|constraint|editable|target|timeout|platform)")  # options of pip
_QUOTED = re.compile(r"""["']([^"'\n]+)["']""")
_INSTALLS = re.compile(r"(?:install_requires|extras_require)\s*=\s*([\[{].*?[\]}])\s*(?:,|\n|\))", re.DOTALL)


def normalized(name: str) -> str:
    """Return the form in which names of one package are equal."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared_packages(project: Path, near: Path) -> dict[str, str]:
    """Return the arguments of ``pip install`` by normalized names; the file nearest to the folder `near` counts.

    The argument is empty if the project installs the package in another way.
    """
    files = project_files(project, _FILES)
    files.sort(key=lambda file: (not near.is_relative_to(file.parent), -len(file.parts), file.name))
    found: dict[str, str] = {}
    for file in files:
        with suppress(ValueError, RecursionError):  # not the file that its name says
            for name, argument in _packages(file.name, source_text(file)):
                found[normalized(name)] = found.get(normalized(name)) or argument
    return found


def _packages(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield names of packages in a file, and the arguments of ``pip install``."""
    if _LISTS.search(name):
        yield from _requirements(text.splitlines(), bool(INDEX.search(text)))
    elif name in _TOML:
        if sys.version_info >= (3, 11):
            import tomllib

            yield from _requirements(_of_toml(tomllib.loads(text)))
    elif name == "Pipfile.lock":
        yield from _requirements(key for part in ("default", "develop") for key in json.loads(text).get(part, {}))
    elif name == "setup.py":
        yield from _requirements(q for part in _INSTALLS.findall(text) for q in _QUOTED.findall(part))
    elif name == "setup.cfg":
        listed = re.findall(r"(?m)^install_requires\s*=((?:.*\n(?=\s))*.*)", text)
        yield from _requirements(line for part in listed for line in part.splitlines())
    else:
        part = under_pip(text)
        yield from _requirements(re.findall(r"(?m)^\s*-\s+([^\s:].*)", part), bool(INDEX.search(part)))
        for command in PIP_INSTALL.findall(text):
            yield from _requirements(words_of(command), bool(INDEX.search(f" {command}")))
        if re.search(r"(?i)^(environment|conda|env)[\w.-]*\.ya?ml$", name):
            yield from _requirements(re.findall(r"(?m)^\s*-\s+(\w[^:\n]*)$", text), True)


def under_pip(text: str) -> str:
    """Return the items below ``- pip:`` of an environment.yml."""
    part = re.search(r"(?m)^([ \t]*)-[ \t]*pip:[ \t]*\n((?:\1[ \t]+.*\n?|[ \t]*\n|[ \t]*#.*\n)*)", text)
    return "" if part is None else part[2]


def words_of(command: str) -> Iterator[str]:
    """Yield the arguments of ``pip install`` that are no options and no options' values."""
    before = ""
    for word in command.replace("\\\n", " ").split():
        if not word.startswith("-") and not _HAS_VALUE.fullmatch(before):
            yield word
        before = word


def _of_toml(data: Mapping[str, Any]) -> Iterator[str]:
    project, poetry = data.get("project", {}), data.get("tool", {}).get("poetry", {})
    yield from project.get("dependencies", [])
    for extra in (*project.get("optional-dependencies", {}).values(), *data.get("dependency-groups", {}).values()):
        yield from (each for each in extra if isinstance(each, str))
    groups = [data, poetry, *poetry.get("group", {}).values()]
    for key in ("packages", "dev-packages", "dependencies", "dev-dependencies"):
        for group in groups:
            yield from group[key] if isinstance(group.get(key), dict) else ()
    for each in data["package"] if isinstance(data.get("package"), list) else ():  # of a lock file
        source = each.get("source", {})
        if not {"virtual", "editable", "directory", "path", "git", "url"}.intersection((*source, source.get("type"))):
            yield str(each.get("name"))


def _requirements(texts: Iterable[str], elsewhere: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the names and the arguments of requirements, which are empty if they come from `elsewhere`."""
    for text in texts:
        if match := _REQUIREMENT.match(text):
            argument = f"{match[1]}{match[2] or ''}{f' {match[3]}' if match[3] else ''}"
            yield match[1], "" if elsewhere else argument if argument == match[1] else f"'{argument}'"
        elif match := _VCS.match(text):  # without a name, that of its repository
            yield match["egg"] or match["last"], f"'{match[1]}'"
