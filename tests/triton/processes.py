"""What tests of a server share: where it can run, and whether it is gone."""

from __future__ import annotations

import os
import select
from pathlib import Path

import pytest

from bls_notebook.shipping.servers.tritonserver import TritonServer, is_supported

linux = pytest.mark.skipif(not is_supported(), reason="tritonserver runs on Linux x86-64 only")


def wait_gone(*pids: int, seconds: float = 20.0) -> None:
    """Wait until processes that need not be children of this one have ended."""
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            ended, _, _ = select.select([handle], [], [], seconds)
            assert ended, f"process {pid} is still there"
        finally:
            os.close(handle)


def leftovers(server: TritonServer) -> list[Path]:
    run = server._run
    assert run is not None
    return [run.folder, *Path("/dev/shm").glob(f"{run.shared_memory}*")]
