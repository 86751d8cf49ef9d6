"""Layout of a timeline: the lane, row and height of every span. Pure.

The first lane is the notebook. Each instance has a lane, and so has each GPU with device time. Requests that
never ran have a lane of their model without an instance; idle instances of a model share one. Overlapping spans
of a lane (of a decoupled model's event loop) are in separate rows; spans of one batch share a row. `Panel` adds
the pixels, for the picture and for the widget that covers it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any

from bls_notebook.profiling.analysis.call_graph import of_several_versions
from bls_notebook.profiling.analysis.span_tree import SpanTree
from bls_notebook.profiling.intervals import Interval, Rows, gaps, union
from bls_notebook.profiling.session import ModelSeen, Session, Span
from bls_notebook.records import count, grouped


class Bins:
    """The coverage of each of `count` equal parts of a `wall` time (ns); overlapping intervals add up."""

    def __init__(self, count: int, wall: int) -> None:
        self._scale = count / max(wall, 1)
        self._count = count
        self._parts = [0.0] * (count + 1)
        self._whole = [0] * (count + 2)  # changes, to be summed up

    def add(self, begin: float, end: float) -> None:
        first, last = max(0, begin * self._scale), min(end * self._scale, self._count)
        if last <= first:
            return
        i, j = int(first), int(last)
        if i == j:
            self._parts[i] += last - first
            return
        self._parts[i] += i + 1 - first
        self._parts[j] += last - j
        self._whole[i + 1] += 1
        self._whole[j] -= 1

    @property
    def covered(self) -> list[float]:
        """The covered fraction of each part: 1 if one interval covers all of it, 2 if two do."""
        whole = accumulate(self._whole)
        return [part + full for part, full in zip(self._parts[: self._count], whole, strict=False)]


# A wait is drawn above the lane if it is at least this fraction of the session, or of the run after it.
_OF_SESSION = 1 / 400
_OF_RUN = 0.5
_COUNTED = 9  # the most requests of a lane that a reader counts
_OVERTAKEN = 0.1  # a response that comes earlier than a previous call's by this fraction of a call has overtaken it
_RUNS = 3  # the most ranges of idle instances that are listed; beyond that they are counted


@dataclass(frozen=True, slots=True)
class Lane:
    """One line of the timeline.

    ``kind`` is notebook, instance, idle (all unused instances of a model), refused (requests of a model that
    never ran) or gpu; ``name`` is the name of the instance or device, or lists the idle instances; ``rows`` and
    ``waits`` count its rows of blocks and of queued requests, ``requests`` those that ran there. ``seen`` is the
    record of its model, if there is one; ``first``: the lane is the uppermost of its model.
    """

    kind: str
    name: str
    model: str = ""
    version: int = 0
    rows: int = 1
    waits: int = 0
    seen: ModelSeen | None = None
    first: bool = True
    requests: int = 0

    @property
    def count(self) -> str:
        """The number of its requests, as the end of a label: `` ×60``; empty if a reader can count the blocks."""
        return f" ×{self.requests:,}" if self.kind == "instance" and self.requests > _COUNTED else ""

    @property
    def waits_for_loop(self) -> bool:
        """Return whether queued requests wait for an event loop: its instance is free, as coroutines share it."""
        model = self.seen if self.waits else None
        return model is not None and model.is_async and model.decoupled and model.scheduler == "default"

    @property
    def label(self) -> str:
        """The text that distinguishes the lane from the others of its model."""
        if self.kind == "refused":
            return "never ran"
        if self.kind == "idle":
            return f"{self.name} idle"
        if self.kind == "notebook":
            return ""
        if self.kind != "instance":
            return self.name.partition("://")[2].removesuffix(" (mean)") or "device"
        short, model = _short(self.name, self.model), self.seen
        if model is None:
            return short
        if model.remote:
            return "remote"
        kinds = (
            "stub" if model.stub else "",
            "async" if model.is_async else "",
            "decoupled" if model.decoupled else "",
        )
        return " ".join(filter(None, (short, *(kinds if self.first else kinds[:1]))))

    @property
    def title(self) -> str:
        """The owner of the lane: its model, the notebook, a GPU, or "server" for remote servers."""
        return "server" if self.kind == "gpu" and "://" in self.name else self.model or self.name


def _short(instance: str, model: str) -> str:
    """Return an instance's name without the model's name: ``3`` for ``resize_0_3``."""
    short = instance.removeprefix(model).strip("_") if instance != model else ""
    return short.removeprefix("0_")


class TimelineLayout:
    """The positions of a session's spans, all in the order of `Session.spans`; equal sessions give equal layouts.

    ``lanes`` are from top to bottom: callers above their callees, lanes of one model together, GPUs at the end;
    the notebook has a lane if it sent a request. Each span runs in a ``lane`` and ``row``; ``wait`` is the row
    of its time in the queue, counted upwards from the blocks, -1 if it hardly waited. ``first`` is the index of
    the first span of its batch; the batch shares a row, of which the span has ``part`` number ``part`` of
    ``parts``. ``device`` is the lane of the GPU with its device time, -1 for none, and ``device_row`` the row
    there. ``parent`` is the index of its caller; -1 for the notebook, or if the caller was not recorded. ``ghosts``
    have their span, begin and end, and which of how many slices of its block they fill: those of a lane overlap.
    ``turns`` maps calls of which the responses came in another order to their numbers as a call and as a response.
    """

    def __init__(self, session: Session) -> None:
        self._spans = spans = session.spans
        count, index = len(spans), {span.id: i for i, span in enumerate(spans)}
        self.parent = [index.get(span.parent, -1) if span.parent else -1 for span in spans]
        keys = _lanes(session, self.parent)
        number = {key: i for i, key in enumerate(keys)}
        self.lane = [number[_key(span)] for span in spans]
        self.device = [number[("gpu", span.device, "", 0)] if span.device_ns >= 0 else -1 for span in spans]
        self.row, self.wait, self.device_row = [0] * count, [-1] * count, [0] * count
        self.first, self.part, self.parts = list(range(count)), [0] * count, [1] * count
        self._long = session.wall * _OF_SESSION
        self._batch: dict[int, list[int]] = {}
        together: dict[tuple[str, int], list[int]] = {}
        for i, span in enumerate(spans):
            if span.batch and span.instance:
                self._batch[i] = together.setdefault((span.instance, span.batch), [])
                self._batch[i].append(i)
        rows, waits = [1] * len(keys), [0] * len(keys)
        for which, members in grouped((lane, i) for i, lane in enumerate(self.lane)).items():
            rows[which] = self._place_blocks(members)
            if keys[which][0] == "instance":
                waits[which] = self._place_waits(members)
        for which, members in grouped((lane, i) for i, lane in enumerate(self.device) if lane >= 0).items():
            rows[which] = self._place_on_device(members)
        seen = {(model.name, model.version): model for model in session.models}
        requests = Counter(self.lane)
        self.lanes = [
            Lane(*key, rows[i], waits[i], seen.get(key[2:]), not i or keys[i - 1][2:] != key[2:], requests[i])
            for i, key in enumerate(keys)
        ]
        self.turns = _turns(spans, self.parent)
        known = sorted((g.begin, g.end, index[g.span]) for g in session.ghosts if g.span in index)
        stacks = {self.lane[i]: Rows() for _, _, i in known}
        placed = [(i, begin, end, stacks[self.lane[i]].take(begin, end)) for begin, end, i in known]
        self.ghosts = [(*ghost, stacks[self.lane[ghost[0]]].count) for ghost in placed]

    def _place_blocks(self, members: Iterable[int]) -> int:
        """Assign each span of a lane its row, and return the number of rows."""
        rows, spans = Rows(), self._spans
        for i in sorted(members, key=lambda i: spans[i].started):
            batch = self._batch.get(i, ())
            if len(batch) < 2:
                self.row[i] = rows.take(spans[i].started, spans[i].ended)
            elif self.parts[i] == 1:
                place = rows.take(spans[i].started, max(spans[j].ended for j in batch))
                for k, j in enumerate(batch):
                    self.row[j], self.first[j] = place, batch[0]
                    self.part[j], self.parts[j] = k, len(batch)
        return max(rows.count, 1)

    def _place_waits(self, members: Iterable[int]) -> int:
        """Assign each long wait of a lane its row, and return the number of rows."""
        rows, spans = Rows(), self._spans
        for i in sorted(members, key=lambda i: spans[i].sent):
            span, waited = spans[i], spans[i].started - spans[i].sent
            if waited > 0 and (waited >= self._long or waited >= (span.ended - span.started) * _OF_RUN):
                self.wait[i] = rows.take(span.sent, span.started)
        return rows.count

    def _place_on_device(self, members: Iterable[int]) -> int:
        """Assign each interval of device time on a GPU its row, and return the number of rows.

        The device time within an `execute` is known only as a sum, so it is drawn from the start of the `execute`.
        """
        rows, spans = Rows(), self._spans
        for i in sorted(members, key=lambda i: spans[i].started):
            self.device_row[i] = rows.take(spans[i].started, spans[i].started + spans[i].device_ns)
        return max(rows.count, 1)


_Key = tuple[str, str, str, int]


def _key(span: Span) -> _Key:
    if span.instance:
        return ("instance", span.instance, span.model, span.version)
    return ("refused", "", span.model, span.version)


def _lanes(session: Session, parent: Sequence[int]) -> list[_Key]:
    """Return the lanes in order: models by their deepest call, then by their first request."""
    spans = session.spans
    depth = [0] * len(spans)
    moments = [(span.sent, span.id) for span in spans]
    for i in sorted(range(len(spans)), key=moments.__getitem__):
        if parent[i] >= 0:
            depth[i] = depth[parent[i]] + 1
    seen: set[_Key] = set()
    deepest: dict[tuple[str, int], tuple[int, int]] = {}
    for i, span in enumerate(spans):
        seen.add(_key(span))
        model = (span.model, span.version)
        level, first = deepest.get(model, (0, span.sent))
        deepest[model] = (max(level, depth[i]), min(first, span.sent))
    for known in session.models:  # instances without work are worth seeing too
        if (known.name, known.version) in deepest:
            idle = [i for i in known.instances if ("instance", i, known.name, known.version) not in seen]
            if idle:
                seen.add(("idle", _which(idle, known.name), known.name, known.version))

    def order(key: _Key) -> tuple[object, ...]:
        kind, name, model, version = key
        kinds = ("instance", "idle", "refused").index(kind)
        return (*deepest[model, version], model, version, kinds, _numbers(name))

    gpus: set[_Key] = {("gpu", span.device, "", 0) for span in spans if span.device_ns >= 0}
    notebook: list[_Key] = [("notebook", session.sender, "", 0)] if -1 in parent else []
    return [*notebook, *sorted(seen, key=order), *sorted(gpus)]


def _turns(spans: Sequence[Span], parent: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return the numbers of calls in the order of sending, and of their responses, for callers where these differ.

    Calls of one model by one request count together. Responses at about the same time have no order worth a number.
    """
    groups = grouped(((parent[i], s.model, s.version), i) for i, s in enumerate(spans) if parent[i] >= 0 and s.ran)
    turns: dict[int, tuple[int, int]] = {}
    for members in groups.values():
        sent = sorted(members, key=lambda i: spans[i].sent)
        ended = [spans[i].ended for i in sent]
        late = max(a - b for a, b in zip(accumulate(ended, max), ended, strict=True))
        if late > _OVERTAKEN * max(spans[i].duration for i in members):
            response = {i: k for k, i in enumerate(sorted(members, key=lambda i: spans[i].ended), 1)}
            turns |= {i: (k, response[i]) for k, i in enumerate(sent, 1)}
    return turns


def _which(instances: Sequence[str], model: str) -> str:
    """Return short names of a model's instances: ``0, 4–15``."""
    names = [_short(instance, model) for instance in instances]
    if not all(name.isdecimal() for name in names):
        return f"{len(names)} others" if len(names) > 1 else names[0]
    numbers = sorted(map(int, names))
    runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), lambda item: item[1] - item[0])]
    if len(runs) > _RUNS:
        return f"{len(names)} others"
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def _numbers(name: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that puts `m_0_10` after `m_0_9`."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in name.split("_"))


# Heights in px.
TITLE_HEIGHT, WORK_HEIGHT = 30.0, 41.0  # the name of a session; the numbers of requests at work and queued
_NEAR, _FAR = 7.0, 12.0  # space above a lane of the same model as the lane before, and of another model
_ROW, _IDLE, _THIN, _THINNEST, _ROWS = 18.0, 14.0, 13.0, 3.0, 110.0  # a row, and all rows of a lane
_WAIT, _QUEUE = 7.0, 36.0  # a row of queued requests, and all of a lane
_LANES = 40  # the most lanes of a panel that does not scroll


@dataclass(frozen=True)
class LanePosition:
    """The position of a lane: its queue from `waits` to `blocks`, its blocks below."""

    lane: Lane
    waits: float
    wait: float
    blocks: float
    row: float

    @property
    def bottom(self) -> float:
        return self.blocks + self.lane.rows * self.row

    @property
    def middle(self) -> float:
        """The middle of its first row, or of all of its rows if they are thin."""
        return self.blocks + min(self.lane.rows * self.row, _ROW) / 2


@dataclass(frozen=True)
class Panel:
    """A session and the positions of its lanes."""

    session: Session
    layout: TimelineLayout
    number: int
    titled: bool
    top: float
    work: float
    places: tuple[LanePosition, ...]
    height: float

    @classmethod
    def of(
        cls,
        session: Session,
        layout: TimelineLayout,
        top: float,
        *,
        titled: bool,
        number: int = 0,
        scrolls: bool = False,
    ) -> Panel:
        """Compute the position of every lane; a panel that scrolls has all lanes, and rows that a pointer can hit."""
        work = top + TITLE_HEIGHT * titled
        y = work + WORK_HEIGHT
        places = []
        model = None
        for lane in layout.lanes[: None if scrolls else _LANES]:
            y += _NEAR if (lane.model, lane.version) == model else _FAR
            model = (lane.model, lane.version)
            wait = min(_WAIT, _QUEUE / lane.waits) if lane.waits else 0.0
            row = _ROW if lane.rows == 1 else max(_THINNEST * scrolls, min(_THIN, _ROWS / lane.rows))
            row = _IDLE if lane.kind == "idle" else row
            places.append(LanePosition(lane, y, wait, y + lane.waits * wait + (2 if lane.waits else 0), row))
            y = places[-1].bottom
        y += 28 if len(layout.lanes) > len(places) else 10
        return cls(session, layout, number, titled, top, work, tuple(places), y - top)

    def block(self, i: int) -> tuple[float, float]:
        """Return the top and the height of a span's run."""
        place = self.places[self.layout.lane[i]]
        share = place.row / self.layout.parts[i]
        top = place.blocks + self.layout.row[i] * place.row + self.layout.part[i] * share
        return top, share - min(1.0, share / 8)

    def arrival(self, i: int) -> tuple[float, float]:
        """Return the top and the height of the box in which a span arrives: its wait, or else its run."""
        if self.layout.wait[i] < 0:
            return self.block(i)
        place = self.places[self.layout.lane[i]]
        base = place.waits + place.lane.waits * place.wait
        return base - (self.layout.wait[i] + 1) * place.wait, place.wait * 0.85

    def shows(self, i: int) -> bool:
        """Return whether a span's lane is drawn."""
        return self.layout.lane[i] < len(self.places)


def titles(session: Session) -> Callable[[Any], str]:
    """Return a function that names the model of a span or lane, with the version if the session has several."""
    several = of_several_versions(session.spans)

    def title(of: Any) -> str:
        return f"{of.model} v{of.version}" if of.model in several else str(of.model)

    return title


def requests_and_calls(session: Session) -> str:
    """Return the numbers of requests from outside and of calls by models: ``1 request and 16 calls``."""
    calls = sum(span.parent > 0 for span in session.spans)
    return count(len(session.spans) - calls, "request") + (f" and {count(calls, 'call')}" if calls > 0 else "")


def notebook_time(session: Session, tree: SpanTree) -> tuple[list[Interval], list[Interval]]:
    """Return the times of the notebook's own work, and those with its requests in flight; each in order.

    Work that it does while requests are in flight is unknown and counts as waiting.
    """
    sent = tree.in_flight(0)
    return gaps(0, session.wall, sent), union(sent)
