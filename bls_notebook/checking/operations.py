"""``%tritonrepo check`` and ``python -m bls_notebook check``."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path

import bls_notebook as bls
from bls_notebook.operations import OperationSpec, opened, option

from .records import Findings


def _check_folder(folder: str, names: Sequence[str] = (), release: str = "") -> Generator[Findings, None, None]:
    from bls_notebook.repository.source import version_folders

    from .discovery import repositories_in, repository_folder

    place = Path(folder)
    if (place / "config.pbtxt").is_file() or (place.is_dir() and version_folders(place)):
        place, names = place.resolve().parent, [place.resolve().name]  # the folder of one model
    elif place.is_dir() and repositories_in(place):
        place = repository_folder(place, "check")
    with opened(str(place)) as repository:
        findings = bls.check(*names, release=release, repo=repository)
    if not findings.models and not findings.findings:
        raise bls.BLSError(f"{folder}: no models there; give a folder whose sub-folders are models")
    yield findings


CHECK = OperationSpec(
    """Find problems that models will have on a server. Reads configurations, sources, folders, and records of loaded
    models. It runs no model's code, so it also checks models that do not load. Each finding names the place, the
    problem, its effect and the fix. A note says which release of Triton a model needs; `--for` checks what one release
    lacks, and which of its known bugs the models would meet. In scripts: bls.check(); in a shell: python -m
    bls_notebook check FOLDER [--json].""",
    lambda names=(), **options: bls.check(*names, **options),
    (
        option("folder", "FOLDER", "a folder whose sub-folders are models, or the folder of a model", str, "shell"),
        option("names", "MODEL", "names of models (default: all)", nargs="*"),
        option("--for", "RELEASE", "check for this release of Triton, such as 25.03", dest="release"),
    ),
    """
    %tritonrepo check
    %tritonrepo check bls_sync
    %tritonrepo check --for 25.03
    findings = %tritonrepo check
    """,
    shell=_check_folder,
    failed=lambda findings: findings.has_problems,
)
