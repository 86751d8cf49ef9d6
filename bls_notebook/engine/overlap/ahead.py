"""A model run with its `exec` calls sent ahead: the program goes on until it looks at an answer.

Guarantees: a request is sent when what it needs has been answered, with the inputs that it had when the
program sent it; requests to a model that keeps an order (sequences) follow one another; `execute` is over
when everything that it sent has been answered. A response has no error until it is looked at: where one does
have an error, or lacks an output, the run is `spoilt`, which its caller has to see to. What cannot be sent
ahead (a stream, a request from another thread) is sent as it is written, and `kept` says so.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.pb_utils.request import InferenceRequest

from .run import Ahead, Run

__all__ = ["Ahead", "running_ahead"]


@contextmanager
def running_ahead(models: Sequence[LoadedModel], how: Ahead) -> Iterator[Ahead]:
    """Have every `execute` of models run in that way."""
    before: list[tuple[Instance, Any, Any]] = []
    try:
        for model in models:
            for instance in (*model.instances, *model.passive):
                execute = instance.execute
                wrapped = _wrapped(execute, how)
                before.append((instance, execute, wrapped))
                instance.execute = wrapped
        yield how
    finally:
        for instance, execute, wrapped in before:
            if instance.execute is wrapped:  # it has not been closed meanwhile
                instance.execute = execute


def _wrapped(execute_of: Any, how: Ahead) -> Any:
    def execute(requests: list[InferenceRequest]) -> Any:
        run = Run(how)
        try:
            returned = execute_of(requests)
            if not inspect.iscoroutine(returned):
                return run.settled(returned)
        except BaseException as error:
            run.abandon(error)
            raise
        return finish(run, returned)

    async def finish(run: Run, coroutine: Any) -> Any:
        try:
            return run.settled(await coroutine)
        except BaseException as error:
            run.abandon(error)
            raise

    return execute
