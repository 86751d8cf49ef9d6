"""Overrides of PyTorch functions whose result depends on the device: transfers, attributes, DLPack, copies."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import torch

from bls_notebook.devices import dlpack, instance_gpu
from bls_notebook.simulation.cupy_array import block_of_capsule, exported

from .cuda_functions import check_room, cuda_device, gpu_index
from .function_dispatch import (
    NATIVE,
    GpuTensor,
    TorchTensor,
    block_of,
    call,
    call_default,
    dispatch,
    index_of,
    override,
    place_on_gpu,
    report_transfer,
)


def move(tensor: Any, index: int, dtype: Any = None, copy: bool = False, device: Any = "cpu", **options: Any) -> Any:
    """Return a tensor on a GPU or the CPU (-1); the same one if device and dtype already match.

    `device` is PyTorch's device if the target is not a simulated GPU.
    """
    crosses = index_of(tensor) != index
    started = perf_counter_ns()
    with NATIVE():
        if crosses and index >= 0:
            check_room(tensor.numel() * (dtype or tensor.dtype).itemsize, index)
        result = tensor.to(device=device, dtype=dtype, copy=copy or crosses, **options)
        if index >= 0 and result is not tensor:
            place_on_gpu(result, index)
        if crosses:
            report_transfer(tensor, result, started)
    return result


@override(TorchTensor.to)
def _to(func: Any, args: Any, kwargs: Any) -> Any:
    tensor, *rest = args
    options = dict(kwargs)
    device, dtype, other = (options.pop(name, None) for name in ("device", "dtype", "other"))
    if rest and isinstance(rest[0], TorchTensor):
        other = rest.pop(0)
    elif rest and isinstance(rest[0], torch.dtype):
        dtype = rest.pop(0)
    elif rest:
        device = rest.pop(0)
        if rest and (rest[0] is None or isinstance(rest[0], torch.dtype)):
            dtype = rest.pop(0)
    source = index_of(tensor)
    if other is not None:
        target, dtype = index_of(other), other.dtype
        device = other.device if target < 0 else None
    else:
        target = source if device is None else gpu_index(device)
    if source < 0 and target < 0:
        return call_default(func, args, kwargs)
    options.pop("non_blocking", None)  # transfers always finish immediately
    copy = options.pop("copy", False) or (len(rest) > 1 and rest[1])
    return move(tensor, target, dtype, copy, "cpu" if target >= 0 else device, **options)


@override(TorchTensor.cuda)
def _cuda(func: Any, args: Any, kwargs: Any) -> Any:
    device = args[1] if len(args) > 1 else kwargs.get("device")
    index = gpu_index("cuda" if device is None else device)
    if index < 0:
        raise RuntimeError(f"Invalid device, must be cuda device, got {device}")
    return move(args[0], index, **_format(kwargs))


@override(TorchTensor.cpu)
def _cpu(func: Any, args: Any, kwargs: Any) -> Any:
    return move(args[0], -1, **_format(kwargs))


@override(TorchTensor.type_as)
def _type_as(func: Any, args: Any, kwargs: Any) -> Any:
    return move(args[0], index_of(args[1]), args[1].dtype)


def _format(kwargs: Any) -> dict[str, Any]:
    return {"memory_format": kwargs["memory_format"]} if "memory_format" in kwargs else {}


@override(torch.device)
def _named(func: Any, args: Any, kwargs: Any) -> Any:
    """`torch.device(0)` is a GPU."""
    by_number = len(args) == 1 and isinstance(args[0], int) and not kwargs
    return cuda_device(args[0]) if by_number else func(*args, **kwargs)


def _place_override(answer: Callable[[int], Any]) -> Any:
    """Return an override that, for a tensor on a GPU, returns `answer(number of the GPU)`."""

    def override(func: Any, args: Any, kwargs: Any) -> Any:
        index = index_of(args[0])
        return func(*args, **kwargs) if index < 0 else answer(index)

    return override


_attributes: Any = TorchTensor
override(_attributes.device.__get__)(_place_override(cuda_device))
override(_attributes.is_cuda.__get__)(_place_override(lambda index: True))
override(_attributes.is_cpu.__get__)(_place_override(lambda index: False))
override(TorchTensor.get_device, torch.get_device)(_place_override(lambda index: index))
override(TorchTensor.__dlpack_device__)(_place_override(lambda index: (2, index)))


@override(TorchTensor.numpy, TorchTensor.__array__)
def _to_numpy(func: Any, args: Any, kwargs: Any) -> Any:
    index = index_of(args[0])
    if index < 0 or kwargs.get("force"):
        with NATIVE():
            return func(*args, **kwargs)
    raise TypeError(
        f"can't convert cuda:{index} device type tensor to numpy. "
        "Use Tensor.cpu() to copy the tensor to host memory first."
    )


@override(TorchTensor.type)
def _type(func: Any, args: Any, kwargs: Any) -> Any:
    index = index_of(args[0])
    target = args[1] if len(args) > 1 else kwargs.get("dtype")
    if target is None:
        with NATIVE():
            name: str = func(args[0])
        return name if index < 0 else name.replace("torch.", "torch.cuda.", 1)
    if not isinstance(target, torch.dtype) and index >= 0:  # a class such as torch.FloatTensor means the CPU
        return func(move(args[0], -1), target)
    return call_default(func, args, kwargs)


@override(TorchTensor.pin_memory)
def _pin_memory(func: Any, args: Any, kwargs: Any) -> Any:
    if index_of(args[0]) >= 0:
        raise RuntimeError(f"cannot pin '{args[0].type()}' only dense CPU tensors can be pinned")
    return args[0]  # transfers to a simulated GPU need no pinned memory


@override(TorchTensor.data.__set__)
def _set_data(func: Any, args: Any, kwargs: Any) -> None:
    tensor, data = args
    index, before = index_of(data), index_of(tensor)
    with NATIVE():
        func(tensor, data)
        if before != index:
            if before >= 0:
                tensor.__class__ = torch.nn.Parameter if isinstance(tensor, torch.nn.Parameter) else TorchTensor
            if index >= 0:
                place_on_gpu(tensor, index)


@override(torch.tensor, torch.as_tensor, torch.asarray, TorchTensor.new_tensor)
def _from_data(func: Any, args: Any, kwargs: Any) -> Any:
    is_new = func == TorchTensor.new_tensor
    data = args[1 if is_new else 0] if len(args) > is_new else kwargs.get("data", kwargs.get("obj"))
    device, source = kwargs.get("device"), args[0] if is_new else data
    if device is None and isinstance(source, TorchTensor):
        index = index_of(source)
    else:
        process = instance_gpu.here()
        index = gpu_index(process.default_device if device is None and process is not None else device)
    result = call(func, args, {**kwargs, "device": "cpu"} if index >= 0 else kwargs, -1)
    if index < 0 or index_of(result) == index:
        return result
    with NATIVE():
        if func != torch.tensor and not is_new:  # the result may share memory with its source on the CPU
            needs_grad = result.requires_grad
            result = result.detach().clone().requires_grad_(needs_grad)
        return place_on_gpu(result, index)


@override(TorchTensor.__repr__, TorchTensor.__format__)
def _repr(func: Any, args: Any, kwargs: Any) -> str:
    tensor = args[0]
    index = index_of(tensor)
    with NATIVE():
        if index < 0:
            return str(func(*args, **kwargs))
        if func == TorchTensor.__format__ and not tensor.ndim:
            return format(tensor.item(), *args[1:])
        text: str = torch._tensor_str._str(tensor.detach().as_subclass(TorchTensor)).removesuffix(")")
        body, comma, dtype = text.rpartition(", dtype=")  # PyTorch writes the device before the dtype
        text = f"{body or dtype}, device='cuda:{index}'{comma}{dtype if comma else ''}"
        if tensor.grad_fn is not None:
            return f"{text}, grad_fn=<{type(tensor.grad_fn).__name__}>)"
        return text + (", requires_grad=True)" if tensor.requires_grad else ")")


@override(TorchTensor.__deepcopy__)
def _deep_copy(func: Any, args: Any, kwargs: Any) -> Any:
    tensor, memo = args
    index = index_of(tensor)
    if index < 0:
        return func(*args)
    if id(tensor) in memo:
        return memo[id(tensor)]
    with NATIVE():
        if not tensor.is_leaf:
            return func(*args)  # raises PyTorch's error
        copy = _on_host(tensor, tensor.detach().as_subclass(TorchTensor).clone())
        memo[id(tensor)] = place_on_gpu(copy, index)
        if tensor.grad is not None:
            copy.grad = place_on_gpu(tensor.grad.detach().as_subclass(TorchTensor).clone(), index)
    return copy


def _on_host(tensor: Any, host: Any) -> Any:
    """Return a host tensor as a parameter or a tensor, like `tensor`."""
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(host, tensor.requires_grad)
    return host.requires_grad_(tensor.requires_grad)


@override(TorchTensor.__reduce_ex__)
def _reduce(func: Any, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    if index_of(tensor) < 0:
        return func(*args)
    with NATIVE():  # saved as a CPU tensor
        return _on_host(tensor, tensor.detach().as_subclass(TorchTensor)).__reduce_ex__(args[1])


@override(TorchTensor.__dlpack__)
def _dlpack(func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs) if index_of(args[0]) < 0 else to_dlpack(args[0])


def to_dlpack(tensor: Any) -> object:
    """Return a DLPack capsule that shares the memory of a tensor on any device."""
    with NATIVE():
        block = block_of(tensor)
        capsule: object = torch._C._to_dlpack(tensor)
        return capsule if block is None else exported(capsule, block)


def from_dlpack(original: Any, ext_tensor: Any, **options: Any) -> Any:
    """Return a tensor that shares the memory of a DLPack capsule, or of an object with ``__dlpack__``."""
    if isinstance(ext_tensor, GpuTensor):
        capsule = to_dlpack(ext_tensor)
    elif dlpack.is_capsule(ext_tensor):
        if dlpack.device_of_capsule(ext_tensor)[0] in dlpack.CPU_DEVICES:
            return original(ext_tensor, **options)
        capsule = ext_tensor
    elif hasattr(ext_tensor, "__dlpack_device__") and ext_tensor.__dlpack_device__()[0] in dlpack.CUDA_DEVICES:
        capsule = ext_tensor.__dlpack__()
    elif gpu_index(options.get("device")) < 0:
        return original(ext_tensor, **options)
    else:
        return dispatch(TorchTensor.to, (original(ext_tensor), options["device"]), {})
    block = block_of_capsule(capsule)
    dlpack.move_capsule(capsule, (1, 0))
    with NATIVE():
        return place_on_gpu(torch._C._from_dlpack(capsule), block.device_id, block)


def warn_no_effect(description: str) -> None:
    warnings.warn(f"{description} on a simulated GPU", RuntimeWarning, stacklevel=4)
