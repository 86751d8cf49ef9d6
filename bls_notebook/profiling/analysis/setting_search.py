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
from math import prod

from bls_notebook.profiling.records.tuning import ModelSetting

from .queue_simulation import NOT_SHARED, UNLIMITED, Batcher, ModelKey, Recipe, Work, is_stuck, replay

ENOUGH = 0.95  # fraction of the best speed that a setting must reach
MOST = 64  # instances of a model
_VECTORS = 48  # the most combinations of ways to batch that are tried
_NEARLY = 1.1  # a time up to this factor above the goal is worth reducing
_ORDERS = 6  # orders in which the models lose instances, for small workloads
_SMALL = 100  # requests of a small workload

Setting = dict[str, ModelSetting]


@dataclass
class Space:
    """The settings to search: for each model the setting now, its ways to batch (first today's), its most instances.

    ``capacity`` also has the models without a setting. ``batcher`` returns the batcher of a setting, None for one
    request at a time. ``bound`` is the shortest time that processors and the GIL allow (ns), ``needs`` the
    needs of the models' own work.
    """

    requests: Sequence[Recipe]
    capacity: Mapping[ModelKey, int]
    now: Setting
    ways: Mapping[str, Sequence[ModelSetting]]
    most: Mapping[str, int]
    batcher: Callable[[str, ModelSetting], Batcher | None]
    bound: Callable[[Setting], int] = lambda setting: 0
    needs: Work = NOT_SHARED
    replays: int = 0
    _walls: dict[tuple[ModelSetting, ...], int] = field(default_factory=dict)
    _recursive: bool = False

    def __post_init__(self) -> None:
        self._recursive = any(_calls_itself(recipe, ()) for recipe in self.requests)
        self.held: dict[str, int] = {}  # the least time that requests occupy instances of a model, ns
        recipes = [recipe for request in self.requests for recipe in _all_of(request)]
        for recipe in recipes:
            self.held[recipe.model[0]] = self.held.get(recipe.model[0], 0) + (replay([recipe], {}) - recipe.before)
        self.orders = _ORDERS if len(recipes) <= _SMALL else 1

    def wall(self, setting: Setting) -> int:
        """Return the time of the requests with a setting, ns; `NEVER` if they would deadlock."""
        key = tuple(setting[name] for name in self.now)
        if key not in self._walls:
            self._walls[key] = self._replay(setting)
        return self._walls[key]

    def tried(self) -> list[Setting]:
        """Return the settings simulated so far."""
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
        return max(1, replay(self.requests, counts, batchers, work=self.needs), self.bound(setting))


NEVER = 1 << 62


@dataclass(frozen=True)
class Found:
    """A setting with the times of the requests: with it (``wall``), ``now``, and the ``best`` (ns)."""

    setting: Setting
    wall: int
    now: int
    best: int


def search(space: Space, part: float = ENOUGH) -> Found:
    """Return the smallest setting found that reaches this fraction of the best speed found.

    One instance fewer of any model would be too slow. The setting is not always the smallest of all: more
    instances can be slower, because requests may run in a worse order.
    """
    now = space.wall(space.now)
    tops = [{name: _counted(each, space.most[name]) for name, each in way.items()} for way in _ways(space)]
    best = min(now, *map(space.wall, tops))

    def size(setting: Setting) -> tuple[int, int, int]:
        instances = sum(each.count for each in setting.values())
        different = sum(_change(setting[name], each) for name, each in space.now.items())
        return instances, different, space.wall(setting)

    names = sorted(space.now, key=lambda name: -space.most[name])
    while True:
        enough = best / part
        for top in tops:
            if space.wall(top) <= _NEARLY * enough:
                for order in islice(permutations(names), space.orders):  # the result may depend on the order
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
    """Return how much a setting changes the batching: 0 for not at all; more sizes and a delay count more."""
    return 0 if _counted(now, then.count) == then else 1 + 2 * (then.delay > 0) + len(then.preferred)


def _ways(space: Space) -> Iterator[Setting]:
    """Yield the current counts with every combination of ways to batch; if too many, vary one model at a time."""
    names = list(space.ways)
    if prod(map(len, space.ways.values())) <= _VECTORS:
        for choice in product(*space.ways.values()):
            yield {**space.now, **dict(zip(names, choice, strict=True))}
        return
    # Vary one model after the other; the models before it keep their best way.
    best = dict(space.now)
    yield dict(best)
    for name in names:
        tried = [{**best, name: way} for way in space.ways[name]]
        yield from tried
        # Judged with today's instance counts: with many instances a batch could save nothing.
        best = min(tried, key=space.wall)
    yield best


def _counted(setting: ModelSetting, count: int) -> ModelSetting:
    return replace(setting, count=count)


def _smaller(space: Space, setting: Setting, order: Sequence[str], enough: float) -> None:
    """Try fewer instances of one model after the other, down to the fewest that are fast enough."""
    for name in order:
        high = setting[name].count
        # The requests of a batch occupy an instance together.
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


def _calls_itself(recipe: Recipe, above: tuple[ModelKey, ...]) -> bool:
    if recipe.model in above:
        return True
    return any(_calls_itself(sent.recipe, (*above, recipe.model)) for sent in recipe.sent)
