"""`Servers`: sends requests of tests to real tritonservers with copies of the same models.

Guarantees: tests with the same models and configurations share one server. At most two servers run at a time, and
none after `close`.
"""

from __future__ import annotations

import inspect
import unittest
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, NoReturn

from bls_notebook.engine import ModelSpec
from bls_notebook.extending import Host
from bls_notebook.pb_utils import InferenceResponse, Tensor, TritonError
from bls_notebook.pb_utils.dtypes import to_bits
from bls_notebook.repository import ModelRepository, Response, tensors_of
from bls_notebook.shipping.proof.comparison import ProofAnswer
from bls_notebook.shipping.proof.prover import Prover, proving
from bls_notebook.shipping.proof.requests import ProofRequest
from bls_notebook.shipping.proof.targets import ServerTarget
from bls_notebook.testing.recording.recorder import Recorder

_MOST = 2
_SENT = frozenset({"outputs", "version", "timeout", "request_id", "correlation_id", "flags", "parameters"})
_CODES = {
    "ALREADY_EXISTS": TritonError.ALREADY_EXISTS, "CANCELLED": TritonError.CANCELLED,
    "INVALID_ARGUMENT": TritonError.INVALID_ARG, "NOT_FOUND": TritonError.NOT_FOUND,
    "UNAVAILABLE": TritonError.UNAVAILABLE, "UNIMPLEMENTED": TritonError.UNSUPPORTED, "UNKNOWN": TritonError.UNKNOWN,
}  # fmt: skip


def skipping(reason: str) -> NoReturn:
    """Skip the current test, under pytest and unittest."""
    raise unittest.SkipTest(f"--triton: {reason}")


class Servers:
    """The servers of a test run."""

    def __init__(self) -> None:
        self._kept: OrderedDict[object, tuple[ExitStack, Prover]] = OrderedDict()

    def infer(self, repository: ModelRepository, *arguments: Any, **options: Any) -> Response:
        """Send a request and return the response, like `ModelRepository.infer`."""
        name, inputs, options = _bound(arguments, options)
        side, spec = self._of(repository, name)
        if spec.decoupled:
            return _response(
                ProofAnswer(error=f"doesn't support models with decoupled transaction policy: {name}"), name
            )
        return self._ask(side, spec, inputs, options)[0]

    def stream(self, repository: ModelRepository, *arguments: Any, **options: Any) -> Iterator[Response]:
        """Send a request to a decoupled model and yield its responses, after the last one has arrived."""
        name, inputs, options = _bound(arguments, options)
        side, spec = self._of(repository, name)
        yield from self._ask(side, spec, inputs, options)

    def close(self) -> None:
        while self._kept:
            self._kept.popitem()[1][0].close()

    def _ask(
        self, side: ServerTarget, spec: ModelSpec, inputs: Mapping[str, Any], options: Mapping[str, Any]
    ) -> list[Response]:
        unknown = options.keys() - _SENT
        if unknown:
            skipping(f"a server has no option {', '.join(sorted(unknown))}")
        tensors = {t.name(): t for t in tensors_of(spec.name, inputs, spec)}
        set_options = {key: value for key, value in options.items() if value is not None}
        request = ProofRequest(tensors, set_options.pop("parameters", {}))
        with side:
            answers, nanoseconds = side.ask(request, set_options)
        Recorder.to_servers += 1
        last = len(answers) - 1
        return [
            _response(answer, spec.name, nanoseconds / 1e9, number, number == last)
            for number, answer in enumerate(answers)
        ]

    def _of(self, repository: ModelRepository, name: str) -> tuple[ServerTarget, ModelSpec]:
        host = Host(repository)
        serving = [m for each in host.names() for m in host.versions(each, own=True).values()]
        target = host.ready(name)
        unsupported = [
            m.name for m in serving
            if m.spec.scheduler != "ensemble" and (not m.spec.in_python or m.spec.instance_kind == "GPU")
        ]  # fmt: skip
        if unsupported:
            skipping(f"the server runs only Python models on the CPU, not {', '.join(unsupported)}")
        key = frozenset((m.name, m.version, m.seen.code, m.seen.config) for m in serving)
        if key not in self._kept:
            while len(self._kept) >= _MOST:
                self._kept.popitem(last=False)[1][0].close()
            stack = ExitStack()
            self._kept[key] = stack, stack.enter_context(proving(repository, host.names()))
        self._kept.move_to_end(key)
        return ServerTarget(self._kept[key][1].server, target.spec, (name,)), target.spec


def _bound(arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[str, Any, dict[str, Any]]:
    """Return the model's name, the inputs and the other arguments of a call of `ModelRepository.infer`."""
    bound = inspect.signature(ModelRepository.infer).bind(None, *arguments, **options).arguments
    return bound.pop("name"), bound.pop("inputs"), {k: v for k, v in bound.items() if k != "self"}


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
