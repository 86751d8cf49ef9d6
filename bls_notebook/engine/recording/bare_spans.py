"""Whose request is sent from a thread that carries no context, for a profile.

What a thread works for is told by what its functions have in hand: a request that the model was given, or
the sender of its responses. Where they have neither, it is told by the instance whose code they are, if
that serves one request alone. Nothing of what is looked at is kept.
"""

from __future__ import annotations

import inspect
import sys
from types import FrameType
from typing import Any

from bls_notebook.engine.core.instance import Instance
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.sender import InferenceResponseSender

from . import log as recording


def span_of_frame(frame: FrameType | None, instance: Instance | None) -> int:
    """Return the number, in the profile that is on, of the request that a thread works for.

    `frame`: of the model's code; those that called it are looked at too. `instance`: whose code it is.
    Returns int: 0 where no profile is on, or it cannot be told.
    """
    if recording.active is None:
        return 0
    while frame is not None:
        for value in _values(frame):
            if span := _span_of(value):
                return span
        frame = frame.f_back
    return 0 if instance is None else _span_served(instance)


def _values(frame: FrameType) -> list[Any]:
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return []  # a module or a class
    values = list(frame.f_locals.values())
    if sys.version_info < (3, 13):
        frame.f_locals.clear()  # it is a copy, which the frame keeps: arrays would live longer by that
    return values


def _span_of(value: Any) -> int:
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    if isinstance(value, InferenceRequest):
        return getattr(value, "_span", 0)
    return getattr(value._request, "span", 0) if isinstance(value, InferenceResponseSender) else 0


def _span_served(instance: Instance) -> int:
    """The request that an instance serves, if it is one alone."""
    under_way = {getattr(instance.holder, "span", 0)}
    if instance.loop_thread:
        under_way |= {execution.span for execution in list(instance.loop.executions)}
    under_way.discard(0)
    return under_way.pop() if len(under_way) == 1 else 0
