"""Settings: ``%config BLSNotebook.<name> = <value>``, or ``c.BLSNotebook`` in a profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from traitlets import Bool, CaselessStrEnum, Int, List, TraitError, Unicode, Union, observe, validate
from traitlets.config import Configurable

import bls_notebook as bls
from bls_notebook.devices.device import parse_size
from bls_notebook.devices.registry import MOST_GPUS
from bls_notebook.records.raw_events import LEVELS
from bls_notebook.repository.source.layout import backend_path, repository_paths


class BLSNotebook(Configurable):
    """What the magics of bls_notebook go by."""

    repository = Union(
        [List(Unicode()), Unicode()],
        default_value=[],
        help="Folder, or folders, of the current model repository; none for models in memory only.",
    ).tag(config=True)
    strict = Bool(
        False, help="Whether what Triton would pass in silence (the warnings of a response) fails the request."
    ).tag(config=True)
    raise_errors = Bool(
        False,
        help="Whether an error response fails the cell of the magic that got it, so that nbconvert, "
        "papermill and `jupyter execute` fail too; else it is shown, and the notebook goes on.",
    ).tag(config=True)
    show_warnings = Bool(True, help="Whether displays show warnings.").tag(config=True)
    widgets = Bool(
        True, help="Whether pictures can be zoomed, hovered and searched while the kernel runs (needs anywidget)."
    ).tag(config=True)
    log_level = CaselessStrEnum(
        [*LEVELS, "off"],
        default_value="info",
        help="The least level of what models log that is shown under cells; off for nothing. "
        "Python's logging gets all of it in any case.",
    ).tag(config=True)
    width = Int(100, min=40, help="Columns of plain-text displays.").tag(config=True)

    simulated_gpus = Int(0, min=0, max=MOST_GPUS, help="How many GPUs to simulate where there is no CUDA GPU.").tag(
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
            print("This machine has CUDA GPUs: they are used, and none is simulated.")

    @observe("repository")
    def _use(self, change: dict[str, Any]) -> None:
        use_repository(*self.paths)

    @observe("strict")
    def _be_strict(self, change: dict[str, Any]) -> None:
        bls.current_repository().strict = self.strict

    @property
    def paths(self) -> list[str]:
        """The folders of `repository`."""
        value = self.repository
        return [value] if isinstance(value, str) else list(value)


def use_repository(*paths: str, backend_directory: str | None = None, fill: Mapping[str, str] | None = None) -> int:
    """Put a repository over folders in the place of the current one; return how many models of cells went.

    Where the current one is over the same folders already, it stays: a cell that is run again loses nothing.
    It stays too where a path is not a folder, which is a BLSError.
    """
    before = bls.current_repository()
    wanted = repository_paths(paths), backend_path(backend_directory), fill
    if not before.closed and (before.paths, before.backend_directory, before.fill) == wanted:
        return 0
    after = bls.ModelRepository(*paths, strict=before.strict, backend_directory=backend_directory, fill=fill)
    bls.set_current_repository(after)
    lost = len({record.name for record in before.index() if record.source == "cell"})
    before.close()
    return lost
