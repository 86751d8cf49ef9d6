"""The smallest setting that gets there: instance counts and batches, by replaying what was recorded.

Of all settings the best is what the requests take with as many instances as anybody could use. Found is the
one with the fewest instances that gets a part of it, `ENOUGH` by default; of those with as many, the one that
changes least of the batches, and then the fastest. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, permutations, product

from bls_notebook.profiling.analysis.replay import UNLIMITED, Batcher, Key, Recipe, is_stuck, replay
from bls_notebook.profiling.records.tuning import ModelSetting

from .sharing import Machine

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
    batches, None for one request at a time.
    """

    requests: Sequence[Recipe]
    sent: Sequence[int]
    capacity: Mapping[Key, int]
    now: Setting
    ways: Mapping[str, Sequence[ModelSetting]]
    most: Mapping[str, int]
    batcher: Callable[[str, ModelSetting], Batcher | None]
    machine: Machine
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
        """Return how long the requests take, ns; `NEVER` where they would never be answered."""
        known = tuple(setting[name] for name in self.now)
        found = self._walls.get(known)
        if found is None:
            found = self._walls[known] = self._replay(setting)
        return found

    def seen(self) -> Iterable[int]:
        """Return how long the requests take with each setting that was asked for."""
        return self._walls.values()

    def _replay(self, setting: Setting) -> int:
        self.replays += 1
        counts = {
            key: setting[key[0]].count if n < UNLIMITED and key[0] in setting else n
            for key, n in self.capacity.items()
        }
        if self._recursive and is_stuck(self.requests, counts):
            return NEVER
        batchers = {
            key: made
            for key in self.capacity
            if key[0] in setting and (made := self.batcher(key[0], setting[key[0]])) is not None
        }
        return max(1, replay(self.requests, counts, sent=self.sent, batchers=batchers, machine=self.machine))


NEVER = 1 << 62


@dataclass(frozen=True)
class Found:
    """A setting and how long the requests take with it, now, and at best; ns."""

    setting: Setting
    wall: int
    now: int
    best: int


def search(space: Space, part: float = ENOUGH) -> Found:
    """Return the smallest setting that gets this part of the best."""
    now = space.wall(space.now)
    tops = [_with_counts(way, space.most) for way in _ways(space)]
    best = min(now, *map(space.wall, tops))
    while True:
        setting = _smallest(space, tops, best / part)
        # With fewer instances requests may come in a better order, or meet less.
        seen = min(space.seen(), default=best)
        if seen >= best:
            return Found(setting, space.wall(setting), now, best)
        best = seen


def _smallest(space: Space, tops: Sequence[Setting], enough: float) -> Setting:
    """Return the setting with the fewest instances that is enough, looking down from those with most."""

    def size(setting: Setting) -> tuple[int, int, int]:
        instances = sum(each.count for each in setting.values())
        different = sum(_change(setting[name], each) for name, each in space.now.items())
        return instances, different, space.wall(setting)

    found = [space.now] if space.wall(space.now) <= enough else []
    for top in tops:
        # Where the most is not enough, as it may be where fewer meet less, some of the less may be.
        if space.wall(top) <= _NEARLY * enough:
            smaller = (_smaller(space, top, order, enough) for order in _orders(space))
            found += [setting for setting in smaller if space.wall(setting) <= enough]
    return min(found or tops, key=size if found else space.wall)


def _change(now: ModelSetting, then: ModelSetting) -> int:
    """How much another way to batch differs: not at all, in a size, or by a delay too."""
    if (now.max_batch_size, now.batches, now.preferred, now.delay) == (
        then.max_batch_size, then.batches, then.preferred, then.delay,
    ):  # fmt: skip
        return 0
    return 1 + 2 * (then.delay > 0) + len(then.preferred)


def _ways(space: Space) -> Iterator[Setting]:
    """Settings for every way to batch; of too many, those that differ in one model."""
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
    return ModelSetting(count, setting.max_batch_size, setting.batches, setting.preferred, setting.delay)


def _orders(space: Space) -> Iterator[tuple[str, ...]]:
    """In which order to make models smaller: it may matter which of two is left with more."""
    names = sorted(space.now, key=lambda name: -space.most[name])
    yield from islice(permutations(names), space.orders)


def _smaller(space: Space, setting: Setting, order: Sequence[str], enough: float) -> Setting:
    """Return a setting with fewer instances of one model after the other, as few as are enough."""
    for name in order:
        high = setting[name].count
        # A batch is worked on once.
        low = 1 if setting[name].batches else min(high, max(1, int(space.held.get(name, 0) / enough)))
        while low < high:
            middle = (low + high) // 2
            tried = {**setting, name: _counted(setting[name], middle)}
            if space.wall(tried) <= enough:
                high = middle
            else:
                low = middle + 1
        setting = {**setting, name: _counted(setting[name], high)}
    return setting


def _all_of(recipe: Recipe) -> Iterator[Recipe]:
    yield recipe
    for sent in recipe.sent:
        yield from _all_of(sent.recipe)


def _calls_itself(recipe: Recipe, above: tuple[Key, ...]) -> bool:
    if recipe.model in above:
        return True
    return any(_calls_itself(sent.recipe, (*above, recipe.model)) for sent in recipe.sent)
