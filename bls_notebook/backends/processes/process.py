"""`WorkerProcess`: the process of one instance, as the kernel sees it.

The home of the instance calls `run` for each step and answers the worker's questions meanwhile. A reader thread gets
everything else: messages of the worker's other threads, what native code prints, and the end of the process.

Guarantees: `run` returns the answer or raises; `ProcessDiedError` at once if the process has ended, for any reason.
Each process that was started is waited for, and its sockets and pipes are closed. A process whose code ignores an
interrupt is killed after `KILL_SECONDS`. A forked child of the kernel does not keep a worker alive.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import threading
import weakref
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from bls_notebook.pb_utils.tensor import Tensor

from .environments import Environment
from .fork_server import start_worker
from .messages import Channel, Message

KILL_SECONDS = 5.0  # from an interrupt, or the end of `finalize`, until the process is killed
_CRASH = "Fatal Python error: "  # how `faulthandler` begins
LAST_WORDS = 4000  # the last characters that a process wrote


class ProcessDiedError(Exception):
    """The process of an instance has ended, while or before it ran a step."""


class Listener:
    """Answers a worker's questions: `Upcalls`."""

    def answer(self, message: Message, process: WorkerProcess, at_home: bool) -> None:
        """Serve a message, and send the answer if it wants one."""
        raise NotImplementedError

    def printed(self, stream: str, text: str) -> None:
        """Show what native code wrote to a standard stream."""


class WorkerProcess:
    """A worker, from its start to its end."""

    def __init__(self, environment: Environment) -> None:
        self._listener = Listener()
        self._ended: Callable[[], None] = _ignored
        self._steps = count(1)
        self._step = 0  # that runs now
        self._closing = False
        self.alive = True
        self._dead = threading.Event()
        self._guard = threading.Lock()
        self._words = ""
        self._waiting: dict[tuple[str, int], Callable[[Message | None], None]] = {}
        self._crash = ""  # what `faulthandler` has written: in pieces, between which a text of `hear` may arrive
        self._timers: weakref.WeakSet[threading.Timer] = weakref.WeakSet()
        ends = [socket.socketpair() for _ in range(2)]
        pipes = [os.pipe() for _ in range(2)]
        lifeline, self._lifeline = os.pipe()  # closed by the end of the kernel, which ends the worker
        theirs = [*(pair[1].fileno() for pair in ends), lifeline]
        try:
            outputs = [pipe for _, pipe in pipes]
            self._process = start_worker(environment, ends[0][0], [*theirs, *outputs])
        except OSError:
            for file in (pipes[0][0], pipes[1][0], self._lifeline):
                os.close(file)
            for mine, _ in ends:
                mine.close()
            raise
        finally:
            for _, end in ends:
                end.close()
            for file in (pipes[0][1], pipes[1][1], lifeline):
                os.close(file)
        self.home, self.side = (Channel(mine) for mine, _ in ends)
        self._pipes = [pipe for pipe, _ in pipes]
        _processes.add(self)
        threading.Thread(target=self._read, name=f"bls-process-{self.pid}", daemon=True).start()

    def adopt(self, listener: Listener, ended: Callable[[], None]) -> None:
        """Serve an instance from now on; `ended` is called once, on another thread, if the process ends by itself."""
        self._listener, self._ended = listener, ended

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def died(self) -> str:
        """The reason for the end of the process."""
        return _reason(self._process.wait(), self._words + self._crash)

    def hear(self, words: str) -> None:
        """Note a text that the process wrote to standard error."""
        with self._guard:
            self._words = (self._words + words)[-2 * LAST_WORDS :]  # `_reason` leaves some lines out

    def run(self, op: str, tensors: Sequence[Tensor] = (), key: Any = None, **header: Any) -> Message:
        """Run a step on the worker's main thread; return its answer. Called at the instance's home."""
        with self._guard:
            self._step = step = next(self._steps)
        try:
            header["op"] = op
            if key is None:
                self.home.send({**header, "step": step}, tensors, waits=True)
            else:
                self.home.send_alike(key, lambda: header, step, header["call"], tensors)
            while True:
                message = self.home.receive()
                if "done" in message.header:
                    return message
                self._listener.answer(message, self, at_home=True)
                message = None  # type: ignore[assignment]
        except EOFError:
            raise self.death() from None
        except BaseException:  # in the middle of a message
            self.kill()
            raise
        finally:
            with self._guard:
                self._step = 0
                died = not self.alive
            if died:
                self.home.close()

    def death(self) -> ProcessDiedError:
        """Return the error of a process that has closed its connection."""
        if not self._dead.wait(KILL_SECONDS):
            self.kill()
            self._dead.wait()
        return ProcessDiedError(self.died)

    def expect(self, kind: str, number: int, then: Callable[[Message | None], None]) -> None:
        """Call `then` with the answer of this kind and number that comes on the side; with None if the process dies."""
        with self._guard:
            if self.alive:
                self._waiting[kind, number] = then
                return
        then(None)

    def interrupt(self) -> None:
        """Interrupt the running step, and kill the process if the step continues."""
        with self._guard:
            step = self._step
        if step:
            with contextlib.suppress(EOFError):
                self.side.send({"op": "interrupt", "step": step})
            self.kill_unless(lambda: self._step != step)

    def kill_unless(self, done: Callable[[], bool]) -> None:
        """Kill the process after `KILL_SECONDS` unless something is done by then."""

        def check() -> None:
            if not done():
                self.kill()

        timer = threading.Timer(KILL_SECONDS, check)
        timer.daemon = True
        self._timers.add(timer)
        timer.start()

    def kill(self) -> None:
        """End the process, and every process of its session that it has started."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._process.kill()

    def close(self) -> None:
        """Let the process end, without waiting for it; one that continues is killed."""
        self._closing = True
        self.home.close()
        if self.alive:
            self.kill_unless(self._dead.is_set)

    def _read(self) -> None:
        """Handle what arrives on the side, until the process has ended. On its own thread."""
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self.side.socket, selectors.EVENT_READ, "")
                for pipe, stream in zip(self._pipes, ("stdout", "stderr"), strict=True):
                    selector.register(pipe, selectors.EVENT_READ, stream)
                while True:
                    for key, _ in selector.select():
                        if not key.data:
                            self._receive()
                        elif not self._print(key.fd, key.data):
                            selector.unregister(key.fd)
        except EOFError:
            pass
        finally:
            self._bury()

    def _receive(self) -> None:
        while True:
            message = self.side.receive()
            then = self._waiting.pop((message.header["op"], message.header.get("call", 0)), None)
            if then is not None:
                then(message)
            else:
                self._listener.answer(message, self, at_home=False)
            del message, then  # an idle reader must not keep tensors alive
            if not self.side.has_more:
                return

    def _print(self, pipe: int, stream: str) -> bool:
        data = os.read(pipe, 1 << 16)
        text = data.decode(errors="replace")
        if text:
            if stream == "stderr":
                crash = ""
                if self._crash:
                    text, crash = "", text
                elif self._step or self._waiting:  # the error of whoever waits has the words of a crash
                    text, begin, rest = text.partition(_CRASH)
                    crash = begin + rest
                self.hear(text)
                self._crash = (self._crash + crash)[: 2 * LAST_WORDS]
            if text and not self._closing:
                self._listener.printed(stream, text)
        return bool(data)

    def _bury(self) -> None:
        """Wait for the process and answer all who wait for it."""
        try:
            self._process.wait(KILL_SECONDS if self._closing else 1.0)
        except subprocess.TimeoutExpired:  # it has only closed its files
            self.kill()
            self._process.wait()
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)  # its own children
        for pipe, stream in zip(self._pipes, ("stdout", "stderr"), strict=True):
            os.set_blocking(pipe, False)
            with contextlib.suppress(OSError):
                while self._print(pipe, stream):
                    pass
            os.close(pipe)
        os.close(self._lifeline)
        with self._guard:
            self.alive = False
            self._dead.set()
            runs = self._step
            for timer in list(self._timers):
                timer.cancel()
            waiting = list(self._waiting.values())
            self._waiting.clear()
        if runs:
            self.home.end()  # the home has to read the messages that were sent before the death
        else:
            self.home.close()
        self.side.close()
        for then in waiting:
            then(None)
        ended, self._ended = self._ended, _ignored
        if not self._closing:
            ended()


def _ignored() -> None:
    pass


def _reason(status: int, words: str) -> str:
    """Return how a process ended: its signal or exit status, and its last words."""
    if status < 0:
        names = {int(number): number.name for number in signal.Signals}
        how = f"its process was ended by {names.get(-status, f'signal {-status}')} ({signal.strsignal(-status)})"
        if -status == signal.SIGKILL:
            how += ": by Linux for lack of memory, or by another process"
    else:
        how = f"its process ended with exit status {status}"
    # Without the lines of the worker, beneath the model's.
    words = "\n".join(line for line in words.strip().split("\n") if '  File "<' not in line)[-LAST_WORDS:]
    return f"{how}. Its last words:\n{words}" if words else how


_processes: weakref.WeakSet[WorkerProcess] = weakref.WeakSet()


def _forget_in_child() -> None:
    for process in list(_processes):
        for channel in (process.home, process.side):
            with contextlib.suppress(OSError):
                channel.socket.close()
        with contextlib.suppress(OSError):
            if process.alive:
                os.close(process._lifeline)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
