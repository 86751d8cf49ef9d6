"""The extension interface for code outside the core: `Capability`, `Host`, `observe`, `operation`.

A `Capability` declares the names, magics, displays and so on that a capability adds. `Host(repository)` gives access to
the models of a repository. `observe` records the requests of all repositories of the process. A function that changes
something is an `operation`, and a context manager that does is a `Scope`: Ctrl-C does not interrupt them halfway. See
`docs/guides/extending.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .capabilities import Capability, Drawing, load

if TYPE_CHECKING:
    from .engine.observer import Observer
    from .engine.recording.spans import Observation
    from .engine.waiting.operations import Scope, operation, undo
    from .repository.host import Host, Registration, SentRequest, Undo
    from .repository.repository import ModelRepository

# Imported when first used: every capability's package imports this module.
_RUNTIME = {
    "Host": "bls_notebook.repository.host:Host",
    "Observation": "bls_notebook.engine.recording.spans:Observation",
    "Registration": "bls_notebook.repository.host:Registration",
    "Scope": "bls_notebook.engine.waiting.operations:Scope",
    "SentRequest": "bls_notebook.repository.host:SentRequest",
    "Undo": "bls_notebook.repository.host:Undo",
    "operation": "bls_notebook.engine.waiting.operations:operation",
    "undo": "bls_notebook.engine.waiting.operations:undo",
}


def __getattr__(name: str) -> Any:
    if name not in _RUNTIME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = load(_RUNTIME[name])
    return value


def host_of(repo: ModelRepository | None = None) -> Host:
    """Return the host of a repository, by default of the current repository."""
    from .repository.host import Host
    from .repository.repository import current_repository

    return Host(current_repository() if repo is None else repo)


def observe(
    limit: int, device_timer: Callable[[int], Any] | None = None, lines: bool = False, tape: Observer | None = None
) -> Observation:
    """Record the requests to all repositories of the process, until `stop` of the returned object is called.

    Parameters
    ----------
    limit : int
        Number of requests to make room for; further ones are only counted.
    device_timer : callable, optional
        Measures the time of a model on a GPU; see `Log.device_timer`.
    lines : bool
        Whether to record the lines of code that send requests.
    tape : Observer, optional
        Called with each request and response while their tensors can be read, with the numbers of the log.

    Returns
    -------
    Observation
        Its `log` contains the recorded requests. Garbage collection of the object also ends the recording.
    """
    from .engine.recording.spans import Observation

    return Observation(limit, device_timer, lines, tape)


__all__ = [
    "Capability", "Drawing", "Host", "Observation", "Registration", "Scope", "SentRequest", "Undo", "host_of",
    "observe", "operation", "undo",
]  # fmt: skip
