"""The two places that a request is sent to: the models of this process, and a server with a copy of them."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bls_notebook.engine.core.spec import ModelSpec
from bls_notebook.pb_utils import Tensor, TritonError
from bls_notebook.pb_utils.dtypes import deserialize_bytes_tensor
from bls_notebook.repository.config import parse_json, to_pbtxt
from bls_notebook.repository.instance_counts import with_instances
from bls_notebook.repository.repository import ModelRepository
from bls_notebook.repository.requests.response import Response
from bls_notebook.triton.kserve import TRITON_OF
from bls_notebook.triton.serving import LocalServer
from bls_notebook.triton.tritonserver import END, START, TritonRequestError, TritonServerError

from .answers import Answer, Output
from .asked import Request, Steps
from .counts import Counts, counts

SECONDS = 30.0  # that an answer of the server may take
RELAY = "bls_notebook_relay_of_"

_STATUS = {
    TritonError.INTERNAL: 500,
    TritonError.NOT_FOUND: 404,
    TritonError.UNAVAILABLE: 503,
    TritonError.UNSUPPORTED: 501,
}
"""What Triton's HTTP front answers for an error code, else 400."""

Timed = tuple[list[Answer], int]  # the responses to one request, and ns


def flags_of(number: int, steps: int) -> int:
    """Return the flags of a request of a sequence."""
    return START * (number == 0) | END * (number == steps - 1)


class Here:
    """A model of a repository in this process."""

    def __init__(self, repository: ModelRepository, spec: ModelSpec, names: Iterable[str] = ()) -> None:
        self.repository = repository
        self.spec = spec
        self.names = tuple(names)

    def ask(self, request: Request, more: Mapping[str, Any]) -> Timed:
        """Send a request, and return its responses."""
        inputs, more = dict(request.inputs), {**more, "parameters": dict(request.parameters)}
        began = time.perf_counter_ns()
        if self.spec.decoupled:
            answered = list(self.repository.stream(self.spec.name, inputs, **more))
        else:
            answered = [self.repository.infer(self.spec.name, inputs, preferred_memory="cpu", **more)]
        took = time.perf_counter_ns() - began
        return [self._answer(each) for each in answered], took

    def _answer(self, response: Response) -> Answer:
        if response.error is not None:
            status = 0 if self.spec.decoupled else _STATUS.get(response.error.code(), 400)
            return Answer(error=response.error.message(), status=status)
        arrays = response.as_numpy()
        outputs = {t.name(): Output(t._datatype, arrays[t.name()]) for t in response.output_tensors()}
        if self.spec.decoupled:
            return Answer(outputs)
        return Answer(outputs, version=response.version, parameters=response.parameters())

    def counts(self) -> Counts:
        """Return what the statistics say of the model and of those that it calls."""
        names = [name for name in self.names if self.repository.ready(name)]
        return {name: counts(self.repository.statistics(name)["model_stats"]) for name in names}

    @contextmanager
    def with_instances(self, count: int) -> Iterator[None]:
        """Have so many instances of the model, for a while."""
        with with_instances(self.repository, [self.spec.name], count):
            yield


class There:
    """The same model on a server of ours."""

    def __init__(self, server: LocalServer, spec: ModelSpec, names: Iterable[str]) -> None:
        self.server = server
        self.spec = spec
        self.names = tuple(names)
        self.lost = False

    def ask(self, request: Request, more: Mapping[str, Any]) -> Timed:
        """Send a request, and return its responses; a server that is lost is started again."""
        name = self.spec.name
        more = {**more, "parameters": dict(request.parameters)}
        began = time.perf_counter_ns()
        try:
            asked = RELAY + name if self.spec.decoupled else name
            result = self.server.infer(asked, request.inputs, wait=SECONDS, **more)
        except TritonRequestError as error:
            took = time.perf_counter_ns() - began
            return [Answer(error=str(error), status=0 if self.spec.decoupled else error.status)], took
        except TritonServerError as error:
            self.lost = True
            self.server.restart()
            return [Answer(error=str(error).partition("\n")[0], lost=True)], 0
        took = time.perf_counter_ns() - began
        if self.spec.decoupled:
            answers = [_relayed(json.loads(each)) for each in result["ANSWERS"].tolist()]
            if len(answers) > 1 and not answers[-1].outputs and answers[-1].error is None:
                del answers[-1]  # a final flag alone, which here is no response
            return answers, took
        outputs = {key: Output(result.datatypes[key], array) for key, array in result.outputs.items()}
        return [Answer(outputs, version=int(result.version or 0), parameters=result.parameters)], took

    def counts(self) -> Counts:
        """Return what the statistics say of the model and of those that it calls."""
        return {name: counts(self.server.statistics(name)["model_stats"]) for name in self.names}

    @contextmanager
    def with_instances(self, count: int) -> Iterator[None]:
        """Have so many instances of the model, for a while."""
        name = self.spec.name
        config = self.server.config(name)
        groups = config.get("instance_group") or [{}]
        self.server.load(name, {**config, "instance_group": [{**groups[0], "count": count}]})
        try:
            yield
        finally:
            self.server.load(name, config)


def _relayed(told: dict[str, Any]) -> Answer:
    if "error" in told:
        return Answer(error=told["error"])
    outputs = {}
    for name, kind, shape, coded in told["outputs"]:
        data = base64.b64decode(coded)
        flat = deserialize_bytes_tensor(data) if kind == "BYTES" else np.frombuffer(data, np.dtype(kind))
        datatype = TRITON_OF.get(kind, kind)
        outputs[name] = Output(datatype, flat.reshape(shape))
    return Answer(outputs)


def add_relay(folder: Path, spec: ModelSpec) -> str:
    """Write a model that collects the streams of a decoupled one into a repository; return its name."""
    name = RELAY + spec.name
    inputs = [
        {
            "name": each.name,
            "data_type": f"TYPE_{'STRING' if each.datatype == 'BYTES' else each.datatype}",
            "dims": list(each.shape),
            "optional": True,
        }
        for each in spec.inputs.values()
    ]
    config = {
        "backend": "python",
        "input": inputs,
        "output": [{"name": "ANSWERS", "data_type": "TYPE_STRING", "dims": [-1]}],
        "parameters": {"asked": {"string_value": spec.name}},
    }
    place = folder / name / "1"
    place.mkdir(parents=True)
    (place / "model.py").write_bytes(Path(__file__).with_name("relay.py").read_bytes())
    (folder / name / "config.pbtxt").write_text(to_pbtxt(parse_json(json.dumps(config), model=name)))
    return name


def shown(steps: Steps) -> tuple[tuple[Tensor, ...], ...]:
    """Return the tensors of the requests of a case."""
    return tuple(tuple(step.inputs.values()) for step in steps)
