"""Other functions of PyTorch with devices: generators, default device, autocast, loading, compiling.

Each function receives PyTorch's own as its first argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bls_notebook.devices import model_code
from bls_notebook.simulation.torchscript import compute_on_host

from .gpu_tensor import NATIVE, gpu_index, named, placed, plainly
from .tensor_methods import set_default_tensor_type, warn_no_effect


class Generator(torch._C.Generator):  # type: ignore[misc]
    """A generator on a GPU; the CPU makes its numbers."""

    _index = 0

    @property
    def device(self) -> Any:
        return named(self._index)


def generator(original: Any, device: Any = "cpu") -> Any:
    index = gpu_index(device)
    if index < 0:
        return original(device)
    made = Generator("cpu")
    made._index = index
    return made


def set_default_device(original: Any, device: Any) -> None:
    """Set the default device of the model, not of the notebook."""
    process = model_code.here()
    assert process is not None
    process.default_device = (
        None if device is None else torch.device(named(device) if isinstance(device, int) else device)
    )


def get_default_device(original: Any) -> Any:
    """Return the default device of the model."""
    process = model_code.here()
    device = original()
    if device.type != "cpu" or process is None or process.default_device is None:
        return device
    index = gpu_index(process.default_device)
    return process.default_device if index < 0 else named(index)


def compiled(original: Any, model: Any = None, **options: Any) -> Any:
    warn_no_effect("torch.compile does nothing: the model runs as it is")
    return (lambda function: function) if model is None else model


def compiled_in_place(original: Any, module: Any, *args: Any, **options: Any) -> None:
    warn_no_effect("Module.compile does nothing: the module runs as it is")


def in_parallel(original: Any, module: Any, *args: Any, **options: Any) -> Any:
    """`DataParallel.forward`: run the whole batch on one GPU."""
    return module.module(*args, **options)


def entered_autocast(original: Any, context: Any) -> Any:
    """Enter `torch.autocast`; that of CUDA also enters that of the CPU."""
    if context.device == "cuda":
        beside = torch.autocast("cpu", context.fast_dtype, context._enabled, context._cache_enabled)
        context._beside = [*getattr(context, "_beside", []), beside]
        beside.__enter__()
    return original(context)


def left_autocast(original: Any, context: Any, *problem: Any) -> Any:
    result = original(context, *problem)
    beside = getattr(context, "_beside", None)
    if beside:
        beside.pop().__exit__(*problem)
    return result


def on_gpu(storage: Any, index: int) -> Any:
    """Mark a storage so that tensors made from it are on a GPU."""
    if index >= 0:
        storage._simulated_gpu = index
    return storage


def storage_on_gpu(original: Any, storage: Any, device: Any = None, **options: Any) -> Any:
    """`UntypedStorage.cuda`: as `on_gpu`, of a copy."""
    return on_gpu(storage.clone(), gpu_index("cuda" if device is None else device))


def loaded(original: Any, f: Any, map_location: Any = None, *args: Any, **options: Any) -> Any:
    def place(storage: Any, location: str) -> Any:
        wanted = map_location.get(location, location) if isinstance(map_location, dict) else map_location
        wanted = location if wanted is None else wanted
        if location == "meta" or (isinstance(wanted, str) and wanted.partition(":")[0] not in ("cpu", "cuda")):
            return None  # PyTorch's default
        return on_gpu(storage, gpu_index(wanted))

    takes_part = map_location is None or not callable(map_location)
    return original(f, place if takes_part else map_location, *args, **options)


def rebuilt(original: Any, storage: Any, *args: Any) -> Any:
    """Rebuild a saved tensor on its GPU."""
    tensor = original(storage, *args)
    index = getattr(getattr(storage, "_untyped_storage", storage), "_simulated_gpu", -1)
    if index < 0:
        return tensor
    with NATIVE():
        return placed(tensor, index)


def script_loaded(original: Any, f: Any, map_location: Any = None, *args: Any, **options: Any) -> Any:
    """`torch.jit.load` to simulated GPUs; code that names CUDA devices runs on the CPU."""
    index = gpu_index(map_location)
    if index >= 0:
        return compute_on_host(original(f, "cpu", *args, **options)).to(named(index))
    if map_location is not None:
        return original(f, map_location, *args, **options)
    start = f.tell() if hasattr(f, "tell") else None
    try:
        return original(f, None, *args, **options)
    except RuntimeError as error:
        if "CUDA" not in str(error):
            raise
    if start is not None:
        f.seek(start)
    return compute_on_host(original(f, "cpu", *args, **options)).to("cuda")


def on_cpu(original: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function whose tensors pass through PyTorch's C++ code, as CPU tensors."""
    return plainly(lambda *a, **k: original(function, *a, **k), args, kwargs)


# By path below `torch`.
OTHERS: dict[str, Callable[..., Any]] = {
    "_functorch.apis.vmap_impl": on_cpu,
    "_functorch.eager_transforms.grad_impl": on_cpu,
    "_utils._rebuild_tensor": rebuilt,
    "_utils._rebuild_tensor_v3": rebuilt,
    "amp.autocast_mode.autocast.__enter__": entered_autocast,
    "amp.autocast_mode.autocast.__exit__": left_autocast,
    "backends.cuda.is_built": lambda original: True,
    "backends.cudnn.is_acceptable": lambda original, tensor: False,
    "compile": compiled,
    "get_default_device": get_default_device,
    "jit.ScriptFunction.__call__": on_cpu,
    "jit.load": script_loaded,
    "load": loaded,
    "nn.DataParallel.forward": in_parallel,
    "nn.Module.compile": compiled_in_place,
    "set_default_device": set_default_device,
    "set_default_tensor_type": set_default_tensor_type,
    "storage.UntypedStorage.cuda": storage_on_gpu,
}
