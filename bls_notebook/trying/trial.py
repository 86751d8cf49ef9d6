"""`try_repository`: load the models of any repository; stubs replace models that cannot load."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, TextIO

from bls_notebook.engine.errors import BLSError
from bls_notebook.engine.waiting.operations import perform, undo
from bls_notebook.extending import Host
from bls_notebook.records.units import count
from bls_notebook.repository.repository import ModelRepository
from bls_notebook.repository.source.discovery import repository_folder
from bls_notebook.repository.source.model_folders import shown_path
from bls_notebook.repository.substitution.made_up_responses import VALUES, Stub, Values

from .example_request import ExampleRequests
from .load_or_stub import ModelLoader
from .model_preparation import model_folders
from .records import Tried

log = logging.getLogger("bls_notebook")


class Trial(NamedTuple):
    """Result of `try_repository`: the repository, open, and the report on its models."""

    repository: ModelRepository
    report: Tried

    @property
    def record(self) -> Tried:
        return self.report

    def __str__(self) -> str:
        return str(self.report)


def try_repository(
    folder: str | Path,
    *,
    fill: Mapping[str, object] | None = None,
    model_config_name: str = "",
    values: Values = "zeros",
    seed: int = 0,
    latency: Mapping[str, float] | None = None,
    recorded: Mapping[str, Mapping[str, Any]] | None = None,
    real: Collection[str] | None = None,
    load_timeout: float = 60.0,
    ask: bool = True,
    tell: Callable[[str], None] | None = None,
) -> Trial:
    """Load the models of a repository; stubs replace models that cannot load.

    A stub makes up responses from its model's configuration: names, data types and shapes of outputs; variable
    dimensions take sizes from the request. Every response that depends on a stub names it (`Response.stubs`). Writes
    nothing to the folder. Runs the code of the models in this process.

    Parameters
    ----------
    folder : str or Path
        A model repository, or a folder that contains one.
    fill : mapping of str to object, optional
        Values for templates such as ``${max_batch_size}`` in the configurations.
    model_config_name : str
        Use ``configs/NAME.pbtxt`` of models that have it, like a server with ``--model-config-name=NAME``.
    values : str
        Outputs of stubs: ``"random"`` numbers that depend on `seed` and the request, or ``"zeros"``. Models that fail
        with zeros get random numbers, if they answer a generated request then.
    seed : int
        Seed of random outputs.
    latency : mapping of str to float, optional
        Duration (s) of each `execute` of a stub, by model.
    recorded : mapping, optional
        Fixed outputs of stubs, by model: arrays by name, or a `Response`.
    real : collection of str, optional
        Run and import only the code of these models; all others are stubs.
    load_timeout : float
        Time limit (s) for loading a model, after which a stub replaces it, and for its answer to a generated request.
    ask : bool
        Send each real model generated requests until it answers one, and report errors and the runtime's warnings.
    tell : callable, optional
        Called with a line that names the models whose code will run, before it runs; default: log the line.

    Returns
    -------
    Trial
        The repository and the report: ``repository, report = try_repository(...)``.

    Raises
    ------
    BLSError
        The folder contains no model repository or several, or an option is invalid.

    Examples
    --------
    >>> repository, report = bls.try_repository("their_project", latency={"resize": 0.005})
    >>> report.requests[0]
    "%bls pipeline TEXT='It was a bright cold day in April.'"
    """
    began = perf_counter()
    fill = fill or {}
    path = repository_folder(folder)
    project = next((p for p in (path, *path.parents) if (p / ".git").exists()), Path(folder).expanduser().resolve())

    def load_all() -> Trial:
        repository = ModelRepository(fill=fill)
        undo(repository.close)
        host = Host(repository)
        models, names, notes = model_folders(path, fill, host.add_folder)
        host.add_folder(models)
        make_stub = _stub_factory(names, values, seed, latency, recorded, real, load_timeout)
        loader = ModelLoader(
            host, names, make_stub, fill=fill, config_name=model_config_name, real=real,
            seconds=load_timeout, project=project if project.is_dir() else path,
        )  # fmt: skip
        _announce(tell, path, [name for name, plan in loader.plans.items() if plan.runs_code])
        examples = ExampleRequests(host, loader.plans)
        with redirect_stdout(_kept_open(sys.stdout)), redirect_stderr(_kept_open(sys.stderr)):
            left = loader.load_all(lambda reports: examples.answered(reports, load_timeout) if ask else ())
        entries, requests = examples.lines(loader.reports)
        report = Tried(
            shown_path(path), loader.reports, entries, requests, (*notes, *loader.notes), left, perf_counter() - began
        )
        return Trial(repository, report)

    return perform(load_all, partial_result=True)


class _KeptOpen:
    """A stream that models cannot close: on a server, each has its own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close(self) -> None:
        """Do nothing."""


def _kept_open(stream: TextIO | None) -> Any:
    return stream and _KeptOpen(stream)


def _stub_factory(
    names: Collection[str],
    values: Values,
    seed: int,
    latency: Mapping[str, float] | None,
    recorded: Mapping[str, Any] | None,
    real: Collection[str] | None,
    load_timeout: float,
) -> Callable[[str], Stub]:
    """Validate the options, and return a function from a model's name to its stub."""
    latency = latency or {}
    unknown = next((name for name in (*latency, *(real or ())) if name not in names), None)
    slow = next((name for name, seconds in latency.items() if not 0 <= seconds < 3600), None)
    problem = ""
    if values not in VALUES:
        problem = f"values: got {values!r}, expected {' or '.join(map(repr, VALUES))}"
    elif isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        problem = f"seed: got {seed!r}, expected a whole number, at least 0"
    elif not load_timeout > 0:
        problem = f"load_timeout: got {load_timeout!r}, expected more than 0 s"
    elif unknown is not None:
        option = "latency" if unknown in latency else "real"
        problem = f"{option}: there is no model {unknown!r}; the models are {', '.join(sorted(names))}"
    elif slow is not None:
        problem = f"latency of {slow!r}: got {latency[slow]!r}, expected at least 0 s and less than 3600 s"
    if problem:
        raise BLSError(f"try: {problem}")

    def stub(name: str) -> Stub:
        outputs = (recorded or {}).get(name, {})
        if hasattr(outputs, "as_numpy"):
            outputs = outputs.as_numpy()
        return Stub(values=values, seed=seed, seconds=latency.get(name, 0.0), recorded=outputs)

    return stub


def _announce(tell: Callable[[str], None] | None, path: Path, names: Sequence[str]) -> None:
    """Name the models whose code will run, before it runs."""
    if names:
        (tell or log.warning)(
            f"this runs Python code of {count(len(names), 'model')} of {shown_path(path)} in this process, "
            f"with your permissions: {', '.join(names)}; `--real a,b` runs only the code of a and b, "
            "`--real none` no code"
        )
