"""`check`: run all checks on the models of a repository, and report recorded problems of loaded models."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bls_notebook.engine import ModelNotFoundError
from bls_notebook.extending import host_of, operation
from bls_notebook.progress import stepped
from bls_notebook.records import count, first_line
from bls_notebook.repository import ModelRepository, statistics_record_of
from bls_notebook.repository.source import misnamed_folders, shown_path

from .api_checks import api_findings
from .await_checks import await_findings
from .callee_checks import callee_findings, cycle_findings, sequence_findings
from .checked_model import CheckedModel, helpers_of, read_model
from .config_checks import batching_findings, field_findings, file_findings, gpu_findings, is_model, tensor_findings
from .process_checks import process_findings
from .records import SEVERITIES, Finding, Findings, SharedMemory, finding
from .release_checks import release_findings
from .releases import known_release
from .response_checks import response_findings
from .shared_memory import memory_findings, shared_memory
from .source_checks import package_findings, source_findings
from .value_checks import value_findings

log = logging.getLogger("bls_notebook")
_QUOTED = re.compile(r"'([^']*)'")
_MOST_REFUSALS = 3  # reported per model


@operation
def check(*names: str, release: str = "", repo: ModelRepository | None = None) -> Findings:
    """Find problems that models will have on a server, in their files and in records of their requests.

    Runs no model code.

    Parameters
    ----------
    *names : str
        Models; default: all.
    release : str
        Release of the server, such as ``"25.03"``: what it lacks for the models, and its known bugs that they would
        meet. By default, a note says which release a model needs.
    repo : ModelRepository, optional
        Default: the current repository.

    Returns
    -------
    Findings

    Raises
    ------
    ModelNotFoundError
        A model does not exist.
    BLSError
        The release is not known.

    Examples
    --------
    >>> bls.check(repo=bls.ModelRepository("model_repository"))  # doctest: +SKIP
    """
    host = host_of(repo)
    if release:
        known_release(release)
    known = {record.name: record.reason for record in host.repository.index()}
    findings: list[Finding] = []
    folders: list[CheckedModel] = []
    remote: dict[str, str] = {}
    wanted = {*known, *names}
    for name in stepped(sorted(wanted), "models", len(wanted)):
        if name not in known:
            host.source(name)  # raises
        with _one_failure(findings, name):
            try:
                source = host.source(name)
            except ModelNotFoundError:
                if known[name] in ("", "unloaded"):  # its folder was deleted
                    raise
                findings.append(finding("cell-failed", name, why=first_line(known[name])))
                continue
            if source.remote is None:
                folders.append(read_model(source, host.find(name)))
            else:
                remote[name] = source.remote.address
    models = {model.name: model for model in folders if is_model(model)}
    checked = [model for model in folders if not names or model.name in names]
    if len(models) * 2 < len(folders) and not names:  # most folders have no model, so this is no repository
        checked = [model for model in checked if model.name in models]
    checked_names = {model.name for model in checked}
    build_texts: dict[Path, str] = {}
    for model in checked:
        with _one_failure(findings, model.name):
            findings += _model_findings(model, models, remote, build_texts, release)
    for name, why in misnamed_folders(host.repository.paths).items() if not names else ():
        findings.append(finding("folder-name", name, why=why))
    findings += gpu_findings(model for model in checked if model.name in models)
    for name in {failed.model for failed in findings if failed.code == "check-failed"}:
        models.pop(name, None)
    needs: list[SharedMemory] = []
    with _one_failure(findings, ", ".join(names)):
        needs += (need for need in shared_memory(models) if need.model in checked_names)
        findings += memory_findings(models, needs)
        findings += (finding for finding in cycle_findings(models) if finding.model in checked_names)
    findings.sort(key=lambda finding: (SEVERITIES.index(finding.severity), finding.model))
    return Findings(tuple(sorted(checked_names)), tuple(dict.fromkeys(findings)), tuple(needs), release)


@contextmanager
def _one_failure(findings: list[Finding], name: str) -> Iterator[None]:
    """Report an exception as a finding about one model, so that the others are checked."""
    try:
        yield
    except Exception as error:
        log.debug("the check of %s failed", name, exc_info=error)
        findings.append(finding("check-failed", name, error=first_line(str(error)) or type(error).__name__))


def _model_findings(
    model: CheckedModel, models: Mapping[str, CheckedModel], remote: Mapping[str, str], build_texts: dict[Path, str],
    release: str,
) -> Iterator[Finding]:  # fmt: skip
    if model.name not in models:
        yield finding("folder-no-model", model.name, shown_path(model.folder))
        return
    yield from file_findings(model)
    yield from source_findings(model)
    yield from api_findings(model)
    yield from value_findings(model)
    yield from await_findings(model)
    yield from response_findings(model)
    yield from callee_findings(model, models, remote)
    for helper in helpers_of(model):
        yield from value_findings(helper)
        yield from await_findings(helper)
        yield from callee_findings(helper, models, remote)
    yield from sequence_findings(model, models)
    yield from package_findings(model, models, build_texts)
    yield from process_findings(model, models)
    yield from release_findings(model, models, release)
    if model.problem:  # the other checks need a valid configuration
        return
    statistics = None if model.serving is None else statistics_record_of(model.serving)
    tensors = list(tensor_findings(model))
    yield from tensors
    yield from batching_findings(model, statistics)
    yield from field_findings(model, release)
    yield from recorded_findings(
        model, reported=[name for finding in tensors for name in _QUOTED.findall(finding.what)]
    )


def recorded_findings(model: CheckedModel, reported: Collection[str]) -> Iterator[Finding]:
    """Yield how a loaded model's responses contradicted its configuration, and why requests were refused.

    `reported` has the names of tensors that already have a finding.
    """
    serving = model.serving
    if serving is None:
        return
    prefix = f"model '{model.name}', "
    for warning in tuple(serving.outputs.found):
        what, _, mend = warning.removeprefix(prefix).partition("; ")
        sentence = f"{mend[:1].upper()}{mend[1:]}." if mend else "Make the code and config.pbtxt agree."
        if not any(repr(name) in what for name in reported):
            yield finding("seen-output", model.name, model.where, what=what, sentence=sentence)
    check = serving.check
    refused = dict(getattr(check, "then", check).refused)  # a stub's check wraps the model's own
    for error, times in sorted(refused.items(), key=lambda pair: -pair[1])[:_MOST_REFUSALS]:
        requests = count(times, "request")
        yield finding("seen-refused", model.name, model.where, requests=requests, error=first_line(error))
