"""Settings: ``%config BLSNotebook.<name> = <value>``, or ``c.BLSNotebook`` in a profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from traitlets import Bool, CaselessStrEnum, Int, List, TraitError, Unicode, Union, observe, validate
from traitlets.config import Configurable

import bls_notebook as bls
from bls_notebook.devices.device import parse_size
from bls_notebook.devices.registry import MOST_GPUS
from bls_notebook.records.messages import LEVELS
from bls_notebook.repository.source.model_folders import backend_path, repository_paths
from bls_notebook.repository.source.names import ISOLATIONS


class BLSNotebook(Configurable):
    """Settings of the magics of bls_notebook."""

    repository = Union(
        [List(Unicode()), Unicode()],
        default_value=[],
        help="Folder or folders of the current model repository; empty for models in memory only.",
    ).tag(config=True)
    strict = Bool(
        False, help="Whether the warnings of a response, for problems that Triton ignores, make the request fail."
    ).tag(config=True)
    isolation = CaselessStrEnum(
        ISOLATIONS,
        "kernel",
        help="Where instances of Python models run that are loaded from now on: in the kernel, or "
        "each in a process of its own, as on Triton.",
    ).tag(config=True)
    raise_errors = Bool(
        False,
        help="Whether an error response makes the magic's cell fail, so that nbconvert, papermill and "
        "`jupyter execute` stop there. Otherwise the cell displays the error and succeeds.",
    ).tag(config=True)
    show_warnings = Bool(True, help="Whether displays show warnings.").tag(config=True)
    widgets = Bool(
        True, help="Whether pictures can be zoomed, hovered and searched while the kernel runs (needs anywidget)."
    ).tag(config=True)
    log_level = CaselessStrEnum(
        [*LEVELS, "off"],
        default_value="info",
        help="Lowest level of models' log messages that cells show; off for none. "
        "Python's logging always gets all messages.",
    ).tag(config=True)
    width = Int(100, min=40, help="Columns of plain-text displays.").tag(config=True)

    simulated_gpus = Int(0, min=0, max=MOST_GPUS, help="Number of GPUs to simulate on a machine without one.").tag(
        config=True
    )
    simulated_gpu_memory = Unicode("4 GiB", help="Capacity of each simulated GPU, such as 512 MiB or 2 GB.").tag(
        config=True
    )

    @validate("simulated_gpu_memory")
    def _check_memory(self, proposal: dict[str, Any]) -> Any:
        try:
            parse_size(proposal["value"])
        except ValueError as error:
            raise TraitError(f"BLSNotebook.simulated_gpu_memory: {error}") from None
        return proposal["value"]

    @observe("simulated_gpus", "simulated_gpu_memory")
    def _simulate(self, change: dict[str, Any]) -> None:
        if change["name"] == "simulated_gpu_memory" and not self.simulated_gpus:
            return
        if bls.simulate_gpus(self.simulated_gpus, self.simulated_gpu_memory) < self.simulated_gpus:
            print("This machine has CUDA GPUs, so none is simulated.")

    @observe("repository")
    def _use(self, change: dict[str, Any]) -> None:
        use_repository(*self.paths)

    @observe("strict")
    def _be_strict(self, change: dict[str, Any]) -> None:
        bls.current_repository().strict = self.strict

    @observe("isolation")
    def _isolate(self, change: dict[str, Any]) -> None:
        bls.current_repository().isolation = self.isolation

    @property
    def paths(self) -> list[str]:
        """The folders of `repository`."""
        value = self.repository
        return [value] if isinstance(value, str) else list(value)


def use_repository(*paths: str, backend_directory: str | None = None, fill: Mapping[str, str] | None = None) -> int:
    """Replace the current repository by one with these folders; return how many models of cells were lost.

    If the current repository has the same folders, it stays, so rerunning a cell loses nothing. It also stays if a
    path is not a folder, which raises BLSError.
    """
    before = bls.current_repository()
    wanted = repository_paths(paths), backend_path(backend_directory), fill
    if not before.closed and (before.paths, before.backend_directory, before.fill) == wanted:
        return 0
    after = bls.ModelRepository(*paths, strict=before.strict, backend_directory=backend_directory, fill=fill)
    bls.set_current_repository(after)
    lost = len({record.name for record in before.index() if record.source == "cell"})
    after.isolation = before.isolation
    before.close()
    return lost
