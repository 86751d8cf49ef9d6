"""Where threads stand in a model's code: looked at again and again while requests run.

Guarantees: threads are looked at, never stopped; looking ends with the `with`.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from itertools import islice
from types import CodeType, TracebackType

from bls_notebook.devices.tracking.stacks import no_collection, walk_back
from bls_notebook.engine.description import HOME, ModelHome
from bls_notebook.observe.records.seen import CodeLine

from .code_lines import line_of

_PAUSE = 0.002  # seconds between two looks
_FRAMES = 40  # from the innermost on


class Standing:
    """Looks at where the threads that run a model stand.

    Parameters
    ----------
    model : str
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._seen: Counter[tuple[CodeType, int]] = Counter()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="bls-standing", daemon=True)

    def __enter__(self) -> Standing:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(_PAUSE):
            with no_collection():
                for frame in sys._current_frames().values():
                    for each in islice(walk_back(frame), _FRAMES):
                        home = dict.get(each.f_globals, HOME)
                        if home is not None and issubclass(type(home), ModelHome):
                            if home.model == self._model:
                                self._seen[each.f_code, each.f_lasti] += 1
                            break

    @property
    def line(self) -> CodeLine | None:
        """The line at which most stood; None where nobody was seen."""
        if not self._seen:
            return None
        ((code, last), _), *_ = self._seen.most_common(1)
        return line_of((code, last, self._model))
