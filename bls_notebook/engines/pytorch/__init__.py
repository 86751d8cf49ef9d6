"""The pytorch backend: TorchScript models from `model.pt`, run by PyTorch on the CPU, or on a GPU.

Mirrors triton-inference-server/pytorch_backend (src/pt): how inputs and outputs are named, what it refuses,
which parameters it reads, and its words for errors. It completes no configuration: TorchScript knows the
names of its arguments, and neither their data types nor their shapes. The package torch is imported when the
first model is opened.

Models of the runtime "model.py" are modules in Python (`python_modules.py`).

On a simulated GPU the host computes in the GPU's place, whatever GPU the file names. Inputs and outputs take
that GPU's memory; weights do not.
"""

from __future__ import annotations

from .archive import has_gpu
from .model import TorchModel, open_model
from .python_modules import PYTHON_RUNTIME

RUNTIMES = (PYTHON_RUNTIME,)

__all__ = ["RUNTIMES", "TorchModel", "has_gpu", "open_model"]
