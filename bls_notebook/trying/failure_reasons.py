"""Explain why a model failed to load, and which command fixes it. Pure, except that it searches folders for modules."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bls_notebook.engine.exception_text import describe, traceback_of
from bls_notebook.records.visible_text import first_line
from bls_notebook.repository.config.templates import find_templates
from bls_notebook.repository.source.helper_modules import missing_packages, project_folder
from bls_notebook.repository.source.layout import shown_path
from bls_notebook.repository.source.pip_packages import install_advice, needs_gpu

_LONGEST = 240
_GPU = re.compile(
    r"\bcuda\b|nvidia|no gpu|\bgpu:\d|KIND_GPU|cudnn|nvml|\bnccl\b|libcuda|tensorrt|Torch not compiled", re.IGNORECASE
)
_NETWORK = re.compile(
    r"huggingface\.co|hf\.co|Max retries|Connection|getaddrinfo|Name or service|resolve host|urlopen|offline|"
    r"LocalEntryNotFound|couldn't connect|download|Temporary failure|proxy|ssl",
    re.IGNORECASE,
)
_HUB = re.compile(r"(?:from_pretrained\(|for '|repo_id[=:] ?'?|models?[/ ]')([\w.-]+/[\w.-]+)")
_NO_MODULE = re.compile(r"No module named '([\w.]+)'")


@dataclass(frozen=True)
class FailureReason:
    """Reason why a model is not real, and the remedy, with code in backticks; `kind` is the category."""

    why: str
    remedy: str
    kind: str = ""


def again(name: str) -> str:
    """Return the line that loads the real model."""
    return f"%tritonrepo reload {name}"


def missing_file(name: str, file: Path, pointer: bool) -> FailureReason:
    """The backend's model file is missing, or a Git LFS pointer."""
    short = f"{file.parent.name}/{file.name}"
    if pointer:
        folder = shown_path(file.parent)
        return FailureReason(
            f"{short} is a Git LFS pointer, not the file",
            f"`!git -C {folder} lfs pull --include '*'`, then `{again(name)}`", "file",
        )  # fmt: skip
    return FailureReason(f"{short} is missing", f"put it at `{shown_path(file)}`, then `{again(name)}`", "file")


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


def kept_out(name: str) -> FailureReason:
    """The user excluded it from the real models."""
    return FailureReason("not among --real", f"`{again(name)}`", "kept out")


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
    message = first_line(describe(cause).message if cause is not error else str(error), _LONGEST)
    message = message.removeprefix(f"model {name!r}: ").removeprefix(f"model '{name}': ")
    text = "\n".join(describe(exception).message for exception in _chain(cause))
    reload = f"`{again(name)}`"
    module = next((missing for exception in _chain(cause) if (missing := _module(exception))), "")
    if module:
        return _of_module(name, module, source, top)
    variable = _environment(cause)
    if variable:
        return FailureReason(
            f"needs the environment variable {variable}", f"`%env {variable}=VALUE`, then {reload}", "env"
        )
    not_found = next((e for e in _chain(cause) if isinstance(e, FileNotFoundError) and e.filename), None)
    file = None if not_found is None else not_found.filename
    if not_found is not None and _raised_in(not_found, "subprocess") and "/" not in str(file):
        return FailureReason(f"needs the program {file}", f"install it, then {reload}", "file")
    fill = to_fill(name, text if file is None else os.fspath(file), parameters or {}, file is not None)
    if file is not None:
        remedy = f"set its path with {fill}, or put it there, then {reload}" if fill else f"put it there, then {reload}"
        return FailureReason(f"needs the file {os.fspath(file)}", remedy, "file")
    if fill:
        return FailureReason(message, f"try again with {fill}", "template")
    if _NETWORK.search(text) and not _GPU.search(message):
        hub = _HUB.search(text)
        needed = f"{hub[1]} from the network" if hub else "something from the network"
        return FailureReason(f"probably needs {needed}: {message}", f"with network access: {reload}", "network")
    if _GPU.search(text):
        return FailureReason(f"probably needs a GPU ({gpu}): {message}", f"on a machine with a GPU: {reload}", "gpu")
    return FailureReason(message, f"fix it, then {reload}", "error")


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
    chain: list[BaseException] = []
    while error is not None and error not in chain and len(chain) < 16:
        chain.append(error)
        yield error
        error = error.__cause__ or error.__context__


def _module(error: BaseException) -> str:
    if not isinstance(error, ImportError):
        return ""
    if isinstance(error, ModuleNotFoundError) and isinstance(error.name, str):
        return error.name
    match = _NO_MODULE.search(describe(error).message)
    return match[1] if match else ""


def _of_module(name: str, module: str, source: Path, top: Path) -> FailureReason:
    reload = f"`{again(name)}`"
    first = module.partition(".")[0]
    module_folder = project_folder(first, source.parent, top)
    if module_folder is not None:
        place = shown_path(module_folder)
        return FailureReason(
            f"imports {module}, which is in {place}",
            f"`import sys; sys.path.insert(0, {place!r})`, then {reload}", "module",
        )  # fmt: skip
    if first in sys.modules and module != first:  # another version or another package of this name
        return FailureReason(
            f"the installed {first} has no {module}", f"install a version of {first} that has it, then {reload}",
            "package",
        )  # fmt: skip
    modules = [module, *(m for m in missing_packages(source, top) if m != first)]
    gpu = f" ({', '.join(on_gpu)}: only with a GPU)" if (on_gpu := [*filter(needs_gpu, modules)]) else ""
    packages = f"the package {module} is" if len(modules) == 1 else f"the packages {', '.join(modules)} are"
    return FailureReason(
        f"{packages} missing{gpu}", f"{install_advice(modules, '%pip install')}; then {reload}", "package"
    )


def _environment(error: BaseException) -> str:
    """Return the name of the variable if `os.environ[...]` raised the error, else an empty string."""
    if type(error) is not KeyError or not error.args or not isinstance(error.args[0], str):
        return ""
    return error.args[0] if _raised_in(error, "os") else ""


def _raised_in(error: BaseException, module: str) -> bool:
    last = traceback_of(error)
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_globals.get("__name__") == module
