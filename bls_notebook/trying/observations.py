"""Observations of the code of models in a trial: files that it misses, and tokenizers that bytes replace.

Models in the kernel are observed there. A model in a process gets a prelude, which observes it there and sends notes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from bls_notebook.backends import Prelude
from bls_notebook.engine import Execution, caller_var, home_of
from bls_notebook.records import Stubbed
from bls_notebook.repository.source import ModelSource

from .hub_offline import replace_unavailable
from .missing_files import looked_for

_HERE = Path(__file__).parent
TOKENIZER = json.loads((_HERE / "byte_tokenizer.json").read_text("utf-8"))
_replaced: set[str] = set()  # tokenizers that a model of this process got as bytes: its next loads get the same
_found: list[str] | None = None  # of the present load, inside `byte_tokenizers`


class MissingFiles:
    """The files that models look for in vain, by model, while the trial of a project runs."""

    def __init__(self, project: Path) -> None:
        self.by_model: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._project = project
        self._recording = False

    @contextmanager
    def recorded(self) -> Iterator[None]:
        self._recording = True
        try:
            with looked_for(self._look):
                yield
        finally:
            self._recording = False

    def _look(self, path: str, frames: list[FrameType]) -> None:
        homes = [home for frame in frames if (home := home_of(frame.f_globals)) is not None]
        file = frames[0].f_code.co_filename
        own = Path(file).is_relative_to(self._project) and "site-packages" not in file
        if homes and (own or home_of(frames[0].f_globals) is not None):
            self.by_model[homes[0].model][path] = None

    def prelude(self, source: ModelSource, uses_hub: bool) -> Prelude:
        """Return the prelude of a model's process."""
        modules: dict[str, tuple[str, dict[str, Any]]] = {}
        if self._recording:
            folders = [str(self._project), str(source.folder), str(source.folder.resolve())]
            modules["missing_files"] = (_text("missing_files"), {"folders": folders})
        if uses_hub:
            names = None if _found is not None else sorted(_replaced)
            modules["hub_offline"] = (_text("hub_offline"), {"names": names, "data": TOKENIZER})
        return Prelude(modules, partial(self._noted, source.name))

    def _noted(self, model: str, kind: str, text: str) -> None:
        if kind != "file":
            _noted(kind, text)
        elif self._recording:
            self.by_model[model][text] = None


def _text(module: str) -> str:
    return (_HERE / f"{module}.py").read_text("utf-8")


@contextmanager
def byte_tokenizers(wanted: bool, in_kernel: bool) -> Iterator[list[str]]:
    """Replace unavailable tokenizers of `transformers` in a ``with``, and in later loads of models that use them.

    Yields the list of their names. Does nothing unless `wanted`, because importing the package takes seconds.
    """
    global _found
    found = list[str]()
    if wanted:
        if in_kernel:
            replace_unavailable(_way, _noted, TOKENIZER)
        _found = found
    try:
        yield found
    finally:
        _found = None


def _way(name: str) -> str:
    if _found is not None:
        return "try"
    return "offline" if name in _replaced and caller_var.get() is not None else ""


def _noted(kind: str, name: str) -> None:
    if kind == "replaced":
        _replaced.add(name)
        if _found is not None:
            _found.append(name)
    elif isinstance(execution := caller_var.get(), Execution):
        execution.note_warnings((Stubbed(f"the tokenizer {name}"),))
