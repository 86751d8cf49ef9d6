"""What the instances of a Python model need of ``/dev/shm`` on a server.

Each instance has a pool there of its own. It begins with ``shm-default-byte-size`` (1 MiB), grows by
multiples of ``shm-growth-byte-size`` (1 MiB) where a tensor finds no room, and never shrinks. In it lie the
tensors of the requests that `execute` is given, of its responses, of the requests that it sends, and of the
responses to these:

    pool = the tensors of the largest batch, put into a pool of 1 MiB one after the other, which grows by
           (bytes // 1 MiB + 1) MiB whenever one does not fit
    all  = instances x pool, added up over the models

That is room for a model that keeps its inputs until its responses are made: a server of release 24.10 was
measured at 33 MiB for one with 16 MB in and 16 MB out, as the formula says, and at 17 MiB for one that lets
go of them before (a plain `execute` does, when it returns). Sizes of -1 count as 1, and what a model keeps
from one request to the next is not in it. Mirrors python_backend/src/shm_manager.cc (GrowIfNeeded).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod

from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE
from bls_notebook.records.quantities import size
from bls_notebook.repository.config import ModelConfigMessage
from bls_notebook.repository.config.spec import datatypes

from .material import Material
from .records import Finding, SharedMemory

DEFAULT = GROWTH = 1 << 20
OWN = 1 << 16  # bytes of a pool that its queues take
DOCKER = 64 << 20  # what a container has where nobody asks for more


def pool_bytes(tensors: Iterable[int]) -> int:
    """Return the size of an instance's pool that has held tensors of so many bytes at once."""
    whole, used = DEFAULT, OWN
    for each in tensors:
        if used + each > whole:
            whole += GROWTH * (each // GROWTH + 1)
        used += each
    return whole


def shared_memory(models: Mapping[str, Material]) -> Iterator[SharedMemory]:
    """Yield what each Python model needs."""
    for model in models.values():
        if model.is_python and not model.problem:
            sizes = list(_sizes(model.config, model.config.max_batch_size))
            code = model.newest()
            for call in code.calls if code is not None else ():
                if (callee := models.get(call.model)) is not None:
                    sizes += _sizes(callee.config, model.config.max_batch_size)
            needs = pool_bytes(number for number, _ in sizes)
            known = model.known and all(known for _, known in sizes)
            yield SharedMemory(model.name, model.instances, needs, known)


def _sizes(config: ModelConfigMessage, rows: int) -> Iterator[tuple[int, bool]]:
    """The bytes of each tensor of a batch, and whether that is certain."""
    batch = max(1, min(rows, config.max_batch_size))
    for tensor in (*config.input, *config.output):
        datatype = datatypes().get(tensor.data_type, "INVALID")
        dtype = DTYPE_OF_DATATYPE.get(datatype)
        item = 2 if datatype == "BF16" else 0 if dtype is None or datatype == "BYTES" else dtype.itemsize
        dims = list(tensor.dims)
        known = -1 not in dims and datatype != "BYTES"
        yield batch * prod(max(1, dim) for dim in dims) * max(1, item), known


def memory_findings(models: Mapping[str, Material], needs: Iterable[SharedMemory]) -> Iterator[Finding]:
    """Yield a warning where all models together need more than a container has by itself."""
    needs = list(needs)
    whole = sum(need.bytes for need in needs)
    if whole <= DOCKER:
        return
    most = max(needs, key=lambda need: need.bytes)
    model = models[most.model]
    gib = max(1, -(-whole * 5 // 4 >> 30))
    yield model.in_config(
        "warning", "memory-shm", "instance_group",
        f"full batches may take {size(whole)} of /dev/shm, those of this model {size(most.bytes)} "
        f"({most.instances} x {size(most.each)})",
        f"A container has {size(DOCKER)} unless it asks for more: instances then fail to start, or requests "
        "to be handed over.",
        f"Start the container with `--shm-size={gib}g`, or lower max_batch_size or the instances.",
    )  # fmt: skip
