"""`undivided`: keeps Ctrl-C out of what changes a repository."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from bls_notebook.engine.forked import in_own_process
from bls_notebook.engine.waiting.ctrl_c import CtrlC

_C = TypeVar("_C")
_P = ParamSpec("_P")
_R = TypeVar("_R")


def undivided(method: Callable[Concatenate[_C, _P], _R]) -> Callable[Concatenate[_C, _P], _R]:
    """Keep Ctrl-C out of a change of a repository, but for where it runs code of a model or waits."""

    @wraps(method)
    def call(self: _C, /, *args: _P.args, **options: _P.kwargs) -> _R:
        server: Any = self.server  # type: ignore[attr-defined]
        if not in_own_process(server):
            server.serving("")  # says why not
        with CtrlC():
            return method(self, *args, **options)

    return call
