"""Estimate the shared memory (``/dev/shm``) that Python models need on a server.

Each instance has its own pool. It starts with ``shm-default-byte-size`` (1 MiB), grows by multiples of
``shm-growth-byte-size`` (1 MiB) when a tensor does not fit, and never shrinks. It contains the tensors of
`execute`'s requests and responses, and of the requests that `execute` sends, with their responses:

    pool  = the tensors of the largest batch, put one after the other into a pool of 1 MiB, which grows by
            (bytes // 1 MiB + 1) MiB whenever one does not fit
    total = instances x pool, summed over the models

This assumes that a model keeps its inputs until its responses exist. A server of release 24.10 needed
33 MiB for such a model with 16 MB in and 16 MB out, as the formula says, and 17 MiB for a model that drops
its inputs earlier (a plain `execute` does, on return). Dimensions of -1 count as 1, and state that a model
keeps between requests is not included. Mirrors python_backend/src/shm_manager.cc (GrowIfNeeded).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod

from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE
from bls_notebook.records import size
from bls_notebook.repository.config import MAX_DIMS, ModelConfigMessage, datatypes

from .checked_model import CheckedModel
from .records import Finding, SharedMemory

DEFAULT = GROWTH = 1 << 20
QUEUES = 1 << 16  # bytes of a pool for its queues
CONTAINER_SHM = 64 << 20  # bytes of /dev/shm in a container started without --shm-size


def pool_bytes(tensors: Iterable[int]) -> int:
    """Return the size of an instance's pool that contained tensors of these sizes (bytes) at once."""
    pool, used = DEFAULT, QUEUES
    for size_bytes in tensors:
        if used + size_bytes > pool:
            pool += GROWTH * (size_bytes // GROWTH + 1)
        used += size_bytes
    return pool


def shared_memory(models: Mapping[str, CheckedModel]) -> Iterator[SharedMemory]:
    """Yield the shared memory that each Python model needs."""
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
    """Yield the bytes of each tensor of a full batch, and whether that is exact."""
    batch = max(1, min(rows, config.max_batch_size))
    for tensor in (*config.input, *config.output):
        datatype = datatypes().get(tensor.data_type, "INVALID")
        dtype = DTYPE_OF_DATATYPE.get(datatype)
        item = 2 if datatype == "BF16" else 0 if dtype is None or datatype == "BYTES" else dtype.itemsize
        dims = list(tensor.dims[:MAX_DIMS])
        known = -1 not in dims and datatype != "BYTES"
        yield batch * prod(max(1, dim) for dim in dims) * max(1, item), known


def memory_findings(models: Mapping[str, CheckedModel], needs: Iterable[SharedMemory]) -> Iterator[Finding]:
    """Yield a warning if all models together need more than a container's default."""
    needs = list(needs)
    total = sum(need.bytes for need in needs)
    if total <= CONTAINER_SHM:
        return
    most = max(needs, key=lambda need: need.bytes)
    model = models[most.model]
    gib = max(1, -(-total * 5 // 4 >> 30))
    yield model.in_config(
        "memory-shm", "instance_group", size=size(total), size2=size(most.bytes), instances=most.instances,
        size3=size(most.each), size4=size(CONTAINER_SHM), gib=gib,
    )  # fmt: skip
