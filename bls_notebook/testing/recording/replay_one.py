"""Run one recorded request again on this thread, so that a debugger can stop in the model's `execute`."""

from __future__ import annotations

import asyncio
import inspect
import json
from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from bls_notebook.engine.errors import BLSError
from bls_notebook.extending import Host
from bls_notebook.pb_utils import InferenceRequest, InferenceResponse
from bls_notebook.pb_utils.options import Options
from bls_notebook.pb_utils.sender import ByHand
from bls_notebook.records.record_file import told
from bls_notebook.repository.repository import ModelRepository, current_repository
from bls_notebook.repository.substitution.substitution import substitute

from .recording import RecordedRequest, Recording, load_recording
from .replaying import recorded_callees


class Again(NamedTuple):
    """An execution that can be had again: the code of its `execute`, and what runs that with its tensors."""

    model: str
    code: CodeType
    run: Callable[[], list[InferenceResponse]]


def again(
    recording: Recording | str | Path,
    number: int,
    model: str | None = None,
    alone: bool = False,
    repo: ModelRepository | None = None,
) -> Again:
    """Return what runs `execute` of a model with the tensors of one recorded request.

    It is called directly, in the first instance, on the thread of who runs it, whatever the model's
    scheduler: a coroutine function in a loop of its own.

    Parameters
    ----------
    recording : Recording, str or Path
    number : int
        The request's id in the recording; that of its span in a profile.
    model : str, optional
        Another model to give it to.
    alone : bool
        Answer what it calls from the recording.
    repo : ModelRepository, optional
        By default the one that magics use.

    Raises
    ------
    BLSError
        There is no such request, its tensors were not kept, or the model does not serve or has no code.
    """
    repository = repo or current_repository()
    recording = recording if isinstance(recording, Recording) else load_recording(recording, model, repository)
    request = recording.request(number)
    name = model or request.model
    loaded = Host(repository).ready(name)
    instance = next(iter(loaded.instances), None)
    code = None if instance is None else instance.place[3]
    if instance is None or code is None:
        steps = [str(each.id) for each in recording.record.requests if each.parent == number]
        inside = f"; it led to the requests {', '.join(steps)}" if steps else ""
        raise BLSError(f"request {number}: model {told(name)!r} has no code that could be stopped in{inside}")

    def call() -> list[InferenceResponse]:
        __tracebackhide__ = True
        return _answers(instance.execute, _made(request, name, loaded.version))

    def run() -> list[InferenceResponse]:
        __tracebackhide__ = True
        callees = recorded_callees(recording, request.model, name) if alone else {}
        with substitute(repository, callees):
            return list(repository.run(call))

    return Again(name, code, run)


def _made(request: RecordedRequest, name: str, version: int) -> InferenceRequest:
    kept = request.kept
    made = InferenceRequest(
        inputs=list(request.tensors.values()),
        requested_output_names=list(kept.outputs),
        model_name=name,
        model_version=version,
    )
    made._options = Options(
        kept.request_id, kept.correlation_id, kept.flags, kept.timeout, json.dumps(dict(request.parameters)),
        priority=kept.priority,
    )  # fmt: skip
    made._answerable = ByHand()
    return made


def _answers(execute: Callable[[list[Any]], Any], request: InferenceRequest) -> list[InferenceResponse]:
    __tracebackhide__ = True
    returned = execute([request])
    if inspect.iscoroutine(returned):
        before = _get_running_loop()
        _set_running_loop(None)
        try:
            returned = asyncio.run(returned)
        finally:
            _set_running_loop(before)
    by_hand = request._answerable
    sent = by_hand.responses if isinstance(by_hand, ByHand) else []
    return [*sent, *(each for each in returned or () if isinstance(each, InferenceResponse))]
