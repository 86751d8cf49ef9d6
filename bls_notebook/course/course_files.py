"""The notebooks of the course and the models that they load: in the package if it is installed, else in the clone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

_INSTALLED, _CLONE = Path(__file__).with_name("data"), Path(__file__).parents[2]
_PATTERNS = ("notebooks/*.ipynb", "notebooks/meter_reading/**/*", "model_repository/**/*")


def course_files() -> Iterator[tuple[Path, Path]]:
    """Yield each file of the course, and its place below the course's folder."""
    root = _INSTALLED if _INSTALLED.is_dir() else _CLONE
    for file in sorted(file for pattern in _PATTERNS for file in root.glob(pattern)):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file, file.relative_to(root)


def write_course(folder: Path) -> int:
    """Write the course into a folder, without changing files that exist; return the number of new files."""
    written = 0
    for file, place in course_files():
        target = folder / place
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
            written += 1
    return written
