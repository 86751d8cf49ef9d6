"""An instance of a TorchScript model: requests in, one call of `forward`, responses out.

Text travels as a list of strings, which is all that TorchScript has. PyTorch lets go of the interpreter while
it computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import numpy as np

from bls_notebook.backends.batched import BatchedInstance, RefusedError
from bls_notebook.devices.registry import need_gpu
from bls_notebook.devices.transfers import to_cpu, to_gpu
from bls_notebook.pb_utils.dtypes import element_bytes
from bls_notebook.pb_utils.errors import ErrorCode
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.tensor import Tensor, TextOnGPU

from .archive import runtime
from .naming import Names
from .settings import Settings

_DATATYPES = {
    "torch.bool": "BOOL",
    "torch.uint8": "UINT8",
    "torch.int8": "INT8",
    "torch.int16": "INT16",
    "torch.int32": "INT32",
    "torch.int64": "INT64",
    "torch.float16": "FP16",
    "torch.float32": "FP32",
    "torch.float64": "FP64",
}


class TorchInstance(BatchedInstance):
    """One instance of a TorchScript model; `gpu` is the number of its GPU, be that a simulated one."""

    def __init__(
        self, module: Any, config: dict[str, Any], names: Names, settings: Settings, gpu: int | None
    ) -> None:
        super().__init__(config, gpu)
        self.takes_gpu = gpu is not None
        self._torch = runtime()
        self._module = module
        self._places = names
        self._settings = settings
        self._simulated = gpu is not None and need_gpu(gpu).simulated
        self._datatypes = {
            o["name"]: o["data_type"].removeprefix("TYPE_").replace("STRING", "BYTES")
            for o in config["output"]
        }

    def finalize(self) -> None:
        """Let go of the module, and of the memory on a GPU that nothing of PyTorch's uses any more."""
        self._module = None
        self._clean()

    def ready(self) -> bool:
        """Whether the instance has not been finalized."""
        return self._module is not None

    # -- inputs ------------------------------------------------------------------------------------

    def _feed(self, request: InferenceRequest) -> dict[str, Any]:
        return {tensor._name: self._given(tensor) for tensor in request._inputs}

    def _given(self, tensor: Tensor) -> Any:
        array: Any = tensor._array
        if tensor._datatype == "BYTES":
            text = array.on_cpu() if isinstance(array, TextOnGPU) else array
            return [element_bytes(each) for each in text.reshape(-1).tolist()]
        if self.gpu is None:
            return self._torch.from_numpy(to_cpu(array))
        there = to_gpu(array, self.gpu)
        return self._torch.from_numpy(there._host) if self._simulated else self._torch.from_dlpack(there)

    def _join(self, parts: list[Any]) -> Any:
        if isinstance(parts[0], list):
            return [element for part in parts for element in part]
        return self._torch.cat(parts)

    # -- one call ----------------------------------------------------------------------------------

    def _run(self, names: list[str], feed: dict[str, Any]) -> list[Any]:
        try:
            with self._as_set():
                results = self._results(self._module(*self._arguments(feed)))
                found = {name: self._checked(name, results) for name in sorted(self._places.outputs)}
        except RefusedError:
            raise
        except Exception as error:  # what torch raises has no common class of its own
            raise RefusedError(f"PyTorch execute failure: {str(error).rstrip()}") from error
        finally:
            if self._settings.cache_cleaning:
                self._clean()
        return [found[name] for name in names]

    def _as_set(self) -> AbstractContextManager[Any]:
        torch, settings = self._torch, self._settings
        mode: AbstractContextManager[Any] = (
            torch.inference_mode() if settings.inference_mode else torch.no_grad()
        )
        return mode if settings.optimized and settings.cudnn else self._as_set_apart(mode)

    @contextmanager
    def _as_set_apart(self, mode: AbstractContextManager[Any]) -> Iterator[None]:
        torch, settings = self._torch, self._settings
        with mode, torch.jit.optimized_execution(settings.optimized), ExitStack() as stack:
            if not settings.cudnn and self.gpu is not None and not self._simulated:
                stack.enter_context(torch.backends.cudnn.flags(enabled=False))
            yield

    def _arguments(self, feed: dict[str, Any]) -> list[Any]:
        if self._places.takes_dict:
            return [feed]
        arguments: list[Any] = [None] * len(self._places.inputs)
        for name, place in self._places.inputs.items():
            if name not in feed:
                raise RefusedError(
                    f"model '{self.name}': input '{name}' is missing: TorchScript takes all of its "
                    "arguments, optional or not",
                    ErrorCode.INVALID_ARG,
                )
            arguments[place] = feed[name]
        return arguments

    def _results(self, returned: Any) -> list[Any]:
        """What `forward` returned, as a list of tensors and lists of strings."""
        is_tuple = isinstance(returned, tuple)
        results = list(returned) if is_tuple else [returned]
        for i, result in enumerate(results):
            if isinstance(result, self._torch.Tensor):
                continue
            where = f"output at index {i}" if is_tuple else "output"
            if isinstance(result, list):
                if all(isinstance(each, str) for each in result):
                    continue
                raise RefusedError(
                    f"PyTorch execute failure: {where} must be of type Tensor or List[str], received "
                    f"List[{type(result[0]).__name__}]"
                )
            raise RefusedError(
                f"PyTorch execute failure: {where} must be of type Tensor, List[str] or Tuple containing "
                "one of these two types. It should not be a List / Dictionary of Tensors or a Scalar: "
                f"received {type(result).__name__}"
            )
        return results

    def _checked(self, name: str, results: list[Any]) -> Any:
        place = self._places.outputs[name]
        if place >= len(results):
            raise RefusedError(
                f"The output {name} in the model configuration refers to an output index which doesn't "
                f"exist. This model has {len(results)} outputs",
                ErrorCode.INVALID_ARG,
            )
        result = results[place]
        is_text = isinstance(result, list)
        datatype = "BYTES" if is_text else _DATATYPES.get(str(result.dtype), "INVALID")
        if datatype != self._datatypes[name]:
            raise RefusedError(
                f"configuration expects datatype TYPE_{self._datatypes[name]} for output '{name}', model "
                f"provides TYPE_{datatype}" + (f" ({result.dtype})" if datatype == "INVALID" else ""),
                ErrorCode.INVALID_ARG,
            )
        if is_text:
            return result
        if not result.ndim:
            raise RefusedError(f"output '{name}' is a scalar which is not supported.", ErrorCode.INVALID_ARG)
        return result.detach().contiguous()

    # -- outputs -----------------------------------------------------------------------------------

    def _tensor(self, name: str, result: Any) -> Tensor:
        if isinstance(result, list):
            text = np.empty(len(result), np.object_)
            text[:] = result
            return Tensor._of(name, text, "BYTES")
        if result.is_cuda:
            return Tensor.from_dlpack(name, result)
        return Tensor._of(name, result.numpy(force=True), self._datatypes[name])

    def _clean(self) -> None:
        if not self._simulated and self._torch.cuda.is_initialized():
            self._torch.cuda.empty_cache()
