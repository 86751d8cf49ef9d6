"""A kernel in a process of its own, and a debugger that speaks the debug adapter protocol with it."""

from __future__ import annotations

import os
import queue
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from jupyter_client.manager import KernelManager

from tests.waiting import LIMIT

ROOT = Path(__file__).resolve().parents[2]


class Stop(NamedTuple):
    """A stopped kernel: file, functions with lines (innermost first), and variables."""

    file: str
    frames: list[tuple[str, int]]
    variables: dict[str, str]


class DebuggedKernel:
    """A kernel, and the debugger of its frontend."""

    def __init__(self, manager: KernelManager) -> None:
        self.manager = manager
        self.client: Any = manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=LIMIT)
        self.output = ""
        self._number = 0
        self._sent = ""
        self._thread = 0

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        self._number += 1
        content = {"type": "request", "seq": self._number, "command": command, "arguments": arguments}
        message = self.client.session.msg("debug_request", content)
        self.client.control_channel.send(message)
        while True:
            reply = self.client.control_channel.get_msg(timeout=LIMIT)
            if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                return dict(reply["content"].get("body") or {})

    def attach(self) -> None:
        self.ask("initialize", clientID="test", adapterID="", pathFormat="path", linesStartAt1=True)
        self.ask("attach")
        self.ask("configurationDone")

    def break_at(self, cell: str, *lines: int) -> str:
        """Set breakpoints in a cell; return the name of its file."""
        file: str = self.ask("dumpCell", code=cell)["sourcePath"]
        points = [{"line": line} for line in lines]
        self.ask("setBreakpoints", breakpoints=points, source={"path": file}, sourceModified=False)
        return file

    def run(self, cell: str) -> Stop | None:
        """Run a cell until it stops; None if it ends."""
        self._sent, self.output = self.client.execute(cell), ""
        return self._wait()

    def go(self, how: str = "continue") -> Stop | None:
        self.ask(how, threadId=self._thread)
        return self._wait()

    def interrupt(self) -> Stop | None:
        self.manager.interrupt_kernel()
        return self._wait()

    def _wait(self) -> Stop | None:
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            try:
                message = self.client.get_iopub_msg(timeout=LIMIT)
            except queue.Empty:
                break
            kind, content = message["msg_type"], message["content"]
            if kind == "debug_event" and content["event"] == "stopped":
                self._thread = content["body"]["threadId"]
                return self._here()
            ours = message["parent_header"].get("msg_id") == self._sent
            if ours and kind == "status" and content["execution_state"] == "idle":
                return None
            self.output += content.get("text", "") + content.get("data", {}).get("text/plain", "")
            self.output += "\n".join(content.get("traceback", ()))
        raise TimeoutError(f"neither stopped nor ended; so far: {self.output}")

    def _here(self) -> Stop:
        frames = self.ask("stackTrace", threadId=self._thread)["stackFrames"]
        scope = self.ask("scopes", frameId=frames[0]["id"])["scopes"][0]["variablesReference"]
        variables = self.ask("variables", variablesReference=scope)["variables"]
        return Stop(
            frames[0]["source"]["path"],
            [(frame["name"], frame["line"]) for frame in frames],
            {each["name"]: each["value"] for each in variables},
        )


@contextmanager
def started_kernel(home: Path, *flags: str) -> Iterator[KernelManager]:
    """A kernel that imports this checkout."""
    environment = {**os.environ, "IPYTHONDIR": str(home), "JUPYTER_RUNTIME_DIR": str(home)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH", "")]))
    manager = KernelManager(connection_file=str(home / "kernel.json"))
    manager.kernel_spec_manager  # made now, so that its warnings are not the tests'
    manager.kernel_spec.argv[:1] = [sys.executable, *flags]
    manager.start_kernel(env=environment)
    try:
        yield manager
    finally:
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
