"""``%tritonrepo VERB``: the dispatcher, and the verbs of the core: list, load, reload, config, stats, use and others.

If one of several models cannot be loaded, the others are loaded anyway.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

import bls_notebook as bls
from bls_notebook import display as displays
from bls_notebook.capabilities import registry
from bls_notebook.progress import stepped
from bls_notebook.records.units import count
from bls_notebook.repository.source.model_folders import shown_path

from .arguments import HelpWanted, Parser, Variables, expanded, read_line
from .cell_errors import CellInterrupted, display_of, reported
from .magic import Magic, Verb, serves, verb_named
from .notebook import Notebook
from .result_lists import Records
from .settings import use_repository

if TYPE_CHECKING:
    from bls_notebook.records.models import ModelRecord


class _Repository(Parser):
    def format_help(self) -> str:
        """Return the verbs, then each verb's own help."""
        verbs: list[Verb] = [registry().load("verbs", name) for name in registry().keys("verbs")]
        lines = ["usage: %tritonrepo [VERB] [arguments]", ""]
        lines += [f"{self.description} Manual: docs/reference/magics.md.", "", "verbs:"]
        lines += [f"  {verb.name:8} {verb.summary}" for verb in verbs]
        return "\n".join(lines) + "\n\n" + "\n".join(verb.parser.format_help() for verb in verbs)


PARSER = _Repository("%tritonrepo", "Manage the current model repository by a verb; without one, list its models.")


def tritonrepo(notebook: Notebook, line: str, cell: str, variables: Variables) -> object:
    """Run a verb on the current repository."""
    named = verb_named(next(iter(line.split()), "list"))  # its parser reports an unfinished quote in the line
    read = (PARSER if named is None else named.parser).words_of(line)
    words = [expanded(word.plain, variables) for word in read] or ["list"]
    if words[0] in ("-h", "--help"):
        raise HelpWanted(PARSER.format_help())
    verb = verb_named(words[0])
    if verb is None:
        raise UsageError(_unknown(words[0]))
    if not verb.takes_inputs:
        return verb.run(notebook, verb.parser.parse(words[1:]))
    request = read_line(verb.parser, line[read[0].end :], variables)
    arguments = verb.parser.parse(request.words)
    arguments.inputs = request.values(variables, verb.parser.prog)
    return verb.run(notebook, arguments)


def _unknown(word: str) -> str:
    verbs = registry().keys("verbs")
    close = difflib.get_close_matches(word, verbs, 1)
    guess = f" (did you mean {close[0]}?)" if close else ""
    return f"%tritonrepo: unknown verb {word!r}{guess}; the verbs are {', '.join(verbs)}."


MAGIC = Magic(PARSER, tritonrepo)


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


def _load(notebook: Notebook, arguments: argparse.Namespace) -> ModelRecord | Records[ModelRecord]:
    repository = bls.current_repository()
    names = arguments.names
    if bool(names) == arguments.all:
        LOAD.parser.error("expected model names, or --all")
    if arguments.all:
        names = [record.name for record in repository.index()]
    return _each_model(notebook, names, repository.load)


def _unload(notebook: Notebook, arguments: argparse.Namespace) -> None:
    repository = bls.current_repository()
    for name in arguments.names:
        with reported(notebook):
            was_ready = repository.ready(name)
            repository.unload(name, arguments.dependents)
        if was_ready:
            notebook.say(f"{name!r} is unloaded")
        else:
            notebook.say(f"{name!r} was not loaded", "info")


def _use(notebook: Notebook, arguments: argparse.Namespace) -> None:
    with reported(notebook):
        fill = dict(arguments.fill) or None
        lost = use_repository(*arguments.paths, backend_directory=arguments.backend_directory, fill=fill)
    repository = bls.current_repository()
    models = {record.name for record in repository.index()}
    where = ", ".join(shown_path(path) for path in repository.paths) or "memory only"
    notebook.say(
        f"model repository: {where}; {count(len(models), 'model')}",
        hint=f"the previous repository is closed and {count(lost, 'model')} defined in cells removed" if lost else "",
    )


def _clear(notebook: Notebook, arguments: argparse.Namespace) -> None:
    with reported(notebook):
        bls.current_repository().clear()
    notebook.say("all models are unloaded")


LOAD = Verb(
    "load", "load models; loaded models without changes stay", _load,
    __file__, suggests=lambda record: record.state != "READY",
)  # fmt: skip

RELOAD = Verb(
    "reload", "load models again, even if their files are unchanged",
    lambda notebook, arguments: _each_model(notebook, arguments.names, bls.current_repository().reload),
    __file__, suggests=serves,
)  # fmt: skip

UNLOAD = Verb("unload", "take models out of service after their running requests", _unload, __file__, suggests=serves)

USE = Verb("use", "make these folders the current model repository", _use, __file__)

CLEAR = Verb("clear", "unload all models and remove those that cells defined", _clear)


def _config(notebook: Notebook, arguments: argparse.Namespace) -> displays.Display:
    from bls_notebook.repository.config import to_pbtxt

    with reported(notebook):
        config = bls.current_repository().config(arguments.name)
    return displays.render_config(arguments.name, to_pbtxt(config), width=notebook.settings.width)


def _stats(notebook: Notebook, arguments: argparse.Namespace) -> Records[Any]:
    with reported(notebook):
        return Records(bls.current_repository().statistics_records(*arguments.names), "StatisticsRecord")


def _metrics(notebook: Notebook, arguments: argparse.Namespace) -> Records[Any] | None:
    metrics = bls.current_repository().metrics
    families = Records(metrics.families(arguments.filter), "FamilyRecord")
    if arguments.raw:
        print(metrics.text(arguments.filter), end="")
    if not families and arguments.filter:
        metric_names = list(_metric_names())
        notebook.say(
            f"no metric has {arguments.filter!r} in its name, help or labels",
            "info",
            f"the metrics are {', '.join(metric_names)}" if metric_names else "there are no metrics yet",
        )
        return None
    return None if arguments.raw else families


def _metric_names() -> Iterable[str]:
    return [family.name for family in bls.current_repository().metrics.families()]


LIST = Verb(
    "list", "show all models, their states and the reasons",
    lambda notebook, arguments: Records(bls.current_repository().index()),
)  # fmt: skip
CONFIG = Verb("config", "show a model's completed configuration as config.pbtxt", _config, __file__, suggests=serves)

STATS = Verb(
    "stats", "show statistics of models: requests, executions, batches, times, cache", _stats, __file__, suggests=serves
)
METRICS = Verb(
    "metrics", "show custom metrics of models, and Triton's own (nv_*)", _metrics, __file__, offers=_metric_names
)
DEVICES = Verb("devices", "show the devices and their memory use", lambda notebook, arguments: bls.list_devices())
