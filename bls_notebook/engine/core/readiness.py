"""Asks an instance's model whether it is ready, for no longer than Triton does.

Guarantees: the answer comes within `READY_SECONDS`, whatever `is_ready` does; while one question to an
instance is open, others share its answer; a model without `is_ready` costs nothing.
"""

from __future__ import annotations

import logging
import threading
from weakref import WeakKeyDictionary

from bls_notebook.engine.description import describe
from bls_notebook.engine.waiting.threads import start_in_thread

from .instance import Instance

READY_SECONDS = 5.0

log = logging.getLogger("bls_notebook")
_lock = threading.Lock()
_open: WeakKeyDictionary[Instance, _Question] = WeakKeyDictionary()


class _Question:
    def __init__(self) -> None:
        self.answered = threading.Event()
        self.ready = False


def is_ready(instance: Instance) -> bool:
    """Whether an instance's model says, in time, that it can serve."""
    if not getattr(instance.backend, "asks_ready", False):
        return instance.backend.ready()
    with _lock:
        question = _open.get(instance)
        new = question is None
        if question is None:
            question = _open[instance] = _Question()
    if new:
        start_in_thread(lambda: _ask(instance, question))
    if not question.answered.wait(READY_SECONDS):
        log.warning("is_ready of %s did not answer within %g s", instance.name, READY_SECONDS)
        return False
    return question.ready


def _ask(instance: Instance, question: _Question) -> None:
    try:
        question.ready = instance.backend.ready()
    except BaseException as error:
        log.warning("is_ready of %s raised %s", instance.name, describe(error).message)
    finally:
        with _lock:
            _open.pop(instance, None)
        question.answered.set()
