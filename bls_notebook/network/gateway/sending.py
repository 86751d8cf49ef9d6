"""Sends decoded requests to the models of this process."""

from __future__ import annotations

from typing import Any

from bls_notebook.engine.calling import root_of
from bls_notebook.network.kserve.errors import of_model
from bls_notebook.network.kserve.request import DecodedRequest
from bls_notebook.pb_utils import InferenceResponse


def send(call: DecodedRequest) -> Any:
    """Send a call whose model answers once; return an asyncio future, which cancels the request with it."""
    return root_of(call.model.server).async_exec(call.request(), False, True)


def send_stream(call: DecodedRequest) -> Any:
    """Send a call; return an asyncio future of the stream of its responses."""
    return root_of(call.model.server).async_exec(call.request(), True, True)


def answered(response: InferenceResponse) -> InferenceResponse:
    """Return a response; an error is raised."""
    if response._error is not None:
        raise of_model(response._error)
    return response


def is_empty(response: InferenceResponse) -> bool:
    """Whether a response is a final flag alone."""
    return not response._outputs and response._error is None
