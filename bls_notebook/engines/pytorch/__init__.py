"""The pytorch backend: PyTorch runs TorchScript (`model.pt`) or Python modules on the CPU or on a GPU.

Mirrors triton-inference-server/pytorch_backend (src/pt): the names of inputs and outputs, its checks, its
parameters and its error messages. It completes no configuration: TorchScript has the names of arguments, but
neither data types nor shapes. The package torch is imported when the first model is opened. Models with
`runtime: "model.py"` are Python modules (`module_model.py`).

With a simulated GPU, the host computes instead, whatever GPU the file names. Inputs and outputs use memory
of that GPU; weights do not.
"""

from __future__ import annotations

from bls_notebook.backends.protocol import BackendError, BackendModel, VersionFiles

from .module_model import PYTHON_RUNTIME, ModuleModel
from .torchscript_model import TorchModel, has_gpu, runtime

RUNTIMES = (PYTHON_RUNTIME,)

__all__ = ["RUNTIMES", "TorchModel", "has_gpu", "open_model"]


def open_model(files: VersionFiles) -> BackendModel:
    """Open a model whose file exists; PyTorch is imported here."""
    if files.runtime == PYTHON_RUNTIME:
        runtime()
        return ModuleModel(files)
    path = files.folder / (files.filename or "model.pt")
    if not path.is_file():
        raise BackendError(f"unable to find '{path}' for model instance '{files.name}'", "Unavailable")
    runtime()
    return TorchModel(path)
