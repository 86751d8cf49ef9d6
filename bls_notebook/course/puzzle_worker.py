"""A process that checks replacements: whatever their code does, the notebook's process keeps running.

The process serves any number of checks, as imports take most of the time of the first. It is killed if a check takes
too long, and replaced if code of a replacement is still running after its check. It ends when its stdin is closed.
Its working directory and temporary files are in a folder that is deleted after it.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from typing import Any

from bls_notebook.records import BLSError
from bls_notebook.testing.claim_checks import Judgement

from .puzzle_check import SAME, PuzzleCheck
from .puzzle_requests import hypothesis, running_code
from .puzzle_run import run
from .puzzle_text import read_puzzle

_LONGEST = 240.0  # seconds of a check; most take a few, and a busy machine needs ten times more


class _Worker:
    """The process, and the lock of the thread that uses it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        atexit.register(self.close)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the worker's reply; empty if it ended or was killed. Hold the lock."""
        process = self._process
        if process is None or process.poll() is not None:
            self.close()
            folder = self._folder = tempfile.TemporaryDirectory(prefix="bls-puzzle-", ignore_cleanup_errors=True)
            path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
            places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder.name)
            process = self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, folder.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True, encoding="utf-8", cwd=folder.name,
                env={**os.environ, **places, "PYTHONPATH": path},
            )  # fmt: skip
            assert process.stdout is not None
            process.stdout.readline()  # its imports are no part of a check
        assert process.stdin is not None and process.stdout is not None
        timer = threading.Timer(_LONGEST, process.kill)
        timer.daemon = True
        timer.start()
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        except BaseException:  # Ctrl-C
            self.close()
            raise
        finally:
            timer.cancel()
        reply: dict[str, Any] = json.loads(line) if line.endswith("\n") else {"status": process.wait()}
        if reply.get("last", True):
            self.close()
        return reply

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except OSError:  # the request was not written completely
                        pass
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()


_WORKER = _Worker()


def check(name: str, seed: int, source: str) -> PuzzleCheck:
    """Judge a replacement of a puzzle's model in the worker; see `Puzzle.check`."""
    hypothesis()
    if not isinstance(source, str) or not source.strip():
        raise BLSError(f"puzzle {name!r}: got no source, expected the text of a model.py")
    with _WORKER.lock:
        reply = _WORKER.ask({"name": name, "seed": seed, "source": source})
    if "error" in reply:
        raise BLSError(f"puzzle {name!r}: the check failed: {reply['error']}")
    if "check" in reply:
        return PuzzleCheck.from_dict(reply["check"])
    seen = f"the model ended its process (status {reply['status']}), or took longer than {_LONGEST:g} s"
    wrong = Judgement(SAME, False, seen, "On Triton this ends the model for all its callers.")
    return PuzzleCheck(name, read_puzzle(name, seed).title, seed, (wrong,), source=source)


def main(folder: str) -> None:
    """Serve checks, one JSON object a line on stdin and stdout, and delete the folder at the end of stdin."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a model prints to the file descriptor is no reply
    lines = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # `input()` and `breakpoint()` of a model fail at once
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in lines:
            requests.put(line)
        shutil.rmtree(folder, ignore_errors=True)  # the parent may have been killed
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    replies.write("ready\n")
    replies.flush()
    while True:
        request = json.loads(requests.get())
        try:
            result = run(read_puzzle(request["name"], request["seed"]), request["source"])
            reply = {"check": result.to_dict(), "last": bool(running_code())}
        except Exception:
            reply = {"error": traceback.format_exc(limit=-3).strip(), "last": True}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main(sys.argv[1])
