"""`InferenceRequest`: a request that a model receives or sends.

If the sender keeps no reference to a request, its tensors move to the receiver without a copy. `RecordingNumber`
measures the reference count of such a request.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final
from weakref import ref

from ._runtime import Caller, caller_var, current_caller, find_caller
from .errors import TritonModelException, is_sequence, unpicklable
from .options import DEFAULT_OPTIONS, NO_TRACE, InferenceTrace, Options, PreferredMemory, parameters_to_json
from .response import Answerable, ByHand, InferenceResponse, InferenceResponseSender
from .tensor import Tensor

TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2

_EMPTY = "{} for request with id '{}' and model name '{}' should not be empty."
_TWICE = (
    "an InferenceRequest to '{}' was sent again before its answer. A server uses its memory for both calls, and may "
    "die: make an InferenceRequest for each call"
)
_MISSING: Any = type("Required", (), {"__repr__": lambda self: "..."})()
_ZERO: Final = 0
_MINUS_ONE: Final = -1
_getrefcount = sys.getrefcount


def _type_error(argument: str, value: object, wanted: str) -> TypeError:
    return TypeError(
        f"InferenceRequest: incompatible constructor arguments; {argument} must be {wanted}, "
        + ("which is missing" if value is _MISSING else f"got {value!r} of type {type(value).__name__}")
    )


def _check_flag(method: str, decoupled: object) -> None:
    if decoupled is None or not hasattr(type(decoupled), "__bool__"):  # as pybind's converter of bool
        raise TypeError(f"{method}(): incompatible function arguments; decoupled must be bool, got {decoupled!r}")


def _never() -> bool:
    return False


def _always() -> bool:
    return True


def _is_awaited(future: ref[asyncio.Future[Any]]) -> bool:
    there = future()
    return there is not None and not there.done()


def _text(argument: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):  # pybind accepts bytes for text
        return value.decode(errors="surrogateescape" if argument == "model_name" else "strict")
    raise _type_error(argument, value, "str")


def _whole(argument: str, value: object, bits: int, signed: bool = False) -> int:
    if isinstance(value, (float, str, bytes)) or not hasattr(value, "__index__"):
        raise _type_error(argument, value, "int")
    number = int(value.__index__())
    low, high = (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)
    if not low <= number < high:
        raise _type_error(argument, value, f"int from {low} to {high - 1}")
    return number


class InferenceRequest:
    """A request to a model.

    Parameters
    ----------
    request_id : str
        Any text; the callee receives it.
    correlation_id : int or str
        The sequence that the request belongs to; 0 or "" for none.
    inputs : list of Tensor
        Required.
    requested_output_names : list of str
        Required; an empty list requests all outputs.
    model_name : str
        Required.
    model_version : int
        -1 for the newest version that is ready.
    flags : int
        `TRITONSERVER_REQUEST_FLAG_SEQUENCE_START` and `_END`.
    timeout : int
        Microseconds in the queue, for models whose queue policy allows it; 0 for the model's own timeout.
    preferred_memory : PreferredMemory
        Memory for the outputs; by default they stay on the device where the callee made them.
    trace : InferenceTrace
        The trace of the request that this one belongs to.
    parameters : dict
        Text keys; bool, int or text values.

    Raises
    ------
    TypeError
        A required argument is missing, or one has a wrong type.
    TritonModelException
        Wrong type of correlation ID or of parameters.
    RuntimeError
        A negative correlation ID.

    Notes
    -----
    The arguments have the same positions and names as in python_backend/src/pb_stub.cc.
    """

    __slots__ = (
        "__weakref__", "_answerable", "_arrived", "_inputs", "_maker", "_model_name", "_model_version", "_observed",
        "_options", "_release_flags", "_requested", "_response_sender", "_site", "_under_way",
    )  # fmt: skip

    _under_way: Callable[[], bool]  # whether the last call waits for its answer
    _site: tuple[Any, ...]  # the stack that sends it, if that is in another process

    # Set on requests that a model receives:
    _arrived: int  # time (ns) when the engine accepted it
    _release_flags: int
    _observed: Any  # `engine.observer.Observed`, or None

    def __init__(
        self,
        request_id: str = "",
        correlation_id: int | str = _ZERO,
        inputs: Sequence[Tensor] = _MISSING,
        requested_output_names: Sequence[str] = _MISSING,
        model_name: str = _MISSING,
        model_version: int = _MINUS_ONE,
        flags: int = _ZERO,
        timeout: int = _ZERO,
        preferred_memory: PreferredMemory | None = _MISSING,
        trace: InferenceTrace | None = _MISSING,
        parameters: dict[str, Any] | None = None,
    ) -> None:
        if model_name.__class__ is not str:
            model_name = _text("model_name", model_name)
        if inputs.__class__ is not list and not is_sequence(inputs):
            raise _type_error("inputs", inputs, "a list of Tensor")
        self._inputs = list(inputs)
        for tensor in self._inputs:
            if tensor.__class__ is not Tensor and not isinstance(tensor, Tensor):
                if tensor is None:
                    raise TritonModelException(_EMPTY.format("Input tensor", request_id, model_name))
                raise _type_error("inputs", tensor, "a list of Tensor")
        if requested_output_names.__class__ is not list:
            if not is_sequence(requested_output_names):
                raise _type_error("requested_output_names", requested_output_names, "a list of str")
            requested_output_names = list(requested_output_names)
        for name in requested_output_names:
            if name.__class__ is not str:
                _text("requested_output_names", name)
            if not name:
                raise TritonModelException(_EMPTY.format("Requested output name", request_id, model_name))
        self._requested = tuple(requested_output_names)
        self._model_name = model_name
        self._model_version = (
            model_version if model_version is _MINUS_ONE else _whole("model_version", model_version, 64, signed=True)
        )
        self._answerable: Answerable | None = None
        self._response_sender: InferenceResponseSender | None = None
        self._maker = caller_var.get()
        if (
            parameters is None
            and flags is _ZERO
            and timeout is _ZERO
            and correlation_id is _ZERO
            and preferred_memory is _MISSING
            and trace is _MISSING
            and request_id.__class__ is str
            and not request_id
        ):
            self._options = DEFAULT_OPTIONS
            return
        if preferred_memory is not _MISSING and not isinstance(preferred_memory, PreferredMemory):
            raise _type_error("preferred_memory", preferred_memory, "a PreferredMemory")
        if trace is not _MISSING and not isinstance(trace, InferenceTrace):
            raise _type_error("trace", trace, "an InferenceTrace")
        if isinstance(correlation_id, int):
            if correlation_id < 0 or correlation_id >= 1 << 64:
                raise RuntimeError(f"Unable to cast correlation_id {correlation_id} to an unsigned 64-bit number")
        elif correlation_id is None:
            raise _type_error("correlation_id", correlation_id, "int or str")
        elif not isinstance(correlation_id, str):
            raise TritonModelException("Correlation ID must be integer or string")
        self._options = Options(
            _text("request_id", request_id),
            int(correlation_id) if isinstance(correlation_id, int) else correlation_id,
            _whole("flags", flags, 32),
            _whole("timeout", timeout, 64),
            parameters_to_json(parameters),
            None if preferred_memory is _MISSING else preferred_memory,
            None if trace is _MISSING else trace,
        )

    def inputs(self) -> list[Tensor]:
        """Return the input tensors."""
        return list(self._inputs)

    def request_id(self) -> str:
        """Return the request's ID."""
        return self._options.request_id

    def correlation_id(self) -> int | str:
        """Return the ID of the sequence that the request belongs to."""
        return self._options.correlation_id

    def flags(self) -> int:
        """Return the sequence flags."""
        return self._options.flags

    def set_flags(self, flags: int, /) -> None:
        """Replace the sequence flags."""
        self._options = replace(self._options, flags=_whole("flags", flags, 32))

    def timeout(self) -> int:
        """Return the timeout, in microseconds."""
        return self._options.timeout

    def parameters(self) -> str:
        """Return the parameters, as JSON text."""
        return self._options.parameters

    def trace(self) -> InferenceTrace:
        """Return the trace, to pass it to BLS requests."""
        return self._options.trace or NO_TRACE

    def requested_output_names(self) -> set[str]:
        """Return the names of the requested outputs."""
        return set(self._requested)

    def exec(self, decoupled: bool = False) -> Any:
        """Send the request and wait for the response.

        Parameters
        ----------
        decoupled : bool
            True for a decoupled model, which sends any number of responses.

        Returns
        -------
        InferenceResponse, or ResponseIterator if `decoupled`
            If the request fails, the response has an error; no exception is raised.

        Raises
        ------
        TritonModelException
            No model is executing.
        """
        if decoupled.__class__ is not bool:
            _check_flag("exec", decoupled)
        caller = caller_var.get()
        if caller is None:
            caller = current_caller(self._maker)
        self._warn_if_sent_twice(caller)
        self._under_way = _always
        try:
            return caller.exec(self, decoupled, _getrefcount(self) == _UNHELD)
        finally:
            self._under_way = _never

    def async_exec(self, decoupled: bool = False) -> asyncio.Future[Any]:
        """Send the request at once, and return an awaitable of what `exec` returns.

        Raises
        ------
        RuntimeError
            There is no running event loop (`execute` is not async).
        TritonModelException
            No model is executing.
        """
        if decoupled.__class__ is not bool:
            _check_flag("async_exec", decoupled)
        caller = caller_var.get()
        if caller is None:
            caller = current_caller(self._maker)
        # Counted where `exec` counts: the argument `self` is a reference, too.
        future = caller.async_exec(self, decoupled, given := _getrefcount(self) == _UNHELD)
        if not given:
            self._warn_if_sent_twice(caller)
            self._under_way = partial(_is_awaited, ref(future))
        return future

    def _warn_if_sent_twice(self, caller: Caller) -> None:
        if getattr(self, "_under_way", _never)():
            caller.note_warnings([_TWICE.format(self._model_name)])

    def get_response_sender(self) -> InferenceResponseSender:
        """Return the sender of this request's responses; only a request that `execute` received has one.

        Outside any model, as in a test that calls `execute` directly, the sender collects the responses:
        `bls_notebook.testing.responses_of(request)`.

        Raises
        ------
        TritonModelException
            `execute` did not receive this request.
        """
        if self._response_sender is None:
            if self._answerable is None:
                if caller_var.get() is not None or find_caller(sys._getframe(1)) is not None:
                    raise TritonModelException(
                        "get_response_sender: only a request that `execute` received can be answered."
                    )
                self._answerable = ByHand()
            self._response_sender = InferenceResponseSender(self._answerable)
        return self._response_sender

    def is_cancelled(self) -> bool:
        """Return whether the requester has cancelled the request.

        Raises a TritonModelException for a request that a model made, and for one that has ended.
        """
        if self._answerable is None and self._maker is not None:
            raise TritonModelException(
                "is_cancelled: only a request that `execute` received can be cancelled; of this call a server dies"
            )
        return self._answerable is not None and self._answerable.is_cancelled()

    def set_release_flags(self, flags: int, /) -> None:
        """Set whether `execute` releases the request or reschedules it (`TRITONSERVER_REQUEST_RELEASE_RESCHEDULE`).

        Raises
        ------
        TypeError
            `flags` is not a whole number from 0 to 2**32 - 1.
        """
        if isinstance(flags, (float, str, bytes)) or not hasattr(flags, "__index__") or not 0 <= int(flags) < 1 << 32:
            raise TypeError(f"set_release_flags(): flags must be a number of 32 bits without sign, got {flags!r}")
        self._release_flags = flags

    def __reduce__(self) -> Any:
        raise unpicklable("InferenceRequest")

    def __repr__(self) -> str:
        return f"InferenceRequest({self._model_name!r}, inputs={self._inputs!r})"


class RecordingNumber:
    """Replaces an expected reference count during calibration, and records the counts that it is compared with.

    Each comparison is false, which means that there are other references, so calibration moves no memory.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self._counts: list[int] = []

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            self._counts.append(other)
        return False

    def unheld(self) -> int:
        """Return the count of the first object, which has no other references; -1 if the others have the same count."""
        unheld, *held = self._counts
        return unheld if held and min(held) > unheld else -1


class _NullCaller:
    """A caller for calibration."""

    def exec(self, request: Any, decoupled: bool, given: bool) -> Any:
        """Do nothing."""


def _calibrate() -> int:
    """Return the number of references to a request inside `exec` and `async_exec` if its sender keeps none.

    The number is measured, because it differs between versions of Python. On Python 3.10 it is -1 (never equal, so
    every tensor is copied), because there a method call keeps its object on the stack as a bound method does.
    """
    global _UNHELD
    recorder = RecordingNumber()
    token = caller_var.set(_NullCaller())  # type: ignore[arg-type]
    _UNHELD = recorder  # type: ignore[assignment]
    try:
        InferenceRequest("", 0, [], [], "m").exec()
        kept = InferenceRequest("", 0, [], [], "m")
        kept.exec()
        bound = InferenceRequest("", 0, [], [], "m").exec
        bound()
    finally:
        caller_var.reset(token)
    return recorder.unheld()


_UNHELD: int = -1
_UNHELD = _calibrate()


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | Any:
    """Return the input tensor with this name, or None."""
    for tensor in inference_request._inputs:
        if tensor._name == name:
            return tensor
    return None


def responses_of(request: InferenceRequest) -> list[InferenceResponse]:
    """Return the responses, in order, that a directly called model sent for a request.

    Parameters
    ----------
    request : InferenceRequest
        A request made outside any model, as in a test, and passed to `execute`.
    """
    return list(request._answerable.responses) if isinstance(request._answerable, ByHand) else []
