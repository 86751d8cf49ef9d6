"""``%blsreplay`` and ``python -m bls_notebook replay``: send recorded requests again, and compare the responses."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import bls_notebook as bls
from bls_notebook.operations import REPOSITORY, TOLERANCE, ULPS, OperationSpec, flag, opened, option, whole_number
from bls_notebook.records import count
from bls_notebook.testing.records import Replay

if TYPE_CHECKING:
    from bls_notebook.magics import MagicCall


def _replay(call: MagicCall, file: str, debug: int | None = None, **options: Any) -> object:
    __tracebackhide__ = True
    if debug is None:
        return bls.replay(file, **options)
    from .replay_debugger import debug_request

    return debug_request(call.notebook, file, debug, options.get("model"), options.get("only"))


def _replay_in_repository(
    file: str, repository: str, model: str | None = None, **options: Any
) -> Generator[Replay, None, None]:
    with opened(repository) as repo:
        bls.set_current_repository(repo)
        available = [record.name for record in repo.index()]
        for name in [model] if model in available else []:
            repo.load(name)
        recording = bls.open_file(file)
        for name in recording.models:
            if name in available and not repo.ready(name):
                repo.load(name)
        yield bls.replay(recording, model, repo=repo, **options)


def _problems(replay: object) -> list[str]:
    different = replay.unequal if isinstance(replay, Replay) else ()
    return [f"not answered as recorded: {count(len(different), 'request')}"] if different else []


REPLAY = OperationSpec(
    """Send recorded requests again and show which responses differ from the recorded ones. The models are the same or
    changed ones. The display names where a difference begins. To record: with bls.record('run.blsrec', tensors='all')
    or %%blsprofile --record run.blsrec. With --only, one model runs and its callees answer from the recording. With
    --debug, the model's execute runs again with the recorded tensors of one request, and a debugger stops at its
    first line: JupyterLab's if it is on, else the one of %debug. In scripts: bls.replay(); in a shell: python -m
    bls_notebook replay. Guide: docs/guides/testing.md.""",
    options=(
        option("file", "FILE", "the recording, a file of bls.record"),
        REPOSITORY,
        option("--model", "MODEL", "send the requests to this model; if it was recorded, only its own requests"),
        option("--only", "MODEL", "run only this model; its callees answer from the recording"),
        flag("--serve", "send the requests to a real tritonserver with a copy of the models", dest="server"),
        TOLERANCE,
        ULPS,
        option("--debug", "ID", "open the debugger in the request of this number", whole_number(1), "notebook"),
    ),
    examples="""
    %blsreplay run.blsrec
    %blsreplay run.blsrec --only resize
    %blsreplay run.blsrec --model resize_v2 --only resize
    %blsreplay run.blsrec --debug 17
    """,
    notebook=_replay,
    shell=_replay_in_repository,
    failed=lambda replay: not replay.equal,
    problems=_problems,
)
