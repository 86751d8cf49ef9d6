"""Collect the files of a model for an export, the modules that it imports from elsewhere, and its packages.

A module that is no package of an index is the user's own: it is copied into the model's folder, which a server's
Python backend searches for modules.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from bls_notebook.checking.pip_packages import distribution_of, installed_distributions
from bls_notebook.records import MAX_CODE, read_file, source_text
from bls_notebook.repository.source import files_below, imported_modules, shown_path, syntax_tree

from .folder_writer import Content, is_cache
from .model_needs import CodeNeeds, code_needs

_OF_TRITON = frozenset({"triton_python_backend_utils", "c_python_backend_utils"})
_PROVIDED = _OF_TRITON | sys.stdlib_module_names | {"bls_notebook"}  # an export refuses models that import it
_SECRET_FILES = re.compile(
    r"\.env(\.(?!example|sample|template).+)?|\.netrc|\.pgpass|\.pypirc|\.npmrc|\.git-credentials"
    r"|id_(rsa|dsa|ecdsa|ed25519)(_sk)?|.+\.(p12|pfx|jks|keystore|ppk|kdbx)",
    re.I,
)
_SECRET_FOLDERS = frozenset({".git", ".hg", ".svn", ".ssh", ".aws", ".gnupg"})
_KEY = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY")
_MOST_KEY = 1 << 16  # bytes of a file that may contain a private key
_MOST_FILES, _MOST_BYTES = 1000, 1 << 26  # of a module that is copied


@dataclass
class ModelFiles:
    """The files of a model by path in its folder, and its other needs."""

    files: dict[str, Content] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)  # files that were left out
    copied: dict[str, str] = field(default_factory=dict)  # modules of the user by name, with their places
    packages: dict[str, str] = field(default_factory=dict)  # pip requirements, with a remark or ""
    missing: list[tuple[str, str, str]] = field(default_factory=list)  # file and line, module, its package or ""
    needs: CodeNeeds = field(default_factory=CodeNeeds)


def is_secret(path: PurePosixPath, file: Path) -> bool:
    """Return True for a file of version control, of environment variables, or a private key."""
    if _SECRET_FOLDERS.intersection(path.parts) or _SECRET_FILES.fullmatch(path.name):
        return True
    try:
        return path.suffix not in (".py", ".pbtxt") and _KEY.search(read_file(file, _MOST_KEY)) is not None
    except OSError:  # it is larger, or writing the file reports the error
        return False


def folder_files(folder: Path, secrets: bool) -> tuple[dict[str, Content], list[str]]:
    """Return the files below a folder without caches, and the secret ones, which are left out unless `secrets`."""
    files: dict[str, Content] = {}
    left_out: list[str] = []
    for path in map(Path, files_below(folder)):
        name = path.relative_to(folder)
        if is_cache(name) or not path.is_file():
            continue
        if not secrets and is_secret(PurePosixPath(name.as_posix()), path):
            left_out.append(name.as_posix())
        else:
            files[name.as_posix()] = path
    return files, left_out


def python_files(files: Mapping[str, Content]) -> Iterator[tuple[str, str]]:
    for path, content in files.items():
        if path.endswith(".py"):
            text = content.decode("utf-8", "replace") if isinstance(content, bytes) else source_text(content, MAX_CODE)
            yield path, text


def read_code(found: ModelFiles, folder: Path, secrets: bool) -> None:
    """Read the Python files of a model; add its needs, and the modules that it imports from elsewhere."""
    pending = [(path, text, folder / path, False) for path, text in python_files(found.files)]
    seen: set[str] = set()
    imported: dict[str, str] = {}  # modules, with the place of the import
    while pending:
        for path, text, place, is_copied in pending:
            needs = code_needs(folder, path, text, place if is_copied else None)
            if _KEY.search(text.encode("utf-8", "replace")):
                needs.lines.append(f"{path}: it contains a private key, which the export contains, too")
            found.needs.add(needs)
            tree = syntax_tree(text)
            for name, line in imported_modules(tree, needed=True).items() if tree is not None else ():
                imported.setdefault(name, f"{path}, line {line}")
            for name in imported_modules(tree) if tree is not None else ():
                imported.setdefault(name, "")  # an import that may fail
            imported.update({name: where for name, where in needs.imports.items() if name not in imported})
        pending.clear()
        code = (path for path in found.files if path.endswith((".py", ".so", ".pyd")))
        own = {part.partition(".")[0] for path in code for part in path.split("/")}
        for name, where in list(imported.items()):
            if name in seen or name in own or name in _PROVIDED or not name:
                continue
            seen.add(name)
            pending += [(path, text, place, True) for path, text, place in _add_module(found, name, where, secrets)]


def _add_module(found: ModelFiles, name: str, where: str, secrets: bool) -> list[tuple[str, str, Path]]:
    """Add an imported module: its package, or its files, whose Python files are returned with their places."""
    packages, place = packages_of(name), _place_of(name, found.needs.search)
    if packages is not None and (place is None or {"site-packages", "dist-packages"}.intersection(place.parts)):
        found.packages |= packages
        return []
    if place is None:
        if where:
            found.missing.append((where, name, distribution_of(name) or ""))
        return []
    if place.is_file():
        files: dict[str, Content] = {place.name: place}
        left_out: list[str] = []
    else:
        inside, left_out = folder_files(place, secrets)
        files = {f"{name}/{path}": content for path, content in inside.items()}
    size = sum(content.stat().st_size for content in files.values() if isinstance(content, Path))
    if len(files) > _MOST_FILES or size > _MOST_BYTES:
        found.needs.lines.append(
            f"{where or name}: `{name}` is in {shown_path(place)}, which is too large to copy: make sure that the "
            "server has it"
        )
        return []
    found.secrets += [f"{name}/{path}" for path in left_out]
    found.copied[name] = shown_path(place)
    found.files |= {path: content for path, content in files.items() if path not in found.files}
    root = place.parent
    return [(path, text, root / path) for path, text in python_files(files)]


def _place_of(name: str, search: Iterable[str]) -> Path | None:
    """Return the file or folder of a module that is found here, as Python imports it; None if there is none."""
    spec = getattr(sys.modules.get(name), "__spec__", None) or PathFinder.find_spec(name, list(search))
    try:
        spec = spec or find_spec(name)
    except (ValueError, ImportError):
        return None
    if spec is None or spec.origin in ("built-in", "frozen"):
        return None
    places = list(spec.submodule_search_locations or ())
    place = Path(os.path.abspath(places[0] if places else spec.origin or ""))
    return place if place.exists() else None


def packages_of(module: str) -> dict[str, str] | None:
    """Return the pip requirements of an installed module, each with a remark or ""; None if it is no package.

    A requirement names the installed version, or the repository that it was installed from. A version's local part
    (``+cpu``) is dropped, because an index may not have that build. NumPy is 1.x, because Triton's images install
    that (build.py in Triton's server repository).
    """
    found: dict[str, str] = {}
    for name in sorted(set(installed_distributions().get(module, ()))):
        package = metadata.distribution(name)
        origin = json.loads(package.read_text("direct_url.json") or "{}")
        url, vcs = origin.get("url", ""), origin.get("vcs_info")
        version, _, local = package.version.partition("+")
        if "dir_info" in origin:
            return None  # a folder of the user
        if name.lower() == "numpy":
            found["numpy<2"] = f"NumPy is {version} here, but Triton's images install NumPy 1 for their Python backend"
        elif vcs or (url and not url.startswith("file:")):
            found[f"{name} @ {vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else f"{name} @ {url}"] = ""
        else:
            remark = f"{name} is {package.version} here: package indexes may not have that build" if local else ""
            if url:
                remark = f"{name} {version} was installed from a file here: check that the index has the same package"
            found[f"{name}=={version}"] = remark
    return found or None
