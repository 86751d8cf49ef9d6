"""`InferenceResponse`: output tensors, or an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .errors import TritonError, TritonModelException, is_sequence, unpicklable
from .options import parameters_to_json
from .tensor import Tensor


def _type_error(argument: str, value: object, wanted: str) -> TypeError:
    return TypeError(
        "__init__(): incompatible constructor arguments: InferenceResponse(output_tensors: list[Tensor] "
        f"= [], error: TritonError = None, parameters: dict = None); {argument} must be {wanted}, "
        f"got {value!r} of type {type(value).__name__}"
    )


class InferenceResponse:
    """The answer to one request.

    Parameters
    ----------
    output_tensors : list of Tensor
        The outputs; those that the requester did not ask for are withheld when it is sent.
    error : TritonError
        Why there is no answer; outputs beside an error are not sent.
    parameters : dict
        Text keys; bool, int or text values.

    Raises
    ------
    TypeError
        An argument of a wrong type.
    TritonModelException
        Parameters of a wrong type.
    """

    __slots__ = ("__weakref__", "_arrived", "_error", "_outputs", "_parameters", "_warnings")

    def __init__(
        self,
        output_tensors: Sequence[Tensor] = (),
        error: TritonError | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> None:
        if output_tensors.__class__ is not list and not is_sequence(output_tensors):
            raise _type_error("output_tensors", output_tensors, "a list of Tensor")
        outputs = list(output_tensors)
        for tensor in outputs:
            if tensor.__class__ is not Tensor and not isinstance(tensor, Tensor):
                if tensor is None:
                    raise TritonModelException("Output tensor for inference response should not be empty.")
                raise _type_error("output_tensors", tensor, "a list of Tensor")
        if error is not None and not isinstance(error, TritonError):
            raise _type_error("error", error, "a TritonError")
        if error is not None and type(error) is not TritonError:
            error = error._plain()  # the server gets what it is made of, not the model's class
        self._outputs: list[Tensor] = outputs
        self._error = error
        self._parameters = "{}" if parameters is None else parameters_to_json(parameters)
        self._warnings: tuple[str, ...] = ()
        self._arrived = 0.0

    def output_tensors(self) -> list[Tensor]:
        """Return the output tensors."""
        return list(self._outputs)

    def has_error(self) -> bool:
        """Whether the request failed."""
        return self._error is not None

    def error(self) -> TritonError | Any:
        """Return the error, None where there is none."""
        return self._error

    def parameters(self) -> str:
        """Return the parameters, as JSON text."""
        return self._parameters

    def __reduce__(self) -> Any:
        raise unpicklable("InferenceResponse")

    def __repr__(self) -> str:
        if self._error is not None:
            return f"InferenceResponse(error={self._error!r})"
        return f"InferenceResponse({self._outputs!r})"


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | Any:
    """Return the output tensor of that name, None where there is none."""
    for tensor in inference_response._outputs:
        if tensor._name == name:
            return tensor
    return None
