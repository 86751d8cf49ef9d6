"""`Servers`: requests of tests, answered by a real tritonserver on copies of the same models.

Guarantees: a server is started once for the same models, as they are, and serves all tests that need these;
at most two run at a time, and none after `close`.
"""

from __future__ import annotations

import inspect
import unittest
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, NoReturn

from bls_notebook.engine.core.spec import ModelSpec
from bls_notebook.extending import Host
from bls_notebook.pb_utils import InferenceResponse, Tensor, TritonError
from bls_notebook.pb_utils.dtypes import to_bits
from bls_notebook.repository.repository import ModelRepository
from bls_notebook.repository.requests.inputs import tensors_of
from bls_notebook.repository.requests.response import Response
from bls_notebook.repository.requests.sender import Sender
from bls_notebook.shipping.proof.prover import Prover, proving
from bls_notebook.shipping.proof.requests import ProofRequest
from bls_notebook.shipping.proof.sides import ProofAnswer, ServerSide

_MOST = 2
_SENT = frozenset({"outputs", "version", "timeout", "request_id", "correlation_id", "flags", "parameters"})
_CODES = {404: TritonError.NOT_FOUND, 503: TritonError.UNAVAILABLE, 501: TritonError.UNSUPPORTED}


def skipping(reason: str) -> NoReturn:
    """Skip the test that runs, under pytest and unittest."""
    raise unittest.SkipTest(f"--triton: {reason}")


class Servers:
    """The servers of a run of tests."""

    def __init__(self) -> None:
        self._kept: OrderedDict[object, tuple[ExitStack, Prover]] = OrderedDict()

    def infer(self, repository: ModelRepository, *arguments: Any, **options: Any) -> Response:
        """Send a request and return the answer; as `ModelRepository.infer`."""
        name, inputs, options = _given(arguments, options)
        there, spec = self._of(repository, name)
        if spec.decoupled:
            return _response(
                ProofAnswer(error=f"doesn't support models with decoupled transaction policy: {name}"), name
            )
        return self._ask(there, spec, inputs, options)[0]

    def stream(self, repository: ModelRepository, *arguments: Any, **options: Any) -> Iterator[Response]:
        """Send a request to a decoupled model and return its responses, once all are there."""
        name, inputs, options = _given(arguments, options)
        there, spec = self._of(repository, name)
        yield from self._ask(there, spec, inputs, options)

    def close(self) -> None:
        """Stop them all."""
        while self._kept:
            self._kept.popitem()[1][0].close()

    def _ask(
        self, there: ServerSide, spec: ModelSpec, inputs: Mapping[str, Any], options: Mapping[str, Any]
    ) -> list[Response]:
        unknown = options.keys() - _SENT
        if unknown:
            skipping(f"{', '.join(sorted(unknown))} cannot be asked of a server")
        tensors = {t.name(): t for t in tensors_of(spec.name, inputs, spec)}
        more = {key: value for key, value in options.items() if value is not None}
        request = ProofRequest(tensors, more.pop("parameters", {}))
        with there:
            answers, nanoseconds = there.ask(request, more)
        last = len(answers) - 1
        return [
            _response(answer, spec.name, nanoseconds / 1e9, number, number == last)
            for number, answer in enumerate(answers)
        ]

    def _of(self, repository: ModelRepository, name: str) -> tuple[ServerSide, ModelSpec]:
        host = Host(repository)
        serving = [m for each in host.names() for m in host.versions(each, own=True).values()]
        found = host.ready(name)
        other = [
            m.name for m in serving
            if m.spec.scheduler != "ensemble" and (not m.spec.in_python or m.spec.instance_kind == "GPU")
        ]  # fmt: skip
        if other:
            skipping(f"the server here runs Python models on the CPU only, and not {', '.join(other)}")
        key = frozenset((m.name, m.version, m.seen.code, m.seen.config) for m in serving)
        if key not in self._kept:
            while len(self._kept) >= _MOST:
                self._kept.popitem(last=False)[1][0].close()
            stack = ExitStack()
            self._kept[key] = stack, stack.enter_context(proving(repository, host.names()))
        self._kept.move_to_end(key)
        return ServerSide(self._kept[key][1].server, found.spec, (name,)), found.spec


def _given(arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[str, Any, dict[str, Any]]:
    """The name, the inputs and the rest of what `ModelRepository.infer` was given, as it takes them."""
    given = inspect.signature(Sender.request).bind(None, *arguments, **options).arguments
    return given.pop("name"), given.pop("inputs"), {k: v for k, v in given.items() if k != "self"}


def _response(answer: ProofAnswer, name: str, seconds: float = 0.0, index: int = 0, final: bool = True) -> Response:
    if answer.error is not None:
        error = TritonError(answer.error, _CODES.get(answer.status, TritonError.INTERNAL))
        return Response(InferenceResponse([], error), name, seconds=seconds, index=index, final=final)
    tensors = [
        Tensor._of(key, to_bits(out.values) if out.datatype == "BF16" else out.values, out.datatype)
        for key, out in answer.outputs.items()
    ]
    response = InferenceResponse(tensors, None, dict(answer.parameters))
    return Response(response, name, answer.version, "", seconds, index, final)
