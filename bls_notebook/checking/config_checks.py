"""Check config.pbtxt against the model's folder, its ONNX graph, its code, and the behavior of a server."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterable, Iterator
from os.path import exists, isfile  # unlike methods of Path, these accept any name
from pathlib import Path

from bls_notebook.backends import environment_path
from bls_notebook.checking import discovery
from bls_notebook.devices import cuda_gpu_count
from bls_notebook.records import (
    MAX_SOURCE,
    StatisticsRecord,
    count,
    duration,
    listed,
    nearest,
    open_regular_file,
    visible,
    why_not_batched,
)
from bls_notebook.repository import gpus_in
from bls_notebook.repository.config import KNOWN_BACKENDS, decisions, environment_parameter, idle_fields, pick_versions
from bls_notebook.repository.source import is_pointer, pointers_in, shown_path, version_folders

from .array_types import KnownArray, array_of
from .checked_model import CONFIG, CheckedModel, data_type, full_shape
from .environments import environment_findings
from .name_scope import last_name
from .python_source import PythonSource
from .records import Finding, finding, names

_CONFIG_LINE = re.compile(r"\bconfig(?:\.pbtxt)?:(\d+):\d+: ")
_BATCH = re.compile(r"first dimension must be -1|does not support batching")
_NAMES = names()
_BACKENDS = frozenset({*KNOWN_BACKENDS, *_NAMES["backends"]})  # in NVIDIA's images, and samples of their sources
_LOAD_FILE = frozenset({*KNOWN_BACKENDS, "tensorflow"})  # backends known to open default_model_filename


def is_model(model: CheckedModel) -> bool:
    """Return whether a folder contains a configuration, or a version with a model's file."""
    return bool(model.text) or discovery.is_model(model.folder)


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
    others = [entry.name for entry in _entries(model.folder) if CONFIG.partition(".")[0] in entry.name.lower()]
    if others and CONFIG not in others and not model.text and not model.problem and model.place is None:
        yield finding("config-unread", model.name, shown_path(model.folder), name=others[0])
    backend = model.given.backend
    if backend not in _BACKENDS and (close := nearest(backend, _BACKENDS)):
        yield model.in_config("backend-unknown", "backend", value=backend, close=close)
    if not served:
        yield _no_version(model, list(folders))
    if model.config.version_policy.HasField("specific"):
        for version in model.config.version_policy.specific.versions:
            if version not in folders:
                yield model.in_config("version-missing", "version_policy", version=version)
    if model.misfit:
        rule = "graph-no-batch" if _BATCH.search(model.misfit) else "graph-misfit"
        yield model.in_config(rule, "max_batch_size", what=model.misfit.removeprefix(f"model '{model.name}', "))
    for version in served:
        yield from _version_file_findings(model, folders[version])


def _template_findings(model: CheckedModel) -> Iterator[Finding]:
    """Yield one finding about all unfilled templates, because there are often dozens."""
    keys = list(dict.fromkeys(template.written for template in model.templates))
    unread = [template for template in model.templates if not template.quoted]
    first = (unread or model.templates)[0]
    rule = "template-open" if unread else "template-open:quoted"
    facts = {"count": count(len(keys), "template"), "listed": listed(keys, 5), "key": first.key}
    yield finding(rule, model.name, model.where, first.line, **facts)


def _config_refused(model: CheckedModel) -> Finding:
    place = _CONFIG_LINE.search(model.problem)
    words = model.problem.removeprefix(f"model '{model.name}': ")
    words = _CONFIG_LINE.sub("", words).removeprefix("config.pbtxt: ")
    what, _, mend = words.partition("; the line is: ")[0].partition("; ")
    line = int(place[1]) if place else 0
    for name in () if line else re.findall(r"'([^']*)'", what):  # the name that occurs once is the wrong one
        before, _, after = model.text.partition(f'"{name}"')
        line = before.count("\n") + 1 if after and f'"{name}"' not in after else line
    others = [entry.name for entry in _entries(model.folder) if CONFIG.partition(".")[0] in entry.name]
    if others and CONFIG not in others:
        what += f"; there is {others[0]}, which a server does not read"
        mend = f"Rename {others[0]} to {CONFIG}, or copy it."
    why = "The server refuses to load it."
    return finding("config-refused", model.name, model.where, line, what=what, why=why, mend=mend)


def _no_version(model: CheckedModel, versions: list[int]) -> Finding:
    folders = [entry.name for entry in _entries(model.folder) if entry.is_dir()]
    rule = "version-none:ensemble" if model.is_ensemble else "version-none"
    rule = "version-none:file" if (model.folder / "model.py").is_file() else rule
    rule = "version-none:policy" if versions else rule
    others = f"; its folders are {', '.join(folders[:6])}" if folders else ""
    return finding(rule, model.name, shown_path(model.folder), versions=", ".join(map(str, versions)), others=others)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "__")))
    except OSError:
        return []


def _version_file_findings(model: CheckedModel, folder: Path) -> Iterator[Finding]:
    filename = model.config.default_model_filename
    known = model.config.backend in _LOAD_FILE
    file = folder / filename
    if filename and known and not model.problem and not (isfile if model.is_python else exists)(file):
        entries = [entry.name for entry in _entries(folder)]
        fits = any(Path(entry).suffix == Path(filename).suffix for entry in entries)
        yield finding(
            "file-missing", model.name, shown_path(folder), filename=filename,
            what=f"; there is {', '.join(entries[:4])}" if entries else ": the folder is empty",
            backend=model.config.backend,
            mend=", or set default_model_filename to the existing file." if fits else ".",
        )  # fmt: skip
    elif known and not model.problem and not is_pointer(file) and (why := _damage(model.config.backend, file)):
        yield finding("file-damaged", model.name, shown_path(file), name=file.name, why=why)
    for entry in _entries(folder):
        if why := _unread(entry):
            yield finding("file-unread", model.name, shown_path(entry), name=visible(entry.name), why=why)
    for file in pointers_in(folder):
        yield finding("file-lfs-pointer", model.name, shown_path(file), name=file.name)


def _damage(backend: str, file: Path) -> str:
    """Return why a backend cannot load a model file; empty if it may."""
    if not isfile(file):
        return ""
    try:
        if backend == "pytorch" and file.name != "model.py":
            from bls_notebook.engines.pytorch import other_format

            with open_regular_file(file):
                return other_format(file)
        if backend == "onnxruntime":
            from bls_notebook.engines.onnx_graph import is_damaged

            return "it is no ONNX graph" if is_damaged(file) else ""
    except OSError:
        pass  # see `_unread`
    return ""


def _unread(entry: Path) -> str:
    """Return why an entry of a version folder was not read; empty if it was, or is a folder."""
    try:
        if not entry.is_dir():
            with open_regular_file(entry) as file:
                if entry.suffix == ".py" and os.fstat(file.fileno()).st_size > MAX_SOURCE:
                    return f"it has more than {MAX_SOURCE:,} bytes"
    except OSError as error:
        return error.strerror or str(error)
    return ""


def field_findings(model: CheckedModel, release: str = "") -> Iterator[Finding]:
    """Yield fields that have no effect, or only with options of the server."""
    batching, groups = model.given.dynamic_batching, model.given.instance_group
    if batching.priority_queue_policy and not batching.priority_levels:
        yield model.in_config("field-idle:levels", "dynamic_batching.priority_queue_policy")
    policies = [("default_queue_policy", batching.default_queue_policy)]
    policies += [("priority_queue_policy", policy) for policy in batching.priority_queue_policy.values()]
    for name, policy in policies:
        if policy.allow_timeout_override and not policy.default_timeout_microseconds:
            yield model.in_config("field-idle:timeout", f"dynamic_batching.{name}")
            break
    if model.given.response_cache.enable:
        yield model.in_config("field-cache", "response_cache")
        if (code := model.newest()) is not None and "TritonError" in code.words:
            yield model.in_config("cache-errors", "response_cache")
    packed = environment_path(environment_parameter(model.given), model.folder)
    options = {"process"} if packed is not None and packed.exists() else set[str]()
    for path, why, here in idle_fields(model.config, options if model.serving is None else model.serving.options):
        rule = "field-idle:here" if here else "field-idle:nowhere"
        rule = "field-rate-limiter" if path == "instance_group.rate_limiter" else rule
        parameter = path.startswith("parameters.")
        field = "parameters.key" if parameter else path
        yield model.in_config(rule, field, path.partition(".")[2] if parameter else None, name=path, why=why)
    if groups and all(group.passive for group in groups):
        yield model.in_config("instances-passive", "instance_group")
    names = [tensor.name for tensor in model.given.input]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield model.in_config("input-duplicate", "input.name", value=name)
    for state in model.given.sequence_batching.state:
        if not state.initial_state and data_type(state) != "TYPE_STRING":
            yield model.in_config("state-arbitrary", "sequence_batching.state.input_name", state.input_name)
    for sample in model.given.model_warmup:
        if not sample.batch_size:
            yield model.in_config("warmup-skipped", "model_warmup.name", value=sample.name)
        elif model.known:
            for name in sorted(sample.inputs.keys() - model.inputs.keys() - model.controls):
                yield model.in_config("warmup-input", "model_warmup.inputs.key", value=name, sample=sample.name)
    if model.is_python:
        yield from _python_backend_findings(model, release)


def gpu_findings(models: Iterable[CheckedModel]) -> Iterator[Finding]:
    """Yield one finding about all models that need more GPUs than this machine has."""
    existing = cuda_gpu_count()
    first, *others = [m for m in models if m.serving is None and gpus_in(m.given) > existing] or (None,)
    if first is not None:
        gpus = count(max(gpus_in(model.given) for model in (first, *others)), "GPU")
        have = f"has {existing}" if existing else "has none"
        also = f" and those of {listed([model.name for model in others], 6)}" if others else ""
        yield first.in_config("device-missing", "instance_group", gpus=gpus, have=have, also=also)


def _python_backend_findings(model: CheckedModel, release: str) -> Iterator[Finding]:
    code, parameters = model.newest(), model.given.parameters
    known = decisions()["python parameters"]
    for key in parameters:
        close = nearest(key, known)
        if close and key not in known and len(key) > 8 and (code is None or key not in code.words):
            yield model.in_config("field-parameter", "parameters.key", value=key, close=close)
    sends = code is None or code.mistake or code.siblings or code.inherits or "get_response_sender" in code.words
    if model.decoupled and not sends:
        yield model.in_config("decoupled-returns", "model_transaction_policy")
    yield from environment_findings(model, release)


_LONG = 1_000_000  # microseconds; a longer queue delay looks like a mistake


def batching_findings(model: CheckedModel, seen: StatisticsRecord | None) -> Iterator[Finding]:
    """Yield reasons why requests are not batched as intended."""
    most, dynamic = model.config.max_batch_size, model.config.HasField("dynamic_batching")
    if seen is not None and (why := why_not_batched(seen)):
        yield finding("batch-not-formed", model.name, model.where, said=why.said, because=why.because, mend=why.mend)
    elif most > 1 and model.config.WhichOneof("scheduling_choice") is None and _plain(model):
        yield model.in_config("batch-no-batcher", "max_batch_size", most=most)
    if dynamic and most < 2 and _only_batches(model):
        yield model.in_config("batch-of-one", "dynamic_batching", most=most)
    delay = model.config.dynamic_batching.max_queue_delay_microseconds
    if dynamic and delay >= _LONG:
        yield model.in_config(
            "batch-long-delay", "dynamic_batching.max_queue_delay_microseconds", duration=duration(delay / 1e6)
        )
    yield from _batch_in_dims(model)


def _plain(model: CheckedModel) -> bool:
    """Return whether neither a backend nor the model itself adds a batcher."""
    completes = any(code.completes for code in model.codes.values())
    return model.is_python and not model.decoupled and (model.known or not completes)


def _only_batches(model: CheckedModel) -> bool:
    """Return whether its dynamic batcher has no other use: no ordering, priorities or timeouts."""
    batching = model.given.dynamic_batching
    others = batching.priority_levels or batching.preserve_ordering or batching.priority_queue_policy
    policy = batching.default_queue_policy
    return not (others or policy.max_queue_size or policy.default_timeout_microseconds)


def _batch_in_dims(model: CheckedModel) -> Iterator[Finding]:
    """Yield inputs whose `dims` contain a batch of images, although max_batch_size adds a batch dimension."""
    most = model.config.max_batch_size
    for name, tensor in model.inputs.items():
        dims = list(tensor.dims)
        image = most > 0 and len(dims) == 4 and dims[0] == -1 and (dims[1] in (1, 3) or dims[3] in (1, 3))
        if image and -1 not in dims[1:]:
            yield model.in_config("batch-in-dims", "input.name", value=name, dims=dims, most=most, rest=dims[1:])


def tensor_findings(model: CheckedModel) -> Iterator[Finding]:
    """Yield tensors about which code and configuration of a Python model disagree."""
    code = model.newest()
    if code is None or not model.known or code.mistake:
        return
    yield from _outputs(model, code)
    yield from _inputs(model, code)
    most = model.config.max_batch_size
    for name, line in code.first_rows:
        if name in model.inputs and most > 1:
            yield model.in_code("batch-first-row", code, line, name=name, most=most)
    for name, line, rank in _ranks(code):
        shape = full_shape(model, model.inputs[name]) if name in model.inputs else []
        if shape and len(shape) != rank:
            batch = f" max_batch_size {most} puts the batch before `dims`." if most else ""
            yield model.in_code(
                "input-rank", code, line, name=name, rank=count(rank, "dimension"), shape=shape, batch=batch
            )


def _ranks(code: PythonSource) -> Iterator[tuple[str, int, int]]:
    """Yield inputs whose arrays must have a certain number of dimensions, with the line and this number."""
    tests = (n.test for n in ast.walk(code.tree) if isinstance(n, (ast.If, ast.IfExp, ast.While)))
    if any(word in ast.unparse(test) for test in tests for word in (".shape", ".ndim")):
        return  # the code may handle several shapes
    for scope in code.scopes:
        for node in scope.nodes:
            expression, rank = _rank_of(node)
            array = array_of(scope, expression) if rank else KnownArray()
            if array.whole and not scope.inside(node, (ast.Try, ast.If, ast.Match, ast.IfExp)):
                yield array.input, getattr(node, "lineno", 0), rank


def _rank_of(node: ast.AST) -> tuple[ast.expr | None, int]:
    """Return the array whose number of dimensions a statement or call needs, and this number."""
    left: ast.expr | None = None
    right: ast.expr | None = None
    if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], ast.Eq):
        left, right = node.test.left, node.test.comparators[0]
        if isinstance(left, ast.Call) and last_name(left.func) == "len" and left.args:  # len(x.shape) == 3
            left = left.args[0]
            right = right if isinstance(right, ast.Constant) else None
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):  # height, width = x.shape
        left, right = node.value, node.targets[0]
    elif isinstance(node, ast.Call) and last_name(node.func) == "transpose" and isinstance(node.func, ast.Attribute):
        if ast.unparse(node.func.value) in ("np", "numpy"):
            return (node.args[0], _length(node.args[1])) if len(node.args) == 2 else (None, 0)
        axes = node.args[0] if len(node.args) == 1 else ast.Tuple(node.args)
        return node.func.value, _length(axes)
    if isinstance(left, ast.Attribute) and left.attr in ("shape", "ndim"):
        constant = right.value if isinstance(right, ast.Constant) else None
        return left.value, constant if isinstance(constant, int) else _length(right)
    return None, 0


def _length(node: ast.expr | None) -> int:
    """Return the length of a tuple or list; 0 if unknown."""
    items = node.elts if isinstance(node, (ast.Tuple, ast.List)) else []
    return 0 if any(isinstance(item, ast.Starred) for item in items) else len(items)


def _made_rank(call: ast.Call) -> int:
    """Return the number of dimensions of the array that a call such as `np.zeros((3, 4))` makes; 0 if unknown."""
    node, rank = call.args[0] if call.args else None, 0
    if last_name(call.func) not in ("array", "asarray"):
        return int(isinstance(node, ast.Constant)) or _length(node)
    while isinstance(node, (ast.List, ast.Tuple)) and node.elts:
        node, rank = node.elts[0], rank + 1
    is_scalar = isinstance(node, ast.Call) and last_name(node.func) in ("float", "int", "str", "len", "bool", "encode")
    return rank if is_scalar or isinstance(node, (ast.Constant, ast.JoinedStr)) else 0


def _outputs(model: CheckedModel, code: PythonSource) -> Iterator[Finding]:
    outputs = code.outputs
    names = {name for name, _ in outputs.names}
    for name, line in sorted(outputs.names, key=lambda pair: pair[1]):
        if name not in model.outputs:
            close = _did_you_mean(name, model.outputs.keys() - names)
            yield model.in_code("output-undeclared", code, line, name=name, close=close, quoted=json.dumps(name))
            continue
        tensor, array = model.outputs[name], code.arrays.get((name, line), KnownArray())
        declared, dtype = data_type(tensor), model.dtype_of(array)
        if dtype not in ("", declared):
            yield model.in_code("output-dtype", code, line, name=name, dtype=dtype, declared=declared)
        most, rank = model.config.max_batch_size, len(tensor.dims)
        if most and array.made is not None and _made_rank(array.made) == rank > 0 and not tensor.HasField("reshape"):
            yield model.in_code("output-no-batch", code, line, name=name, rank=count(rank, "dimension"), most=most)
    if not outputs.certain:
        return
    for name in model.outputs:
        if name not in names:
            close = _did_you_mean(name, names - model.outputs.keys())
            yield model.in_config("output-never-made", "output.name", value=name, close=close)


def _inputs(model: CheckedModel, code: PythonSource) -> Iterator[Finding]:
    declared = {*model.inputs, *model.controls}
    reported: set[str] = set()
    for read in code.reads:
        tensor = model.inputs.get(read.name)
        if tensor is not None and tensor.optional and not read.guarded:
            yield model.in_code("input-optional", code, read.line, name=read.name)
        if read.name in declared or read.guarded or read.name in reported:
            continue
        reported.add(read.name)
        if model.config.HasField("sequence_batching"):
            mend = f"Add it to `input`, or to `control_input [ {{ name: {json.dumps(read.name)} ... }} ]`."
        else:
            mend = "Declare it in config.pbtxt, or correct the name."
        close = _did_you_mean(read.name, declared - {known.name for known in code.reads})
        yield model.in_code("input-undeclared", code, read.line, name=read.name, close=close, mend=mend)


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = nearest(name, sorted(known))
    return f" (did you mean {close!r}?)" if close else ""
