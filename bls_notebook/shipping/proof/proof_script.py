"""Compare the answers of a Triton server with the expected answers in requests.json.

    pip install "tritonclient[grpc]" numpy
    python prove.py [localhost:8001] [--model NAME ...] [--tolerance 1e-6] [--timeout 60s]

The script needs only requests.json in its own folder. It sends each request to the server and compares the
answers bit by bit: names, data types, shapes and values of outputs, and every response of a decoupled model in
order. Texts of errors are compared without the parts in `DROPPED`; their codes are not compared. Exit status: 0 if
all answers are equal, 1 if some differ, 2 if the server does not answer.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

RawTensor = tuple[str, str, list[int], bytes]  # name, data type, shape, bytes
RawAnswer = tuple[str, dict[str, RawTensor]]  # the text of an error or "", and the outputs by name

REQUESTS = "requests.json"
_SHOWN = 5  # differing requests of a model that are printed
_CORRELATIONS = itertools.count(1)
_FLOATS = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}

# Prefixes that depend on how a request was sent: HTTP adds "[request id: ...]" to some errors. The engine treats a
# notebook's request like a model's BLS call, whose errors begin with "Model ... - Error when running inference".
PREFIX = re.compile(r"^(Model \S* - Error when running inference: )?(\[request id: [^\]]*\] )?")
# Errors whose texts differ between HTTP, gRPC, BLS calls and releases.
_SYNONYMS = [
    (
        re.compile(
            r"Failed for execute the inference request. Model '(?s:.*?)' is not ready.*"
            r"|Request for unknown model: '(?s:.*?)'(?: version \d+)? "
            r"(?:is not found|has no available versions|is not at ready state).*"
        ),
        "no such model",
    ),
    (
        re.compile(r"Model \S* is using the decoupled.*|HTTP end point doesn't support models with decoupled.*"),
        "decoupled",
    ),
]
_DROPPED = [
    (re.compile(r"\n\s*At:\n\s+[^\n]+\(\d+\): .*", re.DOTALL), ""),  # a traceback; a cell's name may have spaces
    # Modules of Triton's classes differ between the two sides.
    (
        re.compile(r"<class '(?:c_python_backend_utils|triton_python_backend_utils|bls_notebook)\b[\w.]*\.(\w+)'>"),
        r"<class '\1'>",
    ),
    (re.compile(r"(?<![\w.])/[^\s'\"]*/models/"), ""),  # the repository's folder
    (re.compile(r"(\bmodel (?:instance )?'[^']*?)_\d+(?:_\d+)?'"), r"\1'"),  # 'name_0_0', or 'name' in newer servers
    (re.compile(r" at 0x[0-9a-f]+(?=>)"), ""),
]
DROPPED = (
    "tracebacks, request IDs, addresses of objects, numbers of instances, absolute folders up to /models/, modules of "
    "Triton's classes, white space at the ends, and servers' words for missing and decoupled models"
)
"""What `normal` removes from the texts of errors."""


def normal(text: str) -> str:
    """Return an error's text without the parts that differ from run to run or between protocols: `DROPPED`."""
    text = PREFIX.sub("", text)
    for pattern, replacement in _DROPPED:
        text = pattern.sub(replacement, text)
    for pattern, synonym in _SYNONYMS:
        match = pattern.search(text)  # of the error itself, or of a callee at the end of its caller's
        if match and match.end() == len(text):
            return text[: match.start()] + " ".join([synonym, *filter(None, match.groups())])
    return text.strip(" ;\n")


def ask(
    stub: Any, model: str, inputs: Iterable[RawTensor], parameters: Mapping[str, Any], decoupled: bool, seconds: float
) -> list[RawAnswer]:
    """Send a request over gRPC and return its responses, without an empty final one unless it is the only one."""
    import grpc
    from tritonclient.grpc import service_pb2

    message = service_pb2.ModelInferRequest(model_name=model)
    for name, datatype, shape, data in inputs:
        message.inputs.add(name=name, datatype=datatype, shape=shape)
        message.raw_input_contents.append(data)
    for key, value in parameters.items():
        kind = {bool: "bool_param", int: "int64_param"}.get(type(value), "string_param")
        setattr(message.parameters[key], kind, value)
    if decoupled:
        message.parameters["triton_enable_empty_final_response"].bool_param = True
        stream = stub.ModelStreamInfer(iter([message]), timeout=seconds)
        return [_answer(each.error_message, each.infer_response) for each in stream if not _is_final(each)] or [
            ("", {})
        ]
    try:
        return [_answer("", stub.ModelInfer(message, timeout=seconds))]
    except grpc.RpcError as error:
        if error.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE):
            raise
        return [(error.details() or str(error.code()), {})]


def _is_final(message: Any) -> bool:
    """Return whether a message of a stream is only the mark of its end, without outputs or an error."""
    response = message.infer_response
    is_empty = not response.outputs and response.parameters["triton_final_response"].bool_param
    return is_empty and not message.error_message


def _answer(error: str, response: Any) -> RawAnswer:
    if error:
        return error, {}
    outputs = zip(response.outputs, response.raw_output_contents)  # noqa: B905  (Python 3.8 lacks `strict`)
    return "", {each.name: (each.name, each.datatype, list(each.shape), data) for each, data in outputs}


def differences(expected: list[RawAnswer], got: list[RawAnswer], tolerance: float) -> Iterator[str]:
    """Yield a line for each difference between the responses to a request."""
    if len(expected) != len(got):
        yield f"{len(expected)} responses expected, got {len(got)}"
    for number, (first, second) in enumerate(zip(expected, got)):  # noqa: B905
        prefix = f"response {number}: " if len(expected) > 1 else ""
        if normal(first[0]) != normal(second[0]):
            yield f"{prefix}error {first[0][:200]!r} expected, got {second[0][:200]!r}"
            continue
        for name in sorted({*first[1], *second[1]}):
            wanted, output = first[1].get(name), second[1].get(name)
            if wanted is None or output is None:
                yield f"{prefix}output {name!r} is {'not expected' if wanted is None else 'missing'}"
            elif wanted[1:3] != output[1:3]:
                yield f"{prefix}output {name!r}: {wanted[1]} {wanted[2]} expected, got {output[1]} {output[2]}"
            elif not _equal(wanted, output, tolerance):
                yield f"{prefix}output {name!r}: other values"


def _equal(expected: RawTensor, got: RawTensor, tolerance: float) -> bool:
    if expected[3] == got[3]:
        return True
    if expected[1] not in _FLOATS or not tolerance:
        return False
    a, b = (np.frombuffer(tensor[3], _FLOATS[expected[1]]) for tensor in (expected, got))
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True))


def _tensor(saved: Mapping[str, Any]) -> RawTensor:
    return saved["name"], saved["datatype"], saved["shape"], base64.b64decode(saved["b64"])


def _expected(saved: Mapping[str, Any]) -> RawAnswer:
    return saved.get("error", ""), {each["name"]: _tensor(each) for each in saved.get("outputs", ())}


def _prove(stub: Any, name: str, model: Mapping[str, Any], tolerance: float, seconds: float) -> bool:
    differing = 0
    for number, steps in enumerate(model["cases"]):
        correlation = next(_CORRELATIONS)
        for step, request in enumerate(steps):
            parameters = dict(request["parameters"])
            if model["sequence"]:
                parameters["sequence_id"] = correlation
                parameters["sequence_start"], parameters["sequence_end"] = step == 0, step == len(steps) - 1
            got = ask(stub, name, map(_tensor, request["inputs"]), parameters, model["decoupled"], seconds)
            lines = list(differences(list(map(_expected, request["answers"])), got, tolerance))
            differing += bool(lines)
            if lines and differing <= _SHOWN:
                print(f"{name}: request {number}{f', step {step}' if len(steps) > 1 else ''}: {'; '.join(lines)}")
    count = sum(map(len, model["cases"]))
    print(f"{name}: {count - differing} of {count} requests answered as expected")
    return not differing


def _seconds(text: str) -> float:
    """Return the seconds of a time with its unit: ``500ms``, ``60s``, ``2m``, ``1h``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text)
    seconds = float(match[1]) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[match[2]] if match else 0
    if not seconds:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a time with its unit, such as 500ms, 60s or 2m")
    return seconds


def main(arguments: list[str]) -> int:
    """Compare the models that the arguments select; return the exit status."""
    parser = argparse.ArgumentParser("prove.py", description=str(__doc__).partition("\n")[0])
    parser.add_argument("server", nargs="?", default="localhost:8001", help="host and gRPC port")
    parser.add_argument(
        "--model", action="append", default=[], metavar="NAME", help="compare only this model (repeatable)"
    )
    parser.add_argument(
        "--tolerance", type=float, default=0.0, help="allowed absolute or relative difference of floats"
    )
    parser.add_argument("--timeout", type=_seconds, default=60.0, metavar="TIME", help="of a request (default: 60s)")
    options = parser.parse_args(arguments)
    models = json.loads(Path(__file__).with_name(REQUESTS).read_text(encoding="utf-8"))["models"]
    for name in options.model:
        if name not in models:
            parser.error(f"{REQUESTS} has no model {name!r}; it has {', '.join(models)}")
    import grpc
    from tritonclient.grpc import service_pb2_grpc

    most = [(f"grpc.max_{way}_message_length", -1) for way in ("send", "receive")]
    with grpc.insecure_channel(options.server.rpartition("://")[2], most) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        try:
            equal = [
                _prove(stub, name, models[name], options.tolerance, options.timeout) for name in options.model or models
            ]
        except grpc.RpcError as error:
            print(f"{options.server}: {error.details() or error.code()}", file=sys.stderr)
            return 2
    return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
