"""``%tritonrepo list``, ``config``, ``stats``, ``metrics`` and ``devices``: what there is."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

import bls_notebook as bls
from bls_notebook import display as displays
from bls_notebook.magics.magic import Verb, serves
from bls_notebook.magics.notebook import Notebook
from bls_notebook.magics.output.results import Families, Models, Statistics
from bls_notebook.magics.shell.cell_errors import reported


def _config(notebook: Notebook, arguments: argparse.Namespace) -> displays.Display:
    from bls_notebook.repository.config import to_pbtxt

    with reported(notebook):
        config = bls.current_repository().config(arguments.name)
    return displays.render_config(arguments.name, to_pbtxt(config), width=notebook.settings.width)


def _stats(notebook: Notebook, arguments: argparse.Namespace) -> Statistics:
    with reported(notebook):
        return Statistics(bls.current_repository().statistics_records(*arguments.names))


def _metrics(notebook: Notebook, arguments: argparse.Namespace) -> Families | None:
    metrics = bls.current_repository().metrics
    if arguments.raw:
        text = metrics.text(arguments.filter)
        print(text, end="")
        found = bool(text)
    else:
        families = Families(metrics.families(arguments.filter))
        found = bool(families)
    if not found and arguments.filter:
        known = list(_metric_names())
        notebook.say(
            f"no metric has {arguments.filter!r} in its name, help or labels",
            "info",
            f"there are {', '.join(known)}" if known else "there are no metrics yet",
        )
        return None
    return None if arguments.raw else families


def _metric_names() -> Iterable[str]:
    return [family.name for family in bls.current_repository().metrics.families()]


LIST = Verb(
    "list", "show every model that is known, its state and why",
    lambda notebook, arguments: Models(bls.current_repository().index()),
    "A model of a cell is stale when one that it calls has other inputs or outputs than it knew.",
)  # fmt: skip
CONFIG = Verb("config", "show a model's completed configuration as config.pbtxt", _config, suggests=serves)
CONFIG.parser.add_argument("name", metavar="NAME", help="name of a model that is loaded")

STATS = Verb(
    "stats", "show what models have done: requests, executions, batches, times, cache", _stats,
    "The figures are those of Triton's statistics extension; they count from when a version was loaded. The "
    "value is a list of records.",
    "  %tritonrepo stats\n  figures = %tritonrepo stats add_sub\n",
    suggests=serves,
)  # fmt: skip
STATS.parser.add_argument("names", nargs="*", metavar="MODEL", help="names of models that are loaded (default: all)")
METRICS = Verb(
    "metrics", "show custom metrics of models, and Triton's own (nv_*)", _metrics,
    "The value is a list of records. With --raw it is what Prometheus would read.",
    '  %tritonrepo metrics\n  %tritonrepo metrics latency\n  %tritonrepo metrics model="add_sub" --raw\n',
    offers=_metric_names,
)  # fmt: skip
METRICS.parser.add_argument(
    "filter", nargs="?", default="", metavar="FILTER",
    help='part of a name, of a help text or of a label (model="add_sub")',
)  # fmt: skip
METRICS.parser.add_argument("--raw", action="store_true", help="print them in Prometheus's text format")

DEVICES = Verb("devices", "show the devices and who uses their memory", lambda notebook, arguments: bls.list_devices())
