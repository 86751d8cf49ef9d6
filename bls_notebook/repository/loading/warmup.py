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

import numpy as np

from bls_notebook.engine.batch_runner import Batch, BatchRunner
from bls_notebook.engine.calling import root_of
from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.signature_check import reshape_all
from bls_notebook.engine.core.string_elements import string_elements
from bls_notebook.engine.errors import ModelLoadError
from bls_notebook.engine.response_stream import TicketStream
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.parker import Parker
from bls_notebook.pb_utils.dtypes import DTYPE_OF_DATATYPE
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.tensor import Tensor
from bls_notebook.progress import progress
from bls_notebook.records.regular_file import MAX_TENSOR, read_file
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
    if datatype == "BYTES":
        array = np.full(shape, b"", np.object_)
        if choice == "input_data_file":
            data = _read(model, sample, name, sample_input, folder)
            try:
                elements = string_elements(model.name, "", name, array.size, data)
            except ValueError as error:
                where = f"warm-up sample {sample!r}, input {name!r}: {sample_input.input_data_file}"
                words = str(error)
                if words.startswith("incomplete string data"):  # the backend finds it, when it reads the input
                    words = f"failed to run warmup sample '{sample}': {words}; "
                raise _problem(model, f"{where}: {error}", words) from error
            array.reshape(-1)[:] = elements
        return Tensor._of(name, array, datatype)
    dtype = np.dtype(DTYPE_OF_DATATYPE.get(datatype) or np.uint16)  # BF16 is stored as 16-bit integers
    array = np.zeros(shape, dtype)
    if choice == "random_data":
        data = random.randbytes(array.nbytes)
    elif choice == "input_data_file":
        data = _read(model, sample, name, sample_input, folder)
        if len(data) < array.nbytes:
            raise _problem(
                model,
                f"warm-up sample {sample!r}, input {name!r}: {sample_input.input_data_file} has {len(data)} bytes, "
                f"expected {array.nbytes} for {datatype}{list(sample_input.dims)}",
                f"[request id: <id_unknown>] warmup setting expects {array.nbytes} bytes, but the data "
                f"provided from {sample_input.input_data_file}only has {len(data)} bytes",
            )
    else:
        return Tensor._of(name, array, datatype)
    array.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8, array.nbytes)
    if dtype == np.bool_:
        array.view(np.uint8)[...] &= 1
    return Tensor._of(name, array, datatype)


def _read(model: LoadedModel, sample: str, name: str, sample_input: Any, folder: Path) -> bytes:
    file: Path = folder / "warmup" / sample_input.input_data_file
    try:
        return read_file(file, MAX_TENSOR)
    except OSError as error:
        raise _problem(
            model,
            f"warm-up sample {sample!r}, input {name!r}: {file} cannot be read: {error.strerror}",
            f"failed to open text file for read {file}: {error.strerror}",
        ) from error


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
