"""``python -m bls_notebook replay``: send recorded requests again, and compare the answers."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout

import bls_notebook as bls
from bls_notebook.commands import Command, add_options, print_record


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


_SUMMARY = "send recorded requests again, and compare the answers"
REPLAY = Command(_SUMMARY, lambda parser: add_options(parser, __file__, "replay", "the command replay"), _run)
