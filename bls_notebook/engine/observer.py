"""Observers of requests: profiles, recordings, memory tracking and substitutions see requests through one interface.

`active` is None while nothing observes, and the engine only tests that; it is the observer if there is one, and a
composite if there are several. Each request that is received while an observer is on carries an `Observed`, in which
the observers keep what they know of it; its ticket and its execution refer to the same object.

Guarantees: a request sees the observers that are on at each of its events, in their `order`. The methods of an observer
must not raise, block, or keep a request, a response or a tensor.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import Any

from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse, InferenceResponseSender
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.records.models import RecordedInstance


class Observed:
    """A request, as its observers know it."""

    __slots__ = ("key", "kind", "sent_bytes", "size", "span", "timer", "track")

    # Set if a profile records it:
    size: int  # bytes of its inputs
    sent_bytes: int  # bytes of its responses
    timer: Any  # measures it on a GPU

    def __init__(self, kind: str = "") -> None:
        self.kind = kind  # how it was sent: see `Span`
        self.span = 0  # its number in a profile; 0: none records it, so the engine may skip the times of its events
        self.track = 0  # its number in a memory recording, 0 for none
        self.key: Any = None  # its `CallKey`, while a substitution is on


class Observer:
    """Base class of observers: its methods do nothing. Models, tickets and executions are `Any`: they import this."""

    order = 0

    def received(
        self, model: Any, request: InferenceRequest, inputs: Sequence[Tensor], copy: InferenceRequest, sender: Any
    ) -> None:
        """Handle a request with `inputs` from the execution `sender`; `copy` is the request that the model receives."""

    def refused(self, sender: Any, request: InferenceRequest, observed: Observed, response: InferenceResponse) -> None:
        """Handle a request that was refused before it was sent; `answered` follows."""

    def sent(self, model: Any, parent: Any, request: InferenceRequest, queued: int) -> None:
        """Handle a received request that is on its way to the model's scheduler."""

    def began(
        self, batch: Sequence[Observed | None], rows: Sequence[int], place: RecordedInstance, now: int, gpu: int = -1
    ) -> None:
        """Handle the begin of an execution on this thread."""

    def ended(self, batch: Sequence[Observed | None], inferred: int, released: int) -> None:
        """Handle the end of an execution: when `execute` returned, and when its instance was free."""

    def answered(self, observed: Observed, response: InferenceResponse, final: bool = True, ticket: Any = None) -> None:
        """Handle a response on its way to the requester; the ticket's lock is held."""

    def marked(self, observed: Observed, kind: str) -> None:
        """Handle another event: the request was ``cancelled``, or ``abandoned`` by the model that awaited it; its
        response was ``released`` in order, or ``cached``.
        """

    def returned(
        self, observed: Observed | None, before: Sequence[Tensor], after: Sequence[Tensor], maker: str
    ) -> None:
        """Handle outputs of the instance `maker`, as the model returned them and as the requester gets them."""

    def repeated(self, observed: Observed | None, before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
        """Handle inputs that are passed to the model once more."""

    def copied(self, before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
        """Handle tensors that the engine may have copied."""

    def crossed(self, observed: Observed | None, count: int) -> None:
        """Handle outputs that moved to another device."""


class _Several(Observer):
    """Several observers as one."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        for name in vars(Observer):
            if callable(getattr(Observer, name)) and not name.startswith("_"):
                methods = [getattr(o, name) for o in observers if getattr(type(o), name) is not getattr(Observer, name)]
                setattr(self, name, methods[0] if len(methods) == 1 else partial(_call_all, methods))


def _call_all(methods: Sequence[Callable[..., None]], *args: Any) -> None:
    for method in methods:
        method(*args)


active: Observer | None = None
_observers: dict[Observer, None] = {}
# Held while observers change; reentrant, because a garbage collection may remove one while this thread holds it.
changing = threading.RLock()


def observers() -> list[Observer]:
    """Return the observers that are on, in their order."""
    return sorted(_observers.copy(), key=lambda observer: observer.order)


def add(observer: Observer) -> None:
    """Switch an observer on."""
    _observers[observer] = None
    _choose()


def remove(observer: Observer) -> None:
    """Switch an observer off, if it is on."""
    _observers.pop(observer, None)
    _choose()


def clear() -> None:
    _observers.clear()
    _choose()


def _choose() -> None:
    global active
    with changing:
        present: list[Observer] | None = None
        while present != observers():  # a garbage collection here may have removed one
            present = observers()
            active = None if not present else present[0] if len(present) == 1 else _Several(present)


def observed_of_frame(frame: FrameType | None, execution: Any) -> Observed | None:
    """Return the request for which a bare thread works, which carries no context; None if nothing observes it.

    It is a variable of the thread's functions (a request or a response sender of the model), or else the request of the
    only `execution` of the instance whose code runs.
    """
    if active is None:
        return None
    while frame is not None:
        for value in _values(frame):
            if (observed := _observed_of(value)) is not None:
                return observed
        frame = frame.f_back
    return getattr(execution, "observed", None)


def _values(frame: FrameType) -> list[Any]:
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return []  # a module or a class
    values = list(frame.f_locals.values())
    if sys.version_info < (3, 13):
        frame.f_locals.clear()  # the frame keeps this copy, which would keep arrays alive
    return values


def _observed_of(value: Any) -> Observed | None:
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    if isinstance(value, InferenceRequest):
        return getattr(value, "_observed", None)
    return getattr(value._request, "observed", None) if isinstance(value, InferenceResponseSender) else None
