"""Make, list and delete the environments of models: virtual environments in the user's cache folder.

The name of an environment is the hash of its lock: its packages, Python version and platform. It is installed into a
new folder, which gets its name when it is complete. The same request finds it again without the network.

Guarantees: a failed or interrupted installation, or one that was killed, leaves no environment behind. An environment
that a process runs models in is not deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bls_notebook.backends.processes.environments import ENVIRONMENT_MARKER, users_of
from bls_notebook.engine.errors import BLSError
from bls_notebook.progress import Progress
from bls_notebook.records.environments import EnvironmentRecord

from .installation import locked, run_installer, user_cache
from .source.names import check_isolation

_OLDEST = 8  # the minor version of the oldest Python that a worker runs on
_NEW, _DELETED = ".new", ".del"  # names of folders that are not environments; as long as other names
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_SPLIT = re.compile(r",(?![^\[]*\])(?!\s*[<>=!~])|\n")  # commas and lines between requirements
_interpreters: dict[tuple[str, str], tuple[str, str]] = {}  # and their versions, by the request and PATH
_LOG_LINES = 12
_FAILED = "; the installer needs the network, or a folder with the wheels ({}). The last lines of its log:"


def environments_folder() -> Path:
    """Return the folder of all environments."""
    return user_cache("environments")


def make_environment(requirements: str | Sequence[str], python: str | None, upgrade: bool) -> EnvironmentRecord:
    """Return the environment with these packages; see `ModelRepository.environment`."""
    check_isolation("process")  # raises on Windows
    wanted = _requirements(requirements)
    folder = environments_folder()
    shown = shown_requirements(wanted)
    with Progress(f"environment with {shown}") as status, locked(folder):
        for left in (*folder.glob(f"{_NEW}*"), *folder.glob(f"{_DELETED}*")):
            shutil.rmtree(left, ignore_errors=True)  # of a process that was killed
        interpreter, version = _interpreter(python, status)
        request = {"requirements": wanted, "python": version, "platform": sysconfig.get_platform()}
        packaged = not any("/" in each or each.startswith(".") for each in wanted)  # an index does not change its files
        if packaged and not upgrade:
            for record, marker in _environments(folder):
                if request in marker["made_for"]:
                    return record
        new = folder / f"{_NEW}{secrets.token_hex(6)}"
        try:
            _install(new, interpreter, wanted, status)
            lock = {"packages": _packages(new), "python": version, "platform": request["platform"]}
            name = hashlib.sha256(json.dumps(lock, sort_keys=True).encode()).hexdigest()[: len(new.name)]
            place, others = folder / name, list(_environments(folder))
            names = {record.name for record, _ in others}
            for record, marker in others:
                made_for = [each for each in marker["made_for"] if each != request]
                if record.name == name:
                    made_for.append(request)
                if made_for != marker["made_for"]:  # `upgrade` has moved the request to another environment
                    _write_marker(Path(record.path), {**marker, "made_for": made_for})
            if name not in names:
                _rename_inside(new, place)
                _write_marker(new, {**lock, "made_for": [request], "bytes": _bytes(new)})
                shutil.rmtree(place, ignore_errors=True)
                new.rename(place)
        except OSError as error:
            raise BLSError(f"environment with {shown}: cannot be written to {folder}: {error}") from error
        finally:
            shutil.rmtree(new, ignore_errors=True)
        return next(record for record, _ in _environments(folder) if record.name == name)


def environment_records() -> list[EnvironmentRecord]:
    """Return the environments, each with the processes that use it now."""
    return [record for record, _ in _environments(environments_folder())]


def delete_environments(names: Sequence[str], unused: bool) -> list[EnvironmentRecord]:
    """Delete environments by name, and with `unused` all that no process uses now; return their records."""
    deleted = []
    folder = environments_folder()
    with locked(folder):
        records = {record.name: record for record in environment_records()}
        if missing := [name for name in names if name not in records]:
            known = f"expected one of {', '.join(records)}" if records else "but there are no environments"
            raise BLSError(f"environments: got {missing[0]!r}, {known}")
        for name, record in records.items():
            if name not in names and not unused:
                continue
            place, gone = folder / name, folder / f"{_DELETED}{secrets.token_hex(6)}"
            place.rename(gone)  # first: a process that begins to use it now sees that it is gone
            if users := users_of(gone):
                gone.rename(place)
                if name in names:
                    raise BLSError(f"environments: {name} is used by {_processes(users)}; unload its models first")
                continue
            shutil.rmtree(gone, ignore_errors=True)
            deleted.append(record)
    return deleted


def _environments(folder: Path) -> Iterator[tuple[EnvironmentRecord, dict[str, Any]]]:
    for path in sorted(folder.glob(f"[0-9a-f]*/{ENVIRONMENT_MARKER}")):
        try:
            marker = json.loads(path.read_text("utf-8"))
            requests = tuple(shown_requirements(each["requirements"]) for each in marker["made_for"])
            packages, size = tuple(marker["packages"]), int(marker["bytes"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # of another release of this package
        users = tuple([_processes([pid]) for pid in users_of(path.parent)])
        yield EnvironmentRecord(
            path.parent.name, str(path.parent), marker["python"], packages, requests, size, users
        ), marker  # fmt: skip


def shown_requirements(requirements: Sequence[str]) -> str:
    """Return requirements as text, without the passwords of URLs."""
    return re.sub(r"//[^/@\s]+@", "//...@", ", ".join(requirements))


def _processes(pids: Sequence[int]) -> str:
    return ", ".join("this process" if pid == os.getpid() else f"process {pid}" for pid in pids)


def _requirements(given: str | Sequence[str]) -> list[str]:
    """Return requirements in a fixed order, with NumPy, which `pb_utils` needs."""
    items = [given] if isinstance(given, str) else list(given)
    if not all(isinstance(item, str) for item in items):
        raise BLSError(f'environment: requirements: got {given!r}, expected text such as "numpy<2, scipy==1.13"')
    wanted = []
    for item in items:
        if (file := Path(item.strip()).expanduser()).suffix == ".txt":
            try:
                item = re.sub(r"(?m)(^|\s)#.*", "", file.read_text("utf-8"))
            except OSError as error:
                raise BLSError(f"environment: requirements: {item}: {error.strerror}") from None
            wanted += [line.strip() for line in item.splitlines()]
        else:
            wanted += [part.strip() for part in _SPLIT.split(item)]
    wanted = sorted({each for each in wanted if each})
    for each in wanted:
        if each.startswith("-"):
            raise BLSError(
                f"environment: requirements: got {each!r}, expected a package; set options such as the index in the "
                "configuration of the installer (pip.conf or PIP_INDEX_URL; uv.toml or UV_INDEX for uv)"
            )
    names = {re.sub(r"[-_.]+", "-", match[0]).lower() for each in wanted if (match := _NAME.match(each))}
    return wanted if "numpy" in names else [*wanted, "numpy"]


def _interpreter(python: str | None, status: Progress) -> tuple[str, str]:
    """Return an interpreter and its version: this one, one by its path, or one by its version."""
    if python is None:
        return sys.executable, platform.python_version()
    key = str(python), os.environ.get("PATH", "")
    if key not in _interpreters:
        _interpreters[key] = _search(str(python), status)
    return _interpreters[key]


def _search(python: str, status: Progress) -> tuple[str, str]:
    match = re.fullmatch(r"(?:python)?3\.(\d+)(\.\d+)?", python)
    path = shutil.which(Path(python).expanduser()) or ""
    if match is None and not path:
        raise BLSError(f"environment: python: got {python!r}, expected a version such as '3.10', or a program's path")
    if match is not None and int(match[1]) < _OLDEST:
        raise BLSError(f"environment: python: got {python!r}, expected 3.{_OLDEST} or newer")
    version = python.removeprefix("python")
    uv = shutil.which("uv")
    for candidate in [path] if match is None else _candidates(version):
        found = _version_of(candidate)
        if found and (match is None or f"{found}.".startswith(f"{version}.")):
            return candidate, found
    if uv is not None and match is not None:  # it downloads what is missing
        run_installer([uv, "python", "install", version], f"install Python {version}", status=status)
        candidate = run_installer([uv, "python", "find", version], f"find Python {version}")
        return candidate, _version_of(candidate)
    where = "it does not run" if match is None else "it is neither on PATH nor in pyenv; install it, or install uv"
    raise BLSError(f"environment: there is no Python {python} here: {where}, or pass the path of an interpreter")


def _candidates(version: str) -> Iterator[str]:
    yield sys.executable
    if named := shutil.which(f"python{'.'.join(version.split('.')[:2])}"):
        yield named
    root = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    found = [path for path in root.glob("3.*/bin/python") if re.fullmatch(r"[\d.]+", path.parts[-3])]
    for path in sorted(found, key=lambda path: [int(part) for part in path.parts[-3].split(".")], reverse=True):
        if f"{path.parts[-3]}.".startswith(f"{version}."):
            yield str(path)


def _version_of(python: str) -> str:
    try:
        return run_installer([python, "-I", "-c", "import platform; print(platform.python_version())"], "run it")
    except BLSError:
        return ""


def _install(new: Path, interpreter: str, wanted: Sequence[str], status: Progress) -> None:
    """Make a virtual environment with packages, by uv if it is installed, or else by venv and pip."""
    purpose = f"install {shown_requirements(wanted)} for Python {_version_of(interpreter)}"
    python = str(new / "bin" / "python")
    if uv := shutil.which("uv"):
        run_installer([uv, "venv", "--relocatable", "--python", interpreter, str(new)], "create an environment")
        command = [uv, "pip", "install", "--python", python, *wanted]
        hint = _FAILED.format("uv reads UV_INDEX, UV_FIND_LINKS and uv.toml, not pip's settings")
    else:
        run_installer([interpreter, "-m", "venv", str(new)], "create an environment", log_lines=_LOG_LINES)
        options = ["--no-input", "--retries", "1", "--progress-bar", "off", "--disable-pip-version-check"]
        command = [python, "-m", "pip", "install", *options, *wanted]
        hint = _FAILED.format("PIP_FIND_LINKS")
    run_installer(command, purpose, hint, log_lines=_LOG_LINES, status=status)


def _packages(folder: Path) -> list[str]:
    """Return the installed packages with their versions, and a hash of the files of packages without an index."""
    packages = set()
    for metadata in folder.glob("lib*/python3*/site-packages/*.dist-info/METADATA"):
        name, version = metadata.parent.name.removesuffix(".dist-info").rsplit("-", 1)
        line = f"{re.sub(r'[-_.]+', '-', name).lower()}=={version}"
        if (metadata.parent / "direct_url.json").exists():
            record = (metadata.parent / "RECORD").read_text("utf-8").splitlines()
            files = "\n".join(sorted(each for each in record if not each.startswith("..")))
            line += f" (from files with hash {hashlib.sha256(files.encode()).hexdigest()[:16]})"
        packages.add(line)
    return sorted(packages)


def _rename_inside(new: Path, place: Path) -> None:
    """Replace the path of a folder in its scripts; both paths have the same length."""
    for file in (new / "pyvenv.cfg", *(new / "bin").iterdir()):
        if file.is_file() and not file.is_symlink() and os.fsencode(new) in (content := file.read_bytes()):
            mode = file.stat().st_mode
            file.unlink()  # uv may have linked it to its cache
            file.write_bytes(content.replace(os.fsencode(new), os.fsencode(place)))
            file.chmod(mode)


def _bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*"))


def _write_marker(folder: Path, marker: Mapping[str, Any]) -> None:
    temporary = folder / f"{ENVIRONMENT_MARKER}.new"
    temporary.write_text(json.dumps(marker, indent=1), "utf-8")
    temporary.replace(folder / ENVIRONMENT_MARKER)
