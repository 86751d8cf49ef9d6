"""What servers elsewhere have counted of their models, asked when a profile begins and ends.

Guarantees: takes no longer than `SECONDS`, whatever the servers do; a server that does not answer is left
out, and one that is known to be lost is not asked.
"""

from __future__ import annotations

import threading
from typing import Any

from bls_notebook.engine.core.model import LoadedModel, in_memory
from bls_notebook.engine.waiting.threads import start_in_thread
from bls_notebook.network.connection.link import Link, RemoteError
from bls_notebook.records.statistics import StatisticsRecord, statistics_record

SECONDS = 1.0


def server_counts() -> dict[tuple[str, int], StatisticsRecord]:
    """Return what the servers of remote models have counted, by the models' names and versions here."""
    models = [m for m in list(in_memory) if m.seen.remote and not m.closed.is_set() and m.instances]
    by_link: dict[Link, list[LoadedModel]] = {}
    for model in models:
        backend: Any = model.instances[0].backend
        if not (backend.link.lost or backend.link.closed):
            by_link.setdefault(backend.link, []).append(model)
    if not by_link:
        return {}
    out: dict[tuple[str, int], StatisticsRecord] = {}
    waiting = [_Answer(link) for link in by_link]
    for answer in waiting:
        start_in_thread(answer.ask)
    for answer in waiting:
        answer.there.wait(SECONDS)
        rows = {(row["name"], str(row["version"])): row for row in list(answer.rows)}
        for model in by_link[answer.link]:
            backend = model.instances[0].backend
            row = rows.get((backend.name, str(model.version)))
            if row is not None:
                out[model.who] = statistics_record(row)
    return out


class _Answer:
    def __init__(self, link: Link) -> None:
        self.link = link
        self.there = threading.Event()
        self.rows: list[dict[str, Any]] = []

    def ask(self) -> None:
        """Ask for all of its models at once."""
        try:
            self.rows = list(self.link.statistics("", "", SECONDS).get("model_stats", ()))
        except (RemoteError, AttributeError, TypeError):  # or what answers is no Triton
            pass
        finally:
            self.there.set()
