"""Models with `runtime: "model.py"`: a `torch.nn.Module` in Python, with its weights in a file.

Like triton-inference-server/pytorch_backend (src/model.py) in how it finds the file and the class. Inputs
and outputs keep the configuration's order, and data types are not checked. `torch.compile` is left out: it
changes the speed of a model and not its responses.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bls_notebook.backends.file_models import refuse_parts
from bls_notebook.backends.protocol import BackendError, Modules, VersionFiles
from bls_notebook.devices.own_gpu import OwnGPU
from bls_notebook.devices.registry import simulated_gpus
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor

from .torchscript_model import TensorPositions, TorchInstance, device_of, load, runtime, settings_of

PYTHON_RUNTIME = "model.py"


class ModuleModel:
    """One version of a model; every instance imports its file again and has its own module."""

    auto_complete_config = None

    def __init__(self, files: VersionFiles) -> None:
        names = [name for name in (files.filename, "model.py", "model.pt") if name]
        found = next((files.folder / name for name in names if (files.folder / name).is_file()), None)
        if found is None:
            raise BackendError(f"No model found in {files.folder}/{names}")
        self._file, self._files = found, files
        self.warnings: tuple[str, ...] = ()

    def make_instance(self, arguments: dict[str, str]) -> ModuleInstance:
        config = json.loads(arguments["model_config"])
        refuse_parts(config)
        settings = settings_of(config)
        self.warnings = settings.warnings
        kind, number = arguments["model_instance_kind"], int(arguments["model_instance_device_id"])
        inputs, outputs = ({t["name"]: i for i, t in enumerate(config[of])} for of in ("input", "output"))
        gpu, own = number if kind == "GPU" else None, OwnGPU()
        # Code of the model sees a simulated GPU as a CUDA device.
        device = f"cuda:{gpu}" if gpu is not None and simulated_gpus() else device_of(kind, number)
        modules = self._files.new_modules() if self._file.suffix == ".py" else None
        with own.current():
            if modules is None:
                module = load(self._file, config["name"], kind, number)
            else:
                module = _made(modules.load(self._file.stem, self._file), self._file, device)
            module = (module if device is None else module.to(device)).eval()
        return ModuleInstance(own, modules, module, config, TensorPositions(inputs, outputs), settings, gpu)


def _made(loaded: Any, file: Path, device: str | None) -> Any:
    """Instantiate the module class in the file, and load its weights."""
    torch = runtime()
    classes = [each for each in map(loaded.__dict__.get, dir(loaded)) if isinstance(each, type)]
    found = next((each for each in classes if issubclass(each, torch.nn.Module)), None)
    if found is None:
        raise BackendError(f"Cannot find a subclass of torch.nn.Module in {file.name}")
    module = found()
    weights = file.with_suffix(".pt")
    if weights.is_file():
        module.load_state_dict(torch.load(weights, map_location=device, weights_only=True))
    return module


class ModuleInstance(TorchInstance):
    """One instance, with its own GPU state and its own import system."""

    def __init__(self, own: OwnGPU, modules: Modules | None, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._simulated = False  # its code uses the simulated GPU like a real one
        self._own, self._modules = own, modules

    def execute(self, requests: list[InferenceRequest]) -> list[InferenceResponse]:
        """Run a batch on the instance's GPU."""
        with self._own.current():
            return super().execute(requests)

    def finalize(self) -> None:
        """Drop the module and its code."""
        with self._own.current():
            super().finalize()
        if self._modules is not None:
            self._modules.forget()

    def _given(self, tensor: Tensor) -> Any:
        if tensor._datatype in ("BYTES", "BF16"):
            return self._torch.from_dlpack(tensor.to_dlpack())  # BYTES: Triton's own words say that it cannot
        return super()._given(tensor)

    def _results(self, returned: Any) -> list[Any]:
        results = list(returned) if isinstance(returned, (list, tuple)) else [returned]
        if len(results) < len(self._names):
            raise IndexError(f"forward returned {len(results)} outputs, expected {len(self._names)}")
        return results

    def _checked(self, name: str, results: list[Any]) -> Any:
        return results[self._positions.outputs[name]].detach().contiguous()

    def _tensor(self, name: str, result: Any) -> Tensor:
        return Tensor.from_dlpack(name, result)
