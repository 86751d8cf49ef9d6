"""Search for the smallest setting (instance counts, batches) that is nearly the fastest. Pure.

Every setting is simulated (`queue_simulation`). The answer is the setting with the fewest instances that
reaches `ENOUGH` of the best time found. Among equals, the one that changes batching least wins, then the
fastest. A run of one request after the other, and samples of the clocks, show how each model's work uses the
processors and the GIL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, permutations, product

from bls_notebook.profiling.records.tuning import ModelSetting

from .queue_simulation import UNLIMITED, Batcher, Key, Recipe, is_stuck, replay

ENOUGH = 0.95  # of the best
MOST = 64
_VECTORS = 48  # ways to batch that are looked at together
_NEARLY = 1.1  # times as long
_ORDERS = 6  # in which models are made smaller, where there are few requests
_SMALL = 100

Setting = dict[str, ModelSetting]


@dataclass
class Space:
    """What may be set: of each model its setting now, its ways to batch (the first is as now), and how many
    instances there may be at most.

    ``capacity`` has the models that are not to be set too; ``batcher`` makes of a setting how it forms
    batches, None for one request at a time. ``bound`` is the least time that processors and the GIL allow (ns).
    """

    requests: Sequence[Recipe]
    sent: Sequence[int]
    capacity: Mapping[Key, int]
    now: Setting
    ways: Mapping[str, Sequence[ModelSetting]]
    most: Mapping[str, int]
    batcher: Callable[[str, ModelSetting], Batcher | None]
    bound: Callable[[Setting], int] = lambda setting: 0
    replays: int = 0
    _walls: dict[tuple[ModelSetting, ...], int] = field(default_factory=dict)
    _recursive: bool = False

    def __post_init__(self) -> None:
        self._recursive = any(_calls_itself(recipe, ()) for recipe in self.requests)
        # How long the instances of a model are held at least, ns.
        self.held: dict[str, int] = {}
        every = [each for recipe in self.requests for each in _all_of(recipe)]
        for each in every:
            took = replay([each], {}) - each.before
            self.held[each.model[0]] = self.held.get(each.model[0], 0) + took
        self.orders = _ORDERS if len(every) <= _SMALL else 1

    def wall(self, setting: Setting) -> int:
        """Return how long the requests take, ns; `NEVER` if they would never be answered."""
        key = tuple(setting[name] for name in self.now)
        if key not in self._walls:
            self._walls[key] = self._replay(setting)
        return self._walls[key]

    def tried(self) -> list[Setting]:
        """Return the settings whose time was asked for."""
        return [dict(zip(self.now, key, strict=True)) for key in self._walls]

    def _replay(self, setting: Setting) -> int:
        self.replays += 1
        counts = {
            key: setting[key[0]].count if n < UNLIMITED and key[0] in setting else n for key, n in self.capacity.items()
        }
        if self._recursive and is_stuck(self.requests, counts):
            return NEVER
        batchers = {
            key: made
            for key in self.capacity
            if key[0] in setting and (made := self.batcher(key[0], setting[key[0]])) is not None
        }
        return max(1, replay(self.requests, counts, sent=self.sent, batchers=batchers), self.bound(setting))


NEVER = 1 << 62


@dataclass(frozen=True)
class Found:
    """A setting and how long the requests take with it, now, and at best; ns."""

    setting: Setting
    wall: int
    now: int
    best: int


def search(space: Space, part: float = ENOUGH) -> Found:
    """Return the smallest setting found that reaches this fraction of the best time found.

    With one instance fewer of any model it would not reach it. It is not always the smallest of all: more
    instances can be slower, as requests may then run in a worse order.
    """
    now = space.wall(space.now)
    tops = [_with_counts(way, space.most) for way in _ways(space)]
    best = min(now, *map(space.wall, tops))

    def size(setting: Setting) -> tuple[int, int, int]:
        instances = sum(each.count for each in setting.values())
        different = sum(_change(setting[name], each) for name, each in space.now.items())
        return instances, different, space.wall(setting)

    while True:
        enough = best / part
        for top in tops:
            if space.wall(top) <= _NEARLY * enough:
                for order in _orders(space):
                    _smaller(space, top, order, enough)
        setting = min((each for each in space.tried() if space.wall(each) <= enough), key=size)
        setting = _trimmed(space, setting, enough)
        fastest = min(map(space.wall, space.tried()))
        if fastest >= best:
            return Found(setting, space.wall(setting), now, best)
        best = fastest


def _trimmed(space: Space, setting: Setting, enough: float) -> Setting:
    """Remove instances one at a time while the setting stays fast enough."""
    for name, each in setting.items():
        fewer = {**setting, name: _counted(each, each.count - 1)}
        if each.count > 1 and space.wall(fewer) <= enough:
            return _trimmed(space, fewer, enough)
    return setting


def _change(now: ModelSetting, then: ModelSetting) -> int:
    """Return how much another way to batch differs: not at all, in a size, or by a delay too."""
    return 0 if _counted(now, then.count) == then else 1 + 2 * (then.delay > 0) + len(then.preferred)


def _ways(space: Space) -> Iterator[Setting]:
    """Return the current counts with every way to batch; if these are too many, one model varies at a time."""
    names = list(space.ways)
    number = 1
    for name in names:
        number *= len(space.ways[name])
    if number <= _VECTORS:
        for choice in product(*space.ways.values()):
            yield {**space.now, **dict(zip(names, choice, strict=True))}
        return
    # One model after the other, each beside what is best for those before it.
    so_far = dict(space.now)
    yield dict(so_far)
    for name in names:
        tried = [{**so_far, name: way} for way in space.ways[name]]
        yield from tried
        # Beside the instances of now: with many there is nothing that a batch could save.
        so_far = min(tried, key=space.wall)
    yield so_far


def _with_counts(setting: Setting, counts: Mapping[str, int]) -> Setting:
    return {name: _counted(each, counts[name]) for name, each in setting.items()}


def _counted(setting: ModelSetting, count: int) -> ModelSetting:
    return replace(setting, count=count)


def _orders(space: Space) -> Iterator[tuple[str, ...]]:
    """Return the orders in which to reduce models: it may matter which of two keeps more instances."""
    names = sorted(space.now, key=lambda name: -space.most[name])
    yield from islice(permutations(names), space.orders)


def _smaller(space: Space, setting: Setting, order: Sequence[str], enough: float) -> None:
    """Try fewer instances of one model after the other, as few as are fast enough."""
    for name in order:
        high = setting[name].count
        # Requests of one batch hold an instance only once.
        low = 1 if setting[name].batches else min(high, max(1, int(space.held.get(name, 0) / enough)))
        while low < high:
            middle = (low + high) // 2
            if space.wall({**setting, name: _counted(setting[name], middle)}) <= enough:
                high = middle
            else:
                low = middle + 1
        setting = {**setting, name: _counted(setting[name], high)}


def _all_of(recipe: Recipe) -> Iterator[Recipe]:
    yield recipe
    for sent in recipe.sent:
        yield from _all_of(sent.recipe)


def _calls_itself(recipe: Recipe, above: tuple[Key, ...]) -> bool:
    if recipe.model in above:
        return True
    return any(_calls_itself(sent.recipe, (*above, recipe.model)) for sent in recipe.sent)
