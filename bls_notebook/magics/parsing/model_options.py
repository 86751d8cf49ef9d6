"""A model's configuration from the options of ``%%tritonmodel``, in the form of config.pbtxt's JSON."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from .arguments import Parser, whole_number
from .words import Variables

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
