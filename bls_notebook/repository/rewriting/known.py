"""What functions and methods do beside giving an answer, as far as their names tell."""

from __future__ import annotations

import builtins
from typing import Literal

Kind = Literal["pure", "fresh", "mutates", "log", "unknown"]
"""``fresh``: pure, and shares no memory; ``mutates``: perhaps changes its arguments, or its object."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PURE_BUILTINS = _words(
    "abs all any ascii bin bool bytearray bytes callable chr complex dict divmod enumerate filter float "
    "format frozenset getattr hasattr hash hex id int isinstance issubclass iter len list map max "
    "memoryview min oct ord pow range repr reversed round set slice sorted str sum super tuple type zip"
)
_FRESH_BUILTINS = _words("abs bool bytes float int len list dict set str sum tuple repr round")
_ERRORS = frozenset(
    n for n, v in vars(builtins).items() if isinstance(v, type) and issubclass(v, BaseException)
)

_TRITON = ("triton_python_backend_utils.", "c_python_backend_utils.")
_TRITON_PURE = _words(
    "Tensor InferenceRequest InferenceResponse TritonError TritonModelException PreferredMemory "
    "get_input_tensor_by_name get_output_tensor_by_name get_input_config_by_name "
    "get_output_config_by_name triton_string_to_numpy triton_to_numpy_type numpy_to_triton_type "
    "using_decoupled_model_transaction_policy serialize_byte_tensor deserialize_bytes_tensor "
    "Tensor.from_dlpack get_model_dir"
)
_NUMPY_WRITES = _words(
    "copyto put place putmask put_along_axis fill_diagonal save savez savez_compressed savetxt seterr "
    "seterrcall set_printoptions load fromfile memmap loadtxt genfromtxt add.at subtract.at"
)
_NUMPY_FRESH = _words(
    "array zeros ones full empty zeros_like ones_like full_like empty_like concatenate stack vstack hstack "
    "arange linspace eye mean sum max min argmax argmin argsort sort where exp sqrt log clip float32 float64 "
    "int32 int64 uint8 dot matmul tile repeat pad add multiply subtract divide prod std var all any"
)
_PURE_LIBRARIES = (
    "math.", "cmath.", "operator.", "itertools.", "functools.", "collections.", "base64.", "struct.",
    "re.", "string.", "copy.", "html.", "statistics.", "unicodedata.", "hashlib.", "textwrap.",
    "binascii.", "zlib.", "dataclasses.", "typing.", "io.", "asyncio.gather", "json.dumps",
    "json.loads", "time.sleep",
)  # fmt: skip
# Their functions compute; some write to what they are given.
_LIBRARIES = ("cv2.", "torch.", "torchvision.", "scipy.", "PIL.", "skimage.", "cupy.", "pandas.", "sklearn.")
_STATEFUL = (
    "rand", "seed", "normal", "bernoulli", "multinomial", "dropout", "save", "load", "write", "read",
    "open", "show", "wait", "video", "set_", "init", "cuda", "manual", "compile", "hub",
    "distributed", "imencode_file", "register", "enable", "synchronize", "destroy",
)  # fmt: skip

_PURE_METHODS = _words(
    # of pb_utils
    "as_numpy name to_dlpack is_cpu shape triton_dtype has_error error message output_tensors inputs "
    "requested_output_names request_id correlation_id flags timeout parameters preferred_memory trace "
    "code is_cancelled set_release_flags model_name get "
    # of text and bytes
    "encode decode strip lstrip rstrip split rsplit splitlines join replace lower upper title "
    "startswith endswith format find rfind index count isdigit isspace partition rpartition zfill ljust "
    "rjust center casefold hex "
    # of containers
    "items keys values union intersection difference issubset issuperset most_common "
    # of arrays
    "astype reshape tolist item transpose squeeze ravel flatten view swapaxes sum mean max min argmax argmin "
    "argsort any all std var prod cumsum clip round dot nonzero tobytes repeat take diagonal trace "
    "searchsorted cpu numpy detach contiguous unsqueeze permute size dim float double half long int bool "
    "softmax sigmoid exp log sqrt abs expand unbind chunk topk type to copy clone total_seconds group groups"
)
_FRESH_METHODS = _words(
    "as_text tolist item sum mean max min argmax argmin argsort any all copy clone tobytes has_error "
    "message encode decode flatten decode hex"
)
_MUTATORS = _words(
    "append extend insert add update setdefault pop popleft appendleft remove discard clear sort "
    "reverse fill resize setflags put add_ mul_ copy_ zero_ clamp_ write seek truncate"
)
_LOGS = _words("log_info log_warn log_error log_verbose info warning warn error debug exception critical log")

# What they tell keeps its order, as a log does; requests may be sent meanwhile.
_CLOCKS = frozenset(
    f"time.{clock}{unit}" for clock in ("time", "perf_counter", "monotonic") for unit in ("", "_ns")
) | {"datetime.datetime.now"}


def function_kind(name: str) -> Kind:
    """Return what a function of a library does, by its whole name (``numpy.stack``)."""
    for library in _TRITON:
        if name.startswith(library):
            inside = name[len(library) :]
            return "fresh" if inside in _TRITON_PURE else "log" if inside.startswith("Logger.") else "unknown"
    if name.startswith("builtins."):
        inside = name[9:]
        if inside in _FRESH_BUILTINS or inside in _ERRORS:
            return "fresh"
        return "pure" if inside in _PURE_BUILTINS else "log" if inside == "print" else "unknown"
    if name.startswith("numpy."):
        inside = name[6:]
        if inside in _NUMPY_WRITES or inside.startswith("random."):
            return "unknown"
        return "fresh" if inside in _NUMPY_FRESH else "pure"
    if name.startswith(("logging.", "warnings.warn")) or name in _CLOCKS:
        return "log"
    if name.startswith(_PURE_LIBRARIES):
        return "pure"
    if name.startswith(_LIBRARIES) and not any(word in name.lower() for word in _STATEFUL):
        return "mutates"
    return "unknown"


def method_kind(name: str, of: str) -> Kind:
    """Return what a method does by its name, and by how its object is spelt."""
    if name in _LOGS and "log" in of.lower():
        return "log"
    if name in _FRESH_METHODS:
        return "fresh"
    if name in _PURE_METHODS:
        return "pure"
    return "mutates" if name in _MUTATORS else "unknown"
