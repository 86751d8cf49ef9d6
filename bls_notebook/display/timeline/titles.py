"""What the models of a session are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from bls_notebook.observe.records.profiles.session import Session


def titles(session: Session) -> Callable[[Any], str]:
    """Return what names the model of a span or lane: by its version too where the session has several."""
    served = {(span.model, span.version) for span in session.spans}
    several = {name for name, count in Counter(name for name, _ in served).items() if count > 1}

    def title(of: Any) -> str:
        return f"{of.model} v{of.version}" if of.model in several else str(of.model)

    return title
