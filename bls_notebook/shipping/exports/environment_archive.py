"""Write an environment of `repo.environment` as an archive that a server unpacks.

A virtual environment needs the interpreter that made it, which a server does not have. So the archive has the layout of
conda-pack: the interpreter with its libpython, the standard library, and the packages. The same environment gives the
same bytes.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from bls_notebook.backends import ENVIRONMENT_MARKER
from bls_notebook.engine import BLSError, Parker

_ARCHIVE = "export.tar.gz"  # in the environment, so that it is packed once, and deleted with it
_UNUSED = ("site-packages", "dist-packages", "test", "ensurepip", "idlelib", "turtledemo", "config-")
# Servers before 25.08 source it; later ones require it.
_ACTIVATE = b"""# Sourced by bash.
export VIRTUAL_ENV="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
export PATH="$VIRTUAL_ENV/bin:$PATH"
unset PYTHONHOME
"""
_FACTS = """import json, os, sys, sysconfig
of, path = sysconfig.get_config_var, sysconfig.get_path
print(json.dumps([os.path.realpath(sys._base_executable), path("stdlib"), path("purelib"),
    [of("LIBDIR") or "", of("LIBPL") or "", sys.base_prefix + "/lib"], of("INSTSONAME") or "",
    "%d.%d" % sys.version_info[:2]]))
"""


def is_packable(path: str) -> bool:
    """Return whether a path is an environment of `repo.environment`."""
    return bool(path) and os.path.exists(os.path.join(path, ENVIRONMENT_MARKER))


def packed_environment(folder: Path) -> Path:
    """Return the archive of an environment; write it on the first call."""
    archive = folder / _ARCHIVE
    if not archive.exists():
        new = folder / f"{_ARCHIVE}.{os.getpid()}"
        try:
            with (
                new.open("xb") as file,
                gzip.GzipFile("", "wb", 6, file, mtime=0) as zipped,
                tarfile.open(fileobj=zipped, mode="w") as tar,
            ):
                for name, content in _members(folder):
                    _add(tar, name, content)
                    Parker().park(0)  # ends with Ctrl-C
            new.replace(archive)
        except OSError as error:
            raise BLSError(f"export: the environment {folder} cannot be packed: {error}") from error
        finally:
            new.unlink(missing_ok=True)
    return archive


def modules_of(folder: Path) -> set[str]:
    """Return the names of the modules that an environment has beside the standard library."""
    return {path.name.partition(".")[0] for path in folder.glob("lib*/python3*/site-packages/*")}


def _members(folder: Path) -> Iterator[tuple[str, Path | bytes | str]]:
    """Yield the names of files in the archive, with their contents; a text is the target of a symbolic link."""
    facts = subprocess.run([folder / "bin" / "python", "-I", "-c", _FACTS], capture_output=True, text=True)
    if facts.returncode:
        raise BLSError(f"export: the environment {folder} cannot be packed, because its Python does not run")
    program, stdlib, packages, libraries, libpython, version = json.loads(facts.stdout)
    yield "bin/activate", _ACTIVATE
    yield "bin/python3", Path(program)
    yield from ((f"bin/{name}", "python3") for name in ("python", f"python{version}"))
    if library := next((file for each in libraries if (file := Path(each, libpython)).is_file()), None):
        yield f"lib/{library.name}", library
    for path in _files(Path(stdlib)):
        if not path.relative_to(stdlib).parts[0].startswith(_UNUSED):
            yield f"lib/python{version}/{path.relative_to(stdlib).as_posix()}", path
    for path in _files(Path(packages)):
        yield f"lib/python{version}/site-packages/{path.relative_to(packages).as_posix()}", path


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)


def _add(tar: tarfile.TarFile, name: str, content: Path | bytes | str) -> None:
    member = tarfile.TarInfo(name)
    if isinstance(content, str):
        member.type, member.linkname = tarfile.SYMTYPE, content
        tar.addfile(member)
        return
    if isinstance(content, bytes):
        member.size, member.mode = len(content), 0o644
        tar.addfile(member, BytesIO(content))
        return
    status = content.stat()
    member.size, member.mode = status.st_size, 0o755 if status.st_mode & 0o111 else 0o644
    with content.open("rb") as file:
        tar.addfile(member, file)
