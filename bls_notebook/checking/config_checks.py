"""Check config.pbtxt against the model's folder, its ONNX graph, its code, and the behavior of a server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from bls_notebook.records.advice import nearest
from bls_notebook.records.statistics import StatisticsRecord, why_not_batched
from bls_notebook.records.units import count, duration, listed
from bls_notebook.repository.config import pick_versions
from bls_notebook.repository.config.completion import KNOWN_BACKENDS
from bls_notebook.repository.config.templates import line_of
from bls_notebook.repository.source.layout import pointers_in, shown_path, version_folders

from .checked_model import CONFIG, CheckedModel, data_type
from .python_source import Array, PythonSource
from .records import Finding

_CONFIG_LINE = re.compile(r"\bconfig(?:\.pbtxt)?:(\d+):\d+: ")
_BATCH = re.compile(r"first dimension must be -1|does not support batching")
_LOAD_FILE = frozenset({*KNOWN_BACKENDS, "tensorflow"})  # backends known to open default_model_filename


def is_model(model: CheckedModel) -> bool:
    """Return whether a folder contains a configuration or a version."""
    return (model.folder / CONFIG).exists() or bool(model.text or version_folders(model.folder))


def file_findings(model: CheckedModel) -> Iterator[Finding]:
    """Yield reasons why a server cannot read a model."""
    if model.templates:
        yield from _template_findings(model)
    folders = version_folders(model.folder)
    served = pick_versions(model.config, folders) if not model.problem else list(folders)
    # Without a version the backend is unknown: see `_no_version`. Servers up to 25.02 run TensorFlow.
    unknown_backend = not served and not (model.config.backend or model.config.platform)
    unparsed = _CONFIG_LINE.search(model.problem) is not None
    served_elsewhere = unknown_backend or model.config.platform.startswith("tensorflow_")
    if unparsed or (model.problem and not served_elsewhere):
        yield _config_refused(model)
    if not served:
        yield _no_version(model, list(folders))
    if model.config.version_policy.HasField("specific"):
        for version in model.config.version_policy.specific.versions:
            if version not in folders:
                yield model.in_config(
                    "warning", "version-missing", "version_policy",
                    f"version_policy names version {version}, but there is no folder {version}",
                    "The server logs an error and serves the other versions.",
                    f"Add the folder {version}, or remove the number from version_policy.",
                )  # fmt: skip
    if model.misfit:
        yield _graph_finding(model.name, model.where, line_of(model.text, "max_batch_size"), model.misfit)
    for version in served:
        yield from _version_file_findings(model, folders[version])


def _template_findings(model: CheckedModel) -> Iterator[Finding]:
    """Yield one finding about all unfilled templates, because there are often dozens."""
    keys = list(dict.fromkeys(template.written for template in model.templates))
    unread = [template for template in model.templates if not template.quoted]
    first = (unread or model.templates)[0]
    why = (
        "config.pbtxt is not valid until the template has a value."
        if unread
        else "A server passes the text of the template to the model, which uses it as a value."
    )
    yield Finding(
        "error" if unread else "warning", "template-open", model.name,
        f"{count(len(keys), 'template')} not filled: {listed(keys, 5)}", why,
        f"Fill them in the file; in bls_notebook also with `ModelRepository(..., fill={{{first.key!r}: ...}})`.",
        model.where, first.line,
    )  # fmt: skip


def _config_refused(model: CheckedModel) -> Finding:
    place = _CONFIG_LINE.search(model.problem)
    words = model.problem.removeprefix(f"model '{model.name}': ")
    words = _CONFIG_LINE.sub("", words).removeprefix("config.pbtxt: ")
    what, _, mend = words.partition("; the line is: ")[0].partition("; ")
    line = int(place[1]) if place else 0
    others = [entry.name for entry in _entries(model.folder) if CONFIG.partition(".")[0] in entry.name]
    if others and CONFIG not in others:
        what += f"; there is {others[0]}, which a server does not read"
        mend = f"Rename {others[0]} to {CONFIG}, or copy it."
    why = "The server refuses to load it."
    return Finding("error", "config-refused", model.name, what, why, mend, model.where, line)


def _graph_finding(model: str, where: str, line: int, problem: str) -> Finding:
    """Make the finding about a configuration that contradicts its ONNX graph."""
    mend = "Use the graph's `dims`, `data_type` and names in config.pbtxt, or leave them out."
    why = "The server refuses to load the model."
    code = "graph-misfit"
    if _BATCH.search(problem):
        code = "graph-no-batch"
        why = "max_batch_size above 0 requires a batch as the first dimension, but the graph has none. " + why
        mend = (
            "Export the graph with a variable first dimension (`dynamic_axes={'NAME': {0: 'batch'}}`), or "
            "set `max_batch_size: 0` and give the complete shape in `dims`."
        )
    what = problem.removeprefix(f"model '{model}', ")
    return Finding("error", code, model, what, why, mend, where, line)


def _no_version(model: CheckedModel, versions: list[int]) -> Finding:
    mend = "Make a folder named 1 for it"
    mend += (
        ", empty (git keeps none: put a .gitkeep into it)." if model.is_ensemble else " with the model's file in it."
    )
    what = "no version folder"
    if versions:
        what = f"its version_policy selects none of its versions ({', '.join(map(str, versions))})"
        mend = "Change version_policy, or leave it out."
    else:
        if (model.folder / "model.py").is_file():
            what, mend = ("model.py is not in a version folder", "Make a folder named 1, and move model.py into it.")
        others = [entry.name for entry in _entries(model.folder) if entry.is_dir()]
        if others:
            what += f"; its folders are {', '.join(others[:6])}"
    return Finding(
        "error", "version-none", model.name, what, "To load, a model needs a version that its policy selects; a "
        "version is a folder whose name is a number from 1.", mend, shown_path(model.folder),
    )  # fmt: skip


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "__")))
    except OSError:
        return []


def _version_file_findings(model: CheckedModel, folder: Path) -> Iterator[Finding]:
    filename = model.config.default_model_filename
    known = model.config.backend in _LOAD_FILE
    if filename and known and not model.problem and not (folder / filename).exists():
        entries = [entry.name for entry in _entries(folder)]
        yield Finding(
            "error", "file-missing", model.name,
            f"{filename} is missing"
            + (f"; there is {', '.join(entries[:4])}" if entries else ": the folder is empty"),
            f"The {model.config.backend} backend loads this file.",
            f"Put {filename} there" + (", or set default_model_filename to the existing file." if entries else "."),
            shown_path(folder),
        )  # fmt: skip
    for file in pointers_in(folder):
        yield Finding(
            "error", "file-lfs-pointer", model.name, f"{file.name} is a Git LFS pointer, not the file",
            "It contains a few lines of text about a file that Git did not download.", "Run `git lfs pull`.",
            shown_path(file),
        )  # fmt: skip


# Parameters that the Python backend itself reads.
_PARAMETERS = ("EXECUTION_ENV_PATH", "FORCE_CPU_ONLY_INPUT_TENSORS", "TRITON_BATCH_STRATEGY_PATH")


def field_findings(model: CheckedModel) -> Iterator[Finding]:
    """Yield fields that have no effect, or only with options of the server."""
    written = model.given
    yield from _queue_field_findings(model)
    if written.response_cache.enable:
        yield model.in_config(
            "note", "field-cache", "response_cache",
            "its responses are cached only if the server has a cache",
            "A server without a cache computes every response.",
            "Start it with `--cache-config local,size=104857600` (bytes, for all models together).",
        )  # fmt: skip
    for group in written.instance_group:
        if group.HasField("rate_limiter"):
            yield model.in_config(
                "note", "field-rate-limiter", "instance_group.rate_limiter",
                "its rate_limiter has an effect only if the server limits rates",
                "By default a server ignores it.",
                "Start it with `--rate-limit=execution_count`.",
            )  # fmt: skip
            break
    groups = written.instance_group
    if groups and all(group.passive for group in groups):
        yield model.in_config(
            "error", "instances-passive", "instance_group", "all of its instance groups are passive",
            "No instance serves requests: they wait, or are refused.",
            "Remove `passive` from one of them.",
        )  # fmt: skip
    if model.is_python:
        yield from _python_backend_findings(model)
        yield from _environment_path_findings(model)


def _queue_field_findings(model: CheckedModel) -> Iterator[Finding]:
    batching = model.given.dynamic_batching
    if batching.priority_queue_policy and not batching.priority_levels:
        yield model.in_config(
            "warning", "field-idle", "dynamic_batching.priority_queue_policy",
            "priority_queue_policy has no effect without priority_levels",
            "All requests share one queue.",
            "Set priority_levels and default_priority_level, or use default_queue_policy.",
        )  # fmt: skip
    policies = [("default_queue_policy", batching.default_queue_policy)]
    policies += [("priority_queue_policy", policy) for policy in batching.priority_queue_policy.values()]
    for name, policy in policies:
        if policy.allow_timeout_override and not policy.default_timeout_microseconds:
            yield model.in_config(
                "warning", "field-idle", f"dynamic_batching.{name}",
                "allow_timeout_override has no effect without default_timeout_microseconds",
                "A request's timeout can only shorten the policy's timeout, and the policy has none.",
                "Set default_timeout_microseconds to the longest time that a request may wait.",
            )  # fmt: skip
            break


def _environment_path_findings(model: CheckedModel) -> Iterator[Finding]:
    """Yield a finding if EXECUTION_ENV_PATH names a missing file in the model's folder."""
    beside = "$$TRITON_MODEL_DIRECTORY/"
    if "EXECUTION_ENV_PATH" not in model.given.parameters or model.place is not None:
        return
    path = model.given.parameters["EXECUTION_ENV_PATH"].string_value
    if path.startswith(beside) and not (model.folder / path.removeprefix(beside)).exists():
        yield model.in_config(
            "error", "environment-missing", "parameters.value.string_value",
            f"its environment {path.removeprefix(beside)} is not in the model's folder",
            "The server unpacks it before it starts the model; without it, the model does not load.",
            "Create it with `conda pack`, for the Python version of the server's stub, and put it there.", value=path,
        )  # fmt: skip


def _python_backend_findings(model: CheckedModel) -> Iterator[Finding]:
    optimization = model.given.optimization
    for name in ("execution_accelerators", "cuda", "graph"):
        if optimization.HasField(name):
            yield model.in_config(
                "note", "field-idle", f"optimization.{name}", f"optimization.{name} has no effect",
                "The Python backend ignores it.", "Leave it out.",
            )  # fmt: skip
    code = model.newest()
    for key in model.given.parameters:
        close = nearest(key, _PARAMETERS)
        if close and key not in _PARAMETERS and len(key) > 8 and not (code is not None and code.mentions(key)):
            yield model.in_config(
                "warning", "field-parameter", "parameters.key",
                f"the Python backend has no parameter {key!r} (did you mean {close!r}?)",
                "The backend passes unknown parameters to the model, whose code does not mention this one.",
                f"Write {close!r}.", value=key,
            )  # fmt: skip
    own = None if code is None or code.mistake or code.siblings else code.model_class
    if own is None or code is None or own.bases or code.mentions("get_response_sender") or not model.decoupled:
        return
    yield model.in_config(
        "error", "decoupled-returns", "model_transaction_policy",
        "it is decoupled, but its code never gets a response sender",
        "A decoupled model sends responses with `request.get_response_sender()`; responses that `execute` returns "
        "are refused.",
        "Send the responses with it, or remove `decoupled: true`.",
    )  # fmt: skip


_LONG = 1_000_000  # microseconds; a longer queue delay looks like a mistake


def batching_findings(model: CheckedModel, seen: StatisticsRecord | None) -> Iterator[Finding]:
    """Yield reasons why requests are not batched as intended."""
    most, dynamic = model.config.max_batch_size, model.config.HasField("dynamic_batching")
    if seen is not None and (why := why_not_batched(seen)):
        yield Finding("warning", "batch-not-formed", model.name, why.said, why.because, why.mend, model.where)
    elif most > 1 and model.config.WhichOneof("scheduling_choice") is None and _plain(model):
        yield model.in_config(
            "note", "batch-no-batcher", "max_batch_size",
            f"max_batch_size is {most}, but there is no batcher: each request runs alone",
            "Without `dynamic_batching` a server passes one request at a time to `execute`; only a request of "
            "several rows is a batch.",
            "Add `dynamic_batching { }`, so that requests that wait run together.",
        )  # fmt: skip
    if dynamic and most < 2 and _only_batches(model):
        yield model.in_config(
            "warning", "batch-of-one", "dynamic_batching",
            f"dynamic_batching forms no batches: max_batch_size is {most}",
            "With this size, the batcher never combines two requests.",
            "Set max_batch_size to 2 or more (and leave the batch out of `dims`), or remove dynamic_batching.",
        )  # fmt: skip
    delay = model.config.dynamic_batching.max_queue_delay_microseconds
    if dynamic and delay >= _LONG:
        yield model.in_config(
            "warning", "batch-long-delay", "dynamic_batching.max_queue_delay_microseconds",
            f"a single request waits {duration(delay / 1e6)} for others",
            "max_queue_delay_microseconds is in microseconds; a request waits this long unless a preferred batch is "
            "full earlier.",
            "Set at most a few milliseconds, such as 5000.",
        )  # fmt: skip
    yield from _batch_in_dims(model)


def _plain(model: CheckedModel) -> bool:
    """Return whether neither a backend nor the model itself adds a batcher."""
    return model.is_python and not model.decoupled and (model.known or not _completes(model))


def _completes(model: CheckedModel) -> bool:
    return any(code.completes for code in model.codes.values())


def _only_batches(model: CheckedModel) -> bool:
    """Return whether its dynamic batcher has no other use: no ordering, priorities or timeouts."""
    batching = model.given.dynamic_batching
    others = batching.priority_levels or batching.preserve_ordering or batching.priority_queue_policy
    policy = batching.default_queue_policy
    return not (others or policy.max_queue_size or policy.default_timeout_microseconds)


def _batch_in_dims(model: CheckedModel) -> Iterator[Finding]:
    """Yield inputs whose `dims` contain a batch of images, although max_batch_size adds a batch dimension."""
    if model.config.max_batch_size < 1:
        return
    for name, tensor in model.inputs.items():
        dims = list(tensor.dims)
        image = len(dims) == 4 and dims[0] == -1 and (dims[1] in (1, 3) or dims[3] in (1, 3))
        if image and -1 not in dims[1:]:
            yield model.in_config(
                "warning", "batch-in-dims", "input.name",
                f"input {name!r} has dims {dims}: with max_batch_size {model.config.max_batch_size} its "
                "requests need five dimensions",
                "max_batch_size above 0 puts the batch before `dims`; the -1 there is another dimension.",
                f"Leave the batch out: `dims: {dims[1:]}`, or set `max_batch_size: 0`.", value=name,
            )  # fmt: skip


def tensor_findings(model: CheckedModel) -> Iterator[Finding]:
    """Yield tensors about which code and configuration of a Python model disagree."""
    code = model.newest()
    if code is None or not model.known or code.mistake:
        return
    yield from _outputs(model, code)
    yield from _inputs(model, code)
    yield from _only_first_row(model, code)


def _outputs(model: CheckedModel, code: PythonSource) -> Iterator[Finding]:
    outputs = code.outputs
    names = {name for name, _ in outputs.names}
    for name, line in sorted(outputs.names, key=lambda pair: pair[1]):
        if name not in model.outputs:
            yield model.in_code(
                "warning", "output-undeclared", code, line,
                f"the code creates output {name!r}, which config.pbtxt does not "
                f"declare{_did_you_mean(name, model.outputs.keys() - names)}",
                "A server drops it without a warning.",
                f"Declare it: `output [ {{ name: {_quoted(name)} ... }} ]`, or leave it out of the response.",
            )  # fmt: skip
        elif (dtype := model.dtype_of(code.arrays.get((name, line), Array()))) not in (
            "", declared := data_type(model.outputs[name])
        ):  # fmt: skip
            yield model.in_code(
                "warning", "output-dtype", code, line,
                f"output {name!r} is {dtype}, but config.pbtxt declares {declared}",
                "A server does not convert it: clients and calling models get another data type than declared.",
                f"Convert the array with `astype`, or declare {dtype}.",
            )  # fmt: skip
    if not outputs.certain:
        return
    for name in model.outputs:
        if name not in names:
            yield model.in_config(
                "error", "output-never-made", "output.name",
                f"output {name!r} is declared, but no response of model.py has it"
                f"{_did_you_mean(name, names - model.outputs.keys())}",
                "A client that requests it gets a response without it, and fails when it reads it.",
                "Create it in `execute`, or remove it from config.pbtxt.", value=name,
            )  # fmt: skip


def _inputs(model: CheckedModel, code: PythonSource) -> Iterator[Finding]:
    declared = {*model.inputs, *model.controls}
    reported: set[str] = set()
    for read in code.reads:
        if read.name in declared or read.guarded or read.name in reported:
            continue
        reported.add(read.name)
        if model.config.HasField("sequence_batching"):
            mend = f"Add it to `input`, or to `control_input [ {{ name: {_quoted(read.name)} ... }} ]`."
        else:
            mend = "Declare it in config.pbtxt, or correct the name."
        yield model.in_code(
            "error", "input-undeclared", code, read.line,
            f"the code reads input {read.name!r}, which config.pbtxt does not "
            f"declare{_did_you_mean(read.name, declared - {known.name for known in code.reads})}",
            "A request with this input is refused; without it, `get_input_tensor_by_name` returns None, and calling "
            "`as_numpy` on None fails.",
            mend,
        )  # fmt: skip


def _only_first_row(model: CheckedModel, code: PythonSource) -> Iterator[Finding]:
    most = model.config.max_batch_size
    if most < 2:
        return
    for name, line in code.first_rows:
        if name in model.inputs:
            yield model.in_code(
                "warning", "batch-first-row", code, line,
                f"the code uses only row 0 of input {name!r}, but a request may have {most} rows",
                f"max_batch_size is {most}, so the first dimension of every array is the batch. The other rows of a "
                "request are ignored without an error.",
                "Process all rows, or set `max_batch_size: 0` and give the complete shape in `dims`.",
            )  # fmt: skip


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = nearest(name, sorted(known))
    return f" (did you mean {close!r}?)" if close else ""


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '\\"') + '"'
