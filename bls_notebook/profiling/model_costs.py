"""Measure what a model costs: the memory of one more instance, and the time of batches of several sizes.

Guarantees: the model's configuration is restored afterwards, also on an error and on Ctrl-C
(`with_fields`). Requests are copied. A model that receives tensors on a GPU, or answers a batch with an
error, is not measured beyond that.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from statistics import median
from typing import Any, NamedTuple, cast

import numpy as np

from bls_notebook.devices.listing import device_records
from bls_notebook.engine.core.execution import Execution
from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.schedulers.batch_queue import BatchRules
from bls_notebook.engine.schedulers.dynamic import DynamicBatcher, rows_in_batch
from bls_notebook.extending import Host
from bls_notebook.pb_utils._runtime import caller_var
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.records.devices import DeviceRecord
from bls_notebook.repository.repository import ModelRepository
from bls_notebook.repository.substitution.variant import with_count, with_fields

from .analysis.span_tree import SpanTree
from .recording.profiler import profile

_NOTICED = 4 << 20  # bytes: less cannot be told from what else the process does
_ROOM = 0.8  # of what is free now


class InstanceMemory(NamedTuple):
    """What an instance takes of the host and of a GPU, in bytes, and for how many more there is room.

    -1 where that was not seen; 0 is less than can be told.
    """

    host: int = -1
    device: int = -1
    room: int = -1


def memory_of_instance(repository: ModelRepository, name: str) -> InstanceMemory:
    """Return what an instance of a model takes; BLSError where none can be loaded."""
    group = repository.config(name).instance_group[0]
    gc.collect()
    with suppress(AttributeError, OSError, TypeError):  # glibc's: or an instance fills what is free, unseen
        ctypes.CDLL(None).malloc_trim(0)
    before = {device.name: device for device in device_records()}
    with with_fields(repository, {name: with_count(repository, name, 1)}):
        after = {device.name: device for device in device_records()}
    grown = {n: _used(after[n]) - _used(before[n]) for n in before if n in after and before[n].total >= 0}
    rooms = [
        int(_ROOM * (before[n].total - _used(before[n]) - max(0, before[n].others)) / taken)
        for n, taken in grown.items()
        if taken >= _NOTICED
    ]
    host = grown.pop("cpu", -1)
    device = max(grown.values()) if grown and group.gpus else -1
    told = [0 if -1 < each < _NOTICED else each for each in (host, device)]
    room = min(rooms) * max(1, len(group.gpus)) if rooms else -1
    return InstanceMemory(max(-1, told[0]), max(-1, told[1]), room)


def _used(device: DeviceRecord) -> int:
    return max(0, device.ours) + max(0, device.cached)


_KEPT = 64  # requests of a model
_REPEATED = 3
_PATIENCE = 500_000_000  # ns that a batch is waited for: until its requests have come
Request = tuple[dict[str, Any], int]
"""The inputs of a request by name, and its rows."""


@contextmanager
def seen_requests(repository: ModelRepository, names: Sequence[str]) -> Iterator[dict[str, list[Request]]]:
    """Keep what models get while this is on."""
    seen: dict[str, list[Request]] = {name: [] for name in names}
    before: list[tuple[Instance, Any, Any]] = []
    try:
        for name in names:
            for model in Host(repository).versions(name).values():
                for instance in model.instances:
                    execute = instance.execute
                    wrapped = _keeping(execute, seen[name], partial(rows_in_batch, model.spec))
                    before.append((instance, execute, wrapped))
                    instance.execute = wrapped
        yield seen
    finally:
        for instance, execute, wrapped in before:
            if instance.execute is wrapped:  # it has not been closed meanwhile
                instance.execute = execute


def _keeping(execute_of: Any, seen: list[Request], rows: Any) -> Any:
    def execute(requests: list[InferenceRequest]) -> Any:
        for request in requests:
            arrays = {tensor.name(): tensor._array for tensor in request.inputs()}
            if len(seen) < _KEPT and all(isinstance(a, np.ndarray) for a in arrays.values()):
                seen.append(({name: np.array(array) for name, array in arrays.items()}, rows(request)))
        return execute_of(requests)

    return execute


def batch_times(
    repository: ModelRepository, name: str, requests: Sequence[Request], most: int
) -> tuple[tuple[int, int], ...]:
    """Return (rows, ns) of an `execute`, for batches of 1, 2, 4 ... requests; up to `most` rows.

    Sizes that the model answers with an error end the list; it is empty where nothing could be run.
    """
    rows = max((rows for _, rows in requests), default=0)
    sizes = [size for size in (1, 2, 4, 8, 16, 32, 64) if rows and size * rows <= most]
    if len(sizes) < 2:
        return ()
    largest = sizes[-1] * rows
    fields: Mapping[str, Any] = {
        **with_count(repository, name, 1),
        "max_batch_size": max(largest, repository.config(name).max_batch_size),
        "dynamic_batching": {"max_queue_delay_microseconds": 1},
        "response_cache": None,
        "model_warmup": None,
    }
    out: list[tuple[int, int]] = []
    with with_fields(repository, {name: fields}):
        for size in sizes:
            batch = [requests[i % len(requests)] for i in range(size)]
            together = sum(rows for _, rows in batch)
            for model in Host(repository).versions(name).values():
                if isinstance(model.scheduler, DynamicBatcher):
                    model.scheduler.rule(BatchRules(together, frozenset({together}), _PATIENCE))
            took: list[int] = []
            while len(took) < _REPEATED and (not took or took[-1]):
                took.append(_run(repository, name, [inputs for inputs, _ in batch]))
            if not took[-1]:
                break
            # Without the first one, which is what a size costs that the model has not seen yet.
            out.append((together, round(median(took[1:]))))
    return tuple(out)


def _run(repository: ModelRepository, name: str, batch: Sequence[Mapping[str, Any]]) -> int:
    """Run one batch; return how long its `execute` took, ns, 0 where it failed or was none."""

    async def run() -> list[Any]:
        with session:
            session.only_of(cast(Execution, caller_var.get()))
            return await asyncio.gather(*(repository.infer_async(name, inputs) for inputs in batch))

    session = profile(lines=False)
    responses = repository.run(run)
    if any(response.error is not None for response in responses):
        return 0
    record = session.record
    tree = SpanTree(record)
    (members, *others) = tree.members.values()
    if others or len(members) != len(batch):
        return 0
    return max(m.ended for m in members) - members[0].started


def time_of(times: Sequence[tuple[int, int]], rows: int) -> int:
    """Return how long a batch takes, ns: between sizes that were run, and beyond them, in proportion."""
    before = (0, 0)
    for size, took in times:
        if rows <= size:
            if not before[0]:
                return took
            part = (rows - before[0]) / (size - before[0])
            return round(before[1] + part * (took - before[1]))
        before = (size, took)
    return round(before[1] * rows / max(1, before[0]))
