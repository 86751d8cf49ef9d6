"""Files of an export for proof and measurement on another machine: requests, and the answers of the models here.

``requests.json`` and ``prove.py`` need only tritonclient and NumPy. ``perf_MODEL.json`` is input data for
perf_analyzer with the expected outputs (format: docs/input_data.md of perf_analyzer).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bls_notebook.engine import BLSError, ModelSpec
from bls_notebook.pb_utils import Tensor
from bls_notebook.pb_utils.dtypes import serialize_byte_tensor
from bls_notebook.repository import ModelRepository, Response, sequence_options
from bls_notebook.shipping.proof import proof_script
from bls_notebook.shipping.proof.requests import ProofCase, ProofRequest, cases_of, send

AnsweredCase = Sequence[tuple[ProofRequest, Sequence[Response]]]
"""One request, or all requests of a sequence, each with its responses."""

_CORRELATION = (1 << 63) - 1  # unlikely to be in use


def proof_files(specs: Mapping[str, ModelSpec], requests: Any, repository: ModelRepository) -> dict[str, str]:
    """Return the files: text by name. `requests` is a recording, or maps models to the inputs of their requests."""
    answered: dict[str, list[AnsweredCase]] = {}
    for name, spec in specs.items():
        if isinstance(requests, Mapping):
            inputs = requests.get(name, ())
        else:
            inputs = requests.requests(name) if name in requests.models else ()
        cases = cases_of(spec, inputs, {})
        if cases:
            answered[name] = [_answered(repository, spec, case) for case in cases]
    if not answered:
        raise BLSError(f"export: requests: none is for {', '.join(specs)}; pass at least one for an exported model")
    models = {
        name: {
            "decoupled": specs[name].decoupled,
            "sequence": specs[name].scheduler == "sequence",
            "cases": [[_step(*step) for step in case] for case in cases],
        }
        for name, cases in answered.items()
    }
    files = {
        "prove.py": Path(proof_script.__file__).read_text(encoding="utf-8"),
        proof_script.REQUESTS: json.dumps({"schema": 1, "models": models}, indent=1) + "\n",
    }
    for name in answered:
        if data := _perf_data(specs[name], answered[name]):
            files[f"perf_{name}.json"] = json.dumps(data, indent=1) + "\n"
    return files


def _answered(repository: ModelRepository, spec: ModelSpec, case: ProofCase) -> AnsweredCase:
    return [
        (request, send(repository, spec, request, sequence_options(spec, _CORRELATION, step, len(case))))
        for step, request in enumerate(case)
    ]


def _step(request: ProofRequest, responses: Sequence[Response]) -> dict[str, Any]:
    answers = [
        {"error": response.error.message()}
        if response.error is not None
        else {"outputs": [_tensor_json(tensor) for tensor in response.output_tensors()]}
        for response in responses
    ]
    inputs = [_tensor_json(tensor) for tensor in request.inputs.values()]
    return {"inputs": inputs, "parameters": dict(request.parameters), "answers": answers}


def _tensor_json(tensor: Tensor, row: int | None = None) -> dict[str, Any]:
    array = tensor._array if row is None else tensor._array[row]
    data = serialize_byte_tensor(array) or b"" if tensor._datatype == "BYTES" else array.tobytes()
    content = base64.b64encode(data).decode()
    return {"name": tensor._name, "datatype": tensor._datatype, "shape": list(array.shape), "b64": content}


def _perf_data(spec: ModelSpec, cases: Sequence[AnsweredCase]) -> dict[str, Any]:
    """Return input data for perf_analyzer, without requests that fail.

    Batches are split into rows, because perf_analyzer forms batches itself. Expected outputs are included only if
    every request has one response with all outputs, because perf_analyzer compares their bytes.
    """
    data: list[Any] = []
    expected: list[Any] = []
    complete = not spec.decoupled
    for case in cases:
        if any(response.error is not None for _, responses in case for response in responses):
            continue
        rows = [list(_rows(spec, list(request.inputs.values()))) for request, _ in case]
        outputs = [list(_rows(spec, responses[0].output_tensors())) for _, responses in case]
        complete = complete and all(
            len(a) == len(b) and all(row.keys() == spec.outputs.keys() for row in b)
            for a, b in zip(rows, outputs, strict=True)
        )
        if spec.scheduler == "sequence":
            data.append([row for step in rows for row in step])
            expected.append([row for step in outputs for row in step])
        else:
            data += rows[0]
            expected += outputs[0]
    if not data:
        return {}
    return {"data": data, "validation_data": expected} if complete else {"data": data}


def _rows(spec: ModelSpec, tensors: Sequence[Tensor]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch; for a model without batching, all tensors as one row."""
    numbers: Sequence[int | None] = [None]
    if spec.max_batch_size:
        numbers = range(min((len(tensor._array) for tensor in tensors), default=0))
    for number in numbers:
        row = [_tensor_json(tensor, number) for tensor in tensors]
        yield {t["name"]: {"content": {"b64": t["b64"]}, "shape": t["shape"]} for t in row}
