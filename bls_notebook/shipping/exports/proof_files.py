"""What an export holds to prove and to measure its models elsewhere: requests, and what they are answered.

``requests.json`` and ``prove.py`` prove equality with tritonclient and NumPy alone; ``perf_MODEL.json`` is
input data of perf_analyzer with the outputs to expect (docs/input_data.md there), ``analyze_MODEL.yaml`` a
configuration of Model Analyzer.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bls_notebook.engine.core.spec import ModelSpec
from bls_notebook.engine.errors import BLSError
from bls_notebook.pb_utils import (
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
    Tensor,
)
from bls_notebook.pb_utils.dtypes import serialize_byte_tensor
from bls_notebook.records.yaml_text import yaml_lines
from bls_notebook.repository.requests.inputs import tensors_of

from . import proof_script
from .records import Exported

if TYPE_CHECKING:
    from bls_notebook.repository.requests.response import Response


@dataclass(frozen=True)
class Answered:
    """A request, and what it was answered here."""

    inputs: tuple[Tensor, ...]
    parameters: Mapping[str, Any]
    responses: Sequence[Response]

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        answers = [
            {"error": each.error.message()}
            if each.error is not None
            else {"outputs": [_plain(tensor) for tensor in each.output_tensors()]}
            for each in self.responses
        ]
        inputs = [_plain(tensor) for tensor in self.inputs]
        return {"inputs": inputs, "parameters": dict(self.parameters), "answers": answers}


def proof_files(record: Exported, specs: Mapping[str, ModelSpec], requests: Any, asked: Any) -> dict[str, str]:
    """Return the files, by name; `asked` is the repository where the models of `specs` serve.

    `requests` are what each is to be asked: inputs by name, or recorded requests; or what has
    ``requests(model)``.
    """
    answered = {
        name: [[_ask(spec, asked, each, at, len(steps)) for at, each in enumerate(steps)] for steps in cases]
        for name, spec in specs.items()
        if (cases := list(_cases(spec, requests)))
    }
    if not answered:
        raise BLSError(f"export: there are no requests for {', '.join(specs)}")
    models = {
        name: {
            "decoupled": specs[name].decoupled,
            "sequence": specs[name].scheduler == "sequence",
            "cases": [[step.plain() for step in steps] for steps in cases],
        }
        for name, cases in answered.items()
    }
    files = {
        "prove.py": Path(proof_script.__file__).read_text(encoding="utf-8"),
        proof_script.REQUESTS: json.dumps({"schema": 1, "models": models}, indent=1) + "\n",
    }
    for name, cases in answered.items():
        if data := _perf_data(specs[name], cases):
            files[f"perf_{name}.json"] = json.dumps(data, indent=1) + "\n"
        files[f"analyze_{name}.yaml"] = _analyzer(record, name, bool(data))
    return files


def _cases(spec: ModelSpec, requests: Any) -> Iterator[list[Any]]:
    """What a model is to be asked: a list of one request each, or of the requests of a sequence."""
    if not isinstance(requests, Mapping):
        if spec.name not in getattr(requests, "models", (spec.name,)):
            return
        given = list(requests.requests(spec.name))
    else:
        given = list(requests.get(spec.name, ()))
    if spec.scheduler != "sequence":
        yield from ([each] for each in given)
        return
    sequences: dict[object, list[Any]] = {}
    for each in given:
        sequences.setdefault(getattr(each, "correlation_id", 0), []).append(each)
    yield from sequences.values()


def _ask(spec: ModelSpec, asked: Any, each: Any, at: int, steps: int) -> Answered:
    inputs = each if isinstance(each, Mapping) else each.inputs
    tensors = tuple(tensors_of(spec.name, inputs, spec))
    parameters = dict(getattr(each, "parameters", None) or {})
    more: dict[str, Any] = {"parameters": parameters}
    if spec.scheduler == "sequence":
        flags = TRITONSERVER_REQUEST_FLAG_SEQUENCE_START * (at == 0)
        flags |= TRITONSERVER_REQUEST_FLAG_SEQUENCE_END * (at == steps - 1)
        more |= {"correlation_id": (1 << 63) - 1, "flags": flags}
    named = {tensor.name(): tensor for tensor in tensors}
    if spec.decoupled:
        return Answered(tensors, parameters, list(asked.stream(spec.name, named, **more)))
    return Answered(tensors, parameters, [asked.infer(spec.name, named, preferred_memory="cpu", **more)])


def _plain(tensor: Tensor, row: int | None = None) -> dict[str, Any]:
    array = tensor._array if row is None else tensor._array[row]
    data = serialize_byte_tensor(array) or b"" if tensor._datatype == "BYTES" else array.tobytes()
    return {
        "name": tensor._name,
        "datatype": tensor._datatype,
        "shape": list(array.shape),
        "b64": base64.b64encode(data).decode(),
    }


# --- perf_analyzer and Model Analyzer ---


def _perf_data(spec: ModelSpec, cases: Sequence[Sequence[Answered]]) -> dict[str, Any]:
    """Input data for perf_analyzer: rows, since it makes batches itself; errors are left out.

    What is expected is said where every request has one answer with all outputs: it compares bytes.
    """
    data: list[Any] = []
    expected: list[Any] = []
    complete = not spec.decoupled
    for steps in cases:
        if any(each.error is not None for step in steps for each in step.responses):
            continue
        rows = [list(_rows(spec, step.inputs)) for step in steps]
        wanted = [list(_rows(spec, tuple(step.responses[0].output_tensors()))) for step in steps]
        complete = complete and all(
            len(a) == len(b) and all(each.keys() == spec.outputs.keys() for each in b)
            for a, b in zip(rows, wanted, strict=True)
        )
        if spec.scheduler == "sequence":
            data.append([row for each in rows for row in each])
            expected.append([row for each in wanted for row in each])
        else:
            data += rows[0]
            expected += wanted[0]
    if not data:
        return {}
    return {"data": data, "validation_data": expected} if complete else {"data": data}


def _rows(spec: ModelSpec, tensors: tuple[Tensor, ...]) -> Iterator[dict[str, Any]]:
    """The rows of a batch, or the one of a model that takes none: tensors without a batch dimension."""
    numbers: Sequence[int | None] = [None]
    if spec.max_batch_size:
        numbers = range(min((len(tensor._array) for tensor in tensors), default=0))
    for number in numbers:
        told = [_plain(tensor, number) for tensor in tensors]
        yield {each["name"]: {"content": {"b64": each["b64"]}, "shape": each["shape"]} for each in told}


def _analyzer(record: Exported, name: str, data: bool) -> str:
    """A configuration for Model Analyzer: the model, searched together with those that it calls."""
    calls = {model.name: model for model in record.models}
    called, left = [], list(calls[name].calls)
    while left:
        each = left.pop(0)
        if each in calls and each not in called and each != name:
            called.append(each)
            left += calls[each].calls
    given: dict[str, Any] = {"input-data": f"perf_{name}.json"} if data else {}
    config: dict[str, Any] = {"model_repository": "."}
    if calls[name].decoupled:
        config["client_protocol"] = "grpc"
        given["streaming"] = "true"
    if not data and calls[name].shapes:
        given["shape"] = list(calls[name].shapes)
    config["profile_models"] = {name: {"perf_analyzer_flags": given}} if given else [name]
    if called:
        ensemble = not calls[name].backend
        composing = "ensemble_composing_models" if ensemble else "bls_composing_models"
        config = {"run_config_search_mode": "quick", **config, composing: called}
    head = f"# For Model Analyzer, in this folder: model-analyzer profile -f analyze_{name}.yaml\n"
    return head + "".join(f"{line}\n" for line in yaml_lines(config))
