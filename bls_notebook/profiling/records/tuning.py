"""`Tuning`: the smallest setting that `tune` found for a workload, with its predicted and measured times."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bls_notebook.profiling.session import Session
from bls_notebook.records import Record, ending_of, write_file

from .comparison import Verdict

_EXPLAINED = 0.15  # error of the time that is predicted for today's setting, as a fraction of the measured one


@dataclass(frozen=True, slots=True, repr=False)
class ModelSetting(Record):
    """The configuration of a model: its total number of instances, and its batching.

    ``batches`` says whether the model has a dynamic batcher, with ``preferred`` sizes in rows and a ``delay``
    in microseconds.
    """

    count: int = 1
    max_batch_size: int = 0
    batches: bool = False
    preferred: tuple[int, ...] = ()
    delay: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class TunedModel(Record):
    """A model that got requests: its configuration ``now``, and the smallest setting ``found``.

    ``on_server`` is the setting found for a Triton server with as many processors, where each instance is a
    process. ``kind`` is the kind of its instance group, ``devices`` the number of instances for each unit of
    ``count``, ``group`` the text of the group in config.pbtxt without its count.
    ``batch_times`` are measured times of `execute` as (rows, ns). ``host_bytes`` and ``device_bytes`` are the
    memory of one instance, -1 if it was not measured; ``most`` is the number of instances that these requests
    could use and that memory allows.
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
        """Return whether the setting found differs from the current one."""
        return self.found != self.now


@dataclass(frozen=True, slots=True, repr=False)
class Walls(Record):
    """Wall times of the requests, sent at once, ns: with the setting ``now``, the one ``found``, and the ``best``."""

    now: int = 0
    found: int = 0
    best: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Tuning(Record):
    """The smallest setting with which a workload reaches 95% of the best speed: the result of `bls.tune`.

    ``sentence`` is the result in words; ``advice`` adds facts about a server, about memory, and about values
    that were not measured. ``predicted`` holds for this kernel, ``on_server`` for a Triton server with as many
    processors. ``measured`` are the wall times of runs with the current setting (``now``) and, if requested,
    with the one found, and with up to twice as many instances (``best``): 0 if that was not run, and ``problem``
    says why it could not be. ``confirmed`` is False
    if that run missed the prediction; if it was hardly faster than now, ``pbtxt`` is empty. ``runs`` counts the
    runs of the workload, ``replays`` the simulated settings; ``unseen`` lists what could not be measured.
    ``pbtxt`` has the changed lines of config.pbtxt, by model. They serve servers too, so they have the instance
    count of ``on_server`` if that is larger.
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
        """The models whose setting changes."""
        return tuple(model for model in self.models if model.changed)

    @property
    def explained(self) -> bool:
        """Return whether the simulation explains today's run within 15%; else its predictions are worth nothing."""
        return abs(self.measured.now - self.predicted.now) <= _EXPLAINED * self.measured.now

    @property
    def off(self) -> float:
        """The error of the prediction, as a fraction of the measured time; 0 if the setting found was not run."""
        if not self.measured.found:
            return 0.0
        return abs(self.predicted.found - self.measured.found) / self.measured.found

    def save(self, path: str | Path) -> Path:
        """Write the changed lines of each config.pbtxt to a file whose name ends with ``.pbtxt``; return its path."""
        file = Path(path)
        ending_of(file, (".pbtxt",), "tuning", "it gets the lines of each config.pbtxt that change")
        return write_file(file, "\n".join(text for _, text in self.pbtxt).encode(), "tuning")
