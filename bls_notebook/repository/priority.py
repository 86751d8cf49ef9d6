"""The request parameter that Triton's HTTP endpoint keeps for itself: ``priority``.

Only requests from outside any model have one; a model cannot give its BLS requests a priority.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bls_notebook.engine.errors import BLSError
from bls_notebook.pb_utils.request import InferenceRequest, Options

__all__ = ["split_parameters", "with_priority"]


def split_parameters(parameters: Mapping[str, Any] | None) -> tuple[dict[str, Any] | None, int]:
    """Return the parameters that reach the model, and the priority; 0 for the default level.

    Raises
    ------
    BLSError
        The priority is not a whole number from 0 on.
    """
    if not parameters:
        return None, 0
    own = dict(parameters)
    priority = own.pop("priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int) or priority < 0:
        raise BLSError(
            f"parameters: 'priority' is the request's level of priority, a whole number from 0 on; "
            f"got {priority!r}"
        )
    return own or None, priority


def with_priority(request: InferenceRequest, priority: int) -> InferenceRequest:
    """Return the request with a level of priority; it must not have been sent yet."""
    old = request._options
    request._options = Options(
        old.request_id,
        old.correlation_id,
        old.flags,
        old.timeout,
        old.parameters,
        old.preferred_memory,
        old.trace,
        priority,
    )
    return request
