"""Where the lanes of a session stand, in px from the top: in its picture, and in the widget on top of it."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.profiling.records.session import Session

from .lanes import Lane, Layout

_ROW, _IDLE = 18.0, 14.0  # px


@dataclass(frozen=True, slots=True)
class Sizes:
    """How high things are, in px, at most: `rows` and `queue` are of all of a lane's together."""

    title: float
    work: float
    near: float  # above a lane of the same model as the one before, and of another
    far: float
    thin: float
    least: float
    rows: float
    wait: float
    queue: float
    lanes: int | None


PICTURE = Sizes(24, 34, near=3, far=9, thin=10, least=0, rows=96, wait=5, queue=32, lanes=40)
WIDGET = Sizes(30, 41, near=7, far=12, thin=13, least=3, rows=110, wait=7, queue=36, lanes=None)


@dataclass(frozen=True)
class Place:
    """Where a lane is: its queue from `waits` to `blocks`, its blocks from there."""

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
        """Of its first row, or of all of them where they are thin."""
        return self.blocks + min(self.lane.rows * self.row, _ROW) / 2


@dataclass(frozen=True)
class Panel:
    """A session and the places of its lanes."""

    session: Session
    layout: Layout
    number: int
    titled: bool
    top: float
    work: float
    places: tuple[Place, ...]
    height: float

    @classmethod
    def of(
        cls, session: Session, layout: Layout, top: float, sizes: Sizes, *, titled: bool, number: int
    ) -> Panel:
        """Find a place for every lane."""
        work = top + sizes.title * titled
        y = work + sizes.work
        places = []
        model = None
        for lane in layout.lanes[: sizes.lanes]:
            y += sizes.near if (lane.model, lane.version) == model else sizes.far
            model = (lane.model, lane.version)
            wait = min(sizes.wait, sizes.queue / lane.waits) if lane.waits else 0.0
            row = _ROW if lane.rows == 1 else max(sizes.least, min(sizes.thin, sizes.rows / lane.rows))
            row = _IDLE if lane.kind == "idle" else row
            blocks = y + lane.waits * wait + (2 if lane.waits else 0)
            places.append(Place(lane, y, wait, blocks, row))
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
        """Return the top and the height of where a span arrives: in the queue, or at its run."""
        if self.layout.wait[i] < 0:
            return self.block(i)
        place = self.places[self.layout.lane[i]]
        base = place.waits + place.lane.waits * place.wait
        return base - (self.layout.wait[i] + 1) * place.wait, place.wait * 0.85

    def shows(self, i: int) -> bool:
        """Whether a span's lane is drawn."""
        return self.layout.lane[i] < len(self.places)
