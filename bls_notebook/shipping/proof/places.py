"""The two places that a request is sent to: the models of this process, and a server with a copy of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from bls_notebook.engine.core.spec import ModelSpec
from bls_notebook.engine.errors import BLSError
from bls_notebook.network.connection.connection import connect
from bls_notebook.network.kserve.errors import HTTP_STATUS
from bls_notebook.network.kserve.request import END, START
from bls_notebook.pb_utils import Tensor
from bls_notebook.repository.repository import ModelRepository
from bls_notebook.repository.requests.response import Response
from bls_notebook.repository.substitution.variant import with_instances
from bls_notebook.shipping.exports.proof_script import PREFIX
from bls_notebook.shipping.servers.serving import LocalServer

from .answers import Output, ProofAnswer
from .asked import ProofRequest, Steps
from .counts import Counts, counts

SECONDS = 30.0  # that an answer of the server may take

Timed = tuple[list[ProofAnswer], int]  # the responses to one request, and ns


def flags_of(number: int, steps: int) -> int:
    """Return the flags of a request of a sequence."""
    return START * (number == 0) | END * (number == steps - 1)


class Here:
    """A model of a repository in this process."""

    def __init__(self, repository: ModelRepository, spec: ModelSpec, names: Iterable[str] = ()) -> None:
        self.repository = repository
        self.spec = spec
        self.names = tuple(names)
        self.words = [spec.name]  # that text is made of

    def ask(self, request: ProofRequest, more: Mapping[str, Any]) -> Timed:
        """Send a request, and return its responses."""
        inputs, more = dict(request.inputs), {**more, "parameters": dict(request.parameters)}
        began = time.perf_counter_ns()
        if self.spec.decoupled:
            answered = list(self.repository.stream(self.spec.name, inputs, **more))
        else:
            answered = [self.repository.infer(self.spec.name, inputs, preferred_memory="cpu", **more)]
        took = time.perf_counter_ns() - began
        return [self._answer(each) for each in answered], took

    def _answer(self, response: Response) -> ProofAnswer:
        if response.error is not None:
            told = response.error.message()
            entrance = PREFIX.match(told)
            if self.spec.decoupled or (entrance and entrance.group(1)):  # which has codes of its own
                return ProofAnswer(error=told)
            return ProofAnswer(error=told, status=HTTP_STATUS.get(response.error.code(), 400))
        arrays = response.as_numpy()
        outputs = {t.name(): Output(t._datatype, arrays[t.name()]) for t in response.output_tensors()}
        if self.spec.decoupled:
            return ProofAnswer(outputs)
        return ProofAnswer(outputs, version=response.version, parameters=response.parameters())

    def counts(self) -> Counts:
        """Return what the statistics say of the model and of those that it calls."""
        names = [name for name in self.names if self.repository.ready(name)]
        return {name: counts(self.repository.statistics(name)["model_stats"]) for name in names}

    @contextmanager
    def with_instances(self, count: int) -> Iterator[None]:
        """Have so many instances of the model, for a while."""
        with with_instances(self.repository, [self.spec.name], count):
            yield


class Elsewhere(Here):
    """The same model on a server that runs already: a remote model of a repository.

    Others may ask it too, so that its statistics say nothing, and it is left as it is.
    """

    lost = False

    def _answer(self, response: Response) -> ProofAnswer:
        return replace(super()._answer(response), status=0)  # codes come as its protocol has them

    def counts(self) -> Counts:
        """Return nothing."""
        return {}

    @contextmanager
    def with_instances(self, count: int) -> Iterator[None]:
        """Refuse."""
        raise BLSError("prove: instance counts are tried on a server of one's own; leave out the address")
        yield


class There(Elsewhere):
    """The same model on a server of ours, asked over a connection to it; a context manager."""

    def __init__(self, server: LocalServer, spec: ModelSpec, names: Iterable[str]) -> None:
        super().__init__(ModelRepository(), spec, names)
        self.server = server
        self.words = sorted(server.exported.names)  # a model may call what an input names
        # Errors have the codes that HTTP gives them, and streams of tensors need gRPC.
        self._url = f"grpc://{server.grpc_url}" if spec.decoupled else server.url

    def __enter__(self) -> There:
        """Connect to the server."""
        self._connection = connect(self._url, self.spec.name, repo=self.repository, timeout=SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        """Disconnect; the server goes on."""
        self.repository.close()

    def ask(self, request: ProofRequest, more: Mapping[str, Any]) -> Timed:
        """Send a request, and return its responses; a server that is lost is started again."""
        answers, took = super().ask(request, more)
        if not any(answer.lost for answer in answers):
            return answers, took
        self.lost = True
        self._connection.disconnect()
        self.server.restart()
        self.__enter__()
        return answers[-1:], 0

    def _answer(self, response: Response) -> ProofAnswer:
        error = response.error
        if error is None or self.spec.decoupled:
            answer = super()._answer(response)
        else:
            answer = ProofAnswer(error=error.message(), status=HTTP_STATUS.get(error.code(), 400))
        # Errors of the connection begin with its address; those of the server do not.
        lost = (answer.error or "").startswith(f"{self._connection.address}: ")
        return replace(answer, lost=lost) if lost else answer

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


def shown(steps: Steps) -> tuple[tuple[Tensor, ...], ...]:
    """Return the tensors of the requests of a case."""
    return tuple(tuple(step.inputs.values()) for step in steps)
