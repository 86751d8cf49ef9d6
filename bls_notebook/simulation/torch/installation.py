"""Installs the simulated GPUs in PyTorch, once, for threads that run models' code.

Each replacement checks whether a model's code runs on this thread (`instance_gpu`); if not, it calls PyTorch's own
function. Classes such as `torch.cuda.Stream` are replaced by subclasses that accept both kinds of objects.

Guarantee: outside models' code, PyTorch behaves as without the simulation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from bls_notebook.devices import instance_gpu

from . import cuda_functions
from .cuda_functions import cuda_device, gpu_index
from .function_dispatch import NATIVE, block_of, call_default, dispatch, place_on_gpu
from .tensor_methods import from_dlpack, to_dlpack, warn_no_effect


def compute_on_host(module: Any) -> Any:
    """Change a loaded TorchScript module and its submodules, in place, to use the CPU instead of CUDA devices.

    This replaces constants that are CUDA devices, and calls of ``Tensor.cuda()``.
    """
    for part in module.modules():
        code: Any = getattr(part, "_c", None)  # None if it is not TorchScript
        for name in () if code is None else code._method_names():
            graph = code._get_method(name).graph
            for constant in graph.findAllNodes("prim::Constant"):
                if constant.output().type().kind() == "DeviceObjType" and "value" in constant.attributeNames():
                    constant.s_("value", "cpu")
            for node in list(graph.findAllNodes("aten::cuda")):
                replacement = graph.create("aten::cpu", list(node.inputs()), 1)
                replacement.insertBefore(node)
                replacement.output().setType(node.output().type())
                node.output().replaceAllUsesWith(replacement.output())
                node.destroy()
    return module


class Generator(torch._C.Generator):  # type: ignore[misc]
    """A random generator of a simulated GPU; the CPU computes its numbers."""

    _index = 0

    @property
    def device(self) -> Any:
        return cuda_device(self._index)


def generator(original: Any, device: Any = "cpu") -> Any:
    index = gpu_index(device)
    if index < 0:
        return original(device)
    gpu_generator = Generator("cpu")
    gpu_generator._index = index
    return gpu_generator


def set_default_device(original: Any, device: Any) -> None:
    """Set the default device of the model, not of the notebook."""
    process = instance_gpu.here()
    assert process is not None
    device = cuda_device(device) if isinstance(device, int) else device
    process.default_device = None if device is None else torch.device(device)


def get_default_device(original: Any) -> Any:
    process, device = instance_gpu.here(), original()
    if device.type != "cpu" or process is None or process.default_device is None:
        return device
    index = gpu_index(process.default_device)
    return process.default_device if index < 0 else cuda_device(index)


def compiled(original: Any, model: Any = None, **options: Any) -> Any:
    warn_no_effect("torch.compile does nothing: the model runs as it is")
    return (lambda function: function) if model is None else model


def compiled_in_place(original: Any, module: Any, *args: Any, **options: Any) -> None:
    warn_no_effect("Module.compile does nothing: the module runs as it is")


def in_parallel(original: Any, module: Any, *args: Any, **options: Any) -> Any:
    """`DataParallel.forward`: run the whole batch on one GPU."""
    return module.module(*args, **options)


def entered_autocast(original: Any, context: Any) -> Any:
    """Enter `torch.autocast`; for CUDA, enter the CPU's autocast, too."""
    if context.device == "cuda":
        on_host = torch.autocast("cpu", context.fast_dtype, context._enabled, context._cache_enabled)
        context._beside = [*getattr(context, "_beside", []), on_host]
        on_host.__enter__()
    return original(context)


def left_autocast(original: Any, context: Any, *problem: Any) -> Any:
    result = original(context, *problem)
    on_host = getattr(context, "_beside", None)
    if on_host:
        on_host.pop().__exit__(*problem)
    return result


def on_gpu(storage: Any, index: int) -> Any:
    """Mark a storage, so that tensors made from it are placed on a GPU."""
    if index >= 0:
        storage._simulated_gpu = index
    return storage


def storage_on_gpu(original: Any, storage: Any, device: Any = None, **options: Any) -> Any:
    """`UntypedStorage.cuda`: mark a copy of the storage with `on_gpu`."""
    return on_gpu(storage.clone(), gpu_index("cuda" if device is None else device))


def loaded(original: Any, f: Any, map_location: Any = None, *args: Any, **options: Any) -> Any:
    def place(storage: Any, location: str) -> Any:
        target = map_location.get(location, location) if isinstance(map_location, dict) else map_location
        target = location if target is None else target
        if location == "meta" or (isinstance(target, str) and target.partition(":")[0] not in ("cpu", "cuda")):
            return None  # PyTorch's default
        return on_gpu(storage, gpu_index(target))

    is_ours = map_location is None or not callable(map_location)
    return original(f, place if is_ours else map_location, *args, **options)


def rebuilt(original: Any, storage: Any, *args: Any) -> Any:
    """Rebuild a saved tensor on its GPU."""
    tensor = original(storage, *args)
    index = getattr(getattr(storage, "_untyped_storage", storage), "_simulated_gpu", -1)
    if index < 0:
        return tensor
    with NATIVE():
        return place_on_gpu(tensor, index)


def script_loaded(original: Any, f: Any, map_location: Any = None, *args: Any, **options: Any) -> Any:
    """`torch.jit.load` for simulated GPUs: TorchScript that names CUDA devices runs on the CPU."""
    index = gpu_index(map_location)
    if index >= 0:
        return compute_on_host(original(f, "cpu", *args, **options)).to(cuda_device(index))
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
    """Call a function with CPU tensors, because PyTorch's C++ code handles them."""
    return call_default(lambda *a, **k: original(function, *a, **k), args, kwargs)


# Replacements by path below `torch`; each gets PyTorch's own function as its first argument.
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
    "storage.UntypedStorage.cuda": storage_on_gpu,
}


class Mode(TorchFunctionMode):  # type: ignore[misc]
    """Passes every call of PyTorch's functions on a thread to `dispatch`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})


_mode = Mode()


def _turn(on: bool) -> None:
    """Turn the simulated GPUs on or off for this thread."""
    if on:
        _mode.__enter__()
    elif _mode in _get_current_function_mode_stack():  # otherwise the model removed it
        while torch._C._pop_torch_function_stack() is not _mode:
            pass  # modes that the model pushed


def install() -> None:
    """Replace functions and classes of the imported PyTorch."""
    for module, functions in (
        (torch.cuda, cuda_functions.CUDA),
        (torch.cuda.memory, cuda_functions.CUDA),
        (torch.cuda.random, cuda_functions.CUDA),
        (getattr(torch.cuda, "nvtx", None), cuda_functions.NVTX),
        (getattr(torch, "accelerator", None), cuda_functions.ACCELERATOR),
        (getattr(getattr(torch, "accelerator", None), "memory", None), cuda_functions.ACCELERATOR),
    ):
        for name, ours in functions.items():
            own = getattr(module, name, None)
            if own is not None and not hasattr(own, "_of_simulated_gpus"):
                setattr(module, name, _either(own, ours))
    for path, ours in OTHERS.items():
        *parents, name = path.split(".")
        try:
            parent = functools.reduce(getattr, parents, torch)
            own = getattr(parent, name)
        except AttributeError:
            continue  # not in this version of PyTorch
        setattr(parent, name, _either(own, functools.partial(ours, own)))
    for name, replacement in (("Stream", cuda_functions.TorchStream), ("Event", cuda_functions.TorchEvent)):
        own = getattr(torch.cuda, name)
        for module in (torch.cuda, torch.cuda.streams):
            setattr(module, name, _either_class(own, replacement, replacement))
    torch.Generator = _either_class(torch._C.Generator, functools.partial(generator, torch._C.Generator), Generator)
    torch.to_dlpack = torch.utils.dlpack.to_dlpack = _either(torch._C._to_dlpack, to_dlpack)
    shared = functools.partial(from_dlpack, torch.from_dlpack)
    torch.from_dlpack = torch.utils.dlpack.from_dlpack = _either(torch.from_dlpack, shared)
    instance_gpu.foreign_blocks.append(block_of)
    instance_gpu.install(_turn)


def _either(own: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `ours` in a model's code and `own` elsewhere."""

    @functools.wraps(own)
    def call(*args: Any, **kwargs: Any) -> Any:
        return own(*args, **kwargs) if instance_gpu.here() is None else ours(*args, **kwargs)

    call._of_simulated_gpus = True  # type: ignore[attr-defined]
    return call


def _either_class(own: Any, make: Callable[..., Any], ours: type) -> type:
    """Return a replacement of class `own` whose instances are PyTorch's or ours."""

    class Either(type(own)):  # type: ignore[misc]
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            if cls is not either:  # a user's subclass
                return super().__call__(*args, **kwargs)
            return own(*args, **kwargs) if instance_gpu.here() is None else make(*args, **kwargs)

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, (own, ours)) if cls is either else super().__instancecheck__(instance)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, (own, ours)) if cls is either else super().__subclasscheck__(other)

    names = {"__module__": own.__module__, "__doc__": own.__doc__, "__qualname__": own.__qualname__}
    either = Either(own.__name__, (own,), names)
    return either
