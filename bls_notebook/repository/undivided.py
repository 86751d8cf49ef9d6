"""`undivided`: keeps Ctrl-C out of what changes a repository."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from bls_notebook.engine.core.server import Server
from bls_notebook.engine.forked import in_own_process
from bls_notebook.engine.waiting.ctrl_c import CtrlC


class _Catalog(Protocol):
    @property
    def server(self) -> Server:
        """The models in service."""


_C = TypeVar("_C", bound=_Catalog)
_P = ParamSpec("_P")
_R = TypeVar("_R")


def undivided(method: Callable[Concatenate[_C, _P], _R]) -> Callable[Concatenate[_C, _P], _R]:
    """Keep Ctrl-C out of a change of a repository, but for where it runs code of a model or waits."""

    @wraps(method)
    def call(self: _C, /, *args: _P.args, **options: _P.kwargs) -> _R:
        if not in_own_process(self.server):
            self.server.serving("")  # says why not
        with CtrlC():
            return method(self, *args, **options)

    return call
