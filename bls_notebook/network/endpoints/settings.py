"""Trace and log settings of an endpoint, as clients read and change them (`v2/trace/setting`, `v2/logging`).

A server without a trace file refuses to trace, and so does the endpoint: `bls.profile` records here. Log settings turn
messages of models and of bls_notebook on and off; Python's `logging` decides where and how they are written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from bls_notebook.engine import LogLevels
from bls_notebook.network.kserve.errors import UNSUPPORTED, refuse

_LEVELS = ("TIMESTAMPS", "TENSORS")
_INTEGER = re.compile(r"\s*([+-]?[0-9]{1,40})")
_LEAST, _MOST = -(1 << 31), (1 << 31) - 1
_RANGES: Mapping[str, tuple[int, int]] = {
    "trace_rate": (0, (1 << 32) - 1), "trace_count": (-1, _MOST), "log_frequency": (0, (1 << 32) - 1),
}  # fmt: skip
_DEFAULTS: Mapping[str, Any] = {"trace_level": (), "trace_rate": 1000, "trace_count": -1, "log_frequency": 0}


class TraceSettings:
    """The global trace settings, and those of models, which fall back to the global ones."""

    def __init__(self) -> None:
        self._specified: dict[str, dict[str, Any]] = {"": {}}  # of models by name, "" for the global ones

    def update(self, model: str, changes: Mapping[str, Sequence[str]]) -> None:
        """Change settings, or clear those without values; ProtocolError, and no change, if one is invalid."""
        if "trace_file" in changes:
            refuse("trace file location can not be updated through network protocol", UNSUPPORTED)
        settings = dict(self._specified.get(model, {}))
        for name in _DEFAULTS:
            if name in changes:
                value = _parsed(name, changes[name]) if changes[name] else None
                if value is not None:
                    settings[name] = value
                elif not changes[name]:
                    settings.pop(name, None)
        for other, specified in [(model, settings), *(self._specified.items() if not model else ())]:
            fallback = settings if not model and other else self._specified[""] if other else {}
            effective = {**_DEFAULTS, **fallback, **(settings if other == model else specified)}
            if effective["trace_level"]:
                reason = "trace file name is not given" if effective["trace_rate"] else "sample rate must be non-zero"
                refuse(f"Attempting to set invalid trace setting :{reason}")
        if settings or not model:
            self._specified[model] = settings
        else:
            self._specified.pop(model, None)

    def values(self, model: str) -> dict[str, list[str]]:
        """Return the settings of a model, or the global ones for an empty name."""
        found = {**_DEFAULTS, **self._specified[""], **self._specified.get(model, {})}
        return {
            "trace_level": list(found["trace_level"]) or ["OFF"],
            "trace_rate": [str(found["trace_rate"])],
            "trace_count": [str(found["trace_count"])],
            "log_frequency": [str(found["log_frequency"])],
            "trace_file": [""],
            "trace_mode": ["triton"],
        }


def _parsed(name: str, values: Sequence[str]) -> Any:
    """Return a setting's value; None if it has no known level. ProtocolError in Triton's words if it is invalid."""
    if name == "trace_level":
        if "OFF" in values and len(values) > 1:
            refuse("Expect only one trace level 'OFF' is specified")
        return tuple(level for level in _LEVELS if level in values) or (() if "OFF" in values else None)
    if len(values) > 1:
        refuse(f"expect only 1 value for '{name}'")
    match = _INTEGER.match(values[0])
    if match is None:
        refuse(f"Unable to parse '{name}', got: {values[0]}")
    value = int(match[1])
    least, most = _RANGES[name]
    if not _LEAST <= value <= _MOST:
        refuse(f"Unable to parse '{name}', value is out of range [ {least}, {most} ], got: {values[0]}")
    if name == "trace_count" and value < -1:
        refuse(f"Unable to parse 'trace_count'. Expecting value >= -1, got: {values[0]}")
    return value if name == "trace_count" else value % (1 << 32)


_LOG_TYPES: Mapping[str, type] = {
    "log_info": bool, "log_warning": bool, "log_error": bool, "log_verbose_level": int, "log_format": str,
}  # fmt: skip
_FORMATS = ("default", "ISO8601")


class LogSettings:
    """The log settings, which have an effect until `reset`."""

    def __init__(self) -> None:
        self._levels = LogLevels()
        self.reset = self._levels.reset
        self.values: dict[str, Any] = {
            "log_file": "", "log_info": True, "log_warning": True, "log_error": True,
            "log_verbose_level": self._levels.verbose, "log_format": "default",
        }  # fmt: skip

    def update(self, changes: Mapping[str, Any], wrong: Callable[[str, type], NoReturn]) -> None:
        """Change settings; ProtocolError if one is invalid. `wrong` refuses a value that has not the given type."""
        if "log_file" in changes:
            refuse("log file location can not be updated through network protocol", UNSUPPORTED)
        for name, kind in _LOG_TYPES.items():
            if name not in changes:
                continue
            value = changes[name]
            if type(value) is not kind or (isinstance(value, int) and not 0 <= value < 1 << 32):
                wrong(name, kind)
            if name == "log_format" and value not in _FORMATS:
                refuse(f"invalid argument for log_format, got: {value}")
            self.values[name] = value
            if kind is not str:
                self._levels.turn(name.removeprefix("log_").removesuffix("_level"), bool(value))


def wrong_grpc_type(name: str, kind: type) -> NoReturn:
    """Refuse a log setting of a wrong type, as over gRPC."""
    refuse(f"expect { {bool: 'boolean', int: 'int32', str: 'string'}[kind] } for '{name}'")


def wrong_json_type(name: str, kind: type) -> NoReturn:
    """Refuse a log setting of a wrong type, as over HTTP."""
    words = {bool: "boolean", int: "unsigned-integer", str: "string"}[kind]
    refuse(f"attempt to access JSON non-{words} as {words}")
