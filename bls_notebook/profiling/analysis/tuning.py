"""The search for the smallest setting (instance counts, batches) that is nearly the fastest; its result in
words. Pure.

Every setting is simulated (`queue_simulation`). The answer is the setting with the fewest instances that
reaches `ENOUGH` of the best time found. Among equals, the one that changes batching least wins, then the
fastest. A run of one request after the other, and samples of the clocks, show how each model's work uses the
processors and the GIL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, permutations, product
from pathlib import Path

from bls_notebook.profiling.records.comparison import Verdict
from bls_notebook.profiling.records.session import Session
from bls_notebook.profiling.records.verdicts import time_of, times
from bls_notebook.records.base import Record
from bls_notebook.records.errors import FileError
from bls_notebook.records.record_file import told, write_file
from bls_notebook.records.visible_text import visible

from .queue_simulation import UNLIMITED, Batcher, Key, Recipe, is_stuck, replay


@dataclass(frozen=True, slots=True, repr=False)
class ModelSetting(Record):
    """How a model is configured: its instances in all, and its batches.

    ``batches`` says whether it has a dynamic batcher, with these ``preferred`` sizes in rows and a ``delay``
    in microseconds.
    """

    count: int = 1
    max_batch_size: int = 0
    batches: bool = False
    preferred: tuple[int, ...] = ()
    delay: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class TunedModel(Record):
    """A model that requests went to, as it is configured ``now``, and the smallest setting ``found``.

    ``on_server`` is what is found for a Triton server with as many processors, where each instance is a
    process. ``kind`` is that of its instance group, ``devices`` how many instances one of ``count`` makes,
    ``group`` what config.pbtxt says of the group besides its count.
    ``batch_times`` are (rows, ns) of an `execute`, where that was measured. ``host_bytes`` and
    ``device_bytes`` are what an instance takes, -1 where that was not seen; ``most`` is how many instances
    these requests could use and there is memory for.
    """

    name: str
    version: int
    now: ModelSetting
    found: ModelSetting
    on_server: ModelSetting
    kind: str = "KIND_CPU"
    devices: int = 1
    group: str = ""
    batch_times: tuple[tuple[int, int], ...] = ()
    host_bytes: int = -1
    device_bytes: int = -1
    most: int = 64

    @property
    def changed(self) -> bool:
        """Whether another setting was found."""
        return self.found != self.now


@dataclass(frozen=True, slots=True, repr=False)
class Walls(Record):
    """How long the requests take, sent at once, ns: with the setting ``now``, ``found``, and the ``best``."""

    now: int = 0
    found: int = 0
    best: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Tuning(Record):
    """The smallest setting that gets a workload within 5% of the best there is: `bls.tune`.

    ``sentence`` says it, ``advice`` what else there is to know: of a server, of memory, of what was not
    measured. ``predicted`` and ``on_server`` are of this kernel, and of a Triton server with as many
    processors. ``measured`` is what a run took with the setting as it is (``now``) and, where that was asked
    for, with the one found: 0 where it was not run, and ``problem`` says why it could not be. ``confirmed``
    is False where it was run and did not bring what was predicted: ``pbtxt`` changes nothing then. ``runs``
    counts the runs of the workload, ``replays`` the settings that were computed; ``unseen`` is what could not
    be measured.
    ``pbtxt`` has the lines of config.pbtxt that change, by model: these are for servers too, and count instances
    as `on_server` does if that has more.
    """

    model: str
    requests: int
    sentence: str
    advice: tuple[str, ...]
    models: tuple[TunedModel, ...]
    predicted: Walls
    on_server: Walls
    measured: Walls
    verdict: Verdict
    gathered: Session
    then: Session | None = None
    confirmed: bool = True
    problem: str = ""
    runs: int = 0
    replays: int = 0
    unseen: tuple[str, ...] = ()
    pbtxt: tuple[tuple[str, str], ...] = ()

    @property
    def changed(self) -> tuple[TunedModel, ...]:
        """The models with another setting than now."""
        return tuple(model for model in self.models if model.changed)

    @property
    def off(self) -> float:
        """How far the prediction was off, as a part of what was measured; 0 where it was not."""
        if not self.measured.found:
            return 0.0
        return abs(self.predicted.found - self.measured.found) / self.measured.found

    def save(self, path: str | Path) -> Path:
        """Write the lines of each config.pbtxt that change to a file.

        Parameters
        ----------
        path : str or Path
            Its name ends with ``.pbtxt``.

        Returns
        -------
        Path

        Raises
        ------
        BLSError
            Another ending, or it cannot be written.
        """
        path = Path(path)
        if path.suffix != ".pbtxt":
            raise FileError(
                f"a tuning: cannot save to {told(path.name)!r}: expected a name that ends with .pbtxt (the lines of "
                "each config.pbtxt that change)"
            )
        return write_file(path, "\n".join(text for _, text in self.pbtxt).encode(), "a tuning")


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


# Causes with which more instances bring nothing, or nothing can be told.
NOTHING_TO_TUNE = ("failed", "contention", "cached", "one", "little")
_AS_LONG = 1.02  # times as long: no difference


def sentence(found: Tuning) -> str:
    """Return the one sentence that says which setting is enough, and what it brings."""
    if not found.models:
        return f"Nothing to tune. {found.verdict.sentence}"
    walls, several = found.predicted, f"{found.requests} requests at once"
    setting = in_words((m.name, m.now, m.found) for m in found.models)
    if found.problem:
        return f"With {setting}, it could not be run: {found.problem}."
    took = f"{several} take {time_of(walls.found)}"
    best = "More brings nothing."
    if walls.found > _AS_LONG * walls.best:
        part = f"{walls.best / walls.found:.0%} of the best"
        best = f"That is {part}: with more it is {time_of(walls.best)} at best."
    if not found.changed:
        return f"The setting is the smallest that gets there: {took}. {best}"
    if not found.confirmed:
        return (
            f"With {setting}, {several} took {time_of(found.measured.found)}, not the {time_of(walls.found)} "
            f"that was predicted; as it is {time_of(found.measured.now)}."
        )
    run = f" ({time_of(found.measured.found)} measured)" if found.measured.found else ""
    gain = walls.now / max(1, walls.found)
    if gain < 1 / ENOUGH:
        return f"Less would do, {setting}: {took}{run}, and as it is {time_of(walls.now)}. {best}"
    return f"With {setting}, {took}{run} instead of {time_of(walls.now)}: {times(gain)} times as fast. {best}"


def advice(found: Tuning) -> tuple[str, ...]:
    """Return what else there is to know."""
    return tuple(each.strip() for each in _advice(found) if each.strip())


def _advice(found: Tuning) -> Iterator[str]:
    took, walls = found.measured.now, found.predicted
    if found.models and max(took, walls.now) > _ROUGH * min(took, walls.now):
        yield (
            f"As it is, the requests took {time_of(took)}, and what was recorded explains "
            f"{time_of(walls.now)}: the figures are rough."
        )
    if found.verdict.note:
        yield found.verdict.note
    if found.verdict.advice and not found.models:
        yield found.verdict.advice
    leave = "" if found.pbtxt else " Leave the setting as it is."
    if found.models and found.verdict.cause == "contention":
        yield f"{found.verdict.sentence} {found.verdict.advice}{leave}"
    elif not found.confirmed and not found.problem:
        shared = (
            "The limit does not show when requests run one after the other: something that instances share (a "
            "lock, a connection, the bandwidth of memory), or sending so many at once."
        )
        # Beside other programs nothing can be told of the models.
        yield ("" if found.verdict.note else shared) + leave
    here, there = found.predicted, found.on_server
    differs = [m for m in found.models if m.on_server != m.found]
    if found.models and differs and there.found * _WORTH < here.found:
        setting = in_words((m.name, m.now, m.on_server) for m in found.models)
        yield (
            "Here instances share one Python, whose lock one at a time holds. On a Triton server each is a "
            f"process: with {setting or 'the setting as it is'}, on as many processors, "
            f"{time_of(there.found)} is predicted there."
        )
    for model in found.models:
        if model.most < _wanted(model, found) and model.most < MOST:
            takes = model.device_bytes if model.device_bytes > 0 else model.host_bytes
            yield f"An instance of `{model.name}` takes {_size(takes)}: there is memory for {model.most}."
    blind = [
        f"`{m.name}`"
        for m in found.models
        if m.found.count > m.now.count and m.kind == "KIND_GPU" and m.device_bytes < 0
    ]
    if blind:
        yield f"What memory of the GPU an instance of {_and(blind)} takes was not seen."
    yield from (f"{each[0].upper()}{each[1:]}." for each in found.unseen)


_WORTH = 1.15
_ROUGH = 1.3  # times as long as predicted


def _wanted(model: TunedModel, found: Tuning) -> int:
    """Return how many instances the requests could use."""
    return min(MOST, sum(s.model == model.name and s.ran for s in found.gathered.spans))


def in_words(settings: Iterable[tuple[str, ModelSetting, ModelSetting]]) -> str:
    """Say what changes: "3 instances of `resize`, 2 of `detect` and batches of 8 for `detect`"; by model."""
    counts: list[str] = []
    batches: list[str] = []
    for name, now, then in settings:
        if then.count != now.count:
            unit = "" if counts else f" instance{'' if then.count == 1 else 's'}"
            counts.append(f"{then.count}{unit} of `{name}`")
        if batches_of(then) != batches_of(now):
            batches.append(f"{batches_of(then)} for `{name}`")
    return _and([*counts, *batches])


def batches_of(setting: ModelSetting) -> str:
    """Say how a model batches."""
    if not setting.batches:
        return "no batches"
    sizes = " or ".join(map(str, setting.preferred)) or f"up to {setting.max_batch_size}"
    delay = f" within {time_of(1000 * setting.delay)}" if setting.delay else ""
    return f"batches of {sizes}{delay}"


def config_lines(model: TunedModel) -> str:
    """Return the lines of a model's config.pbtxt that its setting changes; empty for none.

    A configuration is for a server too: where that needs more instances, which do no harm here, it has them.
    """
    now, found = model.now, model.found
    lines = [f"# config.pbtxt of {visible(model.name)}"]
    total = max(found.count, model.on_server.count)
    if total != now.count:
        count, was = -(-total // model.devices), -(-now.count // model.devices)
        fields = " ".join(filter(None, (f"count: {count}", visible(model.group))))
        group = f"instance_group [{{ {fields} }}]"
        here = f"; {found.count} in this kernel" if found.count < total else ""
        lines.append(f"{group}  # {was} now{here}")
    if found.max_batch_size != now.max_batch_size:
        lines.append(f"max_batch_size: {found.max_batch_size}  # {now.max_batch_size} now")
    if batches_of(found) != batches_of(now):
        fields = f"preferred_batch_size: [ {', '.join(map(str, found.preferred))} ]"
        if found.delay:
            fields += f" max_queue_delay_microseconds: {found.delay}"
        lines.append(f"dynamic_batching {{ {fields} }}  # {batches_of(now)} now")
    return "\n".join(lines) + "\n" if lines[1:] else ""


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def _size(number: int) -> str:
    return f"{number / (1 << 30):.1f} GiB" if number >= 1 << 30 else f"{number / (1 << 20):.0f} MiB"
