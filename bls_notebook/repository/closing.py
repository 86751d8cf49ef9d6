"""The end of a repository: `close`, and what `ending` asks of it.

Guarantees: `close` returns in time, and with an answer for every request; no model is put in service after
it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.server import Server
from bls_notebook.engine.errors import BLSError
from bls_notebook.engine.waiting.ctrl_c import CtrlC
from bls_notebook.engine.waiting.threads import start_in_thread
from bls_notebook.pb_utils._runtime import caller_var

from .control import Poller
from .ending import finish_closing
from .source.model_source import SourceFolder
from .turns import Turn

__all__ = ["Closing"]

CLOSE_SECONDS = 5.0


class Closing:
    """The part of a repository that ends it."""

    _server: Server
    _folder: SourceFolder
    _closed: bool
    _lock: threading.Lock
    _loading: dict[str, Turn]
    _poll_lock: Turn
    _poller: Poller | None
    _remove_files: weakref.finalize[Any, Any]

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._closed

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Unload every model and remove what was written for those of cells; the second time, nothing.

        Parameters
        ----------
        seconds : float
            How long to wait for requests in flight and for `finalize`. What is in flight then is answered
            with an error; a request that runs in its caller's own thread ends when its `execute` does.
            Whatever still runs is left to itself.
        """
        if not isinstance(seconds, (int, float)) or not seconds >= 0:
            raise BLSError(f"close: seconds: got {seconds!r}, expected a number from 0 on")
        self._not_by_a_model("close")
        with CtrlC():
            try:
                finish_closing(self.begin_closing(), seconds)
            finally:
                self.remove_files()

    def begin_closing(
        self, start: Callable[[Callable[[], None]], None] = start_in_thread
    ) -> list[LoadedModel]:
        """Take every model out of service; return them. They are finalized in threads that `start` finds."""
        with self._lock:
            if self._closed:
                return []
            self._closed = True
            left = [m for name in self._server.names() for m in self._server.exchange(name, {}).values()]
        if self._poller is not None:
            self._poller.stop()
        self._server.last_failure = None
        for model in left:
            model.close(elsewhere=start)
        return left

    def models_in_service(self) -> list[LoadedModel]:
        """Return the models that serve."""
        return [m for name in self._server.names() for m in self._server.serving(name).values()]

    def remove_files(self) -> None:
        """Remove what was written for models of cells."""
        self._remove_files()

    def leave_behind(self) -> None:
        """Have no part in the models any more: in a forked child they are its parent's."""
        self._closed = True
        self._remove_files.detach()
        self._folder = SourceFolder()
        self._loading = {}
        self._lock = threading.Lock()
        self._poll_lock = Turn()

    def _not_by_a_model(self, verb: str) -> None:
        """Refuse what a model cannot do to its own repository: it would wait for its own end."""
        caller = caller_var.get()
        if isinstance(caller, Execution) and caller.server is self._server and caller.runs_a_model:
            raise BLSError(
                f"{verb}: model {caller.model_name!r} cannot {verb} the repository that it runs in, which "
                "would wait for it to end; call it from the notebook, or unload single models "
                "(pb_utils.unload_model)"
            )
