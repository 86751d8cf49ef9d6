"""What backends read of a completed configuration, and what those of files do not do here."""

from __future__ import annotations

import re
from typing import Any

from .errors import BackendError

INVALID = "Invalid argument"


def parameter(config: dict[str, Any], key: str) -> str | None:
    """Return a parameter's text, None where it is not given."""
    found = config.get("parameters", {}).get(key)
    return None if found is None else str(found.get("string_value", ""))


def whole(config: dict[str, Any], key: str) -> int | None:
    """Return a parameter that is a whole number, None where it is not given."""
    value = parameter(config, key)
    if value is None:
        return None
    digits = re.match(r"\s*[+-]?\d+", value)  # what follows the number is ignored, as in C
    if digits is None:
        raise BackendError(f"failed to convert '{value}' to integral number", INVALID)
    return int(digits[0])


def truth(config: dict[str, Any], key: str) -> bool | None:
    """Return a parameter that is true or false, None where it is not given."""
    value = parameter(config, key)
    if value is None:
        return None
    words = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
    if value.lower() not in words:
        raise BackendError(f"failed to convert '{value}' to boolean", INVALID)
    return words[value.lower()]


def dims_of(tensor: dict[str, Any]) -> list[int]:
    """Return the dims of an input or output as the model sees it: its reshape, where it has one."""
    dims = tensor["reshape"].get("shape", ()) if "reshape" in tensor else tensor["dims"]
    return [int(d) for d in dims]


def controls_of(config: dict[str, Any]) -> dict[str, str]:
    """Return the inputs by which the sequence batcher tells what it does: their data types by name.

    A data type is "" where a control says by its values what it is.
    """
    controls = config.get("sequence_batching", {}).get("control_input", ())
    return {c["name"]: c["control"][0].get("data_type", "") for c in controls if c.get("control")}


def refuse_parts(config: dict[str, Any]) -> None:
    """Refuse what backends of files do not do here, rather than answer wrongly."""
    parts = [p for p in ("batch_input", "batch_output") if config.get(p)]
    parts += [f"allow_ragged_batch of input '{i['name']}'" for i in config["input"] if i["allow_ragged_batch"]]
    if config.get("sequence_batching", {}).get("state"):
        parts.append("sequence_batching.state")
    if parts:
        raise BackendError(
            f"model '{config['name']}': {', '.join(parts)}: not supported for {config['backend']} models "
            "here (a real Triton server does it); leave it out to try the model in the notebook",
            "Unsupported",
        )
