"""What the models of a session are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bls_notebook.profiling.analysis.call_graph import of_several_versions
from bls_notebook.profiling.records.session import Session


def titles(session: Session) -> Callable[[Any], str]:
    """Return what names the model of a span or lane: by its version too where the session has several."""
    several = of_several_versions(session.spans)

    def title(of: Any) -> str:
        return f"{of.model} v{of.version}" if of.model in several else str(of.model)

    return title
