"""``python -m bls_notebook check``: find problems of a model repository without running its code."""

from __future__ import annotations

import argparse
from pathlib import Path

import bls_notebook as bls
from bls_notebook.commands import Command, add_options, print_record


def _run(arguments: argparse.Namespace) -> int:
    from bls_notebook.checking.discovery import repositories_in, repository_folder
    from bls_notebook.repository.source import version_folders

    folder, names = Path(arguments.folder), list(arguments.models)
    if (folder / "config.pbtxt").is_file() or (folder.is_dir() and version_folders(folder)):
        folder, names = folder.resolve().parent, [folder.resolve().name]  # the folder of one model
    elif folder.is_dir() and repositories_in(folder):
        folder = repository_folder(folder, "check")
    with bls.ModelRepository(folder) as repository:
        findings = bls.check(*names, repo=repository)
    if not findings.models and not findings.findings:
        raise bls.BLSError(f"{arguments.folder}: no models there; give a folder whose sub-folders are models")
    print_record(findings, arguments.json)
    return int(findings.has_problems)


_SUMMARY = "find problems of a model repository without running its code"
CHECK = Command(_SUMMARY, lambda parser: add_options(parser, __file__, "the command check"), _run)
