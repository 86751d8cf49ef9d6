"""Requests of a proof: given, recorded, or generated from a model's configuration by hypothesis."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bls_notebook.engine import BLSError, ModelSpec, TensorSpec
from bls_notebook.extending import Host
from bls_notebook.pb_utils import Tensor
from bls_notebook.repository import ModelRepository, Response, tensors_of

if TYPE_CHECKING:
    from hypothesis import strategies as st

_LONGEST = 4  # limit of free dimensions and of batches
_GREATEST = 99  # limit of generated integers with more than 16 bits
_TIMEOUT = 60_000_000  # microseconds: no request waits this long
_PARAMETERS: Mapping[str, Any] = {"proof_flag": True, "proof_number": 7, "proof_text": "é"}
_STEPS = 3  # limit of requests in a sequence


@dataclass(frozen=True)
class ProofRequest:
    """One request: its inputs by name, its parameters, and what else a client may set.

    `outputs` are the requested outputs, by default all. `timeout` is in microseconds.
    """

    inputs: Mapping[str, Tensor]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    request_id: str = ""
    correlation_id: int | str = 0
    timeout: int = 0

    @property
    def options(self) -> dict[str, Any]:
        """What the request sets besides its inputs, as keywords of `ModelRepository.infer`."""
        options = {
            "parameters": dict(self.parameters), "outputs": list(self.outputs), "request_id": self.request_id,
            "correlation_id": self.correlation_id, "timeout": self.timeout,
        }  # fmt: skip
        return {name: value for name, value in options.items() if value}


ProofCase = tuple[ProofRequest, ...]
"""One request, or all requests of a sequence."""


def cases_of(spec: ModelSpec, given: Iterable[Any], parameters: Mapping[str, Any]) -> list[ProofCase]:
    """Return the cases for a model, from mappings of inputs, recorded requests and whole recordings.

    ``parameters`` apply to mappings, and to recorded requests that have none. For a model that batches sequences,
    the mappings form one sequence, and recorded requests are grouped by correlation ID.
    """
    sequences: dict[object, list[ProofRequest]] = {}
    cases: list[ProofCase] = []
    for source in _requests_of(spec.name, given):
        is_recorded = not isinstance(source, Mapping)
        inputs = source.inputs if is_recorded else source
        request_parameters = dict((is_recorded and getattr(source, "parameters", None)) or parameters)
        request = ProofRequest({t.name(): t for t in tensors_of(spec.name, inputs, spec)}, request_parameters)
        if spec.scheduler == "sequence":
            sequences.setdefault(getattr(source, "correlation_id", 0), []).append(request)
        else:
            cases.append((request,))
    return [*cases, *map(tuple, sequences.values())]


def _requests_of(model: str, given: Iterable[Any]) -> Iterator[Any]:
    for item in given:
        if callable(recorded := getattr(item, "requests", None)):
            requests = list(recorded(model))
            if not requests:
                raise BLSError(f"prove: the recording has no request for model {model!r}")
            yield from requests
        elif isinstance(item, Mapping) or hasattr(item, "inputs"):
            yield item
        else:
            raise BLSError(
                f"prove: model {model!r}: got {type(item).__name__}, expected a dict of inputs by name, or a recording"
            )


def send(
    repository: ModelRepository, spec: ModelSpec, request: ProofRequest, options: Mapping[str, Any],
    timeout: float | None = None,
) -> list[Response]:  # fmt: skip
    """Send a request to a model of a repository, and return its responses; TimeoutError: none after `timeout` s."""
    host = Host(repository)
    options = {**request.options, **options, "preferred_memory": "cpu"}
    future = host.send(host.request(spec.name, dict(request.inputs), **options), stream=spec.decoupled)
    try:
        result = future.result(timeout)
    except BaseException as error:
        future.cancel()
        if isinstance(error, futures.TimeoutError):
            raise TimeoutError from error
        raise
    return list(result) if spec.decoupled else [result]


class DifferentError(Exception):
    """The answers to a generated request differ."""


class NotSteadyError(Exception):
    """The answers to a generated request differed once, but not when it was sent again."""


def generator() -> Any:
    """Return the module hypothesis; BLSError if it is not installed."""
    try:
        import hypothesis
    except ImportError:
        raise BLSError(
            'generated requests need hypothesis, which is not installed: pip install "bls_notebook[prove]"'
        ) from None
    return hypothesis


def generate(
    spec: ModelSpec, number: int, seed: int, check: Callable[[ProofCase], None], examples: Sequence[ProofRequest] = (),
    words: Sequence[str] = (),
) -> bool:  # fmt: skip
    """Call `check` with `number` generated cases, and shrink the first that raises `DifferentError`.

    Some inputs and parameters come from the ``examples``; some BYTES inputs consist of ``words``. Return True if no
    case differed. NotSteadyError: a case differed once, but not when it was sent again.
    """
    hypothesis = generator()
    from hypothesis import configuration

    states = random.getstate(), np.random.get_state()

    def checked(case: ProofCase) -> None:  # hypothesis reseeds both generators before each case
        nonlocal states
        random.setstate(states[0])
        np.random.set_state(states[1])
        try:
            check(case)
        finally:
            states = random.getstate(), np.random.get_state()

    phases = [hypothesis.Phase.generate, hypothesis.Phase.shrink]
    run = hypothesis.given(_requests(spec, examples, words))(checked)
    run = hypothesis.settings(
        max_examples=number, database=None, deadline=None, phases=phases, print_blob=False,
        report_multiple_bugs=False, suppress_health_check=list(hypothesis.HealthCheck),
    )(hypothesis.seed(seed)(run))  # fmt: skip
    try:
        with ExitStack() as stack:  # hypothesis writes into a folder of its own, not into the notebook's
            home = vars(configuration).get("__hypothesis_home_directory")
            stack.callback(configuration.set_hypothesis_home_dir, home)
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bls-notebook-hypothesis-"))
            configuration.set_hypothesis_home_dir(folder)
            run()
    except DifferentError:
        return False
    except hypothesis.errors.Flaky as error:
        raise NotSteadyError from error
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
    return True


def _requests(spec: ModelSpec, examples: Sequence[ProofRequest], words: Sequence[str]) -> st.SearchStrategy[ProofCase]:
    from hypothesis import strategies as st

    parameters = [{}, *(example.parameters for example in examples if example.parameters), _PARAMETERS]
    ids: list[int | str] = [0] if spec.scheduler == "sequence" else [0, 0, 7, "seven"]

    names = list(spec.outputs)
    some_names = st.lists(st.sampled_from(names or [""]), min_size=1, unique=True).map(tuple)
    some_outputs = some_names if len(names) > 1 else st.just(())

    @st.composite
    def request(draw: st.DrawFn) -> ProofRequest:
        # Many models need inputs of equal length, so half of the requests use one length for all.
        length: int | None = draw(st.none() | st.integers(0, _LONGEST))
        limit = min(spec.max_batch_size, _LONGEST)
        batch = [draw(st.integers(1, limit))] if limit else []
        inputs: dict[str, Tensor] = {}
        for name, tensor in spec.inputs.items():
            if tensor.optional and not draw(st.booleans()):
                continue
            known = [each.inputs[name] for each in examples if name in each.inputs]
            if known and bool(draw(st.booleans())):
                inputs[name] = draw(st.sampled_from(known))
                continue
            free = st.integers(1, _LONGEST) if length is None else st.just(length)
            shape = (*batch, *(size if size >= 0 else draw(free) for size in tensor.dims))
            inputs[name] = draw(_tensor(tensor, shape, words))
        return ProofRequest(
            inputs, draw(st.sampled_from(parameters)), draw(st.just(()) | some_outputs),
            draw(st.sampled_from(["", "", "proof 7"])), draw(st.sampled_from(ids)),
            draw(st.sampled_from([0, 0, _TIMEOUT])),
        )  # fmt: skip

    return st.lists(request(), min_size=1, max_size=_STEPS if spec.scheduler == "sequence" else 1).map(tuple)


def _tensor(spec: TensorSpec, shape: tuple[int, ...], words: Sequence[str]) -> st.SearchStrategy[Tensor]:
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp

    if spec.datatype == "BYTES":
        texts = [word.encode() for word in ("", "0", "é", "a\0", *words)]
        element = st.sampled_from(texts) | st.binary(max_size=6)
        arrays = hnp.arrays(np.object_, shape, elements=element, fill=st.nothing())
        return arrays.map(lambda array: Tensor(spec.name, array))
    if spec.datatype == "BF16":
        return hnp.arrays(np.uint16, shape).map(lambda bits: Tensor._of(spec.name, bits, "BF16"))
    if spec.dtype is None:
        raise BLSError(f"input {spec.name!r}: cannot generate values of data type {spec.datatype}")
    elements = None
    if spec.dtype.kind in "iu" and spec.dtype.itemsize > 2:
        # Small numbers: a model may use the input as a count of responses or steps.
        lowest = int(np.iinfo(spec.dtype).min)
        elements = st.integers(max(-9, lowest), 20) | st.integers(lowest, _GREATEST)
    return hnp.arrays(spec.dtype, shape, elements=elements).map(lambda array: Tensor(spec.name, array))
