"""Load TorchScript files, and explain what another file contains."""

from __future__ import annotations

import pickletools
import warnings
import zipfile
from pathlib import Path
from typing import Any

from bls_notebook.backends.errors import BackendError
from bls_notebook.devices.registry import simulated_gpus

from .tensor_positions import Argument

_MOST_PICKLE = 1 << 22  # bytes of a pickle that are read: its class is at the beginning
_AS_TORCHSCRIPT = "save it as TorchScript: torch.jit.script(module).save(...), or torch.jit.trace"


def runtime() -> Any:
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a shared library is missing
        raise BackendError(
            f'backend "pytorch" needs the package torch, which cannot be imported here ({error}); '
            'install it: pip install "bls_notebook[torch]"'
        ) from error
    return torch


def has_gpu() -> bool:
    """Whether this build can use the GPUs here; simulated GPUs need no CUDA build."""
    if simulated_gpus():
        return True
    try:
        return bool(runtime().cuda.is_available())
    except BackendError:
        return True  # opening a model reports the missing package


def device_of(kind: str, number: int) -> str | None:
    """Return PyTorch's device for an instance, or None for kind ``MODEL``, whose file names devices."""
    torch = runtime()
    if kind == "CPU" or simulated_gpus():
        return "cpu"
    if kind == "GPU" and not torch.cuda.is_available():
        raise BackendError(
            "an instance of kind KIND_GPU needs a build of PyTorch with CUDA, and this one "
            f"({torch.__version__}) finds no GPU; install one, or use kind: KIND_CPU",
            "Invalid argument",
        )
    return f"cuda:{number}" if kind == "GPU" else None


def load(file: Path, model: str, kind: str, number: int) -> Any:
    """Load a module for an instance of a kind: ``CPU``, ``GPU`` or ``MODEL``."""
    torch, device = runtime(), device_of(kind, number)
    # PyTorch deprecates TorchScript; the warning is for authors of models, and Triton still runs it.
    warnings.filterwarnings("ignore", r"`torch\.jit\.load` is ", DeprecationWarning)
    try:
        module = torch.jit.load(str(file), map_location=device)
    except Exception as error:  # PyTorch's exceptions have no common base class
        lines = str(error).strip().splitlines() or [type(error).__name__]
        why = _what_else(file) or f"{lines[0]} (PyTorch {torch.__version__})"
        raise BackendError(f"failed to load model '{model}': {file.name}: {why}") from error
    if simulated_gpus() and kind != "CPU":
        from bls_notebook.simulation.torchscript import compute_on_host

        compute_on_host(module)
    return module


def arguments_of(module: Any) -> list[Argument]:
    """Return the arguments of a module's `forward` without `self`."""
    forward = getattr(module, "forward", None)
    if forward is None:
        raise BackendError("Method 'forward' is not defined.")
    found = [Argument(a.name, a.type.kind(), str(a.type)) for a in forward.schema.arguments]
    return found[1:] if found and found[0].kind == "ClassType" else found


def _what_else(file: Path) -> str:
    """Return what a file contains instead of TorchScript and what to do, or "" if unknown."""
    with file.open("rb") as opened:
        start = opened.read(64)
    if not start:
        return "the file is empty"
    if start.startswith(b"version https://git-lfs"):
        return "the file is a pointer of Git LFS, not the model itself; fetch it: git lfs pull"
    if zipfile.is_zipfile(file):
        return _what_archive(file)
    if start.startswith(b"\x80"):
        return f"the file is a pickle (torch.save), expected TorchScript; load it, and {_AS_TORCHSCRIPT}"
    return f"the file begins with {start[:16]!r} and is no archive, expected TorchScript; copy it here once more"


def _what_archive(file: Path) -> str:
    try:
        with zipfile.ZipFile(file) as archive:
            members = {name.partition("/")[2]: name for name in archive.namelist()}
            if "constants.pkl" in members:
                return ""
            if "archive_format" in members or "models/model.json" in members:
                return (
                    "the file is an archive of torch.export (.pt2), expected TorchScript; load it by "
                    f"torch.export.load(...).module(), and {_AS_TORCHSCRIPT}"
                )
            if "data.pkl" not in members:
                listed = ", ".join(sorted(archive.namelist())[:4])
                return f"the file is a zip archive of something else ({listed}), expected TorchScript"
            with archive.open(members["data.pkl"]) as pickled:
                held = _pickled_class(pickled.read(_MOST_PICKLE))
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError) as error:
        return f"the archive is damaged ({error}); copy it here once more"
    if held in ("", "collections.OrderedDict"):
        return (
            "the file holds weights (a state dict, or a checkpoint with one) without the code that uses "
            f"them, expected TorchScript; make the module, load_state_dict, and {_AS_TORCHSCRIPT}"
        )
    return (
        f"the file holds a module of class {held}, saved by torch.save, whose code is elsewhere, expected "
        f"TorchScript; where that can be imported, load it by torch.load, and {_AS_TORCHSCRIPT}"
    )


def _pickled_class(pickled: bytes) -> str:
    """Return the class of a pickled object without unpickling it; "" for a dict."""
    words: list[str] = []
    try:
        for code, argument, _ in pickletools.genops(pickled):
            if code.name == "GLOBAL":
                return str(argument).replace(" ", ".")
            if code.name == "STACK_GLOBAL":
                return ".".join(words[-2:])
            if code.name == "EMPTY_DICT" and not words:
                return ""
            if isinstance(argument, str):
                words.append(argument)
    except Exception:  # not a pickle
        pass
    return ""
