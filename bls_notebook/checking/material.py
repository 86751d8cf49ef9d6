"""`Material`: what a check looks at, a model each: its configuration, completed, and its sources, read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.errors import ConfigError
from bls_notebook.repository.config import (
    ModelConfigMessage,
    complete,
    model_config_pb2,
    pick_versions,
    validate,
)
from bls_notebook.repository.config.template_places import line_of
from bls_notebook.repository.config.templates import Template, fill_templates
from bls_notebook.repository.source.layout import shown_path, version_folders
from bls_notebook.repository.source.place import SourcePlace

from .code import Code
from .graphs import with_graph
from .records import Finding

if TYPE_CHECKING:
    from bls_notebook.repository.source.model_source import ModelSource

CONFIG = "config.pbtxt"
_GPUS = 8  # as many as a server may well have: a configuration that names one is not wrong here


@dataclass(frozen=True)
class Material:
    """One model of a repository."""

    name: str
    folder: Path
    text: str  # of config.pbtxt; empty where there is none
    config: ModelConfigMessage  # completed, as far as that takes no running code; if it serves, wholly
    given: ModelConfigMessage  # as it was written
    problem: str = ""  # why there is no configuration, or why a server refuses it
    codes: Mapping[int, Code] = field(default_factory=dict)  # the Python that a server would run, by version
    serving: LoadedModel | None = None
    known: bool = False  # whether `config` has all inputs and outputs: nothing may still add some
    place: SourcePlace | None = None  # of a cell: where it was written
    misfit: str = ""  # why its configuration does not fit its graph

    @cached_property
    def templates(self) -> tuple[Template, ...]:
        """Templates of its configuration that nothing has filled."""
        return fill_templates(self.text).open if self.text and self.serving is None else ()

    @cached_property
    def is_python(self) -> bool:
        """Whether its code runs in a Python stub of its own."""
        return bool(self.config.backend == "python")

    @cached_property
    def is_ensemble(self) -> bool:
        return bool(self.config.platform == "ensemble" or self.config.HasField("ensemble_scheduling"))

    @cached_property
    def decoupled(self) -> bool:
        """Whether it may answer any number of times."""
        return bool(self.config.model_transaction_policy.decoupled)

    @cached_property
    def instances(self) -> int:
        """How many instances serve requests; those of a group without devices once."""
        groups = (group for group in self.config.instance_group if not group.passive)
        return sum(max(1, group.count) * max(1, len(group.gpus)) for group in groups)

    @cached_property
    def controls(self) -> frozenset[str]:
        """Inputs that the server adds: controls and states of sequences, batch inputs."""
        sequence = self.config.sequence_batching
        return frozenset([
            *(given.name for given in sequence.control_input),
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
        """Its config.pbtxt as a person would name it, or its folder where it has none."""
        if self.place is not None:
            return f"{self.name}/{CONFIG}"
        return shown_path(self.folder / CONFIG if self.text else self.folder)

    def newest(self) -> Code | None:
        return self.codes[max(self.codes)] if self.codes else None

    def in_config(
        self, severity: str, code: str, field: str, what: str, why: str, mend: str, value: str | None = None
    ) -> Finding:
        """Return a finding about a field of its configuration."""
        line = line_of(self.text, field, value) or (line_of(self.text, field) if value else 0)
        return Finding(severity, code, self.name, what, why, mend, self.where, line)

    def in_code(
        self, severity: str, code: str, source: Code, line: int, what: str, why: str, mend: str
    ) -> Finding:
        """Return a finding about a line of its code."""
        file = shown_path(source.path)
        if self.place is not None:
            file, line = self.place.label, line + self.place.line - 1 if line else 0
        return Finding(severity, code, self.name, what, why, mend, file, line)


def material(source: ModelSource, serving: LoadedModel | None) -> Material:
    """Read what there is of a model; nothing of it is run."""
    config, given, problem = _config(source, serving)
    text = source.config if isinstance(source.config, str) and not source.config_is_json else ""
    found = version_folders(source.folder)
    wanted = pick_versions(config, found) if not problem else list(found)
    named = config.default_model_filename or "model.py"
    # Of a backend that is made of Python, model.py is the backend's own, or what that makes of it.
    python = config.backend == "python" or (problem and not config.backend)
    codes = dict(_codes(found, wanted, named)) if python else {}
    completes = any(code.completes for code in codes.values())
    known = not problem and (serving is not None or (len(config.output) > 0 and not completes))
    misfit = ""
    if not problem and serving is None:
        config, misfit, read = with_graph(config, {version: found[version] for version in wanted})
        known |= read and not misfit
    return Material(
        source.name, source.folder, text, config, given, problem, codes, serving, known, source.place, misfit
    )


def _config(
    source: ModelSource, serving: LoadedModel | None
) -> tuple[ModelConfigMessage, ModelConfigMessage, str]:
    """The configuration completed and as it is given, and why it is none."""
    empty = model_config_pb2().ModelConfig(name=source.name)
    try:
        if isinstance(source.config, str) and not source.config_is_json:  # what can be read is looked at
            filled = fill_templates(source.config, defaults=True, model=source.name)
            source = replace(source, config=filled.text)
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
                del group.gpus[:]  # which there are is the server's matter
    except ConfigError as error:
        return given, given, str(error)
    try:
        validate(config, folder=source.folder)
    except ConfigError as error:
        return config, given, str(error)
    return config, given, ""


def _codes(found: Mapping[int, Path], wanted: list[int], named: str) -> Iterator[tuple[int, Code]]:
    for version in wanted:
        path = found[version] / named
        try:
            yield version, Code(path, path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue  # `files` tells of it
