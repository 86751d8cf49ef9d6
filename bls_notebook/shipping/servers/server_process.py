"""The processes of a tritonserver, in a group of their own, and temporary folders: gone for certain at the end."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

from bls_notebook.network.kserve.address import HOST

from .environment import Program, TritonServerError

# Shell scripts that wait for the end of their input, which is the end of this process, however it ends.
# The folder is removed several times: other processes that end with this one may still be writing.
_FOLDER_WATCHDOG = 'cat >/dev/null; for i in 1 2 3 4 5 6 7 8; do rm -rf -- "$1" && break; sleep 0.5; done'


class PrivateFolder:
    """A temporary folder, removed by `remove`, when it is collected, and when this process is killed.

    ``made`` is its time of creation, by `time.monotonic`.
    """

    def __init__(self, prefix: str) -> None:
        self.made = time.monotonic()
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self.watchdog = _watched(_FOLDER_WATCHDOG, str(self.path))
        self.remove = weakref.finalize(self, _remove, os.getpid(), self.path, self.watchdog)


def _watched(script: str, *arguments: str) -> subprocess.Popen[bytes]:
    none = subprocess.DEVNULL
    command = ["/bin/sh", "-c", script, "sh", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=none, stderr=none, start_new_session=True)


def _remove(owner: int, path: Path, watchdog: subprocess.Popen[bytes]) -> None:
    if os.getpid() != owner:  # a forked child leaves it alone
        return
    shutil.rmtree(path, ignore_errors=True)
    watchdog.kill()
    watchdog.communicate()


_NOISE = re.compile(r"NVML|CudaDriverHelper|DCGM|pinned")  # logged on every machine without a GPU
_TROUBLE = re.compile(r"E\d{4} |error|\w*(Error|Exception): ")
_SERVER_WATCHDOG = 'cat >/dev/null; kill -s KILL -- "-$1"; rm -rf -- "$2" "/dev/shm/$3"*; shift 3; "$@"'
_CLEANUP_SECONDS = 60.0


class ServerRun:
    """One run of the server: its processes, log, shared memory and private folder."""

    def __init__(self, environment: Program, arguments: Sequence[str]) -> None:
        self.owner = os.getpid()
        self.kept_log: str | None = None
        self.folder = Path(tempfile.mkdtemp(prefix="bls-tritonserver-"))
        self.shared_memory = f"bls_{secrets.token_hex(6)}_"
        shared = f"--backend-config=python,shm-region-prefix-name={self.shared_memory}"
        command = environment.command([shared, *arguments])
        self.cleanup = environment.cleanup
        try:
            with open(self.folder / "log", "wb") as log:
                self.process = subprocess.Popen(
                    command, env=environment.variables(), cwd=self.folder, stdin=subprocess.DEVNULL,
                    stdout=log, stderr=log, start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise TritonServerError(f"cannot start {command[0]}: {error.strerror}") from None
        ends = [str(self.process.pid), str(self.folder), self.shared_memory]
        self.watchdog = _watched(_SERVER_WATCHDOG, *ends, *self.cleanup)

    def end(self, graceful: bool) -> None:
        """Stop everything and remove what it left; the log can still be read."""
        if os.getpid() != self.owner:  # a forked child must leave the server alone
            return
        try:
            if graceful and self.process.poll() is None:
                self.process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(30.0)
        finally:  # Ctrl-C while it waits is no reason to leave anything
            self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.cleanup:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(self.cleanup, capture_output=True, timeout=_CLEANUP_SECONDS, check=False)
        self.watchdog.kill()
        self.watchdog.communicate()
        for leftover in glob.glob(f"/dev/shm/{self.shared_memory}*"):
            with contextlib.suppress(OSError):
                os.unlink(leftover)
        if self.kept_log is None:
            self.kept_log = self.log()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        """All that the server and its models have written so far."""
        if self.kept_log is not None:
            return self.kept_log
        try:
            return (self.folder / "log").read_text(errors="replace")
        except OSError:  # whoever keeps temporary folders clean has taken it
            return ""

    def last_lines(self, count: int = 6) -> str:
        """The last lines of the log that say what went wrong; failing those, the last lines."""
        lines = [line for line in self.log().splitlines() if line.strip() and not _NOISE.search(line)]
        errors = [line for line in lines if _TROUBLE.match(line)]
        return "\n".join(f"  {line[:500]}" for line in (errors or lines)[-count:])

    def how_it_ended(self) -> str:
        """Exit status or signal, in words."""
        status = self.process.returncode
        if status is not None and status < 0:
            return f"died of {signal.Signals(-status).name}"
        return f"ended with status {status}"


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody listens on at this moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for item in sockets:
            item.bind((HOST, 0))
        return [item.getsockname()[1] for item in sockets]
