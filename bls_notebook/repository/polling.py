"""Polling: models follow what changes in the repository's folders."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Container, Sequence
from pathlib import Path

from bls_notebook.engine.errors import BLSError
from bls_notebook.progress import stepped

from .locks import NameLock
from .source.fingerprints import signature
from .source.layout import find_model, model_names
from .source.names import check_model_name

log = logging.getLogger("bls_notebook")


class FolderPolling:
    """Loads, loads again and unloads what has changed in folders since the last look.

    Folders with the names of models that `cells` define are left alone.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        cells: Container[str],
        load: Callable[[str], object],
        unload: Callable[[str], object],
    ) -> None:
        self._paths, self._cells, self._load, self._unload = paths, cells, load, unload
        self._seen: dict[str, object] = {}
        self._problems: dict[str, str] = {}
        self._lock = NameLock()

    def follow(self) -> list[str]:
        """Look at the folders now; return the names of the models that were loaded or unloaded.

        A model that fails to load is logged once, and tried again the next time.
        """
        changed = []
        with self._lock:
            present = [name for name in model_names(self._paths) if name not in self._cells]
            for name in stepped(present, "models", len(present)):
                try:
                    check_model_name(name)
                    found = signature(find_model(self._paths, name))
                    if self._seen.get(name) == found:
                        continue
                    self._load(name)
                except BLSError as error:
                    if self._problems.get(name) != str(error):
                        log.error("%s", error)
                    self._problems[name] = str(error)
                    continue
                self._problems.pop(name, None)
                self._seen[name] = found
                changed.append(name)
            for name in [n for n in self._seen if n not in present]:
                del self._seen[name]
                self._unload(name)
                changed.append(name)
        return changed


class Poller:
    """Calls something every so many seconds, in a daemon thread, as long as it exists."""

    def __init__(self, what: weakref.WeakMethod[Callable[[], object]], seconds: float) -> None:
        self._what = what
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bls-poll", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            call = self._what()
            if call is None:
                return
            try:
                call()
            except BaseException as error:
                log.error("polling the model repository failed: %s: %s", type(error).__name__, error)
            del call

    def stop(self) -> None:
        """Call no more. Does not wait for a call under way."""
        self._stop.set()
