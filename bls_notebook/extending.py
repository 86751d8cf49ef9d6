"""The extension interface for code outside the core: `Capability`, `Host`, `operation`.

A `Capability` declares the names, magics, displays and so on that a capability adds. `Host(repository)` gives access to
the models of a repository. A function that changes something is an `operation`, and a context manager that does is a
`Scope`: Ctrl-C does not interrupt them halfway. See `docs/guides/extending.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .capabilities import Capability, Drawing, registry
from .lazy_names import import_lazily

if TYPE_CHECKING:
    from .engine.waiting.operations import Scope, operation, undo
    from .repository.host import Host, Registration, SentRequest, Undo
    from .repository.repository import ModelRepository
    from .repository.variant import VariantChange

# The core's interface for capabilities: modules of `bls_notebook`, or packages that offer names.
INTERFACE = (
    "extending", "operations", "progress", "records", "display", "display.document", "display.parts", "magics",
    "repository", "repository.config", "repository.source", "engine", "engine.observer", "backends", "devices",
    "devices.allocation_log", "devices.cupy_memory_hook", "devices.dlpack", "devices.instance_gpu", "pb_utils",
    "pb_utils.dtypes", "pb_utils.errors", "pb_utils.options", "pb_utils.response", "pb_utils.tensor",
)  # fmt: skip

# Every capability's package imports this module, so it imports little.
_MODULES = {
    "bls_notebook.engine.waiting.operations": ("Scope", "operation", "undo"),
    "bls_notebook.repository.host": ("Host", "Registration", "SentRequest", "Undo"),
    "bls_notebook.repository.variant": ("VariantChange",),
}
import_lazily(__name__, {name: f"{module}:{name}" for module, names in _MODULES.items() for name in names})


def host_of(repo: ModelRepository | None = None) -> Host:
    """Return the host of a repository, by default of the current repository."""
    from .repository.host import Host
    from .repository.repository import current_repository

    return Host(current_repository() if repo is None else repo)


__all__ = [
    "Capability", "Drawing", "Host", "Registration", "Scope", "SentRequest", "Undo", "VariantChange", "host_of",
    "operation", "registry", "undo",
]  # fmt: skip
