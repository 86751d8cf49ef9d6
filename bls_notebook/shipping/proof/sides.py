"""The two sides of a proof, a model of this process and a copy of it on a server, and how their answers
differ.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from bls_notebook.engine.core.spec import ModelSpec
from bls_notebook.engine.errors import BLSError
from bls_notebook.network.connection import connect
from bls_notebook.network.kserve.errors import HTTP_STATUS
from bls_notebook.pb_utils import Tensor
from bls_notebook.records.repository import TensorsCompared
from bls_notebook.records.visible_text import first_line
from bls_notebook.repository.repository import ModelRepository
from bls_notebook.repository.requests.response import Response
from bls_notebook.repository.requests.tensor_differences import compared
from bls_notebook.repository.substitution.variant import with_instances
from bls_notebook.shipping.exports.proof_script import PREFIX, normal
from bls_notebook.shipping.records import ModelCounts
from bls_notebook.shipping.servers.serving import LocalServer

from .requests import ProofRequest, send

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Output:
    """An output: Triton's name of its data type, and its values (BF16 as float32)."""

    datatype: str
    values: Array


@dataclass(frozen=True)
class ProofAnswer:
    """One response: outputs by name, or an error.

    ``status`` is the HTTP status of an error (0 if unknown), ``lost`` whether there was no answer at all.
    """

    outputs: Mapping[str, Output] = field(default_factory=dict)
    error: str | None = None
    status: int = 0
    version: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)
    lost: bool = False


@dataclass(frozen=True)
class Allowed:
    """How far floats may be apart: ``|here - there| <= tolerance * (1 + |there|)``, or so many ULP."""

    tolerance: float = 0.0
    ulps: int = 0


EXACT = Allowed()
Sides = tuple[str, str]
PLACES: Sides = ("here", "on the server")
Differences = tuple[tuple[str, ...], tuple[TensorsCompared, ...]]


def differences(
    here: Sequence[ProofAnswer], there: Sequence[ProofAnswer], allowed: Allowed = EXACT, sides: Sides = PLACES
) -> Differences:
    """Return the differences between the responses to one request, in words and by tensor; empty if equal.

    Any NaN equals any other; zeros of different signs differ. `sides` are the names of the two.
    """
    said: list[str] = []
    tensors: list[TensorsCompared] = []
    if any(answer.lost for answer in there):
        return (*(f"no answer of the server: {a.error}" for a in there if a.lost),), ()
    if len(here) != len(there):
        said.append(f"{len(here)} responses {sides[0]}, {len(there)} {sides[1]}")
    for number, (first, second) in enumerate(zip(here, there, strict=False)):
        words, unlike = _pair(first, second, allowed, sides)
        at = f"response {number}: " if len(here) > 1 or len(there) > 1 else ""
        said += [at + each for each in words]
        tensors += unlike
    return tuple(said), tuple(tensors)


def _pair(
    here: ProofAnswer, there: ProofAnswer, allowed: Allowed, sides: Sides
) -> tuple[list[str], list[TensorsCompared]]:
    if here.error is not None or there.error is not None:
        return _errors(here, there, sides), []
    said, tensors = [], []
    one, other = sides
    if here.version != there.version:
        said.append(f"version {here.version} answered {one}, {there.version} {other}")
    if dict(here.parameters) != dict(there.parameters):
        said.append(f"parameters: {dict(here.parameters)} {one}, {dict(there.parameters)} {other}")
    for name in dict.fromkeys([*here.outputs, *there.outputs]):
        first, second = here.outputs.get(name), there.outputs.get(name)
        if first is None or second is None:
            said.append(f"output {name!r} is only {other if first is None else one}")
        elif words := _outputs(first, second, allowed, sides):
            said.append(f"output {name!r}: {words}")
            tensors.append(compared(Tensor(name, first.values), Tensor(name, second.values)))
    return said, tensors


def _errors(here: ProofAnswer, there: ProofAnswer, sides: Sides) -> list[str]:
    one, other = sides
    if here.error is None or there.error is None:
        where, answer = (one, here) if here.error is not None else (other, there)
        said = answer.error or ""
        return [f"only {where} an error: {first_line(said.partition(', message: ')[2] or said)}"]
    differ = []
    if normal(here.error) != normal(there.error):
        first, second = _from_where_they_differ(here.error, there.error)
        differ.append(f"errors: {first!r} {one}, {second!r} {other}")
    if here.status and there.status and here.status != there.status:
        differ.append(f"error code: HTTP status {here.status} {one}, {there.status} {other}")
    return differ


def _from_where_they_differ(first: str, second: str) -> tuple[str, str]:
    """Return the first lines of two error messages; long ones are cut around their first difference."""
    lines = first_line(first, sys.maxsize), first_line(second, sys.maxsize)
    same = next((i for i, (a, b) in enumerate(zip(*lines, strict=False)) if a != b), min(map(len, lines)))
    begin = same - 60 if same > 120 else 0
    one, other = (f"{'…' * bool(begin)}{first_line(line[begin:])}" for line in lines)
    return one, other


def _outputs(here: Output, there: Output, allowed: Allowed, sides: Sides) -> str:
    """Return how two outputs differ; empty if they are equal."""
    if here.datatype != there.datatype:
        return f"{here.datatype} {sides[0]}, {there.datatype} {sides[1]}"
    first, second = here.values, there.values
    if first.shape != second.shape:
        return f"shape {list(first.shape)} {sides[0]}, {list(second.shape)} {sides[1]}"
    if first.dtype.kind == "O":
        unlike = sum(a != b for a, b in zip(first.ravel().tolist(), second.ravel().tolist(), strict=True))
        return f"{unlike:,} of {first.size:,} elements differ" if unlike else ""
    differ = first != second
    if first.dtype.kind == "f":
        nan = np.isnan(first) & np.isnan(second)
        differ = (differ | (np.signbit(first) != np.signbit(second))) & ~nan
    if not differ.any() or _close(first, second, allowed):
        return ""
    zeros = " (zeros of different signs)" if not (differ & (first != second)).any() else ""
    return f"{int(differ.sum()):,} of {first.size:,} elements differ{zeros}"


def _close(here: Array, there: Array, allowed: Allowed) -> bool:
    if here.dtype.kind != "f":
        return False
    far = ~np.isclose(here, there, rtol=allowed.tolerance, atol=allowed.tolerance, equal_nan=True)
    if allowed.tolerance and not far.any():
        return True
    if not allowed.ulps:
        return False
    found = compared(Tensor("here", here), Tensor("there", there))
    return found.ulps is not None and isfinite(found.absolute) and found.ulps <= allowed.ulps


_ANSWER_SECONDS = 30.0  # timeout of a request to the server
_COUNT_SECONDS = 2.0  # a server counts a request after it has sent the response
_PAUSE = 0.02

Counts = Mapping[str, tuple[int, ...]]
"""By model: successful requests, failed requests, inferences (rows), executions."""


class LocalSide:
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


class RemoteSide(LocalSide):
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


class ServerSide(RemoteSide):
    """The same model on a `LocalServer`, called over a connection; a context manager."""

    def __init__(self, server: LocalServer, spec: ModelSpec, names: Iterable[str]) -> None:
        super().__init__(ModelRepository(), spec, names)
        self.server = server
        self.words = sorted(server.exported.names)  # an input may name a model to call
        # Only HTTP gives error codes that can be compared, and only gRPC has streams.
        self._url = f"grpc://{server.grpc_url}" if spec.decoupled else server.url

    def __enter__(self) -> ServerSide:
        """Connect to the server."""
        self._connection = connect(self._url, self.spec.name, repo=self.repository, timeout=_ANSWER_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        """Disconnect; the server keeps running."""
        self.repository.close()

    def ask(self, request: ProofRequest, options: Mapping[str, Any]) -> tuple[list[ProofAnswer], int]:
        """Send a request, as `LocalSide.ask`; restart the server if it was lost."""
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
    here: LocalSide, there: LocalSide, before: tuple[Counts, Counts], batches: bool
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
