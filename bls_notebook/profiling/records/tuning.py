"""`Tuning`: the smallest setting that `tune` found for a workload, with its predicted and measured times."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bls_notebook.records.base import Record
from bls_notebook.records.record_file import ending_of, write_file

from .comparison import Verdict
from .session import Session


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
        file = Path(path)
        ending_of(file, (".pbtxt",), "tuning", "it gets the lines of each config.pbtxt that change")
        return write_file(file, "\n".join(text for _, text in self.pbtxt).encode(), "tuning")
