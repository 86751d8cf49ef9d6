"""Batches: what is set for them without effect, and first dimensions that are none of a batch."""

from __future__ import annotations

from collections.abc import Iterator

from bls_notebook.records.batching import why_not_batched
from bls_notebook.records.quantities import duration
from bls_notebook.records.statistics import StatisticsRecord

from .material import Material
from .records import Finding

_LONG = 1_000_000  # microseconds that a request may wait for others and nobody wonders


def batching_findings(model: Material, seen: StatisticsRecord | None) -> Iterator[Finding]:
    """Yield what keeps requests from being batched, and batches from being what was meant."""
    most, dynamic = model.config.max_batch_size, model.config.HasField("dynamic_batching")
    if seen is not None and (why := why_not_batched(seen)):
        yield Finding("warning", "batch-not-formed", model.name, why.said, why.because, why.mend, model.where)
    elif most > 1 and model.config.WhichOneof("scheduling_choice") is None and _plain(model):
        yield model.in_config(
            "note", "batch-no-batcher", "max_batch_size",
            f"max_batch_size is {most}, and there is no batcher: each request runs by itself",
            "Without `dynamic_batching` a server hands over one request at a time; only batches that a "
            "client makes itself have more than one row.",
            "Add `dynamic_batching { }` to have requests that wait run together.",
        )  # fmt: skip
    if dynamic and most < 2 and _only_batches(model):
        yield model.in_config(
            "warning", "batch-of-one", "dynamic_batching",
            f"dynamic_batching forms no batches: max_batch_size is {most}",
            "The batcher never puts two requests together then.",
            "Set max_batch_size to 2 or more (and leave the batch out of `dims`), or take "
            "dynamic_batching out.",
        )  # fmt: skip
    delay = model.config.dynamic_batching.max_queue_delay_microseconds
    if dynamic and delay >= _LONG:
        yield model.in_config(
            "warning", "batch-long-delay", "dynamic_batching.max_queue_delay_microseconds",
            f"a request that is alone waits {duration(delay / 1e6)} for others",
            "max_queue_delay_microseconds is in microseconds; a request waits so long unless a preferred "
            "batch fills up before.",
            "Give it a few milliseconds at most, such as 5000.",
        )  # fmt: skip
    yield from _batch_in_dims(model)


def _plain(model: Material) -> bool:
    """Whether a batcher would come from nowhere else: not from a backend, nor from the model itself."""
    return model.is_python and not model.decoupled and (model.known or not _completes(model))


def _completes(model: Material) -> bool:
    return any(code.completes for code in model.codes.values())


def _only_batches(model: Material) -> bool:
    """Whether its dynamic batcher has nothing else to do: no order, priorities or timeouts."""
    batching = model.given.dynamic_batching
    others = batching.priority_levels or batching.preserve_ordering or batching.priority_queue_policy
    policy = batching.default_queue_policy
    return not (others or policy.max_queue_size or policy.default_timeout_microseconds)


def _batch_in_dims(model: Material) -> Iterator[Finding]:
    """A batch of images that stands in `dims`, where max_batch_size adds another one."""
    if model.config.max_batch_size < 1:
        return
    for name, tensor in model.inputs.items():
        dims = list(tensor.dims)
        image = len(dims) == 4 and dims[0] == -1 and (dims[1] in (1, 3) or dims[3] in (1, 3))
        if image and -1 not in dims[1:]:
            yield model.in_config(
                "warning", "batch-in-dims", "input.name",
                f"input {name!r} has dims {dims}: with max_batch_size {model.config.max_batch_size} its "
                "requests need five dimensions",
                "max_batch_size above 0 puts the batch before `dims`; the -1 there is another dimension.",
                f"Leave the batch out: `dims: {dims[1:]}`, or set `max_batch_size: 0`.", value=name,
            )  # fmt: skip
