"""``%%tritonmodel`` and ``%%tritonconfig``: cells that are a model's model.py or its config.pbtxt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bls_notebook as bls
from bls_notebook.operations import OperationSpec, Option, UsageProblem, flag, option, whole_number
from bls_notebook.records.regular_file import MAX_CONFIG, read_file
from bls_notebook.repository.host import Host
from bls_notebook.repository.repository import define_cell
from bls_notebook.repository.source.names import check_home

from .arguments import Variables
from .bls_cell import place_of
from .cell_errors import reported
from .magic import MagicCall
from .notebook import Notebook

if TYPE_CHECKING:
    from bls_notebook.records.models import ModelRecord


_TENSOR = re.compile(r"(?P<name>\S+)\s+(?:TYPE_)?(?P<type>[A-Za-z0-9]+)\s*\[(?P<dims>[-\d\s,]*)\]")
_KINDS = {"cpu": "KIND_CPU", "gpu": "KIND_GPU", "auto": "KIND_AUTO"}
_SIMPLE = ("inputs", "outputs", "max_batch_size", "instances", "kind", "decoupled")


def config_of(options: dict[str, Any], variables: Variables) -> Any:
    """Take the options of a configuration out of `options` and return the configuration, or None without any."""
    name = options.pop("config", None)
    simple = _config_of_options(**{each: options.pop(each) for each in _SIMPLE if each in options})
    if name is None:
        return simple
    if simple is not None:
        raise UsageProblem("--config cannot be combined with options such as --input; use one of them")
    if name.isidentifier() and name in variables:
        return variables[name]
    path = Path(name).expanduser()
    if not path.is_file():
        raise UsageProblem(f"--config: got {name!r}, expected a variable of the notebook or the path of a file")
    return read_file(path, MAX_CONFIG).decode()


def _config_of_options(
    inputs: Sequence[Sequence[str]] = (), outputs: Sequence[Sequence[str]] = (), max_batch_size: int | None = None,
    instances: int | None = None, kind: str | None = None, decoupled: bool = False,
) -> dict[str, Any] | None:  # fmt: skip
    config: dict[str, Any] = {}
    for field, tensors in (("input", inputs), ("output", outputs)):
        if tensors:
            config[field] = [_tensor(field, " ".join(words)) for words in tensors]
    if max_batch_size is not None:
        config["max_batch_size"] = max_batch_size
    if instances is not None or kind is not None:
        group: dict[str, Any] = {"count": instances or 1}
        if kind is not None:
            group["kind"] = _KINDS[kind]
        config["instance_group"] = [group]
    if decoupled:
        config["model_transaction_policy"] = {"decoupled": True}
    return config or None


def _tensor(field: str, text: str) -> dict[str, Any]:
    match = _TENSOR.fullmatch(text.strip())
    if match is None:
        raise UsageProblem(
            f"--{field}: got {text!r}, expected NAME TYPE [DIMS], such as IN FP32 [-1,3]; one --{field} for each tensor"
        )
    kind = match["type"].upper()
    try:
        dims = [int(dim) for dim in match["dims"].replace(",", " ").split()]
    except ValueError:
        raise UsageProblem(
            f"--{field}: got the shape [{match['dims']}], expected whole numbers, such as [-1,3]"
        ) from None
    kind = "STRING" if kind == "BYTES" else kind
    return {"name": match["name"], "data_type": f"TYPE_{kind}", "dims": dims}


def _define(call: MagicCall, name: str, version: int = 1, quiet: bool = False, **options: Any) -> ModelRecord | None:
    chosen = {each: options.pop(each) for each in ("process", "in_kernel", "requirements", "python") if each in options}
    is_whole = "config" in options
    config = config_of(options, call.variables)
    whole, fields = (config, None) if is_whole else (None, config)
    place = place_of(call.notebook, call.cell)
    with reported(call.notebook, name):
        repository, home = bls.current_repository(), check_home(**home_of(**chosen))
        record = define_cell(repository, name, call.cell, whole, version, call.variables.keys(), place, fields, home)
    call.notebook.definition_lines[name] = call.line
    call.notebook.stale.define(Host(repository), name, call.notebook.cell_number)
    record = with_changes_to_show(call.notebook, (call.cell, repr(config)), record)
    return None if quiet else record


def _configure(call: MagicCall, name: str, quiet: bool = False) -> ModelRecord | None:
    """Set a model's config.pbtxt from a cell."""
    with reported(call.notebook, name):
        record = bls.current_repository().set_config(name, call.cell)
    if quiet:
        return None
    if record is None:
        call.notebook.say(f"configuration of {name!r} set; the next %%tritonmodel of this name uses it")
        return None
    return with_changes_to_show(call.notebook, ("", call.cell), record)


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


def _tensors(name: str) -> Option:
    help = f"an {name}, such as --{name} NAME FP32 [-1,3]; repeat the option for more"
    keywords = {"dest": f"{name}s", "action": "append", "nargs": "+", "metavar": ("NAME", "TYPE [DIMS]"), "help": help}
    return Option((f"--{name}",), keywords)


def home_of(
    process: bool = False, in_kernel: bool = False, requirements: str | None = None, python: str | None = None
) -> dict[str, Any]:
    """Return the keywords of `load` that say where instances run; makes the environment."""
    wants_environment = requirements is not None or python is not None
    if in_kernel and (process or wants_environment):
        other = "--process" if process else "--requirements and --python"
        raise UsageProblem(f"{other} cannot be combined with --in-kernel; use one of them")
    environment = bls.current_repository().environment(requirements or "", python=python) if wants_environment else None
    return {"isolation": "process" if process else "kernel" if in_kernel else None, "environment": environment}


HOME = (
    flag("--process", "each instance is a process, as on Triton: a crash ends it alone, and it has its own GIL"),
    flag("--in-kernel", "each instance is a thread of the kernel (the default)"),
    option(
        "--requirements", "PACKAGES", "install these in an environment for the model's processes, such as "
        '"numpy<2, scikit-learn==1.4", or a requirements.txt',
    ),
    option("--python", "VERSION", "Python of that environment, such as 3.10, or the path of an interpreter"),
)  # fmt: skip
_NAME = option("name", "MODEL", "the model's name")
_QUIET = flag("-q --quiet", "show nothing, except errors")

MODEL_CELL = OperationSpec(
    """Define a Triton Python model: the cell is its model.py, which runs unchanged on Triton. The model is loaded at
    once and replaces an earlier model of the same name; if loading fails, the earlier one stays in service. The
    configuration comes from --config; otherwise, without options such as --input, from a %%tritonconfig cell;
    otherwise from the model on disk (or its stub) that the cell replaces, with the fields of the options in place of
    its own. The model's auto_complete_config completes it. When a cell redefines a model, a folded section shows the
    changes; if inputs or outputs changed, a warning names the models that call it. Outputs of magics that asked the
    model before, or a caller of it, get the mark "older than MODEL, cell N". To stop at a breakpoint in the
    cell, switch on JupyterLab's debugger (the bug icon above the notebook), click beside a line, and call the model.
    Guide: docs/guides/batch_dimension.md.""",
    options=(
        option("--version", "N", "version number (default: 1)", whole_number(1)),
        _NAME,
        _QUIET,
        _tensors("input"),
        _tensors("output"),
        Option(("--kind",), {"choices": sorted(_KINDS), "help": "device kind of the instances"}),
        option("--config", "WHAT", "a variable with a config.pbtxt as text or dict, or the path of a config.pbtxt"),
        option("--max-batch-size", "N", "largest batch; 0 (the default) for no batching", whole_number(0)),
        option("--instances", "N", "number of instances, which run in parallel", whole_number(1)),
        flag("--decoupled", "the model sends any number of responses to a request"),
        *HOME,
    ),
    examples="""
    %%tritonmodel add_sub
    %%tritonmodel add_sub --config my_config --version 2
    %%tritonmodel relay --input NAME STRING [1] --output SUM FP32 [-1] --instances 2
    %%tritonmodel old --requirements "numpy<2, scikit-learn==1.4" --python 3.10
    """,
    notebook=_define,
)

CONFIG_CELL = OperationSpec(
    """Set a model's configuration: the cell is its config.pbtxt, which is checked at once. If a cell has defined this
    model already, the model is reloaded; otherwise the next %%tritonmodel cell of this name uses the configuration.
    Guide: docs/guides/batch_dimension.md.""",
    options=(_NAME, _QUIET),
    examples="%%tritonconfig add_sub",
    notebook=_configure,
)
