"""Warm-up: run the requests of `model_warmup` on every instance before a version enters service.

Guarantees: the first sample that fails ends the warm-up and fails the load. As on Triton, warm-up requests bypass the
scheduler and count in the statistics.

Mirrors core/src/backend_model_instance.cc (GenerateWarmupData, WarmUp).
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterable
from contextvars import copy_context
from math import prod
from pathlib import Path
from typing import Any

from bls_notebook.engine.batch_runner import Batch, BatchRunner
from bls_notebook.engine.calling import root_of
from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.signature_check import reshape_all
from bls_notebook.engine.core.tensor_data import DataFileError, array_of_file, fill, zeros
from bls_notebook.engine.errors import ModelLoadError
from bls_notebook.engine.response_stream import TicketStream
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.parker import Parker
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.progress import progress
from bls_notebook.records.regular_file import MAX_TENSOR
from bls_notebook.records.visible_text import first_line
from bls_notebook.repository.config.spec_conversion import datatypes

log = logging.getLogger("bls_notebook")


def warm_up(model: LoadedModel, instances: Iterable[Instance], folder: Path) -> None:
    """Run the samples of a model on instances before they enter service; `folder` is the model's folder."""
    samples = [s for s in model.spec.config.model_warmup if s.batch_size]
    targets = list(instances) if samples else []
    with progress("warm-up", len(targets) * sum(max(1, s.count) for s in samples), "request") as reporter:
        for instance in targets:
            for sample in samples:
                tensors = [_tensor(model, sample.name, name, sample.inputs[name], folder) for name in sample.inputs]
                for iteration in range(1, max(1, sample.count) + 1):
                    log.debug(
                        "model '%s' instance %s is running warmup sample '%s' for iteration %d",
                        model.name, instance.name, sample.name, iteration,
                    )  # fmt: skip
                    errors = _run(model, instance, tensors, sample.batch_size)
                    if errors:
                        failed = f"failed to run warmup sample '{sample.name}': "
                        words = "".join(f"{e}; " for e in errors)
                        raise _problem(model, failed + first_line(errors[0], 1000), failed + words)
                    reporter.step()


def _problem(model: LoadedModel, message: str, reason: str) -> ModelLoadError:
    return ModelLoadError(
        f"model {model.name!r} version {model.version} could not be loaded: {message}",
        model.name,
        f"load failed for model '{model.name}': version {model.version} is at UNAVAILABLE state: "
        f"Invalid argument: {reason};\n",
    )


def _tensor(model: LoadedModel, sample: str, name: str, sample_input: Any, folder: Path) -> Tensor:
    datatype = datatypes()[sample_input.data_type]
    batch = (1,) if model.spec.max_batch_size > 0 else ()  # also for control inputs of sequences
    shape = (*batch, *sample_input.dims)
    choice = sample_input.WhichOneof("input_data_type")
    if prod(shape) > MAX_TENSOR >> 3:
        problem = f"warm-up sample {sample!r}, input {name!r}: dims {list(sample_input.dims)} have too many elements"
        raise _problem(model, problem, problem)
    if choice == "input_data_file":
        file = folder / "warmup" / sample_input.input_data_file
        try:
            setting = "[request id: <id_unknown>] warmup"
            return Tensor._of(name, array_of_file(file, setting, name, datatype, shape, model.name), datatype)
        except DataFileError as error:
            reason = error.reason
            if reason.startswith("incomplete string data"):  # the backend finds it, when it reads the input
                reason = f"failed to run warmup sample '{sample}': {reason}; "
            raise _problem(model, f"warm-up sample {sample!r}, input {name!r}: {error}", reason) from error
    array = zeros(shape, datatype)
    if choice == "random_data" and datatype != "BYTES":
        fill(array, random.randbytes(array.nbytes))
    return Tensor._of(name, array, datatype)


def _request(model: LoadedModel, tensors: Iterable[Tensor]) -> InferenceRequest:
    copies = [Tensor._of(t._name, t._array.copy(), t._datatype) for t in tensors]
    reshape_all(copies, model.reshapes)
    return InferenceRequest("", 0, copies, list(model.output_names), model.name, model.version)


def _run(model: LoadedModel, instance: Instance, tensors: list[Tensor], count: int) -> list[str]:
    """Run one `execute` with `count` requests; return the errors of their responses."""
    parent = root_of(model.server)
    tickets = []
    for _ in range(count):
        ticket = Ticket(model, _request(model, tensors), parent, copy_context())
        ticket.outside = True
        tickets.append(ticket)
    runner = BatchRunner(model, threading.Lock())
    finished = Parker()
    if instance.is_async:

        def begin() -> None:
            if not runner.begin(instance, tickets, lambda *_: finished.unpark()):
                finished.unpark()

        instance.loop.post(begin)
        finished.park()
    else:
        instance.home.post(Batch(runner, tickets, finished.unpark))
        finished.park()
    errors = []
    for ticket in tickets:
        stream, final = TicketStream(ticket, parent), False
        while not final:
            response, final = stream.next_response()
            if response._error is not None:
                errors.append(response._error.message())
    instance.holder = None
    return errors
