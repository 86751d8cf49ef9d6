"""Run programs that install packages: their progress, errors, Ctrl-C, and one installer at a time for each folder.

For the environments of models, and for that of tritonserver.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from bls_notebook.engine.errors import BLSError
from bls_notebook.engine.waiting.parker import Parker
from bls_notebook.progress import Progress

_PAUSE = 0.02  # seconds between looks at a process or a lock


def user_cache(name: str) -> Path:
    """Return a folder of bls_notebook in the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "bls_notebook" / name


def run_installer(
    command: Sequence[str], purpose: str, hint: str = "", error: type[BLSError] = BLSError, log_lines: int = 0,
    status: Progress | None = None,
) -> str:  # fmt: skip
    """Run a command and return its standard output. After Ctrl-C it is killed, with the processes that it started.

    `status` shows its last line while it runs. Raises `error` if it fails: with the last line that names an error, or
    with so many last lines of the log.
    """
    variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV")}
    began = "" if status is None else status.what
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
            )
        except OSError as problem:
            raise error(f"cannot {purpose}: {command[0]}: {problem.strerror}") from None
        try:
            while process.poll() is None:
                Parker().park(_PAUSE)  # ends with Ctrl-C
                if status is not None:
                    status.what = f"{began}: {line}" if (line := _last_line(output) or _last_line(errors)) else began
        finally:
            if process.poll() is None:
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        texts = [_tail(file, 1 << 20) for file in (output, errors)]
    if process.returncode == 0:
        return texts[0].strip()
    output_lines, error_lines = ([line for line in text.splitlines() if line.strip()] for text in texts)
    lines = [line.strip() for line in (*error_lines, *output_lines)]
    named = [line for line in lines if "error" in line.lower()] or lines or [f"status {process.returncode}"]
    log = "".join(f"\n  {line[:500]}" for line in (*output_lines, *error_lines)[-log_lines:]) if log_lines else ""
    raise error(f"cannot {purpose}: {named[-1].removeprefix('ERROR: ')[:500]}{hint}{log}")


def _tail(file: IO[bytes], length: int) -> str:
    """Return the last bytes of a file that a process writes, as text."""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), length, max(0, size - length)).decode(errors="replace")


def _last_line(file: IO[bytes]) -> str:
    return next((line.strip()[:80] for line in reversed(_tail(file, 400).splitlines()) if line.strip()), "")


@contextlib.contextmanager
def locked(folder: Path, error: type[BLSError] = BLSError) -> Iterator[None]:
    """Lock a folder against other processes and threads; Ctrl-C ends the wait. The folder is created if necessary."""
    import fcntl  # not on Windows

    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / ".lock", "w", encoding="utf-8")  # noqa: SIM115 - closed below
    except OSError as problem:
        action = "write into" if folder.is_dir() else "create"
        raise error(f"cannot {action} the folder {folder}: {problem.strerror}") from None
    with file:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            Parker().park(_PAUSE)  # another process has it
        yield
