"""What is asked of both places: requests as they are given, recorded or generated, in one form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bls_notebook.engine.core.spec import ModelSpec
from bls_notebook.engine.errors import BLSError
from bls_notebook.pb_utils import Tensor
from bls_notebook.repository.requests.inputs import tensors_of

Inputs = Mapping[str, Tensor]


@dataclass(frozen=True)
class ProofRequest:
    """One request: its inputs by name, and its parameters."""

    inputs: Inputs
    parameters: Mapping[str, Any] = field(default_factory=dict)


Steps = tuple[ProofRequest, ...]
"""One request, or those of a sequence from its start."""


def cases_of(spec: ModelSpec, given: Iterable[Any], parameters: Mapping[str, Any]) -> list[Steps]:
    """Return what is to be asked of a model, of inputs by name, recorded requests and whole recordings.

    What is given has ``inputs`` and ``parameters``, or gives such for a model by ``requests(name)``, or is a
    mapping of inputs, which gets ``parameters``. Of a model that batches sequences, the plain mappings are
    one sequence, in order, and recorded requests those that their correlation IDs say.
    """
    sequences: dict[object, list[ProofRequest]] = {}
    cases: list[Steps] = []
    for each in _flat(spec.name, given):
        own = not isinstance(each, Mapping)
        inputs = each.inputs if own else each
        told = dict(getattr(each, "parameters", None) or parameters) if own else dict(parameters)
        request = ProofRequest({t.name(): t for t in tensors_of(spec.name, inputs, spec)}, told)
        if spec.scheduler == "sequence":
            sequences.setdefault(getattr(each, "correlation_id", 0) if own else 0, []).append(request)
        else:
            cases.append((request,))
    return [*cases, *map(tuple, sequences.values())]


def _flat(model: str, given: Iterable[Any]) -> Iterator[Any]:
    for each in given:
        if callable(recorded := getattr(each, "requests", None)):
            found = list(recorded(model))
            if not found:
                raise BLSError(f"prove: the recording has no request for model {model!r}")
            yield from found
        elif isinstance(each, Mapping) or hasattr(each, "inputs"):
            yield each
        else:
            raise BLSError(
                f"prove: model {model!r}: got {type(each).__name__}, expected a dict of inputs by name, or a recording"
            )
