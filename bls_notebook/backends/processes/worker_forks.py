"""The code of a fork server: wait for the kernel's requests, fork a worker for each, and report how it ends.

A forked worker equals a new one but for the seed of `hash`, which all workers of a fork server have in common.
"""

from __future__ import annotations

import array
import gc
import os
import select
import signal
import socket
import sys
from typing import Any

FILES = 7  # of a request


def forked(control: int) -> list[int]:
    """Fork a worker whenever the kernel asks; return, in a worker, the files of its connection."""
    kernel = socket.socket(fileno=control)
    if not is_forking_safe():
        os._exit(0)
    gc.collect()
    gc.freeze()
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    statuses: dict[int, int] = {}  # pipes to the kernel, by the worker's process
    ends = [woken, control]
    while control in ends or statuses:
        ready = select.select(ends, [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
            report_ended(statuses)
        if control not in ready:
            continue
        data, rights, *_ = kernel.recvmsg(1, socket.CMSG_SPACE(4 * FILES))
        if not data:
            ends.remove(control)
            continue
        files = array.array("i")
        for _, _, content in rights:
            files.frombytes(content)
        pid = fork() if len(files) == FILES else -1
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for file in (woken, wakes, control, *statuses.values()):
                os.close(file)
            kernel.detach()
            settle(*files[3:])
            return list(files[:3])
        if pid > 0:
            statuses[pid] = files.pop()
        for file in files:
            os.close(file)
    os._exit(0)


def fork() -> int:
    try:
        return os.fork()
    except OSError:  # too many processes
        return -1


def is_forking_safe() -> bool:
    """Return whether no native thread runs beside a fork; OpenBLAS ends its own before one."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return len(os.listdir("/proc/self/task")) == 1


def report_ended(statuses: dict[int, int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid in statuses:
            pipe = statuses.pop(pid)
            report(pipe, -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
            os.close(pipe)
        elif not pid:
            return


def report(pipe: int, number: int) -> None:
    try:
        os.write(pipe, number.to_bytes(4, sys.byteorder, signed=True))
    except OSError:  # the kernel has ended
        pass


def settle(output: int, errors: int, folder: int, status: int) -> None:
    """Make a forked process as if it had been started, and report its number."""
    os.setsid()
    os.fchdir(folder)
    os.dup2(output, 1)
    os.dup2(errors, 2)
    random: Any = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()
    report(status, os.getpid())
    for file in (output, errors, folder, status):
        os.close(file)
