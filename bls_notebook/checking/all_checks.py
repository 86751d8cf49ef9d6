"""`check_models`: everything that is looked for, over all the models of a repository."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.records.progress import stepped
from bls_notebook.repository.source.layout import shown_path
from bls_notebook.repository.source.model_source import ModelSource
from bls_notebook.repository.statistics import statistics_record_of

from .batching import batching_findings
from .callees import callee_findings, cycle_findings
from .fields import field_findings
from .files import file_findings, is_model
from .material import Material, material
from .memory import memory_findings, shared_memory
from .packages import package_findings
from .recorded import recorded_findings
from .records import SEVERITIES, Finding, Findings
from .sequences import sequence_findings
from .sources import source_findings
from .tensors import tensor_findings

_QUOTED = re.compile(r"'([^']*)'")


def check_models(
    sources: Iterable[tuple[ModelSource, LoadedModel | None]], names: Collection[str] = ()
) -> Findings:
    """Return what is found in models; `names` are those that are asked about, all by default."""
    sources = list(sources)
    given = [each for each in sources if each[0].remote is None]  # what a server elsewhere runs is its own
    remote = {source.name: str(source.remote.server.address) for source, _ in sources if source.remote}
    read = [material(*each) for each in stepped(given, "models", len(given))]
    models = {model.name: model for model in read if is_model(model)}
    asked = [model for model in read if not names or model.name in names]
    if len(models) * 2 < len(read) and not names:  # some folder, and not that of a repository
        asked = [model for model in asked if model.name in models]
    wanted = {model.name for model in asked}
    built: dict[Path, str] = {}
    found = [finding for model in asked for finding in _of(model, models, remote, built)]
    needs = [need for need in shared_memory(models) if need.model in wanted]
    found += memory_findings(models, needs)
    found += (finding for finding in cycle_findings(models) if finding.model in wanted)
    ranks = {severity: rank for rank, severity in enumerate(SEVERITIES)}
    found.sort(key=lambda finding: (ranks[finding.severity], finding.model))
    return Findings(tuple(sorted(wanted)), tuple(dict.fromkeys(found)), tuple(needs))


def _of(
    model: Material, models: Mapping[str, Material], remote: Mapping[str, str], built: dict[Path, str]
) -> Iterator[Finding]:
    if model.name not in models:
        yield Finding(
            "warning", "folder-no-model", model.name,
            "the folder has neither config.pbtxt nor a version folder",
            "A server that loads all models takes every folder of its repository for one, fails on this, and "
            "exits (unless --exit-on-error=false).",
            "Move it out of the repository, or name it with a dot first.", shown_path(model.folder),
        )  # fmt: skip
        return
    yield from file_findings(model)
    yield from source_findings(model)
    yield from callee_findings(model, models, remote)
    yield from sequence_findings(model, models)
    yield from package_findings(model, models, built)
    if model.problem:  # what is not certain about the configuration is not told
        return
    seen = None if model.serving is None else statistics_record_of(model.serving)
    tensors = list(tensor_findings(model))
    yield from tensors
    yield from batching_findings(model, seen)
    yield from field_findings(model)
    yield from recorded_findings(
        model, told=[name for finding in tensors for name in _QUOTED.findall(finding.what)]
    )
