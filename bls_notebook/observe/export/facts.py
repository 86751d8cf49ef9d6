"""What trace viewers show of a slice beside its name and times."""

from __future__ import annotations

from collections.abc import Sequence

from bls_notebook.observe.records.spans import Span

__all__ = ["clean", "facts"]


def facts(spans: Sequence[Span]) -> dict[str, str | int]:
    """Return what there is to say of one request, or of the requests of a batch; sizes are sums."""
    first = spans[0]
    out: dict[str, str | int] = {
        "request": first.id if len(spans) == 1 else ", ".join(str(s.id) for s in spans),
        "parent": first.parent,
        "kind": first.kind,
        "state": first.state,
        "version": first.version,
        "device": first.device,
        "rows": sum(s.rows for s in spans),
        "bytes_in": sum(s.bytes_in for s in spans),
        "bytes_out": sum(s.bytes_out for s in spans),
        "thread": first.thread,
    }
    if first.request_id:
        out["request_id"] = clean(first.request_id)
    if any(s.crossings for s in spans):
        out["crossings"] = sum(s.crossings for s in spans)
    if first.device_ns >= 0:
        out["device_ns"] = first.device_ns
    if first.cached:
        out["cached"] = "yes"
    error = next((s.error for s in spans if s.error), "")
    if error:
        out["error"] = clean(error)
    return out


def clean(text: str) -> str:
    """Return a text with halves of surrogate pairs, which no viewer takes, as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()
