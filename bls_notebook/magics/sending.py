"""Sends the requests of ``%bls``: one, several in a row, several at once, or one that streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import bls_notebook as bls
from bls_notebook import Response

from .failing import CellInterrupted
from .output.results import Responses

__all__ = ["send_many", "send_one", "send_stream", "send_together"]

Call = Mapping[str, Any]


def send_one(call: Call, in_loop: bool) -> Response:
    """Send a request by `exec`, or by `async_exec` in an event loop."""
    repository = bls.current_repository()
    try:
        if in_loop:
            response: Response = repository.run(lambda: repository.infer_async(**call))
            return response
        return repository.infer(**call)
    except KeyboardInterrupt:
        raise CellInterrupted(
            "interrupted while waiting for the response; the request was cancelled"
        ) from None


def send_many(call: Call, count: int, arrived: Responses) -> None:
    """Send a request several times, each after the response to the one before."""
    repository = bls.current_repository()
    try:
        for _ in range(count):
            arrived.append(repository.infer(**call))
    except KeyboardInterrupt:
        raise _interrupted(f"{len(arrived)} of {count} requests were answered") from None


def send_together(call: Call, count: int, arrived: Responses) -> None:
    """Send a request several times at once, and gather the responses."""
    repository = bls.current_repository()

    async def gather() -> None:
        arrived.extend(await asyncio.gather(*(repository.infer_async(**call) for _ in range(count))))

    try:
        repository.run(gather)
    except KeyboardInterrupt:
        raise _interrupted(f"{count} requests were under way") from None


def send_stream(
    call: Call, in_loop: bool, arrived: Responses, on_arrival: Callable[[], None] = lambda: None
) -> None:
    """Send a request to a decoupled model and collect its responses as they arrive."""
    repository = bls.current_repository()

    def take(response: Response) -> None:
        arrived.append(response)
        on_arrival()

    async def walk() -> None:
        async for response in repository.stream_async(**call):
            take(response)

    arrived.running = True
    try:
        if in_loop:
            repository.run(walk)
        else:
            for response in repository.stream(**call):
                take(response)
        arrived.complete = True
    except KeyboardInterrupt:
        raise _interrupted(f"{len(arrived)} responses had arrived") from None
    finally:
        arrived.running = False


def _interrupted(state: str) -> CellInterrupted:
    return CellInterrupted(f"interrupted: {state}; what was under way was cancelled")
