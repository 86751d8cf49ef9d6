"""The pytorch backend: PyTorch runs TorchScript (`model.pt`) or Python modules on the CPU or on a GPU.

Mirrors triton-inference-server/pytorch_backend (src/pt): its names, checks, parameters and error messages. Inputs
are matched to the arguments of `forward` by name; if not all names match, by the index in `<name>__<index>`; else by
their order in the configuration. Outputs are matched by index or order. A model whose only argument is a dict gets
the inputs by name. BYTES tensors become lists of strings, TorchScript's only text type. Configurations are not
completed, because TorchScript has neither data types nor shapes. The first model that is opened imports PyTorch,
which releases the GIL while it runs.

Models with `runtime: "model.py"` are a `torch.nn.Module` in Python, with its weights in a file (src/model.py).
Their tensors are matched by order, and data types are not checked. `torch.compile` is not applied, because it
changes only the speed of a model.

On a simulated GPU, the CPU computes, even if the file names a GPU. Inputs and outputs use memory of the simulated
GPU; weights do not.
"""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bls_notebook.backends import BackendError, BackendModel, Modules, VersionFiles
from bls_notebook.devices import need_gpu, simulated_gpus, to_cpu, to_gpu
from bls_notebook.devices.instance_gpu import OwnGPU
from bls_notebook.pb_utils import InferenceRequest
from bls_notebook.pb_utils.dtypes import element_bytes
from bls_notebook.pb_utils.errors import ErrorCode
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor, TextOnGPU
from bls_notebook.records import open_regular_file

from . import file_models, torch_archives
from .file_models import INVALID, BatchedInstance, BatchError

_CONFIG_TYPES = frozenset(
    f"TYPE_{t}" for t in ("BOOL", "UINT8", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "STRING")
)
PYTHON_RUNTIME = "model.py"
RUNTIMES = (PYTHON_RUNTIME,)
_AS_TORCHSCRIPT = "save it as TorchScript: torch.jit.script(module).save(...), or torch.jit.trace"


def open_model(files: VersionFiles) -> BackendModel:
    """Import PyTorch and open a model; BackendError if its file is missing."""
    runtime()
    if files.runtime == PYTHON_RUNTIME:
        return ModuleModel(files)
    path = files.folder / (files.filename or "model.pt")
    if not path.is_file():
        raise BackendError(f"unable to find '{path}' for model instance '{files.name}'", "Unavailable")
    return TorchModel(path)


@dataclass(frozen=True)
class Argument:
    """An argument of `forward`: its name, the kind of its TorchScript type, and the type as text."""

    name: str
    kind: str
    type: str


@dataclass(frozen=True)
class TensorPositions:
    """Positions of arguments and results by tensor name, counted from 0."""

    inputs: dict[str, int]
    outputs: dict[str, int]
    takes_dict: bool = False


def positions_of(config: dict[str, Any], arguments: list[Argument]) -> TensorPositions:
    """Return the positions of a completed configuration's tensors; BackendError if they contradict `forward`."""
    inputs = {name: _control_index(name, datatype) for name, datatype in file_models.controls_of(config).items()}
    takes_dict = len(arguments) == 1 and arguments[0].kind == "DictType"
    if not takes_dict:
        _check_arguments(config, arguments, len(inputs))
    inputs |= _positions(config, "input", [] if takes_dict else [a.name for a in arguments])
    outputs = _positions(config, "output", [])
    if not takes_dict and sorted(inputs.values()) != list(range(len(arguments))):
        assigned = ", ".join(f"'{name}' is argument {place}" for name, place in inputs.items())
        raise BackendError(
            f"model '{config['name']}': each of the {len(arguments)} arguments of its forward needs one "
            f"input, but of the configuration's {assigned}; count the indexes of <name>__<index> from 0",
            INVALID,
        )
    return TensorPositions(inputs, outputs, takes_dict)


def _check_arguments(config: dict[str, Any], arguments: list[Argument], controls: int) -> None:
    if any(a.kind == "DictType" for a in arguments[1:]):
        raise BackendError(
            "Multiple inputs of kind DictType were detected. Only a single input of type Dict(str, Tensor) "
            "is supported."
        )
    for argument in arguments:
        if argument.kind not in ("TensorType", "ListType"):
            raise BackendError(
                f"An input of type '{argument.type}' was detected in the model. Only a single input of type "
                "Dict(str, Tensor) or input(s) of type Tensor are supported."
            )
    expected = len(config["input"]) + controls
    if arguments and len(arguments) != expected:
        raise BackendError(
            f"unable to load model '{config['name']}', configuration expects {expected} inputs, model "
            f"provides {len(arguments)}: {', '.join(a.name for a in arguments)}",
            INVALID,
        )


def _positions(config: dict[str, Any], kind: str, arguments: list[str]) -> dict[str, int]:
    """Return the positions of the configuration's inputs or outputs (`kind`)."""
    tensors = config[kind]
    if not tensors:
        raise BackendError(
            f"model configuration must contain at least one {kind}, none were specified. Triton cannot "
            f"complete it from TorchScript; add {kind} {{ name data_type dims }} to config.pbtxt"
            + (f", for the arguments {', '.join(arguments)}" if arguments else "")
        )
    for tensor in tensors:
        name, datatype, of_model = tensor["name"], tensor["data_type"], f"for model '{config['name']}'"
        if datatype not in _CONFIG_TYPES:
            raise BackendError(f"unsupported datatype {datatype} for {kind} '{name}' {of_model}")
        if datatype == "TYPE_STRING" and len(file_models.dims_of(tensor)) + (config["max_batch_size"] > 0) > 1:
            raise BackendError(f"Triton only supports 1 dimensional List of String as {kind} for '{name}' {of_model}")
    names = [tensor["name"] for tensor in tensors]
    if arguments and all(name in arguments for name in names):
        return {name: arguments.index(name) for name in names}
    indexes = {name: index for name in names if (index := _index(name)) is not None}
    return indexes if len(indexes) == len(names) else {name: i for i, name in enumerate(names)}


def _index(name: str) -> int | None:
    """Return the index of `<name>__<index>`, or None; an empty index is 0, as in C."""
    _, parted, index = name.partition("__")
    if not parted or not (index == "" or (index.isascii() and index.isdigit())):
        return None
    return int(index or 0)


def _control_index(name: str, datatype: str) -> int:
    index = _index(name)
    if index is None:
        raise BackendError(f"input '{name}' does not follow <name>__<index> naming convention.")
    if datatype not in ("", "TYPE_INVALID", *_CONFIG_TYPES) or datatype == "TYPE_STRING":
        raise BackendError(f"input '{name}' type '{datatype}' is not supported by PyTorch.")
    return index


def runtime() -> Any:
    return file_models.imported("pytorch", "torch", 'pip install "bls_notebook[torch]"')


def has_gpu() -> bool:
    return file_models.build_has_gpu(lambda: bool(runtime().cuda.is_available()))


def device_of(kind: str, number: int) -> str | None:
    """Return PyTorch's device for an instance; None for kind ``MODEL``, whose file names the devices."""
    torch = runtime()
    if kind == "CPU" or simulated_gpus():
        return "cpu"
    if kind == "GPU" and not torch.cuda.is_available():
        raise BackendError(
            "an instance of kind KIND_GPU needs a GPU and a build of PyTorch with CUDA, but this build "
            f"({torch.__version__}) finds no GPU; install a CUDA build, or use kind: KIND_CPU",
            "Invalid argument",
        )
    return f"cuda:{number}" if kind == "GPU" else None


def load(file: Path, model: str, kind: str, number: int) -> Any:
    """Load a module for an instance of a kind: ``CPU``, ``GPU`` or ``MODEL``."""
    torch, device = runtime(), device_of(kind, number)
    # Triton still runs TorchScript; PyTorch's deprecation warning is for authors of models.
    warnings.filterwarnings("ignore", r"`torch\.jit\.load` is ", DeprecationWarning)
    try:
        module = torch.jit.load(str(file), map_location=device)
    except Exception as error:  # PyTorch's exceptions have no common base class
        lines = str(error).strip().splitlines() or [type(error).__name__]
        why = other_format(file) or f"{lines[0]} (PyTorch {torch.__version__})"
        raise BackendError(f"failed to load model '{model}': {file.name}: {why}") from error
    if simulated_gpus() and kind != "CPU":
        from bls_notebook.simulation.torch.installation import compute_on_host

        compute_on_host(module)
    return module


def arguments_of(module: Any) -> list[Argument]:
    """Return the arguments of a module's `forward`, without `self`."""
    forward = getattr(module, "forward", None)
    if forward is None:
        raise BackendError("Method 'forward' is not defined.")
    arguments = [Argument(a.name, a.type.kind(), str(a.type)) for a in forward.schema.arguments]
    return arguments[1:] if arguments and arguments[0].kind == "ClassType" else arguments


def other_format(file: Path) -> str:
    """Describe the content of a file that is not TorchScript, with a remedy; "" if it is unknown."""
    with open_regular_file(file) as opened:
        start = opened.read(64)
    if not start:
        return "the file is empty"
    if start.startswith(b"version https://git-lfs"):
        return "the file is a pointer of Git LFS, not the model itself; fetch it: git lfs pull"
    if not start.startswith(b"\x80"):  # a pickle
        if not zipfile.is_zipfile(file):
            return f"the file begins with {start[:16]!r} and is not an archive, expected TorchScript; copy it again"
        try:
            with zipfile.ZipFile(file) as archive:
                members = {name.partition("/")[2] for name in archive.namelist()}
                listed = ", ".join(sorted(archive.namelist())[:4])
        except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError) as error:
            return f"the archive is damaged ({error}); copy the file again"
        if "constants.pkl" in members:
            return ""
        if members & {"archive_format", "models/model.json"}:
            return (
                "the file is an archive of torch.export (.pt2), expected TorchScript; load it with "
                f"torch.export.load(...).module(), and {_AS_TORCHSCRIPT}"
            )
        if "data.pkl" not in members:
            return f"the file is another kind of zip archive ({listed}), expected TorchScript"
    return (
        "the file has weights or a module written by torch.save, without code, expected TorchScript; create the "
        f"module, load the file into it, and {_AS_TORCHSCRIPT}"
    )


# Parameters that configure PyTorch for the whole process.
_PROCESS_PARAMETERS = {
    **dict.fromkeys(("ENABLE_TENSOR_FUSER", "ENABLE_JIT_PROFILING", "ENABLE_JIT_EXECUTOR"), file_models.bool_parameter),
    **dict.fromkeys(("INTRA_OP_THREAD_COUNT", "INTER_OP_THREAD_COUNT"), file_models.int_parameter),
    **dict.fromkeys(("NUM_THREADS", "NUM_INTEROP_THREADS"), file_models.int_parameter),  # for Python modules
}


# Parameters of one model, and their defaults.
_PARAMETERS = {
    "DISABLE_CUDNN": False, "DISABLE_OPTIMIZED_EXECUTION": False, "ENABLE_CACHE_CLEANING": False,
    "ENABLE_WEIGHT_SHARING": False, "INFERENCE_MODE": True,
}  # fmt: skip


def settings_of(config: dict[str, Any]) -> dict[str, bool]:
    """Return the parameters of a model; BackendError for an invalid one."""
    given = {key: file_models.bool_parameter(config, key) for key in _PARAMETERS}
    return _PARAMETERS | {key: value for key, value in given.items() if value is not None}


def parameter_warnings(config: dict[str, Any]) -> tuple[str, ...]:
    """Return a warning if parameters are not applied here; BackendError for an invalid one."""
    ignored = [key for key, read in _PROCESS_PARAMETERS.items() if read(config, key) is not None]
    warning = (
        f"model '{config['name']}': not applied here: {', '.join(ignored)}. It configures PyTorch for the whole "
        "process, which here is the notebook"
    )
    return (warning,) if ignored else ()


def archive_warnings(config: dict[str, Any], kind: str) -> tuple[str, ...]:
    """Return warnings about a model of platform `torch_aoti`; BackendError for an instance on a GPU."""
    if kind == "GPU":
        problem = f"model '{config['name']}': archives (torch_aoti) run on the CPU here; use kind: KIND_CPU, or a stub"
        raise BackendError(problem, "Unsupported")
    batches = (
        f"model '{config['name']}': the backend does not support batches of archives (torch_aoti) yet: here each "
        "request runs alone; use max_batch_size: 0"
    )
    return (*parameter_warnings(config), *([batches] if config["max_batch_size"] else []))


class TorchModel:
    """One version of a TorchScript model, or of an archive (see `torch_archives`).

    As on Triton, every instance has its own module and buffers; with ENABLE_WEIGHT_SHARING, instances on the same
    device share one module.
    """

    auto_complete_config = None

    def __init__(self, file: Path) -> None:
        self._file = file
        self._shared: dict[tuple[str, int], Any] = {}
        self.warnings: tuple[str, ...] = ()

    def make_instance(self, arguments: dict[str, str]) -> TorchInstance:
        """Check the configuration against the arguments of `forward` and create an instance."""
        config = json.loads(arguments["model_config"])
        file_models.refuse_parts(config)
        settings = settings_of(config)
        if config["platform"] == "torch_aoti":
            self.warnings = archive_warnings(config, arguments["model_instance_kind"])
            return _archive_instance(self._file, config, arguments["model_instance_name"], settings)
        kind, number = arguments["model_instance_kind"], int(arguments["model_instance_device_id"])
        gpu = number if kind == "GPU" else None
        module = self._shared.get((kind, number))
        if module is None:
            module = load(self._file, config["name"], kind, number)
        if settings["ENABLE_WEIGHT_SHARING"]:
            self._shared[kind, number] = module
        names = positions_of(config, arguments_of(module))
        self.warnings = parameter_warnings(config)
        return TorchInstance(module, config, names, settings, gpu)


_DATATYPES = {f"torch.{name}": name.upper() for name in ("bool", "uint8", "int8", "int16", "int32", "int64")} | {
    f"torch.float{bits}": f"FP{bits}" for bits in (16, 32, 64)
}


class TorchInstance(BatchedInstance):
    """One instance of a TorchScript model on GPU `gpu` (real or simulated), or on the CPU."""

    _failed_to_run = "PyTorch execute failure"

    def __init__(
        self, module: Any, config: dict[str, Any], names: TensorPositions, settings: dict[str, bool], gpu: int | None
    ) -> None:
        super().__init__(config, gpu)
        self.takes_gpu = gpu is not None
        self._torch = runtime()
        self._module = module
        self._positions = names
        self._settings = settings
        self._simulated = gpu is not None and need_gpu(gpu).simulated
        self._datatypes = {
            o["name"]: o["data_type"].removeprefix("TYPE_").replace("STRING", "BYTES") for o in config["output"]
        }

    def finalize(self) -> None:
        """Drop the module, and release cached GPU memory."""
        self._module = None
        self._clean()

    def ready(self) -> bool:
        """Return False after `finalize`."""
        return self._module is not None

    def _feed(self, request: InferenceRequest) -> dict[str, Any]:
        return {tensor._name: self._converted(tensor) for tensor in request._inputs}

    def _converted(self, tensor: Tensor) -> Any:
        array: Any = tensor._array
        if tensor._datatype == "BYTES":
            text = array.on_cpu() if isinstance(array, TextOnGPU) else array
            return [element_bytes(element) for element in text.reshape(-1).tolist()]
        if self.gpu is None:
            return self._torch.from_numpy(to_cpu(array))
        on_gpu = to_gpu(array, self.gpu)
        return self._torch.from_numpy(on_gpu._host) if self._simulated else self._torch.from_dlpack(on_gpu)

    def _join(self, parts: list[Any]) -> Any:
        if isinstance(parts[0], list):
            return [element for part in parts for element in part]
        return self._torch.cat(parts)

    def _run(self, names: list[str], feed: dict[str, Any]) -> list[Any]:
        try:
            with self._as_set():
                results = self._results(self._module(*self._arguments(feed)))
                outputs = {name: self._checked(name, results) for name in sorted(self._positions.outputs)}
        except BatchError:
            raise
        except Exception as error:  # PyTorch's exceptions have no common base class
            raise BatchError(f"{self._failed_to_run}: {str(error).rstrip()}") from error
        finally:
            if self._settings["ENABLE_CACHE_CLEANING"]:
                self._clean()
        return [outputs[name] for name in names]

    @contextmanager
    def _as_set(self) -> Iterator[None]:
        """Apply the model's settings during the ``with``."""
        torch, settings = self._torch, self._settings
        off = nullcontext()
        on_cuda = self.gpu is not None and not self._simulated
        with (
            torch.inference_mode() if settings["INFERENCE_MODE"] else torch.no_grad(),
            torch.jit.optimized_execution(False) if settings["DISABLE_OPTIMIZED_EXECUTION"] else off,
            torch.backends.cudnn.flags(enabled=False) if on_cuda and settings["DISABLE_CUDNN"] else off,
        ):
            yield

    def _arguments(self, feed: dict[str, Any]) -> list[Any]:
        if self._positions.takes_dict:
            return [feed]
        arguments: list[Any] = [None] * len(self._positions.inputs)
        for name, place in self._positions.inputs.items():
            if name not in feed:
                raise BatchError(
                    f"model '{self.name}': input '{name}' is missing: TorchScript needs all of its arguments, "
                    "also optional inputs",
                    ErrorCode.INVALID_ARG,
                )
            arguments[place] = feed[name]
        return arguments

    def _results(self, returned: Any) -> list[Any]:
        """Return the results of `forward` as a list of tensors and lists of strings."""
        is_tuple = isinstance(returned, tuple)
        results = list(returned) if is_tuple else [returned]
        for i, result in enumerate(results):
            if isinstance(result, self._torch.Tensor):
                continue
            where = f"output at index {i}" if is_tuple else "output"
            if isinstance(result, list):
                if all(isinstance(element, str) for element in result):
                    continue
                raise BatchError(
                    f"PyTorch execute failure: {where} must be of type Tensor or List[str], received "
                    f"List[{type(result[0]).__name__}]"
                )
            raise BatchError(
                f"PyTorch execute failure: {where} must be of type Tensor, List[str] or Tuple containing "
                "one of these two types. It should not be a List / Dictionary of Tensors or a Scalar: "
                f"received {type(result).__name__}"
            )
        return results

    @staticmethod
    def _datatype(result: Any) -> str:
        return _DATATYPES.get(str(result.dtype), "INVALID")

    def _checked(self, name: str, results: list[Any]) -> Any:
        place = self._positions.outputs[name]
        if place >= len(results):
            raise BatchError(
                f"The output {name} in the model configuration refers to an output index which doesn't "
                f"exist. This model has {len(results)} outputs",
                ErrorCode.INVALID_ARG,
            )
        result = results[place]
        is_text = isinstance(result, list)
        datatype = "BYTES" if is_text else self._datatype(result)
        if datatype != self._datatypes[name]:
            raise BatchError(
                f"configuration expects datatype TYPE_{self._datatypes[name]} for output '{name}', model "
                f"provides TYPE_{datatype}" + (f" ({result.dtype})" if datatype == "INVALID" else ""),
                ErrorCode.INVALID_ARG,
            )
        if is_text:
            return result
        if not result.ndim:
            raise BatchError(f"output '{name}' is a scalar which is not supported.", ErrorCode.INVALID_ARG)
        return result.detach().contiguous()

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


class ModuleModel:
    """One version of a model that is a Python module; every instance imports its file and has its own module."""

    auto_complete_config = None

    def __init__(self, files: VersionFiles) -> None:
        names = [name for name in (files.filename, "model.py", "model.pt") if name]
        file = next((files.folder / name for name in names if (files.folder / name).is_file()), None)
        if file is None:
            raise BackendError(f"No model found in {files.folder}/{names}")
        self._file, self._files = file, files
        self.warnings: tuple[str, ...] = ()

    def make_instance(self, arguments: dict[str, str]) -> ModuleInstance:
        config = json.loads(arguments["model_config"])
        file_models.refuse_parts(config)
        settings = settings_of(config)
        self.warnings = parameter_warnings(config)
        kind, number = arguments["model_instance_kind"], int(arguments["model_instance_device_id"])
        inputs, outputs = ({t["name"]: i for i, t in enumerate(config[of])} for of in ("input", "output"))
        gpu, own = number if kind == "GPU" else None, OwnGPU()
        # The model's code sees a simulated GPU as a CUDA device.
        device = f"cuda:{gpu}" if gpu is not None and simulated_gpus() else device_of(kind, number)
        modules = self._files.new_modules() if self._file.suffix == ".py" else None
        with own.current():
            if modules is None:
                module = load(self._file, config["name"], kind, number)
            else:
                module = _instantiate(modules.load(self._file.stem, self._file), self._file, device)
            module = (module if device is None else module.to(device)).eval()
        return ModuleInstance(own, modules, module, config, TensorPositions(inputs, outputs), settings, gpu)


def _instantiate(loaded: Any, file: Path, device: str | None) -> Any:
    """Instantiate the first module class of the file, and load its weights."""
    torch = runtime()
    classes = [value for value in map(loaded.__dict__.get, dir(loaded)) if isinstance(value, type)]
    module_class = next((value for value in classes if issubclass(value, torch.nn.Module)), None)
    if module_class is None:
        raise BackendError(f"Cannot find a subclass of torch.nn.Module in {file.name}")
    module = module_class()
    weights = file.with_suffix(".pt")
    if weights.is_file():
        module.load_state_dict(torch.load(weights, map_location=device, weights_only=True))
    return module


class ModuleInstance(TorchInstance):
    """One instance of a Python module, with its own GPU state and its own imported modules."""

    def __init__(self, own: OwnGPU, modules: Modules | None, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._simulated = False  # its code uses the simulated GPU like a real one
        self._own, self._modules = own, modules

    def execute(self, requests: list[InferenceRequest]) -> list[InferenceResponse]:
        """Run a batch on the instance's GPU."""
        with self._own.current():
            return super().execute(requests)

    def finalize(self) -> None:
        with self._own.current():
            super().finalize()
        if self._modules is not None:
            self._modules.forget()

    def _converted(self, tensor: Tensor) -> Any:
        if tensor._datatype in ("BYTES", "BF16"):
            return self._torch.from_dlpack(tensor.to_dlpack())  # for BYTES this raises the same error as on Triton
        return super()._converted(tensor)

    def _results(self, returned: Any) -> list[Any]:
        results = list(returned) if isinstance(returned, (list, tuple)) else [returned]
        if len(results) < len(self._names):
            raise IndexError(f"forward returned {len(results)} outputs, expected {len(self._names)}")
        return results

    def _checked(self, name: str, results: list[Any]) -> Any:
        return results[self._positions.outputs[name]].detach().contiguous()

    def _tensor(self, name: str, result: Any) -> Tensor:
        return Tensor.from_dlpack(name, result)


def _archive_instance(file: Path, config: dict[str, Any], instance: str, settings: dict[str, bool]) -> ArchiveInstance:
    """Load an archive, and check the configuration against it."""
    try:
        if config.get("sequence_batching"):
            raise BackendError("Sequence batching is not supported yet.")
        loader = torch_archives.loaded_archive(runtime(), file)
        names = TensorPositions(*torch_archives.archive_positions(loader, config, instance))
    except Exception as error:  # PyTorch's exceptions have no common base class
        why = str(error).strip().partition("\n")[0] or type(error).__name__
        if not isinstance(error, BackendError):
            wrong = other_format(file).replace("TorchScript", "an archive of AOTInductor")
            why = f"{file.name}: {why if zipfile.is_zipfile(file) else wrong} (PyTorch {runtime().__version__})"
        problem = f'Failed to create ModelInstanceState for model "{config["name"]}": {why}'
        raise BackendError(problem) from error
    return ArchiveInstance(loader, config, names, settings, instance)


class ArchiveInstance(TorchInstance):
    """One instance of an archive, whose name is in its errors."""

    def __init__(
        self, loader: Any, config: dict[str, Any], names: TensorPositions, settings: dict[str, bool], instance: str
    ) -> None:
        super().__init__(lambda *tensors: tuple(loader.run(list(tensors))), config, names, settings, None)
        self._who = f'Inductor model instance "{instance}"'
        self._failed_to_run = f"{self._who} execution failure"
        self._batching = False

    def _converted(self, tensor: Tensor) -> Any:
        if tensor._datatype == "BYTES":
            raise BatchError(f"{self._failed_to_run}: input '{tensor._name}' has text, which no archive takes")
        return super()._converted(tensor).contiguous()

    def _checked(self, name: str, results: list[Any]) -> Any:
        result, expected = results[self._positions.outputs[name]], self._datatypes[name]
        datatype = self._datatype(result)
        if datatype != expected:
            raise BatchError(
                f'{self._who} output tensor "{name}" has datatype TYPE_{datatype} but model configuration expects '
                f"TYPE_{expected}."
            )
        if not result.ndim:
            raise BatchError(f'{self._who} output tensor "{name}" is a scalar which is not supported.')
        return result.detach().contiguous()
