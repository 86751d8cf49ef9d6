"""A hook that records allocations and frees of CuPy's memory pool, on every thread that runs models.

CuPy calls a hook only for the thread that installed it, so the engine calls `follow` on each of its threads before it
runs a model's code there. Guarantees: without a CUDA GPU, and while no recording is on, no hook is installed. A block
freed on a thread that never called `follow` (one that a model starts itself) counts as alive until its memory is
reused.
"""

from __future__ import annotations

import threading
from typing import Any

from .allocation_log import AllocationRecorder

used = False  # True once `begin` was called; test it before calling `follow`
_wanted: Any = None  # the hook that every thread should have now
_own = threading.local()


def begin(cupy: Any, recording: AllocationRecorder) -> None:
    """Report allocations and frees of CuPy's pool to a recording; see `follow`."""
    global used, _wanted
    _wanted = _hook(cupy, recording)
    used = True
    follow()


def end() -> None:
    global _wanted
    _wanted = None
    follow()


def follow() -> None:
    """Install or remove the hook of this thread."""
    installed, wanted = getattr(_own, "hook", None), _wanted
    if installed is wanted:
        return
    if installed is not None:
        installed.__exit__()
    if wanted is not None:
        wanted.__enter__()
    _own.hook = wanted


def _hook(cupy: Any, recording: AllocationRecorder) -> Any:
    allocated, freed = recording.allocated, recording.freed

    class AllocationHook(cupy.cuda.MemoryHook):  # type: ignore[misc]
        """Reports to the recording."""

        name = "bls_notebook.allocation_log"

        def malloc_postprocess(self, **about: Any) -> None:
            if about["mem_ptr"]:
                allocated(f"gpu:{about['device_id']}", about["mem_ptr"], about["mem_size"])

        def free_preprocess(self, **about: Any) -> None:
            """Record before the memory is freed, because then another thread may get it."""
            freed(f"gpu:{about['device_id']}", about["mem_ptr"], about["mem_size"])

    return AllocationHook()
