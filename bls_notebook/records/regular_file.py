"""Read files that others made: model folders, recordings, saved records. Replace own files.

Guarantees of reading: a FIFO or a device is never opened, also through a link, and no more than a limit is read,
whatever size the file system reports. Errors are OSErrors with the reason in `strerror`.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

MAX_CONFIG = 1 << 22  # bytes of a config.pbtxt
MAX_SOURCE = 1 << 20  # bytes of a Python source that is analyzed
MAX_CODE = 1 << 24  # bytes of a Python source that is run
MAX_TENSOR = 1 << 31  # bytes of a tensor that a configuration describes, or of its file


def open_regular_file(path: str | Path) -> BufferedReader:
    """Open a regular file for reading; never wait for the writer of a FIFO."""
    if "\0" in os.fspath(path):
        raise OSError(errno.EINVAL, "embedded null byte")
    if not stat.S_ISREG(os.stat(path).st_mode):  # opening a device may have effects
        raise OSError(errno.EINVAL, "it is not a file")
    waitless = getattr(os, "O_NONBLOCK", 0)
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | waitless))  # noqa: SIM115 - the caller does
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # replaced in the meantime
        file.close()
        raise OSError(errno.EINVAL, "it is not a file")
    return file


def read_file(path: str | Path, most: int) -> bytes:
    """Return the content of a regular file, or raise OSError if it has more than `most` bytes."""
    with open_regular_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = (file.read(most + 1) if size <= most else b"") or b""  # None: a file of /proc that has no data yet
    if (size := max(size, len(data))) > most:
        raise OSError(errno.EFBIG, f"it has {size:,} bytes, expected at most {most:,}")
    return data


def replace_file(file: Path, data: bytes) -> None:
    """Write a file; readers see the old content or all of the new."""
    new = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        new.write_bytes(data)
        os.replace(new, file)
    finally:
        new.unlink(missing_ok=True)


def source_text(path: str | Path, most: int = MAX_SOURCE) -> str:
    """Return the text of a source or configuration, with replacements for undecodable bytes; "" if unreadable."""
    try:
        return read_file(path, most).decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    except OSError:
        return ""
