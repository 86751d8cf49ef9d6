"""The difference between two sessions of one workload, model by model. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from bls_notebook.profiling.records.spans import NOTEBOOK, SessionData, Span
from bls_notebook.records.base import Record
from bls_notebook.records.measurements import NONE, Quartiles, quartiles

from .call_graph import label, of_several_versions


@dataclass(frozen=True, slots=True, repr=False)
class TimeChange(Record):
    """One quantity before and after, in ns per request.

    ``verdict`` is faster or slower if each median is outside the other's quartiles, otherwise same; it is ""
    if one of the sessions has no requests to the model.
    """

    before: Quartiles = NONE
    after: Quartiles = NONE
    verdict: str = ""

    @property
    def factor(self) -> float:
        """The speedup of the median; 0 if unknown."""
        return self.before.median / self.after.median if self.verdict and self.after.median else 0.0


NO_CHANGE = TimeChange()


@dataclass(frozen=True, slots=True, repr=False)
class ModelChange(Record):
    """A model before and after; ``code`` and ``config`` are same, changed, or unknown.

    ``moved`` lists changes in how and where it ran, such as "cpu to gpu:0" or "1 to 4 instances".
    """

    name: str
    duration: TimeChange = NO_CHANGE
    queue: TimeChange = NO_CHANGE
    code: str = "unknown"
    config: str = "unknown"
    moved: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Difference(Record):
    """Two sessions compared; ``before`` and ``after`` are their names.

    ``span_*`` is the time from the first request to the last answer (ns). ``code`` is same if the source and
    the configuration of every model are equal in both, changed if one differs, else unknown.
    """

    before: str = ""
    after: str = ""
    span_before: int = 0
    span_after: int = 0
    code: str = "unknown"
    models: tuple[ModelChange, ...] = ()


def direction(before: Quartiles, after: Quartiles) -> str:
    """Return whether times became faster, slower, or stayed the same within their spread."""
    if not before.count or not after.count:
        return ""
    if after.median < before.q1 and before.median > after.q3:
        return "faster"
    if after.median > before.q3 and before.median < after.q1:
        return "slower"
    return "same"


class _Side:
    def __init__(self, session: SessionData) -> None:
        several = of_several_versions(session.spans)
        self.models: defaultdict[str, list[Span]] = defaultdict(list)
        for span in session.spans:
            self.models[label(span, several)].append(span)
        self.seen = {m.name if m.name not in several else f"{m.name}/{m.version}": m for m in session.models}
        self.guessed = session.sender != NOTEBOOK  # a server's trace does not record instances
        self.length = max((s.ended for s in session.spans), default=0) - min((s.sent for s in session.spans), default=0)


def difference(before: SessionData, after: SessionData) -> Difference:
    """Compare two sessions of one workload."""
    old, new = _Side(before), _Side(after)
    models = tuple(_model(name, old, new) for name in sorted(old.models.keys() | new.models.keys()))
    words = {m.code for m in models} | {m.config for m in models}
    return Difference(
        before.name,
        after.name,
        old.length,
        new.length,
        next((word for word in ("changed", "unknown", "same") if word in words), "unknown"),
        models,
    )


def _change(old: Iterable[int], new: Iterable[int]) -> TimeChange:
    before, after = quartiles(old), quartiles(new)
    return TimeChange(before, after, direction(before, after))


def _model(name: str, old: _Side, new: _Side) -> ModelChange:
    before, after = old.models.get(name, []), new.models.get(name, [])
    was, is_now = old.seen.get(name), new.seen.get(name)
    moved = _moved(before, after)
    known = not (old.guessed or new.guessed)
    if known and was is not None and is_now is not None and len(was.instances) != len(is_now.instances):
        moved += (f"{len(was.instances)} to {len(is_now.instances)} instances",)
    return ModelChange(
        name,
        _change((s.duration for s in before), (s.duration for s in after)),
        _change((s.queue for s in before), (s.queue for s in after)),
        _same(was.code if was else "", is_now.code if is_now else ""),
        _same(was.config if was else "", is_now.config if is_now else ""),
        moved,
    )


def _same(before: str, after: str) -> str:
    if not before or not after:
        return "unknown"
    return "same" if before == after else "changed"


def _moved(before: list[Span], after: list[Span]) -> tuple[str, ...]:
    """Return the changes in how and where requests ran, in words."""
    out: list[str] = []
    if not before or not after:
        return ()
    if len(before) != len(after):
        out.append(f"{len(before)} to {len(after)} calls")
    devices = ({s.device for s in spans if s.device and s.ran} for spans in (before, after))
    kinds = ({s.kind for s in spans} for spans in (before, after))
    for was, is_now in (map(sorted, devices), map(sorted, kinds)):
        if was != is_now and was and is_now:
            out.append(f"{' and '.join(was)} to {' and '.join(is_now)}")
    alone, together = (sum(s.batch > 0 for s in spans) for spans in (before, after))
    if bool(alone) != bool(together):
        out.append("batched" if together else "no longer batched")
    return tuple(out)
