"""`CheckedModel`: the completed configuration, sources and ONNX graph of one model, read without running code."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from bls_notebook.backends import BackendError
from bls_notebook.engine import ConfigError, LoadedModel
from bls_notebook.records import MAX_SOURCE, read_file, source_text
from bls_notebook.repository import SourcePlace
from bls_notebook.repository.config import (
    ModelConfigMessage,
    Template,
    complete,
    fill_templates,
    lines_of,
    model_config_pb2,
    parse_json,
    pick_versions,
    to_json,
    validate,
)
from bls_notebook.repository.source import ModelSource, imported_files, shown_path, version_folders

from .array_types import KnownArray, dtype_of
from .python_source import PythonSource
from .records import Finding, finding

CONFIG = "config.pbtxt"
_ONNX_FILE = "model.onnx"
_CODING = re.compile(rb"\A([^\n]*\n)?[^\n#]*#.*?coding[:=]|\xef\xbf\xbd")  # or it contains U+FFFD itself
_GPUS = 8  # GPUs of an assumed server, so that a configuration may name GPUs that this machine lacks


@dataclass(frozen=True)
class CheckedModel:
    """One model of a repository, with the facts that checks use."""

    name: str
    folder: Path
    text: str  # of config.pbtxt; empty without one
    config: ModelConfigMessage  # completed; for a model that is not loaded, without auto_complete_config
    given: ModelConfigMessage  # as written
    problem: str = ""  # why a server refuses the configuration
    codes: Mapping[int, PythonSource] = field(default_factory=dict)  # Python files that a server would run, by version
    serving: LoadedModel | None = None
    known: bool = False  # whether `config` has all inputs and outputs
    place: SourcePlace | None = None  # the cell that defines the model
    misfit: str = ""  # why the configuration contradicts the ONNX graph

    @cached_property
    def templates(self) -> tuple[Template, ...]:
        """Unfilled templates of its configuration."""
        return fill_templates(self.text).open if self.text and self.serving is None else ()

    @cached_property
    def _lines(self) -> dict[tuple[tuple[str, ...], str | None], int]:
        return lines_of(self.text)

    @cached_property
    def is_python(self) -> bool:
        """True if Triton's Python backend runs it."""
        return bool(self.config.backend == "python")

    @cached_property
    def is_ensemble(self) -> bool:
        return bool(self.config.platform == "ensemble" or self.config.HasField("ensemble_scheduling"))

    @cached_property
    def decoupled(self) -> bool:
        """True if a request may have any number of responses."""
        return bool(self.config.model_transaction_policy.decoupled)

    @cached_property
    def instances(self) -> int:
        """Number of instances that serve requests."""
        groups = (group for group in self.config.instance_group if not group.passive)
        return sum(max(1, group.count) * max(1, len(group.gpus)) for group in groups)

    @cached_property
    def controls(self) -> frozenset[str]:
        """Names of inputs that the server adds: sequence controls, states, batch inputs."""
        sequence = self.config.sequence_batching
        return frozenset([
            *(control.name for control in sequence.control_input),
            *(state.input_name for state in sequence.state),
            *(name for batch in self.config.batch_input for name in batch.target_name),
        ])  # fmt: skip

    @cached_property
    def inputs(self) -> dict[str, ModelConfigMessage]:
        return {tensor.name: tensor for tensor in self.config.input}

    @cached_property
    def outputs(self) -> dict[str, ModelConfigMessage]:
        return {tensor.name: tensor for tensor in self.config.output}

    @property
    def where(self) -> str:
        """Path of its config.pbtxt, or of its folder without one."""
        if self.place is not None:
            return f"{self.name}/{CONFIG}"
        return shown_path(self.folder / CONFIG if self.text else self.folder)

    def dtype_of(self, array: KnownArray) -> str:
        """Return an array's data type as in config.pbtxt; empty if unknown."""

        def of_input(name: str) -> str:
            return data_type(self.inputs[name]) if self.known and name in self.inputs else ""

        return dtype_of(array, of_input)

    def newest(self) -> PythonSource | None:
        return self.codes[max(self.codes)] if self.codes else None

    def in_config(self, rule: str, field: str, value: str | None = None, **facts: object) -> Finding:
        """Make a finding about a field of config.pbtxt."""
        names = tuple(field.split("."))
        line = self._lines.get((names, value)) or self._lines.get((names, None), 0)
        return finding(rule, self.name, self.where, line, value=value, **facts)

    def in_code(self, rule: str, source: PythonSource, line: int, **facts: object) -> Finding:
        """Make a finding about a line of the source."""
        file = shown_path(source.path)
        if self.place is not None:
            file, line = self.place.label, line + self.place.line - 1 if line else 0
        return finding(rule, self.name, file, line, **facts)


def helpers_of(model: CheckedModel) -> Iterator[CheckedModel]:
    """Yield the model with the source of each module that its newest source imports from its own folders."""
    code = model.newest()
    if code is None or code.mistake:
        return
    folders = (code.path.parent, model.folder)
    files = [file for _, _, found in imported_files(code.path, code.tree, lambda top: folders) for file in found]
    for file in dict.fromkeys(file for file in files if file != code.path and file.is_file()):
        helper = PythonSource(file, source_text(file))
        if helper.text and not helper.mistake:
            yield replace(model, codes={max(model.codes): helper})


def data_type(tensor: ModelConfigMessage) -> str:
    """Return the name of a tensor's data type, such as TYPE_FP32."""
    return str(type(tensor).DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number[tensor.data_type].name)


def full_shape(model: CheckedModel, tensor: ModelConfigMessage) -> list[int]:
    """Return the shape of an input with its batch dimension; empty if requests may have another one."""
    if tensor.HasField("reshape") or tensor.allow_ragged_batch or tensor.is_shape_tensor or not tensor.dims:
        return []
    return [-1, *tensor.dims] if model.config.max_batch_size else [*tensor.dims]


def read_model(source: ModelSource, serving: LoadedModel | None) -> CheckedModel:
    """Read a model without running its code."""
    config, given, problem = _config(source, serving)
    text = source.config if isinstance(source.config, str) and not source.config_is_json else ""
    folders = version_folders(source.folder)
    served = pick_versions(config, folders) if not problem else list(folders)
    filename = config.default_model_filename or "model.py"
    # With a Python-based backend, model.py may belong to the backend.
    python = config.backend == "python" or (problem and not config.backend)
    codes = dict(_codes(folders, served, filename)) if python else {}
    completes = any(code.completes for code in codes.values())
    known = not problem and (serving is not None or (len(config.output) > 0 and not completes))
    misfit = ""
    if not problem and serving is None:
        config, misfit, read = _with_graph(config, {version: folders[version] for version in served})
        known |= read and not misfit
    return CheckedModel(
        source.name, source.folder, text, config, given, problem, codes, serving, known, source.place, misfit
    )


def _config(source: ModelSource, serving: LoadedModel | None) -> tuple[ModelConfigMessage, ModelConfigMessage, str]:
    """Return the completed configuration, the written one, and why a server refuses it."""
    empty = model_config_pb2().ModelConfig(name=source.name)
    try:
        if isinstance(source.config, str) and not source.config_is_json:
            source = replace(source, config=fill_templates(source.config, defaults=True, model=source.name).text)
        given = source.parsed_config()
    except ConfigError as error:
        return empty, empty, str(error)
    if serving is not None:
        return serving.spec.config, given, ""
    first = next(iter(source.versions.values()), None)
    try:
        files = () if first is None else tuple(sorted(os.listdir(first)))
        config = complete(given, model=source.name, files=files, gpus=_GPUS, runs_on_gpu=lambda _: False)
        for group, written in zip(config.instance_group, given.instance_group, strict=False):
            if not written.gpus:
                del group.gpus[:]  # the server decides which GPUs exist
    except ConfigError as error:
        return given, given, str(error)
    try:
        validate(config, folder=source.folder)
    except ConfigError as error:
        return config, given, str(error)
    return config, given, ""


def _codes(folders: Mapping[int, Path], versions: list[int], filename: str) -> Iterator[tuple[int, PythonSource]]:
    for version in versions:
        path = folders[version] / filename
        try:
            data = read_file(path, MAX_SOURCE)
        except OSError:
            continue  # `file_findings` reports missing files
        source = PythonSource(path, data.decode("utf-8", "replace"))
        if "\ufffd" in source.text and not _CODING.search(data):
            line = source.text.partition("\ufffd")[0].count("\n") + 1
            source.mistake = line, "it is not UTF-8, and declares no encoding"
        yield version, source


def _with_graph(config: ModelConfigMessage, versions: Mapping[int, Path]) -> tuple[ModelConfigMessage, str, bool]:
    """Complete a configuration like the ONNX backend; return it, an error message, and whether there is a graph."""
    if config.backend != "onnxruntime" or not versions:
        return config, "", False
    from bls_notebook.engines.onnx_graph import check_config, complete_config, needs_completing, signature_in

    path = versions[max(versions)] / (config.default_model_filename or _ONNX_FILE)
    signature = signature_in(path / _ONNX_FILE if path.is_dir() else path)
    if signature is None:
        return config, "", False
    fields = json.loads(to_json(config))
    try:
        if needs_completing(fields):
            complete_config(fields, signature)
            config = parse_json(fields, model=config.name)
            fields = json.loads(to_json(config))
        check_config(fields, signature)
    except (BackendError, ConfigError) as error:
        return config, str(error), True
    return config, "", True
