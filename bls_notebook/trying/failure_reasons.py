"""Explain why a model failed to load, and which command fixes it. Pure, except that it searches folders for modules."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bls_notebook.engine.exception_text import describe, traceback_of
from bls_notebook.records.visible_text import first_line
from bls_notebook.repository.config.templates import find_templates
from bls_notebook.repository.source.layout import shown_path
from bls_notebook.repository.source.pip_packages import install_advice

from .missing_modules import missing_modules, project_folder

_LONGEST = 240
_API = "triton_python_backend_utils"
_INSTALLED = re.compile(r"/(?:site|dist)-packages/")
_GPU_NAMES = frozenset({"cuda", "cupy_backends", "pycuda", "pynvml"})  # parts of dotted names
_GPU_CLASSES = frozenset(
    {"torch.AcceleratorError", "torch.OutOfMemoryError", "bls_notebook.devices.device.DeviceError"}
)
_GPU_FUNCTIONS = frozenset({"_validate_device", "validate_cuda_device"})  # of torch.serialization
_NETWORK_CLASSES = frozenset({
    "aiohttp.client_exceptions.ClientError", "botocore.exceptions.BotoCoreError", "builtins.ConnectionError",
    "grpc.RpcError", "http.client.HTTPException", "httpcore.TransportError", "httpx.HTTPError",
    "huggingface_hub.errors.LocalEntryNotFoundError", "huggingface_hub.errors.OfflineModeIsEnabled",
    "requests.exceptions.RequestException", "socket.gaierror", "socket.herror", "ssl.SSLError",
    "urllib.error.URLError", "urllib3.exceptions.HTTPError",
})  # fmt: skip
_HUBS = frozenset({"diffusers", "huggingface_hub", "transformers"})  # packages that load models from a hub


@dataclass(frozen=True)
class FailureReason:
    """Reason why a model is not real, and the remedy, with code in backticks; `kind` is the category.

    `broken`: the model's files or code are at fault, as opposed to something that is missing on this machine.
    `unknown`: a file outside of the project is missing, which may exist on a server.
    """

    why: str
    remedy: str
    kind: str = ""
    broken: bool = False
    unknown: bool = False


def again(name: str) -> str:
    """Return the line that loads the real model."""
    return f"%tritonrepo reload {name}"


def missing_file(name: str, file: Path, pointer: bool, code: bool = False) -> FailureReason:
    """The backend's model file is missing, or a Git LFS pointer; `code`: it is source, not weights."""
    short = f"{file.parent.name}/{file.name}"
    if pointer:
        folder = shown_path(file.parent)
        return FailureReason(
            f"{short} is a Git LFS pointer, not the file",
            f"`!git -C {folder} lfs pull --include '*'`, then `{again(name)}`", "file",
        )  # fmt: skip
    return FailureReason(f"{short} is missing", f"put it at `{shown_path(file)}`, then `{again(name)}`", "file", code)


def no_backend(name: str, backend: str, file: Path | None, exists: bool) -> FailureReason:
    """The backend is not available in this process."""
    lacks = "" if exists or file is None else f", and {file.parent.name}/{file.name} is missing"
    if not backend:
        return FailureReason(
            "config.pbtxt names no backend, and the files do not imply one", f"name it in `{name}/config.pbtxt`, "
            f"then `{again(name)}`", "backend",
        )  # fmt: skip
    return FailureReason(
        f"needs the {backend} backend, which runs only on a server{lacks}",
        f"write a model in its place: `%%tritonmodel {name}`", "backend",
    )  # fmt: skip


def without_steps(name: str, steps: Sequence[str]) -> FailureReason:
    """Steps of an ensemble are not loaded."""
    listed = f"its step {steps[0]} is" if len(steps) == 1 else f"its steps {', '.join(steps)} are"
    return FailureReason(f"{listed} not loaded", f"fix {steps[0]}, then `{again(name)}`", "steps")


def too_slow(name: str, seconds: float) -> FailureReason:
    """Its import or `initialize` exceeded the time limit."""
    longer = f"--load-timeout {max(60, round(seconds * 5))}s"
    return FailureReason(
        f"did not load within {seconds:g} s (it may be waiting for the network)",
        f"`{again(name)}` has no time limit; or try again with `{longer}`", "time",
    )  # fmt: skip


def of_error(
    name: str, error: BaseException, source: Path, top: Path, gpu: str, parameters: Mapping[str, str] | None = None
) -> FailureReason:
    """Return the reason for a load error, whose cause is the exception of the model's code.

    `source` is the model's main file, `top` the outermost folder of the project, `gpu` describes this
    machine's GPUs. `--fill` can set the configuration's `parameters`.
    """
    cause = error.__cause__ or error
    chain = list(_chain(cause))
    text = [describe(exception).message for exception in chain]
    message = first_line(text[0] if cause is not error else str(error), _LONGEST)
    message = message.removeprefix(f"model {name!r}: ").removeprefix(f"model '{name}': ")
    if text[-1] not in text[0]:
        message += f" (from {first_line(text[-1], _LONGEST)})"
    reason = _of_chain(name, chain, source, top, gpu, parameters or {})
    return replace(reason, why=": ".join(filter(None, (reason.why, message))))


def _of_chain(
    name: str, chain: Sequence[BaseException], source: Path, top: Path, gpu: str, parameters: Mapping[str, str]
) -> FailureReason:
    """Return the reason by the types and origins of exceptions; `why` is empty if these say nothing."""
    reload = f"`{again(name)}`"
    for error in chain:
        module = error.name if isinstance(error, ModuleNotFoundError) else None
        if isinstance(module, str):
            return _of_module(name, module, source, top)
        raised_in, _, file = _origin(error)
        if isinstance(error, ImportError) and _INSTALLED.search(f"{error.path} {file}") and error.name != _API:
            installed = (error.name or raised_in).partition(".")[0]
            return FailureReason(
                f"an import from the installed {installed} fails", f"install a version that fits, then {reload}",
                "package",
            )  # fmt: skip
        if type(error) is KeyError and raised_in == "os":
            key = error.args[0]
            return FailureReason(f"needs the environment variable {key}", f"`%env {key}=VALUE`, then {reload}", "env")
        if isinstance(error, FileNotFoundError) and error.filename:
            file = str(os.fspath(error.filename))
            if raised_in == "subprocess" and "/" not in file:
                return FailureReason(f"needs the program {file}", f"install it, then {reload}", "file")
            fill = to_fill(name, file, parameters, True)
            remedy = f"set its path with {fill}, or put it there" if fill else "put it there"
            elsewhere = os.path.isabs(file) and not Path(file).is_relative_to(top)
            guess = ", which is missing here and may exist on your server" * elsewhere
            broken = not (fill or elsewhere)
            return FailureReason(f"needs the file {file}{guess}", f"{remedy}, then {reload}", "file", broken, elsewhere)
    if fill := to_fill(name, "\n".join(describe(error).message for error in chain), parameters, False):
        return FailureReason("", f"try again with {fill}", "template")
    categories = set(map(_category, chain))
    if "gpu" in categories:
        return FailureReason(f"probably needs a GPU ({gpu})", f"on a machine with a GPU: {reload}", "gpu")
    if "network" in categories:
        return FailureReason("a request over the network failed", f"once it can succeed: {reload}", "network")
    if "hub" in categories:
        return FailureReason("probably needs files from a hub", f"with access to the hub: {reload}", "network")
    return FailureReason("", f"fix it, then {reload}", "error", True)


def to_fill(name: str, text: str, parameters: Mapping[str, str], paths: bool) -> str:
    """Return the `--fill` option for the first unfilled template in a text, else an empty string.

    If `paths`, the text is a path, and a parameter that is the path or a folder above it also counts.
    """
    for parameter in parameters.values():
        for template in find_templates(f'name: "{parameter}"') if "${" in parameter else ():
            if template.written in text:
                return f"`--fill {template.key}=VALUE`"
    for key, value in parameters.items():
        if paths and len(value) > 1 and (text == value or text.startswith(value.rstrip("/") + "/")):
            return f"`--fill {name}.{key}=PATH`"
    return ""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and its causes: explicit ones, and handled ones whose text it repeats."""
    chain: list[BaseException] = []
    while error is not None and error not in chain and len(chain) < 16:
        chain.append(error)
        yield error
        cause, context = error.__cause__, error.__context__
        if cause is None and context is not None and not error.__suppress_context__:
            cause = context if (text := describe(context).text) and text in describe(error).text else None
        error = cause


def _category(error: BaseException) -> str:
    """Return ``gpu``, ``network`` or ``hub`` if an exception's class or origin is about it, else an empty string."""
    module, function, _ = _origin(error)
    classes = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    names = {name for dotted in (module, *classes) for name in dotted.split(".")}
    from_torch = module == "torch.serialization" and function in _GPU_FUNCTIONS
    if names & _GPU_NAMES or classes & _GPU_CLASSES or from_torch:
        return "gpu"
    if classes & _NETWORK_CLASSES and not isinstance(error, BrokenPipeError):
        return "network"
    return "hub" * (isinstance(error, OSError) and error.errno is None and module.partition(".")[0] in _HUBS)


def _origin(error: BaseException) -> tuple[str, str, str]:
    """Return the module, function and file that raised an exception; empty if unknown."""
    last = traceback_of(error)
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    code = None if last is None else last.tb_frame.f_code
    return (
        (str(last.tb_frame.f_globals.get("__name__")), code.co_name, code.co_filename) if last and code else ("",) * 3
    )


def _of_module(name: str, module: str, source: Path, top: Path) -> FailureReason:
    reload = f"`{again(name)}`"
    first = module.partition(".")[0]
    module_folder = project_folder(first, source.parent, top)
    if module_folder is not None:
        place = shown_path(module_folder)
        file = module_folder.joinpath(*module.split("."))
        if not file.is_dir() and not file.with_name(f"{file.name}.py").is_file():
            return FailureReason(f"{module} is missing in {place}", f"add it, then {reload}", "module", True)
        return FailureReason(
            f"imports {module}, which is in {place}",
            f"`import sys; sys.path.insert(0, {place!r})`, then {reload}", "module",
        )  # fmt: skip
    if first in sys.modules and module != first:  # another version or another package of this name
        return FailureReason(
            f"the installed {first} has no {module}", f"install a version of {first} that has it, then {reload}",
            "package",
        )  # fmt: skip
    modules = [module, *(m for m in missing_modules(source, top) if m != first)]
    packages = f"the package {module} is" if len(modules) == 1 else f"the packages {', '.join(modules)} are"
    return FailureReason(f"{packages} missing", f"{install_advice(modules, '%pip install')}; then {reload}", "package")
