"""One version of a TorchScript model while it loads: its file, its modules, its configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bls_notebook.backends.completed import refuse_parts
from bls_notebook.backends.errors import BackendError
from bls_notebook.backends.protocol import BackendModel, VersionFiles

from .archive import arguments_of, load, runtime
from .instance import TorchInstance
from .naming import names_of
from .python_modules import PYTHON_RUNTIME, ModuleModel
from .settings import settings_of

_FILE = "model.pt"


def open_model(files: VersionFiles) -> BackendModel:
    """Return a model whose file has been found."""
    if files.runtime == PYTHON_RUNTIME:
        runtime()
        return ModuleModel(files)
    path = files.folder / (files.filename or _FILE)
    if not path.is_file():
        raise BackendError(f"unable to find '{path}' for model instance '{files.name}'", "Unavailable")
    runtime()
    return TorchModel(path)


class TorchModel:
    """One version of a TorchScript model.

    Every instance has a module of its own, as on Triton, whose buffers no other sees; those of one device
    share it where ENABLE_WEIGHT_SHARING says so.
    """

    auto_complete_config = None  # TorchScript knows neither data types nor shapes

    def __init__(self, file: Path) -> None:
        self._file = file
        self._shared: dict[tuple[str, int], Any] = {}
        self.warnings: tuple[str, ...] = ()

    def make_instance(self, arguments: dict[str, str]) -> TorchInstance:
        """Return a new instance, its configuration checked against the arguments of `forward`."""
        config = json.loads(arguments["model_config"])
        if config["platform"] == "torch_aoti":
            raise BackendError(
                f"model '{config['name']}': platform torch_aoti (archives that torch.export compiled for one "
                "kind of processor) is not run here; save the module as TorchScript, with platform: "
                '"pytorch_libtorch"',
                "Unsupported",
            )
        refuse_parts(config)
        settings = settings_of(config)
        kind, number = arguments["model_instance_kind"], int(arguments["model_instance_device_id"])
        gpu = number if kind == "GPU" else None
        module = self._shared.get((kind, number))
        if module is None:
            module = load(self._file, config["name"], kind, number)
        if settings.weight_sharing:
            self._shared[kind, number] = module
        names = names_of(config, arguments_of(module))
        self.warnings = settings.warnings
        return TorchInstance(module, config, names, settings, gpu)
