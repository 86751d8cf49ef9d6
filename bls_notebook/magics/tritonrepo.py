"""The verbs of ``%tritonrepo`` in the core: list, load, reload, config, stats, use and others.

If one of several models cannot be loaded, the others are loaded anyway.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import bls_notebook as bls
from bls_notebook import display as displays
from bls_notebook.operations import FILL, OperationSpec, flag, option
from bls_notebook.progress import stepped
from bls_notebook.records.units import count, size
from bls_notebook.repository.source.model_folders import shown_path

from .cell_errors import CellInterrupted, display_of, reported
from .magic import MagicCall
from .notebook import Notebook
from .result_lists import Records
from .settings import use_repository
from .tritonmodel import HOME, home_of

if TYPE_CHECKING:
    from bls_notebook.records.environments import EnvironmentRecord
    from bls_notebook.records.models import ModelRecord


TRITONREPO = OperationSpec(
    "Manage the current model repository by a verb; without one, list its models. Manual: docs/reference/magics.md.",
    options=(option("verb", "VERB", "what to do", nargs="?"),),
)


def _each_model(
    notebook: Notebook, names: Sequence[str], action: Callable[[str], ModelRecord]
) -> ModelRecord | Records[ModelRecord]:
    """Run an action for each model; return its record, or a list of several.

    After errors, display the successes and all errors but the last, which is raised.
    """
    done, failed = Records["ModelRecord"](), list[bls.BLSError]()
    models = list(dict.fromkeys(names))
    for name in stepped(models, "models", len(models)) if len(models) > 1 else models:
        try:
            with reported(notebook, name):
                done.append(action(name))
        except CellInterrupted:
            raise
        except bls.BLSError as error:
            failed.append(error)
    if not failed:
        return done[0] if len(done) == 1 else done
    if done:
        notebook.show(done)
    for earlier in failed[:-1]:
        notebook.show(display_of(earlier))
    raise failed[-1]


def _load(
    call: MagicCall, names: Sequence[str] = (), all: bool = False, **options: Any
) -> ModelRecord | Records[ModelRecord]:
    repository = bls.current_repository()
    if bool(names) == all:
        call.error("expected model names, or --all")
    every = [record.name for record in repository.index()] if all else names
    home = home_of(**options)
    return _each_model(call.notebook, every, lambda name: repository.load(name, **home))


LOAD = OperationSpec(
    "Load models; loaded models without changes stay. Give names, or --all for every model of the repository.",
    options=(
        option("names", "MODEL", "model names", nargs="*", state="not READY"),
        flag("--all", "load every model of the repository"),
        *HOME,
    ),
    examples="""
    %tritonrepo load add_sub bls_sync
    %tritonrepo load --all
    """,
    notebook=_load,
)

_SERVING = option("names", "MODEL", "model names", nargs="+", state="READY")

RELOAD = OperationSpec(
    "Load models again, even if their files are unchanged.",
    options=(_SERVING,),
    notebook=lambda call, names: _each_model(call.notebook, names, bls.current_repository().reload),
)


def _unload(call: MagicCall, names: Sequence[str], unload_dependents: bool = False) -> None:
    repository = bls.current_repository()
    for name in names:
        was_ready = repository.ready(name)
        repository.unload(name, unload_dependents)
        if was_ready:
            call.notebook.say(f"{name!r} is unloaded")
        else:
            call.notebook.say(f"{name!r} was not loaded", "info")


UNLOAD = OperationSpec(
    "Take models out of service after their running requests.",
    options=(_SERVING, flag("--dependents", "unload the models that depend on them too", dest="unload_dependents")),
    notebook=_unload,
)


def _use(call: MagicCall, paths: Sequence[str] = (), **options: Any) -> None:
    lost = use_repository(*paths, **options)
    repository = bls.current_repository()
    models = {record.name for record in repository.index()}
    where = ", ".join(shown_path(path) for path in repository.paths) or "memory only"
    call.notebook.say(
        f"model repository: {where}; {count(len(models), 'model')}",
        hint=f"the previous repository is closed and {count(lost, 'model')} defined in cells removed" if lost else "",
    )


USE = OperationSpec(
    """Make these folders the current model repository. This closes the previous repository and removes its models
    that cells defined; with the same folders, nothing changes. It loads no model. Without a folder, the repository
    has models in memory only.""",
    options=(
        option("paths", "FOLDER", "a model repository in Triton's layout", nargs="*"),
        option(
            "--backend-directory", "FOLDER", "folder of Python-based backends (default: `backends` in or beside them)"
        ),
        FILL,
    ),
    examples="""
    %tritonrepo use model_repository
    %tritonrepo use all_models/inflight_batcher_llm --fill triton_max_batch_size=8
    """,
    notebook=_use,
)


def _clear(call: MagicCall) -> None:
    bls.current_repository().clear()
    call.notebook.say("all models are unloaded")


CLEAR = OperationSpec("Unload all models and remove those that cells defined.", notebook=_clear)


def _config(call: MagicCall, name: str) -> displays.Display:
    from bls_notebook.repository.config import to_pbtxt

    config = bls.current_repository().config(name)
    return displays.render_config(name, to_pbtxt(config), width=call.notebook.settings.width)


CONFIG = OperationSpec(
    "Show a model's completed configuration as config.pbtxt.",
    options=(option("name", "MODEL", "name of a loaded model", state="READY"),),
    notebook=_config,
)

STATS = OperationSpec(
    """Show statistics of models: requests, executions, batches, times, cache. These are the figures of Triton's
    statistics extension, counted since a version was loaded. The value is a list of records. Guide:
    docs/guides/observing.md.""",
    lambda names=(): Records(bls.current_repository().statistics_records(*names), "StatisticsRecord"),
    (option("names", "MODEL", "names of loaded models (default: all)", nargs="*", state="READY"),),
    """
    %tritonrepo stats
    figures = %tritonrepo stats add_sub
    """,
)


def _metrics(call: MagicCall, filter: str = "", raw: bool = False) -> Records[Any] | None:
    metrics = bls.current_repository().metrics
    families = Records(metrics.families(filter), "FamilyRecord")
    if raw:
        print(metrics.text(filter), end="")
    if not families and filter:
        known = metric_names()
        call.notebook.say(
            f"no metric has {filter!r} in its name, help or labels",
            "info",
            f"the metrics are {', '.join(known)}" if known else "there are no metrics yet",
        )
        return None
    return None if raw else families


def metric_names(words: Sequence[str] = (), models: Sequence[ModelRecord] = ()) -> list[str]:
    """Return the names of all metrics, as completions."""
    return [family.name for family in bls.current_repository().metrics.families()]


METRICS = OperationSpec(
    """Show custom metrics of models, and Triton's own (nv_*). The value is a list of records. With --raw the text is
    printed that Prometheus would read.""",
    options=(
        option("filter", "FILTER", 'part of a name, a help text or a label (model="add_sub")', nargs="?"),
        flag("--raw", "print them in Prometheus's text format"),
    ),
    examples="""
    %tritonrepo metrics
    %tritonrepo metrics latency
    %tritonrepo metrics model="add_sub" --raw
    """,
    notebook=_metrics,
)

LIST = OperationSpec(
    "Show all models, their states and the reasons.", lambda: Records(bls.current_repository().index())
)
DEVICES = OperationSpec("Show the devices and their memory use.", "list_devices")


def _environments(
    delete: Sequence[str] = (), delete_unused: bool = False, tell: Callable[[str], object] | None = None
) -> Records[EnvironmentRecord]:
    repository = bls.current_repository()
    if delete or delete_unused:
        tell = tell or partial(print, file=sys.stderr)
        deleted = repository.delete_environments(*delete, unused=delete_unused)
        freed = size(sum(record.bytes for record in deleted))
        names = ", ".join(record.name for record in deleted)
        tell(f"deleted {count(len(deleted), 'environment')}, {freed}: {names}" if deleted else "nothing was deleted")
    return Records(repository.environments(), "EnvironmentRecord")


ENVIRONMENTS = OperationSpec(
    """Show the environments of models, with their sizes and users, and delete them. These are the environments that
    --requirements and repo.environment() have made in the cache folder of this user. Users are models in service here,
    and other processes that run models in one now; configurations on disk that name one are not known. It deletes the
    named ones, or with --delete-unused all without users, and reports them; then it shows the others. In scripts:
    repo.environments() and repo.delete_environments(); in a shell: python -m bls_notebook environments. Guide:
    docs/guides/package_environments.md.""",
    _environments,
    (
        option("--delete", "ENVIRONMENT", "delete these environments", nargs="+"),
        flag("--delete-unused", "delete the environments that no model uses now"),
    ),
    """
    %tritonrepo environments
    %tritonrepo environments --delete-unused
    """,
    notebook=lambda call, **options: _environments(**options, tell=call.notebook.say),
    shell=lambda **options: (record for record in _environments(**options)),
)
