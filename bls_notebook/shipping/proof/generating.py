"""Requests of any kind that a model's configuration allows, by hypothesis, and the smallest that differ."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from bls_notebook.engine.core.spec import ModelSpec, TensorSpec
from bls_notebook.engine.errors import BLSError
from bls_notebook.pb_utils import Tensor

from .asked import ProofRequest, Steps

if TYPE_CHECKING:
    from hypothesis import strategies as st

LONGEST = 4  # of a dimension that is free, and of a batch
GREATEST = 99  # of a whole number of more than 16 bits
STEPS = 3  # of a sequence, at most


class Different(Exception):  # noqa: N818  (what is looked for, no error)
    """Two answers to a request differ."""


class NotSteady(Exception):  # noqa: N818
    """A difference was there once and not again."""


def generator() -> Any:
    """Return what makes requests, or raise BLSError where it is not installed."""
    try:
        import hypothesis
    except ImportError:
        raise BLSError(
            'generated requests need hypothesis, which is not installed: pip install "bls_notebook[prove]"'
        ) from None
    return hypothesis


def generate(
    spec: ModelSpec,
    number: int,
    seed: int,
    check: Callable[[Steps], None],
    examples: Sequence[ProofRequest] = (),
    words: Sequence[str] = (),
) -> bool:
    """Call `check` with that many requests; where it raises `Different`, with ever smaller ones that do so.

    At times inputs and parameters are those of the ``examples``, and BYTES inputs are made of ``words``.
    Return whether no request was different; raise `NotSteady` where one was, and not when it was sent again.
    """
    hypothesis = generator()
    phases = [hypothesis.Phase.generate, hypothesis.Phase.shrink]
    run = hypothesis.given(_requests(spec, examples, words))(check)
    run = hypothesis.settings(
        max_examples=number, database=None, deadline=None, phases=phases, print_blob=False,
        report_multiple_bugs=False, suppress_health_check=list(hypothesis.HealthCheck),
    )(hypothesis.seed(seed)(run))  # fmt: skip
    try:
        with tempfile.TemporaryDirectory(prefix="bls-notebook-hypothesis-") as folder, _home(folder):
            run()
    except Different:
        return False
    except hypothesis.errors.Flaky as error:
        raise NotSteady from error
    return True


@contextmanager
def _home(folder: str) -> Iterator[None]:
    """Have hypothesis write into a folder, and not into the one that the notebook runs in."""
    from hypothesis import configuration

    before = vars(configuration).get("__hypothesis_home_directory")
    configuration.set_hypothesis_home_dir(folder)
    try:
        yield
    finally:
        configuration.set_hypothesis_home_dir(before)


def _requests(spec: ModelSpec, examples: Sequence[ProofRequest], words: Sequence[str]) -> st.SearchStrategy[Steps]:
    from hypothesis import strategies as st

    told = [each.parameters for each in examples if each.parameters]

    @st.composite
    def request(draw: st.DrawFn) -> ProofRequest:
        # Models often want inputs of one length, and fail otherwise: both are of interest.
        length: int | None = draw(st.none() | st.integers(0, LONGEST))
        limit = min(spec.max_batch_size, LONGEST)
        batch = [draw(st.integers(1, limit))] if limit else []
        inputs: dict[str, Tensor] = {}
        for name, tensor in spec.inputs.items():
            if tensor.optional and not draw(st.booleans()):
                continue
            known = [each.inputs[name] for each in examples if name in each.inputs]
            if known and bool(draw(st.booleans())):
                inputs[name] = draw(st.sampled_from(known))
                continue
            free = st.integers(1, LONGEST) if length is None else st.just(length)
            shape = (*batch, *(size if size >= 0 else draw(free) for size in tensor.dims))
            inputs[name] = draw(_tensor(tensor, shape, words))
        return ProofRequest(inputs, draw(st.sampled_from([{}, *told])) if told else {})

    steps = STEPS if spec.scheduler == "sequence" else 1
    return st.lists(request(), min_size=1, max_size=steps).map(tuple)


def _tensor(spec: TensorSpec, shape: tuple[int, ...], words: Sequence[str]) -> st.SearchStrategy[Tensor]:
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp

    if spec.datatype == "BYTES":
        texts = [word.encode() for word in ("", "0", "é", "a\0", *words)]
        fill = st.sampled_from(texts) | st.binary(max_size=6)
        arrays = hnp.arrays(np.object_, shape, elements=fill, fill=st.nothing())
        return arrays.map(lambda array: Tensor(spec.name, array))
    if spec.datatype == "BF16":
        return hnp.arrays(np.uint16, shape).map(lambda bits: Tensor._of(spec.name, bits, "BF16"))
    if spec.dtype is None:
        raise BLSError(f"input {spec.name!r}: no requests can be generated of data type {spec.datatype}")
    elements = None
    if spec.dtype.kind in "iu" and spec.dtype.itemsize > 2:
        # A model may take it as a count, of responses or steps: billions of those would never end.
        lowest = int(np.iinfo(spec.dtype).min)
        elements = st.integers(max(-9, lowest), 20) | st.integers(lowest, GREATEST)
    return hnp.arrays(spec.dtype, shape, elements=elements).map(lambda array: Tensor(spec.name, array))
