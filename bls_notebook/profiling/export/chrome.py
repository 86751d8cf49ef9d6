"""A session in Chrome's Trace Event Format: JSON for chrome://tracing, ui.perfetto.dev and speedscope."""

from __future__ import annotations

import json
from typing import Any

from bls_notebook.profiling.records.spans import SessionData

from .tracks import request_facts, tracks


def chrome_trace(session: SessionData) -> str:
    """Return a session as JSON text; a process is a model, a thread an instance or a queue.

    Times are microseconds since the session began, as the format has them.
    """
    events: list[dict[str, Any]] = []
    processes: dict[str, int] = {}
    for thread, track in enumerate(tracks(session), 1):
        process = processes.setdefault(track.group, len(processes) + 1)
        here = {"pid": process, "tid": thread}
        events.append({"ph": "M", "name": "thread_name", "args": {"name": track.name}, **here})
        events.append({"ph": "M", "name": "thread_sort_index", "args": {"sort_index": thread}, **here})
        for piece in track.slices:
            begin = piece.begin / 1e3
            length = (piece.end - piece.begin) / 1e3
            named = {"name": piece.name, "cat": piece.kind, **here}
            args = request_facts(piece.spans) if piece.name != piece.kind else {}
            events.append({"ph": "X", "ts": begin, "dur": length, "args": args, **named})
            for span in piece.arrives:
                flow = {"name": "request", "cat": "request", "id": span, **here}
                events.append({"ph": "f", "bp": "e", "ts": begin, **flow})
        for point in track.points:
            at = point.at / 1e3
            named = {"name": point.name, "cat": point.kind, **here}
            events.append(
                {
                    "ph": "i",
                    "s": "t",
                    "ts": at,
                    "args": {"request": point.span} if point.span else {},
                    **named,
                }
            )
            if point.sends:
                flow = {"name": "request", "cat": "request", "id": point.sends, **here}
                events.append({"ph": "s", "ts": at, **flow})
    for name, process in processes.items():
        events.append({"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}})
    about = {"name": session.name, "began": session.began, "dropped": session.dropped}
    whole = {"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}
    return json.dumps(whole, separators=(",", ":"))
