"""The code to write for calls that could overlap, and the changed model run beside the one that is written.

Guarantees: the model that serves stays loaded, with what it remembers, and serves again after every run; the
changed one is unloaded at the end, also on an error and on Ctrl-C. No file is written to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.errors import BLSError
from bls_notebook.records.seen import CodeLine
from bls_notebook.records.visible import first_line
from bls_notebook.repository.loading.loader import load_versions
from bls_notebook.repository.repository import ModelRepository
from bls_notebook.repository.rewriting.rewrite import rewritten
from bls_notebook.repository.rewriting.template import template
from bls_notebook.repository.source.changes import numbered_change
from bls_notebook.repository.source.model_source import ModelSource, SourcePlace

from .analysis.overlap import changed_proof, most_together, sent_often
from .analysis.span_tree import SpanTree
from .records.overlap import CodeChange
from .records.program import Program
from .records.session import Session
from .sequential import Sequential
from .workload import Run, measure

_FILE = "model.py"


class _Written(NamedTuple):
    """The source of a model, what it is called, and the number of its first line there."""

    text: str
    label: str
    first: int


def code_to_write(repository: ModelRepository, model: str, programs: Sequence[Program]) -> CodeChange:
    """Return the change that has the calls of these programs in flight together."""
    loaded = _newest(repository, model)
    record = repository.record(model)
    folder = "" if record.source == "cell" else record.source
    written = _written(loaded)
    calls = most_together(programs)
    by_hand = template(calls)
    if written is None:
        lines = tuple(dict.fromkeys(call.line for call in calls if call.line is not None))
        return CodeChange(_FILE, folder, lines, reason="its source is not in a model.py", template=by_hand)
    text, label, first = written
    seen = {line - first + 1 for p in programs for c in p.calls for line in c.lines}
    often = {line - first + 1 for line in sent_often(programs)}
    found = rewritten(text, frozenset(seen), frozenset(often), _stateful(repository, programs))
    split = text.splitlines()
    numbers = found.lines or sorted({call.lines[-1] - first + 1 for call in calls if call.lines})
    lines = tuple(
        CodeLine(label, n + first - 1, "", split[n - 1].strip()) for n in numbers if 0 < n <= len(split)
    )
    if not found.source:
        reason = _renumbered(found.reason, first)
        return CodeChange(label, folder, lines, reason=reason, template=by_hand)
    change = numbered_change("", text, found.source, first)
    return CodeChange(label, folder, lines, found.source, change)


def _renumbered(reason: str, first: int) -> str:
    """A reason with the numbers of lines as they are in the cell."""
    return re.sub(r"\bline (\d+):", lambda found: f"line {int(found[1]) + first - 1}:", reason)


def _newest(repository: ModelRepository, model: str) -> LoadedModel:
    serving = repository._server.serving(model)
    return serving[max(serving)]


def _written(model: LoadedModel) -> _Written | None:
    home: Any = next((i.modules for i in (*model.instances, *model.passive) if i.modules is not None), None)
    found = None if home is None else home.written(str(Path(model.directory, _FILE)))
    if found is None:
        return None
    text, place = found
    label = place.label if place.line > 1 else f"{model.name}/{model.version}/{_FILE}"
    return _Written(text, label, place.line)


def _stateful(repository: ModelRepository, programs: Sequence[Program]) -> frozenset[str]:
    """The models whose requests have an order."""
    calls = [call for program in programs for call in program.calls]
    found = {call.model for call in calls if call.ordered}
    for name in {call.model for call in calls} - found:
        model = repository._server.find(name)
        if model is not None and model.spec.scheduler == "sequence":
            found.add(name)
    return frozenset(found)


# -- the proof -------------------------------------------------------------------------------------------


def proven(workload: Sequential, code: CodeChange, predicted: float, repeat: int | None) -> CodeChange:
    """Run the changed model beside the model as it is written, and say what came of it."""
    changed = _Changed(workload.repository, workload.model, workload.inputs)
    try:
        with changed.loaded(code), changed.told:
            changed.sequential()
            warmed = changed.both()
            setting = measure(changed, 0, repeat, -1.0, warmed)
    except BLSError as error:
        why = f"the changed model cannot be loaded: {first_line(str(error))}"
        return replace(code, proof=f"Not proven: {why}. Nothing is applied.")
    measured = setting.measured
    rounds = len(setting.gathered_walls) + 1
    problem = f"Not equal: {changed.problem}" if changed.problem else ""
    if not problem and setting.problem:
        problem = f"Not proven: {setting.problem}"
    if not problem and not overlapped(setting.gathered):
        problem = "Not proven: the calls were not in flight together"
    said = changed_proof(measured, predicted, rounds, problem)
    is_proven = not problem and said.startswith("Proven")
    return replace(code, proof=said, proven=is_proven, speedup=0.0 if problem else measured.speedup)


def overlapped(session: Session) -> bool:
    """Whether a request of a session had two calls in flight at a time."""
    tree = SpanTree(session)
    for root in tree.children.get(0, ()):
        calls = sorted(tree.children.get(root.id, ()), key=lambda span: span.sent)
        if any(later.sent < before.ended for before, later in pairwise(calls)):
            return True
    return False


class _Changed(Sequential):
    """Requests one after the other: to the model as it is written, and to the changed one."""

    _served: dict[int, LoadedModel]

    @contextmanager
    def loaded(self, code: CodeChange) -> Iterator[None]:
        from google.protobuf.json_format import MessageToDict  # heavy, and first needed here

        repository, name = self.repository, self.model
        serving = _newest(repository, name)
        config: dict[str, Any] = MessageToDict(repository.config(name), preserving_proto_field_name=True)
        config["version_policy"] = {"specific": {"versions": [serving.version]}}
        folder = Path(serving.directory)
        place = SourcePlace(str(folder / "changed_model.py"), f"{code.file}, changed", 1, code.source)
        source = ModelSource(name, folder.parent, str(folder.parent), config, True, place=place)
        with repository._catalog.service.lock_of(name):
            self._served = load_versions(repository._server, source)
        try:
            yield
        finally:
            repository._server.close_all(self._served.values())

    def gathered(self) -> Run:
        repository, name = self.repository, self.model
        lock, server = repository._catalog.service.lock_of(name), repository._server
        with lock:
            before = server.own(name)
            server.exchange(name, {**before, **self._served})
        try:
            run = self.answers_compared("calls in flight together")
        finally:
            with lock:
                server.exchange(name, before)
        return run
