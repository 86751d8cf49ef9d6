"""The two targets of a proof: a model in this process, and the same model on a server."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from bls_notebook.engine.core.spec import ModelSpec
from bls_notebook.engine.errors import BLSError
from bls_notebook.network.connection import connect
from bls_notebook.network.kserve.errors import HTTP_STATUS
from bls_notebook.repository.repository import ModelRepository
from bls_notebook.repository.requests.response import Response
from bls_notebook.repository.substitution.variant import with_instances
from bls_notebook.shipping.exports.proof_script import PREFIX
from bls_notebook.shipping.records import ModelCounts
from bls_notebook.shipping.servers.serving import LocalServer

from .comparison import Output, ProofAnswer
from .requests import ProofRequest, send

_ANSWER_SECONDS = 30.0  # timeout of a request to the server
_COUNT_SECONDS = 2.0  # a server counts a request after it has sent the response
_PAUSE = 0.02

Counts = Mapping[str, tuple[int, ...]]
"""By model: successful requests, failed requests, inferences (rows), executions."""


class LocalTarget:
    """A model of a repository in this process."""

    def __init__(self, repository: ModelRepository, spec: ModelSpec, names: Iterable[str] = ()) -> None:
        self.repository = repository
        self.spec = spec
        self.names = tuple(names)  # of the models whose counts are compared
        self.words = [spec.name]  # for generated texts

    def ask(self, request: ProofRequest, options: Mapping[str, Any]) -> tuple[list[ProofAnswer], int]:
        """Send a request; return its responses and the time it took, in ns."""
        began = time.perf_counter_ns()
        responses = send(self.repository, self.spec, request, options)
        took = time.perf_counter_ns() - began
        return [self._answer(response) for response in responses], took

    def _answer(self, response: Response) -> ProofAnswer:
        if response.error is not None:
            message = response.error.message()
            prefix = PREFIX.match(message)
            if self.spec.decoupled or (prefix and prefix.group(1)):  # a BLS call has error codes of its own
                return ProofAnswer(error=message)
            return ProofAnswer(error=message, status=HTTP_STATUS.get(response.error.code(), 400))
        arrays = response.as_numpy()
        outputs = {t.name(): Output(t._datatype, arrays[t.name()]) for t in response.output_tensors()}
        if self.spec.decoupled:
            return ProofAnswer(outputs)
        return ProofAnswer(outputs, version=response.version, parameters=response.parameters())

    def counts(self) -> Counts:
        """Return the counts of the model and its callees."""
        names = [name for name in self.names if self.repository.ready(name)]
        return {name: _counts(self.repository.statistics(name)["model_stats"]) for name in names}

    @contextmanager
    def with_instances(self, count: int) -> Iterator[None]:
        """Run the model with this instance count for a while."""
        with with_instances(self.repository, [self.spec.name], count):
            yield


class RemoteTarget(LocalTarget):
    """The same model on a server that runs already: a remote model of a repository.

    Other clients may use it too: its statistics say nothing, and its configuration stays.
    """

    lost = False

    def _answer(self, response: Response) -> ProofAnswer:
        return replace(super()._answer(response), status=0)  # codes depend on the protocol

    def counts(self) -> Counts:
        """Return nothing."""
        return {}

    @contextmanager
    def with_instances(self, count: int) -> Iterator[None]:
        """Raise BLSError."""
        raise BLSError("prove: instance counts are tried on a server of one's own; leave out the address")
        yield


class ServerTarget(RemoteTarget):
    """The same model on a `LocalServer`, called over a connection; a context manager."""

    def __init__(self, server: LocalServer, spec: ModelSpec, names: Iterable[str]) -> None:
        super().__init__(ModelRepository(), spec, names)
        self.server = server
        self.words = sorted(server.exported.names)  # an input may name a model to call
        # Only HTTP gives error codes that can be compared, and only gRPC has streams.
        self._url = f"grpc://{server.grpc_url}" if spec.decoupled else server.url

    def __enter__(self) -> ServerTarget:
        """Connect to the server."""
        self._connection = connect(self._url, self.spec.name, repo=self.repository, timeout=_ANSWER_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        """Disconnect; the server keeps running."""
        self.repository.close()

    def ask(self, request: ProofRequest, options: Mapping[str, Any]) -> tuple[list[ProofAnswer], int]:
        """Send a request, as `LocalTarget.ask`; restart the server if it was lost."""
        answers, took = super().ask(request, options)
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
        """Return the counts of the model and its callees."""
        return {name: _counts(self.server.statistics(name)["model_stats"]) for name in self.names}

    @contextmanager
    def with_instances(self, count: int) -> Iterator[None]:
        """Run the model with this instance count for a while."""
        name = self.spec.name
        config = self.server.config(name)
        groups = config.get("instance_group") or [{}]
        self.server.load(name, {**config, "instance_group": [{**groups[0], "count": count}]})
        try:
            yield
        finally:
            self.server.load(name, config)


def _counts(model_stats: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """Return the counts of a model, summed over its versions."""
    rows = []
    for row in model_stats:
        inferences = row.get("inference_stats", {})
        counts = [inferences.get(key, {}).get("count", 0) for key in ("success", "fail")]
        rows.append([*counts, row.get("inference_count", 0), row.get("execution_count", 0)])
    return tuple(sum(map(int, column)) for column in zip(*rows, strict=True)) or (0, 0, 0, 0)


def compare_counts(
    here: LocalTarget, there: LocalTarget, before: tuple[Counts, Counts], batches: bool
) -> tuple[ModelCounts, ...]:
    """Return how far the counts of both sides grew, as soon as they agree, or after two seconds.

    ``batches``: whether clients form the batches, so that executions have to agree too.
    """
    deadline = time.monotonic() + _COUNT_SECONDS
    while True:
        after = here.counts(), there.counts()
        grown = tuple(
            ModelCounts(name, _grown(name, before[0], after[0]), _grown(name, before[1], after[1]), batches)
            for name in sorted(before[0])
            if all(name in counts for counts in (*after, before[1]))
        )
        if all(model.equal for model in grown) or time.monotonic() > deadline:
            return grown
        time.sleep(_PAUSE)


def _grown(name: str, before: Counts, after: Counts) -> tuple[int, ...]:
    return tuple(now - then for now, then in zip(after[name], before[name], strict=True))
