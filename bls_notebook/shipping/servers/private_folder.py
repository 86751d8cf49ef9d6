"""A temporary folder that goes when its process does, however that ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
import weakref
from pathlib import Path

# Waits for the end of its input, which is the end of the process that made the folder. Several times: what
# else ends with that process may still be writing.
_WATCHDOG = 'cat >/dev/null; for i in 1 2 3 4 5 6 7 8; do rm -rf -- "$1" && break; sleep 0.5; done'


class PrivateFolder:
    """A folder of one's own, removed by `remove`, when it is collected, and when this process is killed.

    ``made`` is when, by `time.monotonic`.
    """

    def __init__(self, prefix: str) -> None:
        self.made = time.monotonic()
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self.watchdog = watched(_WATCHDOG, str(self.path))
        self.remove = weakref.finalize(self, _remove, os.getpid(), self.path, self.watchdog)


def watched(script: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Have a shell run a script that begins by waiting for the end of its input: that of this process."""
    none = subprocess.DEVNULL
    command = ["/bin/sh", "-c", script, "sh", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=none, stderr=none, start_new_session=True)


def _remove(owner: int, path: Path, watchdog: subprocess.Popen[bytes]) -> None:
    if os.getpid() != owner:  # a forked child leaves it alone
        return
    shutil.rmtree(path, ignore_errors=True)
    watchdog.kill()
    watchdog.communicate()
