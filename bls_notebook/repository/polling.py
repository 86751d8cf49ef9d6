"""Polling: load, reload and unload models as the repository's folders change."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable

from bls_notebook.engine.errors import BLSError
from bls_notebook.progress import stepped

from .source.fingerprints import signature
from .source.names import check_model_name
from .source.namespaces import Namespaces, model_of
from .versions_in_service import NameLock

log = logging.getLogger("bls_notebook")


class FolderPolling:
    """Loads, reloads and unloads the models whose folders have changed since the last poll.

    Folders of models that `cells` define are ignored.
    """

    def __init__(
        self,
        namespaces: Namespaces,
        cells: Iterable[str],
        load: Callable[[str], object],
        unload: Callable[[str], object],
    ) -> None:
        self._namespaces, self._cells, self._load, self._unload = namespaces, cells, load, unload
        self._signatures: dict[str, object] = {}
        self._problems: dict[str, str] = {}
        self._lock = NameLock()

    def follow(self) -> list[str]:
        """Check the folders now; return the names of the models that were loaded or unloaded.

        A failed load is logged once per error, and the next poll tries again.
        """
        changed = []
        with self._lock:
            present = sorted(set(self._namespaces.keys()).difference(self._cells))
            twice = self._namespaces.duplicates()
            for name in stepped(present, "models", len(present)):
                try:
                    check_model_name(model_of(name))
                    current = signature(self._namespaces.find(name))
                    if self._signatures.get(name) == current:
                        continue
                    self._load(name)
                except BLSError as error:
                    if self._problems.get(name) != str(error):
                        log.error("%s", error)
                    self._problems[name] = str(error)
                    continue
                self._problems.pop(name, None)
                self._signatures[name] = current
                changed.append(name)
            for name in [n for n in self._signatures if n not in present or n in twice]:
                del self._signatures[name]
                self._unload(name)
                changed.append(name)
        return changed


def poll_every(method: weakref.WeakMethod[Callable[[], object]], seconds: float, closing: threading.Event) -> None:
    """Call a method every `seconds` in a daemon thread, until `closing` is set or the method's object is gone."""

    def poll() -> None:
        while not closing.wait(seconds):
            call = method()
            if call is None:
                return
            try:
                call()
            except BaseException as error:
                log.error("polling the model repository failed: %s: %s", type(error).__name__, error)
            del call

    threading.Thread(target=poll, name="bls-poll", daemon=True).start()
