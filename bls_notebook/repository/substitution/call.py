"""`Call`: one request to a substituted model; `Answers`: what answers it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bls_notebook.devices.transfers import to_cpu
from bls_notebook.engine.call_keys import Key
from bls_notebook.pb_utils.errors import TritonError
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor

if TYPE_CHECKING:
    from .waiter import Waiter


class AnswerKind(Enum):
    """Answers that the substitution makes itself."""

    MADE_UP = "values made up from the model's configuration"
    ASK = "all responses of the real model"


MADE_UP, ASK = AnswerKind.MADE_UP, AnswerKind.ASK


@dataclass(frozen=True)
class Last:
    """The last response of a decoupled model, sent with the final flag.

    Without it the flag is sent alone, after the last response.
    """

    answer: InferenceResponse | TritonError | AnswerKind


Answer = InferenceResponse | TritonError | AnswerKind | Last


class Answers(Protocol):
    """Answers the requests to one substituted model."""

    def answer(self, call: Call, wait: Waiter) -> Iterator[Answer] | AsyncIterator[Answer]:
        """Yield one answer, or any number for a decoupled model; an error is yielded or raised.

        Called without a lock, from many threads. An async generator function runs in an event loop of the
        model's instance. The generator is run to its end before the answer of a model that is not decoupled
        is sent.
        """


@dataclass(frozen=True, eq=False)
class Call:
    """One request to a substituted model.

    Attributes
    ----------
    key : tuple
        ``(key of the sender's call, callee, how many-th call from that sender to that callee)``, fixed when
        the request is sent. The key of the notebook as a sender is ``()``; its calls are numbered from when
        the substitution began, and those sent before have negative numbers.
    model, version, instance
        Name and version of the substituted model, and the instance that got the request.
    inputs : mapping of str to Tensor
        Copies on the CPU, read-only.
    outputs : tuple of str
        Names of the requested outputs.
    parameters : mapping of str to bool, int or str
    sequence : tuple of (int or str, int)
        Correlation ID and flags.
    chain : tuple of str
        Names of the models that were running, outermost first; the last one sent the request. Empty for a
        request from outside any model.
    request_id : str
    timeout : int
        Microseconds.
    batch : int
        Number of requests in the same execution.
    place : int
        Index in the batch.
    """

    key: Key
    model: str
    version: int
    inputs: Mapping[str, Tensor]
    outputs: tuple[str, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    sequence: tuple[int | str, int] = (0, 0)
    chain: tuple[str, ...] = ()
    request_id: str = ""
    timeout: int = 0
    instance: str = ""
    batch: int = 1
    place: int = 0


def call_of(
    request: InferenceRequest,
    key: Key,
    where: tuple[str, int, str],
    batch: int,
    place: int = 0,
    tensors: bool = True,
    sender: Any = None,
) -> Call:
    """Return the record of a request that a model has received; without its inputs if `tensors` is False.

    `where` has the model, its version and its instance; `sender` is the execution that sent the request, for
    requests that do not know it yet.
    """
    options = request._options
    model, version, instance = where
    return Call(
        key,
        model,
        version,
        {tensor._name: _copy(tensor) for tensor in request._inputs if tensors},
        tuple(request._requested),
        json.loads(options.parameters),
        (options.correlation_id, options.flags),
        chain_of(sender or getattr(request._answerable, "parent", None)),
        options.request_id,
        options.timeout,
        instance,
        batch,
        place,
    )


def is_null(request: InferenceRequest) -> bool:
    """Whether a sequence batcher made the request, to fill a slot that has nothing to do."""
    ticket: Any = request._answerable
    return ticket is not None and getattr(ticket, "context", ticket) is None and ticket.parent is None


def _copy(tensor: Tensor) -> Tensor:
    array = np.array(to_cpu(tensor._array), copy=True)
    array.flags.writeable = False
    return Tensor._of(tensor._name, array, tensor._datatype)


def chain_of(sender: Any) -> tuple[str, ...]:
    """Return the names of the models that are running, outermost first, from the execution that sends."""
    names: list[str] = []
    passed_on = None  # the key of a request that a substituted model passed to the real one
    while sender is not None:
        key = getattr(sender, "call_key", None)
        if sender.runs_a_model and (key is None or key is not passed_on):
            names.append(sender.model_name)
            passed_on = key
        sender = sender.parent
    return tuple(reversed(names))
