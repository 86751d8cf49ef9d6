"""``%%tritonmodel`` and ``%%tritonconfig``: define a model by a cell, and give its config.pbtxt in a cell."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bls_notebook as bls

from .arguments import Parser, Variables, whole_number
from .cell_body import place_of
from .cell_errors import reported
from .magic import Magic
from .notebook import Notebook

if TYPE_CHECKING:
    from bls_notebook.records.repository import ModelRecord


_TENSOR = re.compile(r"(?P<name>\S+)\s+(?:TYPE_)?(?P<type>[A-Za-z0-9]+)\s*\[(?P<dims>[-\d\s,]*)\]")
_KINDS = {"cpu": "KIND_CPU", "gpu": "KIND_GPU", "auto": "KIND_AUTO"}
_SIMPLE = ("inputs", "outputs", "max_batch_size", "instances", "kind", "decoupled")


def add_config_options(parser: Parser) -> None:
    """Add the options that describe a configuration."""
    add = parser.add_argument
    add(
        "--config", metavar="WHAT",
        help="a variable that holds config.pbtxt's text or a dict, or the path of a config.pbtxt",
    )  # fmt: skip
    for option, dest in (("--input", "inputs"), ("--output", "outputs")):
        add(
            option, dest=dest, action="append", nargs="+", metavar=("NAME", "TYPE [DIMS]"),
            help=f"an {option[2:]}, such as: {option} NAME FP32 [-1,3]  (may be repeated)",
        )  # fmt: skip
    add("--max-batch-size", type=whole_number(0), metavar="N", help="0 (the default) for no batching")
    add("--instances", type=whole_number(1), metavar="N", help="how many run side by side")
    add("--kind", choices=sorted(_KINDS), help="where the instances run")
    add("--decoupled", action="store_true", help="answers a request with any number of responses")


def config_of(parser: Parser, arguments: argparse.Namespace, variables: Variables) -> Any:
    """Return the configuration that the arguments give, or None; a UsageError where they contradict each
    other.
    """
    simple = config_from_options(parser, arguments)
    if arguments.config is None:
        return simple
    if simple is not None:
        parser.error("--config and the options for a simple configuration exclude each other; give one")
    name = arguments.config
    if name.isidentifier() and name in variables:
        return variables[name]
    path = Path(name).expanduser()
    if not path.is_file():
        parser.error(f"--config: got {name!r}, which is neither a variable of the notebook nor a file")
    return path.read_text(encoding="utf-8")


def config_from_options(parser: Parser, arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Return the configuration that the simple options give; None without any of them."""
    if not any(getattr(arguments, name) not in (None, False) for name in _SIMPLE):
        return None
    config: dict[str, Any] = {}
    for field, option in (("input", arguments.inputs), ("output", arguments.outputs)):
        if option:
            config[field] = [_tensor(parser, field, " ".join(words)) for words in option]
    if arguments.max_batch_size is not None:
        config["max_batch_size"] = arguments.max_batch_size
    if arguments.instances is not None or arguments.kind is not None:
        group: dict[str, Any] = {"count": arguments.instances or 1}
        if arguments.kind is not None:
            group["kind"] = _KINDS[arguments.kind]
        config["instance_group"] = [group]
    if arguments.decoupled:
        config["model_transaction_policy"] = {"decoupled": True}
    return config


def _tensor(parser: Parser, field: str, text: str) -> dict[str, Any]:
    found = _TENSOR.fullmatch(text.strip())
    if found is None:
        parser.error(f"--{field}: got {text!r}, expected NAME TYPE [DIMS], such as IN FP32 [-1,3]")
    kind = found["type"].upper()
    try:
        dims = [int(dim) for dim in found["dims"].replace(",", " ").split()]
    except ValueError:
        parser.error(f"--{field}: got the shape [{found['dims']}], expected whole numbers, such as [-1,3]")
    kind = "STRING" if kind == "BYTES" else kind
    return {"name": found["name"], "data_type": f"TYPE_{kind}", "dims": dims}


PARSER = Parser(
    "%%tritonmodel",
    "Defines a Triton Python model: the cell is its model.py, the same that runs on Triton. It is loaded "
    "at once and replaces a model of this name; where it cannot be loaded, the old one goes on serving. "
    "Its configuration comes from --config or the other options here, else from %%tritonconfig, else "
    "from the model's own auto_complete_config. What it changes of a model that a cell has defined before "
    "is folded below it; models that call this one are named if its inputs or outputs are others now. "
    "A breakpoint in the cell stops there when the model is called: in JupyterLab switch the debugger on "
    "(the bug above the notebook) and click beside a line.",
    """\
  %%tritonmodel add_sub
  %%tritonmodel add_sub --config my_config --version 2
  %%tritonmodel relay --input NAME STRING [1] --output SUM FP32 [-1] --instances 2
""",
)
_add = PARSER.add_argument
_add("name", metavar="MODEL", help="the model's name")
_add("--version", type=whole_number(1), default=1, metavar="N", help="number of the version (default: 1)")
add_config_options(PARSER)
_add("-q", "--quiet", action="store_true", help="show nothing, unless it fails")

CONFIG_PARSER = Parser(
    "%%tritonconfig",
    "Gives a model's configuration: the cell is its config.pbtxt. It is checked at once. A model of this "
    "name that was defined by a cell is loaded again with it; otherwise the next %%tritonmodel uses it.",
    "  %%tritonconfig add_sub\n",
)
CONFIG_PARSER.add_argument("name", metavar="MODEL", help="the model's name")
CONFIG_PARSER.add_argument("-q", "--quiet", action="store_true", help="show nothing, unless it fails")


def tritonmodel(notebook: Notebook, line: str, cell: str, variables: Variables) -> ModelRecord | None:
    """Define and load a model from a cell."""
    arguments = PARSER.parse_line(line, variables)
    config = config_of(PARSER, arguments, variables)
    place = place_of(notebook, cell)
    with reported(notebook, arguments.name):
        record = bls.current_repository().define(
            arguments.name, cell, config, arguments.version, variables.keys(), place
        )
    notebook.definition_lines[arguments.name] = line
    record = with_changes_to_show(notebook, (cell, repr(config)), record)
    return None if arguments.quiet else record


def tritonconfig(notebook: Notebook, line: str, cell: str, variables: Variables) -> ModelRecord | None:
    """Give a model's config.pbtxt as a cell."""
    arguments = CONFIG_PARSER.parse_line(line, variables)
    with reported(notebook, arguments.name):
        record = bls.current_repository().set_config(arguments.name, cell)
    if arguments.quiet:
        return None
    if record is None:
        notebook.say(f"config of {arguments.name!r} is noted; the next %%tritonmodel of this name uses it")
        return None
    return with_changes_to_show(notebook, ("", cell), record)


def with_changes_to_show(notebook: Notebook, content: tuple[str, str], record: ModelRecord) -> ModelRecord:
    """Return a record with the changes to show; ``content`` is what the cell says of the model."""
    if not notebook.has_kernel:  # a terminal has no cells that are run again
        return record
    key = (record.name, _cell_id(notebook.shell) or content)  # who runs notebooks by program tells no ids
    known, had_none = notebook.definitions.get(key, ((), False))
    if known != content:
        notebook.definitions[key] = (content, not record.changes)
        return record
    return replace(record, changes=()) if had_none else record


def _cell_id(shell: Any) -> str:
    parent = shell.get_parent() if hasattr(shell, "get_parent") else None
    metadata = parent.get("metadata") if isinstance(parent, dict) else None
    return str(metadata.get("cellId") or "") if isinstance(metadata, dict) else ""


MAGIC = Magic(PARSER, tritonmodel)
CONFIG_MAGIC = Magic(CONFIG_PARSER, tritonconfig)
