"""``python -m bls_notebook replay``: send recorded requests again, and compare the answers."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout

import bls_notebook as bls
from bls_notebook.commands import Command, add_options, add_tolerance, print_record


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, __file__, "replay", "the command replay")
    add_tolerance(parser)


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
