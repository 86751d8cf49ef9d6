"""Trace and log settings: fixed, for this endpoint traces to no file and writes no server's log.

Clients can read them, as on Triton; a change is refused. `bls.profile` records spans, and the notebook shows
what models log.
"""

from __future__ import annotations

from typing import Any

from bls_notebook.network.kserve.errors import UNSUPPORTED, refuse

TRACE: dict[str, Any] = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}
LOG: dict[str, Any] = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}


def unchanged(settings: dict[str, Any], changes: Any) -> dict[str, Any]:
    """Return settings; refuse a request that would change them."""
    if changes:
        refuse("this endpoint does not support changes of trace and log settings", UNSUPPORTED)
    return settings
