"""Trace and log settings, answered honestly: nothing here traces to a file or writes a server's log.

What a client sets is taken where nothing would come of it yet, and refused where it would expect a file.
Spans are recorded by `bls.profile`, and what models log is in the notebook.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .failures import UNSUPPORTED, refuse

_TRACE = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}
_NUMBERS = {"trace_rate", "trace_count", "log_frequency"}
_LOG = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}


class Settings:
    """The settings of one endpoint."""

    def __init__(self) -> None:
        self._log: dict[str, Any] = dict(_LOG)
        self._trace: dict[str, dict[str, Any]] = {}  # by model; of none for all

    def trace(self, changes: Mapping[str, Any], model: str = "") -> dict[str, Any]:
        """Return the trace settings, after changes; None takes one back. Tracing itself stays off."""
        for name, value in changes.items():
            if name in _NUMBERS and value is not None:
                if not re.fullmatch(r"-?[0-9]{1,18}", str(value)):
                    refuse(
                        f"Attempting to set invalid trace setting :{name}: got {value!r}, expected a number"
                    )
            elif name in _TRACE and value not in (None, _TRACE[name], *_TRACE[name]):
                refuse(
                    f"trace setting '{name}' cannot be changed: this endpoint writes no trace files; record "
                    "requests by bls.profile() in the notebook",
                    UNSUPPORTED,
                )
        own = self._trace.setdefault(model, {}) if changes else {}
        for name in _NUMBERS & changes.keys():
            if changes[name] is None:
                own.pop(name, None)
            else:
                own[name] = str(changes[name])
        return {**_TRACE, **self._trace.get("", {}), **self._trace.get(model, {})}

    def log(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the log settings, after changes."""
        for name, value in changes.items():
            if name == "log_file" and value != "":
                refuse("log file location can not be updated through network protocol", UNSUPPORTED)
            if name in _LOG and type(value) is not type(_LOG[name]):
                kind = "boolean" if isinstance(_LOG[name], bool) else type(_LOG[name]).__name__
                refuse(f"attempt to access JSON non-{kind} as {kind}")
            if name == "log_format" and value not in ("default", "ISO8601"):
                refuse(f"invalid argument for --log_format, got: {value}")
        self._log.update({name: value for name, value in changes.items() if name in _LOG})
        return dict(self._log)
