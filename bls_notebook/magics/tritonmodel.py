"""``%%tritonmodel`` and ``%%tritonconfig``: cells that are a model's model.py or its config.pbtxt."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bls_notebook as bls
from bls_notebook.records.regular_file import MAX_CONFIG, read_file
from bls_notebook.repository.catalog import define_cell

from .arguments import Parser, Variables, add_options, help_text
from .bls_cell import place_of
from .cell_errors import reported
from .magic import Magic
from .notebook import Notebook

if TYPE_CHECKING:
    from bls_notebook.records.models import ModelRecord


_TENSOR = re.compile(r"(?P<name>\S+)\s+(?:TYPE_)?(?P<type>[A-Za-z0-9]+)\s*\[(?P<dims>[-\d\s,]*)\]")
_KINDS = {"cpu": "KIND_CPU", "gpu": "KIND_GPU", "auto": "KIND_AUTO"}
_SIMPLE = ("inputs", "outputs", "max_batch_size", "instances", "kind", "decoupled")


def add_config_options(parser: Parser) -> None:
    """Add the options that describe a model's configuration."""
    for option, dest in (("--input", "inputs"), ("--output", "outputs")):
        parser.add_argument(
            option, dest=dest, action="append", nargs="+", metavar=("NAME", "TYPE [DIMS]"),
            help=f"an {option[2:]}, such as {option} NAME FP32 [-1,3]; repeat the option for more",
        )  # fmt: skip
    parser.add_argument("--kind", choices=sorted(_KINDS), help="device kind of the instances")
    add_options(parser, __file__, "a configuration")


def config_of(parser: Parser, arguments: argparse.Namespace, variables: Variables) -> Any:
    """Return the configuration from the options, or None; raise UsageError for contradicting options."""
    simple = config_from_options(parser, arguments)
    if arguments.config is None:
        return simple
    if simple is not None:
        parser.error("--config cannot be combined with options such as --input; use one of them")
    name = arguments.config
    if name.isidentifier() and name in variables:
        return variables[name]
    path = Path(name).expanduser()
    if not path.is_file():
        parser.error(f"--config: got {name!r}, expected a variable of the notebook or the path of a file")
    return read_file(path, MAX_CONFIG).decode()


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
    match = _TENSOR.fullmatch(text.strip())
    if match is None:
        parser.error(f"--{field}: got {text!r}, expected NAME TYPE [DIMS], such as IN FP32 [-1,3]")
    kind = match["type"].upper()
    try:
        dims = [int(dim) for dim in match["dims"].replace(",", " ").split()]
    except ValueError:
        parser.error(f"--{field}: got the shape [{match['dims']}], expected whole numbers, such as [-1,3]")
    kind = "STRING" if kind == "BYTES" else kind
    return {"name": match["name"], "data_type": f"TYPE_{kind}", "dims": dims}


PARSER = Parser("%%tritonmodel", *help_text(__file__, "%%tritonmodel"))
add_options(PARSER, __file__, "%%tritonmodel", "%%tritonconfig")
add_config_options(PARSER)

CONFIG_PARSER = Parser("%%tritonconfig", *help_text(__file__, "%%tritonconfig"))
add_options(CONFIG_PARSER, __file__, "%%tritonconfig")


def tritonmodel(notebook: Notebook, line: str, cell: str, variables: Variables) -> ModelRecord | None:
    arguments = PARSER.parse_line(line, variables)
    config = config_of(PARSER, arguments, variables)
    place = place_of(notebook, cell)
    with reported(notebook, arguments.name):
        repository = bls.current_repository()
        record = define_cell(repository, arguments.name, cell, config, arguments.version, variables.keys(), place)
    notebook.definition_lines[arguments.name] = line
    record = with_changes_to_show(notebook, (cell, repr(config)), record)
    return None if arguments.quiet else record


def tritonconfig(notebook: Notebook, line: str, cell: str, variables: Variables) -> ModelRecord | None:
    """Set a model's config.pbtxt from a cell."""
    arguments = CONFIG_PARSER.parse_line(line, variables)
    with reported(notebook, arguments.name):
        record = bls.current_repository().set_config(arguments.name, cell)
    if arguments.quiet:
        return None
    if record is None:
        notebook.say(f"configuration of {arguments.name!r} set; the next %%tritonmodel of this name uses it")
        return None
    return with_changes_to_show(notebook, ("", cell), record)


def with_changes_to_show(notebook: Notebook, content: tuple[str, str], record: ModelRecord) -> ModelRecord:
    """Return a record with only the changes that the cell should show; `content` is the cell's definition.

    An unchanged cell that runs again shows changes only if its first run did, so that a rerun looks the same.
    """
    if not notebook.has_kernel:  # a terminal has no cells to rerun
        return record
    key = (record.name, _cell_id(notebook.shell) or content)  # nbclient sends no cell ids
    earlier, had_none = notebook.definitions.get(key, ((), False))
    if earlier != content:
        notebook.definitions[key] = (content, not record.changes)
        return record
    return replace(record, changes=()) if had_none else record


def _cell_id(shell: Any) -> str:
    parent = shell.get_parent() if hasattr(shell, "get_parent") else None
    metadata = parent.get("metadata") if isinstance(parent, dict) else None
    return str(metadata.get("cellId") or "") if isinstance(metadata, dict) else ""


MAGIC = Magic(PARSER, tritonmodel)
CONFIG_MAGIC = Magic(CONFIG_PARSER, tritonconfig)
