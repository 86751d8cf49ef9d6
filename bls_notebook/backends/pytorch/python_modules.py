"""Models of the runtime "model.py": a `torch.nn.Module` in Python, with its weights in a file beside it.

Mirrors triton-inference-server/pytorch_backend (src/model.py): which file and which class it takes, inputs
and outputs in the configuration's order, and no look at data types. Without `torch.compile`, which changes
how fast a model is and not what it answers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bls_notebook.backends.completed import refuse_parts
from bls_notebook.backends.errors import BackendError
from bls_notebook.backends.protocol import Modules, VersionFiles
from bls_notebook.pb_utils.tensor import Tensor

from .archive import device_of, load, runtime
from .instance import TorchInstance
from .naming import Names
from .settings import Settings, settings_of

PYTHON_RUNTIME = "model.py"


class ModuleModel:
    """One version of such a model; every instance imports its file anew, and has a module of its own."""

    auto_complete_config = None

    def __init__(self, files: VersionFiles) -> None:
        names = [name for name in (files.filename, "model.py", "model.pt") if name]
        found = next((files.folder / name for name in names if (files.folder / name).is_file()), None)
        if found is None:
            raise BackendError(f"No model found in {files.folder}/{names}")
        self._file, self._files = found, files
        self.warnings: tuple[str, ...] = ()

    def make_instance(self, arguments: dict[str, str]) -> ModuleInstance:
        """Return a new instance."""
        config = json.loads(arguments["model_config"])
        refuse_parts(config)
        settings = settings_of(config)
        self.warnings = settings.warnings
        kind, number = arguments["model_instance_kind"], int(arguments["model_instance_device_id"])
        device, modules = device_of(kind, number), None
        if self._file.suffix == ".py":
            modules = self._files.new_modules()
            module = _made(modules.load(self._file.stem, self._file), self._file, device)
        else:
            module = load(self._file, config["name"], kind, number)
        inputs, outputs = ({t["name"]: i for i, t in enumerate(config[of])} for of in ("input", "output"))
        gpu = number if kind == "GPU" else None
        return ModuleInstance(module.eval(), config, Names(inputs, outputs), settings, gpu, modules)


def _made(loaded: Any, file: Path, device: str | None) -> Any:
    """A module of the class that the file has, with its weights, on a device."""
    torch = runtime()
    classes = [each for each in map(loaded.__dict__.get, dir(loaded)) if isinstance(each, type)]
    found = next((each for each in classes if issubclass(each, torch.nn.Module)), None)
    if found is None:
        raise BackendError(f"Cannot find a subclass of torch.nn.Module in {file.name}")
    module = found()
    weights = file.with_suffix(".pt")
    if weights.is_file():
        module.load_state_dict(torch.load(weights, map_location=device, weights_only=True))
    return module if device is None else module.to(device)


class ModuleInstance(TorchInstance):
    """One instance, with the import system that its code lives in."""

    def __init__(
        self,
        module: Any,
        config: dict[str, Any],
        names: Names,
        settings: Settings,
        gpu: int | None,
        modules: Modules | None,
    ) -> None:
        super().__init__(module, config, names, settings, gpu)
        self._modules = modules

    def finalize(self) -> None:
        """Let go of the module and its code."""
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
        return results[self._places.outputs[name]].detach().contiguous()

    def _tensor(self, name: str, result: Any) -> Tensor:
        return Tensor.from_dlpack(name, result)
