"""`try_repository`: anybody's model repository, as far as it goes: real models, and stubs for the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from bls_notebook.backends.registry import find_backend
from bls_notebook.devices.registry import MOST_GPUS, gpu_count, gpus
from bls_notebook.engine.errors import BLSError
from bls_notebook.extending import Host
from bls_notebook.records.progress import progress
from bls_notebook.records.quantities import count, listed
from bls_notebook.repository.call_order import entries, in_order, reached
from bls_notebook.repository.config import ModelConfigMessage, model_config_pb2
from bls_notebook.repository.gpus import simulate_gpus, simulated_for
from bls_notebook.repository.repository import ModelRepository
from bls_notebook.repository.source.layout import model_names, shown_path
from bls_notebook.repository.source.repository_folders import is_model, repository_folder
from bls_notebook.repository.substitution.made_up import VALUES, Stub, Values

from .example import requests_to, takes_files
from .hub import no_waiting_for_the_hub
from .one import Loading, Plan, plan_of
from .preparing import Preparing, told_of_fills
from .records import Tried
from .renamed import with_other_names

log = logging.getLogger("bls_notebook")


class Trial(NamedTuple):
    """What `try_repository` gives: the repository, which serves, and the report on its models."""

    repository: ModelRepository
    report: Tried

    @property
    def record(self) -> Tried:
        return self.report


def try_repository(
    folder: str | Path,
    *,
    fill: Mapping[str, object] | None = None,
    values: Values = "zeros",
    seed: int = 0,
    latency: Mapping[str, float] | None = None,
    recorded: Mapping[str, Mapping[str, Any]] | None = None,
    real: Collection[str] | None = None,
    load_timeout: float = 60.0,
    tell: Callable[[str], None] | None = None,
) -> Trial:
    """Load what can be loaded of a model repository, and stand in for the rest, by stubs.

    A stub answers from its model's configuration: names, data types and shapes of its outputs, sizes
    that vary taken from the request. Every response that one had a part in says so (`Response.stubs`).
    Nothing is written to the folder. It runs the code of the models in this process.

    Parameters
    ----------
    folder : str or Path
        A model repository, or a folder that holds one.
    fill : mapping of str to object, optional
        Values for templates such as ``${max_batch_size}`` in the configurations.
    values : str
        What stubs answer: ``"zeros"``, or ``"random"`` numbers that depend on `seed` and on the request.
    seed : int
    latency : mapping of str to float, optional
        By model, how many seconds each `execute` of its stub takes.
    recorded : mapping, optional
        By model, outputs (arrays by name) that its stub gives as they are; a `Response` will do.
    real : collection of str, optional
        Only the code of these models is run, and imported; all others are stubs.
    load_timeout : float
        Seconds that a model may take to load before a stub takes its place.
    tell : callable, optional
        Called with a line that says whose code is run, before it is; by default that is logged.

    Returns
    -------
    Trial
        The repository and the report: ``repository, report = try_repository(...)``.

    Raises
    ------
    BLSError
        The folder holds no model repository, or several; an option makes no sense.

    Examples
    --------
    >>> repository, report = bls.try_repository("their_project", latency={"resize": 0.005})
    >>> report.requests[0]
    "%bls pipeline TEXT='It was a bright cold day in April.'"
    """
    began = perf_counter()
    top = Path(folder).expanduser().absolute()
    path = repository_folder(folder)
    models, renamed = with_other_names(path, fill or {})
    names = [name for name in model_names([models]) if is_model(models / name)]
    stub = _checked(names, values, seed, latency, recorded, real, load_timeout)
    repository = ModelRepository(models, fill=fill or {})
    host = Host(repository)
    try:
        preparing = Preparing(host.add_folder, fill or {})
        host.before_load(preparing)
        plans = {name: plan_of(host, name, names, real) for name in names}
        notes = told_of_fills((plan.folder for plan in plans.values()), fill or {})
        notes += (*renamed, *_ready_gpus(plans.values()))
        notes += _passed_over(models, names)
        _say(tell, path, plans)
        loading = Loading(host, preparing, plans, stub, load_timeout, top if top.is_dir() else path)
        order = in_order({name: plan.calls for name, plan in plans.items()})
        with no_waiting_for_the_hub(any(p.fetches and p.may_run for p in plans.values())) as told:
            left = _load(loading, order)
        loading.add_missing()
        needs = {name: plan.calls for name, plan in plans.items()}
        rows = loading.rows()
        genuine = {row.name for row in rows if row.kind == "real"}
        serve = {row.name for row in rows if row.kind != "absent"}
        serving = [name for name in entries(needs) if name in serve]
        serving.sort(key=lambda name: name not in genuine)  # what only stubs answer comes last

        def files(name: str) -> bool:
            with_callees = {name, *reached(name, needs)} & plans.keys()
            return takes_files([source for each in with_callees for source in plans[each].sources])

        report = Tried(
            shown_path(path), rows, tuple(serving), requests_to(repository, serving, files),
            tuple(filter(None, (*notes, told, *loading.notes, *_folders(preparing, genuine)))), tuple(left),
            perf_counter() - began,
        )  # fmt: skip
    except BaseException:
        repository.close()
        raise
    return Trial(repository, report)


def _folders(preparing: Preparing, real: Collection[str]) -> tuple[str, ...]:
    missing = [where for name, where in preparing.without_version.items() if name in real]
    if not missing:
        return ()
    line = f"`!mkdir {' '.join(missing)}`"
    return (f"version folders are missing, for Git keeps no empty ones; a server needs them: {line}",)


def _passed_over(path: Path, names: Collection[str]) -> tuple[str, ...]:
    others = [name for name in model_names([path]) if name not in names]
    if not others:
        return ()
    few = listed(others, 8)
    return (f"no models, for they have neither config.pbtxt nor a version with a model's file: {few}",)


def _checked(
    names: Collection[str],
    values: str,
    seed: int,
    latency: Mapping[str, float] | None,
    recorded: Mapping[str, Any] | None,
    real: Collection[str] | None,
    load_timeout: float,
) -> Callable[[str], Stub]:
    """Return what makes the stub of a model, by its name; or refuse an option."""
    if values not in VALUES:
        raise BLSError(f"try: values: got {values!r}, expected {' or '.join(map(repr, VALUES))}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise BLSError(f"try: seed: got {seed!r}, expected a whole number from 0 on")
    if not load_timeout > 0:
        raise BLSError(f"try: load_timeout: got {load_timeout!r}, expected seconds above 0")
    for what, given in (("latency", latency), ("real", real)):
        unknown = [name for name in given or () if name not in names]
        if unknown:
            raise BLSError(
                f"try: {what}: there is no model {unknown[0]!r}; expected some of {', '.join(sorted(names))}"
            )
    for name, seconds in (latency or {}).items():
        if not 0 <= seconds < 3600:
            raise BLSError(f"try: latency of {name!r}: got {seconds!r}, expected seconds from 0 on")

    def stub(name: str) -> Stub:
        outputs = (recorded or {}).get(name, {})
        if hasattr(outputs, "as_numpy"):
            outputs = outputs.as_numpy()
        return Stub(values=values, seed=seed, seconds=(latency or {}).get(name, 0.0), recorded=outputs)

    return stub


def _say(tell: Callable[[str], None] | None, path: Path, plans: Mapping[str, Plan]) -> None:
    """Say whose code is run before it is."""
    whose = [name for name, plan in plans.items() if plan.runs_code]
    if not whose:
        return
    (tell or log.warning)(
        f"this runs Python code of {count(len(whose), 'model')} of {shown_path(path)} in this process, with "
        f"your rights: {', '.join(whose)}; `--real a,b` runs that of these alone, `--real none` nobody's"
    )


def _load(loading: Loading, order: list[str]) -> list[str]:
    """Load models one after the other; return those that were left when Ctrl-C came."""
    left = list(order)
    try:
        with progress("trying", len(order), "model") as told:
            for name in order:
                loading.load(name)
                left.remove(name)
                told.step()
    except KeyboardInterrupt:
        log.debug("interrupted: %d models were not tried", len(left))
    return left


def _ready_gpus(plans: Iterable[Plan]) -> tuple[str, ...]:
    """Simulate as many GPUs as models ask for, where there are none; return what there is to say of it."""
    wanted = [
        (plan.name, max(_asks_for(plan.config), int(plan.takes_cuda)))
        for plan in plans
        if plan.config is not None and _runs(plan)
    ]
    who = [name for name, count in wanted if count]
    if not who:
        return ()
    most = min(MOST_GPUS, max(count for _, count in wanted))
    if gpu_count() == 0:
        return (simulated_for(listed(who, 6), most),)
    found = gpus()
    if found is not None and found.simulated and found.count < most:
        simulate_gpus(most)
    return ()


def _runs(plan: Plan) -> bool:
    """Whether a model may turn out to be real."""
    return plan.may_run and (plan.runs_code or find_backend(plan.backend) is not None)


def _asks_for(config: ModelConfigMessage) -> int:
    """How many GPUs a configuration takes for granted; 0 where it does not ask for any."""
    gpu = model_config_pb2().ModelInstanceGroup.KIND_GPU
    groups = [group for group in config.instance_group if group.kind == gpu]
    return max((max(group.gpus, default=0) + 1 for group in groups), default=0)
