"""`check_models`: everything that is looked for, over all the models of a repository."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.observe.progress import stepped
from bls_notebook.observe.records.findings import SEVERITIES, Finding, Findings
from bls_notebook.repository.source.layout import shown_path
from bls_notebook.repository.source.model_source import ModelSource

from .files import file_findings, is_model
from .material import Material, material

Models = dict[str, Material]


def check_models(
    sources: Iterable[tuple[ModelSource, LoadedModel | None]], names: Collection[str] = ()
) -> Findings:
    """Return what is found in models; `names` are those that are asked about, all by default."""
    given = list(sources)
    read = [material(*each) for each in stepped(given, "models", len(given))]
    models = {model.name: model for model in read if is_model(model)}
    asked = [model for model in read if not names or model.name in names]
    if len(models) * 2 < len(read) and not names:  # some folder, and not that of a repository
        asked = [model for model in asked if model.name in models]
    found = [finding for model in asked for finding in _of(model, models)]
    ranks = {severity: rank for rank, severity in enumerate(SEVERITIES)}
    found.sort(key=lambda finding: (ranks[finding.severity], finding.model))
    return Findings(tuple(model.name for model in asked), tuple(dict.fromkeys(found)))


def _of(model: Material, models: Models) -> Iterator[Finding]:
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
