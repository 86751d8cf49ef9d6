"""Work that may take long, in one of the engine's threads, which nobody has to wait for at the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from bls_notebook.engine.waiting.threads import start_in_thread

_Result = TypeVar("_Result")


async def elsewhere(function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Await a call of a function in another thread."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Result] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if future.done():
            return  # nobody waits for it any more
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def run() -> None:
        result, failed = None, None
        try:
            result = function(*arguments)
        except Exception as error:
            failed = error
        with contextlib.suppress(RuntimeError):  # the endpoint has been stopped
            loop.call_soon_threadsafe(partial(settle, result, failed))

    start_in_thread(run)
    return await future
