"""`ForkServer`: a process that has loaded the worker and NumPy, and forks workers in milliseconds (`worker_forks`).

Each environment in use has one. The kernel is never forked.

Guarantees: a fork server runs no model's code. A worker has the environment variables, the search path and the working
folder that the kernel has when the worker starts. If forking is unsafe (native threads run) or fails, a new Python
starts. A fork server ends after the last worker of its environment, or with the kernel.
"""

from __future__ import annotations

import array
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence

from .environments import Environment, leave_environment, use_environment
from .sources import BOOT, boot_message

CAN_FORK = sys.platform.startswith("linux")  # on macOS, its own libraries have threads
PATIENCE = 20.0  # seconds until a new Python starts instead
_lock = threading.Lock()
_servers: dict[Environment, ForkServer | None] = {}  # None: it cannot fork
_users: Counter[Environment] = Counter()  # instances of each environment


class ForkedProcess:
    """A forked worker, with the methods of `subprocess.Popen`."""

    def __init__(self, pid: int, pipe: int) -> None:
        self.pid, self._pipe = pid, pipe
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process; return its exit status, or the negative number of its signal."""
        if self.returncode is None:
            if not _has_data(self._pipe, timeout):
                raise subprocess.TimeoutExpired("worker", timeout or 0)
            status = _read(self._pipe)
            os.close(self._pipe)
            if status is None:  # the fork server was killed
                with contextlib.suppress(OSError):
                    os.killpg(self.pid, signal.SIGKILL)
            self.returncode = -signal.SIGKILL if status is None else status
        return self.returncode

    def kill(self) -> None:
        """End the process."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


Process = ForkedProcess | subprocess.Popen[bytes]


class ForkServer:
    """The fork server of an environment."""

    def __init__(self, environment: Environment) -> None:
        self.variables = dict(os.environ)
        self.has_forked = False
        self._socket, end = socket.socketpair()
        self._socket.settimeout(PATIENCE)
        try:
            self._process = _start(environment, [end.fileno()], subprocess.DEVNULL, subprocess.DEVNULL)
        except OSError:
            self._socket.close()
            raise
        finally:
            end.close()
        _send_sources(self._socket, environment)

    def fork(self, files: Sequence[int]) -> ForkedProcess | None:
        """Fork a worker with these files: the three of its connection, and its standard output and error."""
        status, end = os.pipe()
        try:
            folder = os.open(".", os.O_RDONLY)
            try:
                rights = array.array("i", [*files, folder, end])
                self._socket.sendmsg([b"f"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            finally:
                os.close(folder)
        except OSError:  # it has ended, or this folder cannot be opened
            pass
        finally:
            os.close(end)
        if not _has_data(status, PATIENCE):
            self._process.kill()
        pid = _read(status)
        if pid is None:
            os.close(status)
            return None
        self.has_forked = True
        return ForkedProcess(pid, status)

    def close(self) -> None:
        """Let the server end after its last worker."""
        self._socket.close()
        threading.Thread(target=self._process.wait, name="bls-fork-server", daemon=True).start()

    def forget(self) -> None:
        """Close the connection in a forked child of the kernel."""
        self._socket.close()


def _has_data(pipe: int, seconds: float | None) -> bool:
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    return bool(poll.poll(None if seconds is None else 1e3 * seconds))


def _read(pipe: int) -> int | None:
    data = os.read(pipe, 4)
    return int.from_bytes(data, sys.byteorder, signed=True) if data else None


def _start(environment: Environment, files: Sequence[int], output: int, errors: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [environment.python, "-I", "-c", BOOT, *map(str, files)],
        stdin=subprocess.DEVNULL, stdout=output, stderr=errors, pass_fds=files, start_new_session=True,
        env={**os.environ, **dict(environment.variables)},
    )  # fmt: skip


def _send_sources(end: socket.socket, environment: Environment) -> None:
    with contextlib.suppress(OSError):  # it has ended
        end.sendall(boot_message(list(environment.path)))


def start_worker(environment: Environment, home: socket.socket, files: Sequence[int]) -> Process:
    """Start a worker with these files: two sockets, a pipe, standard output and error. `home` is the kernel's end."""
    server = _server(environment) if CAN_FORK else None
    forked = None if server is None else server.fork(files)
    if forked is not None:
        return forked
    if server is not None:
        with _lock:
            if _servers.get(environment) is server:
                if server.has_forked:  # it has been killed: the next worker gets another
                    del _servers[environment]
                else:
                    _servers[environment] = None
                server.close()
    process = _start(environment, files[:3], *files[3:])
    _send_sources(home, environment)
    return process


def _server(environment: Environment) -> ForkServer | None:
    with _lock:
        server = _servers.get(environment)
        if server is not None and server.variables != os.environ:
            server.close()
            del _servers[environment]
        if environment not in _servers:
            try:
                _servers[environment] = ForkServer(environment)
            except OSError:  # no such Python, or too many processes: the worker's own start says so
                return None
        return _servers[environment]


def use(environment: Environment) -> None:
    """Count an instance of an environment."""
    with _lock:
        _users[environment] += 1
        use_environment(environment)


def leave(environment: Environment) -> None:
    """Forget an instance of an environment; after the last one, its fork server ends."""
    with _lock:
        _users[environment] -= 1
        if _users[environment] > 0:
            return
        del _users[environment]
        leave_environment(environment)
        server = _servers.pop(environment, None)
    if server is not None:
        server.close()


def _forget_in_child() -> None:
    global _lock
    _lock = threading.Lock()
    for server in _servers.values():
        if server is not None:
            server.forget()
    _servers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
