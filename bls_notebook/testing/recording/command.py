"""``python -m bls_notebook replay``: send recorded requests again, and compare the answers."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout

import bls_notebook as bls
from bls_notebook.commands import Command, add_tolerance, print_record


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="a recording, written by bls.record")
    parser.add_argument("repository", help="a folder whose sub-folders are models; their code is run")
    parser.add_argument("--model", metavar="MODEL", help="send the requests to this model")
    parser.add_argument("--only", metavar="MODEL", help="run only this model; its callees answer from the recording")
    parser.add_argument("--serve", action="store_true", help="send them to a real tritonserver")
    add_tolerance(parser)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def _run(arguments: argparse.Namespace) -> int:
    with bls.ModelRepository(arguments.repository) as repository, redirect_stdout(sys.stderr):
        bls.set_current_repository(repository)
        available = [record.name for record in repository.index()]
        for name in [arguments.model] if arguments.model in available else []:
            repository.load(name)
        recording = bls.load(arguments.file)
        for name in recording.models:
            if name in available and not repository.ready(name):
                repository.load(name)
        replay = bls.replay(
            recording, arguments.model, only=arguments.only, repo=repository, server=arguments.serve,
            tolerance=arguments.tolerance, ulps=arguments.ulps,
        )  # fmt: skip
    print_record(replay, arguments.json)
    return int(not replay.equal)


REPLAY = Command("send recorded requests again, and compare the answers", _arguments, _run)
