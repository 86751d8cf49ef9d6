"""Look at workers from inside: call a function of this package's modules there, and get its result as plain data."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import Future
from functools import cache
from itertools import count
from time import monotonic
from typing import Any

from .backend import ModelProcess
from .messages import Message
from .sources import text_of

log = logging.getLogger("bls_notebook")
SECONDS = 2.0  # until workers answer; native code may keep them from that
_calls = count(1)


@cache
def _texts(modules: tuple[str, ...]) -> dict[str, str]:
    return {name: text_of(name) for name in modules}


def ask(process: ModelProcess, modules: tuple[str, ...], function: str, *arguments: Any) -> Future[Message]:
    """Call a function of the last of some modules in a worker; the module imports only the ones before it.

    The function gets the worker's instance and the arguments. Its Python may be 3.8.
    """
    question = {"modules": _texts(modules), "function": function, "arguments": arguments}
    return process.begin({"op": "probe", "call": next(_calls), **question}, ())


def results(answers: Iterable[Future[Message]]) -> list[Any]:
    """Return the results of workers; None for one that has died, or whose native code keeps the GIL."""
    end = monotonic() + SECONDS
    out = []
    for answer in answers:
        try:
            header = answer.result(max(0.0, end - monotonic())).header
        except Exception:
            header = {}
        if "error" in header:
            log.debug("a worker could not be looked at: %s", header["error"])
        out.append(header.get("result"))
    return out
