"""Sends the requests of requests.json to a server, and says whether it answers as the models did before.

    pip install "tritonclient[grpc]" numpy
    python prove.py [localhost:8001] [--model NAME ...] [--tolerance 1e-6] [--timeout 60]

It reads requests.json beside it, and needs nothing else of where the models come from. Answers are compared
bit by bit: names, data types, shapes and values of outputs, texts of errors, of decoupled models every
response in order. Exits with 0 where all are equal, 1 where one differs, 2 where the server cannot be asked.
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

Tensor = tuple[str, str, list[int], bytes]  # name, data type, shape, bytes
Answer = tuple[str, dict[str, Tensor]]  # an error, or outputs by name

REQUESTS = "requests.json"
_SHOWN = 5  # requests that differ
_CORRELATIONS = itertools.count(1)
_FLOATS = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}

# What only one of two entrances says: HTTP has "[request id: ...]" before some errors; a request from a
# notebook comes in as a model's calls do, and what is wrong with it is told as they are told.
PREFIX = re.compile(r"^(Model \S+ - Error when running inference: )?(\[request id: [^\]]*\] )?")
# Two errors that a front finds by itself, and words in its own way.
_ENTRANCE = [
    (
        re.compile(
            r"Failed for execute the inference request. Model '(\S+)' is not ready.*"
            r"|Request for unknown model: '(\S+)'(?: version \d+)? is not found"
        ),
        "no such model",
    ),
    (
        re.compile(r"Model \S+ is using the decoupled.*|HTTP end point doesn't support models with decoupled.*"),
        "decoupled",
    ),
]
# Both sides' own classes, in texts that name a class.
_CLASS = re.compile(r"<class '[\w.]*\.(\w+)'>")
# A traceback with the files and lines of one side.
_TRACEBACK = re.compile(r"\s*\bAt:\s.*", re.DOTALL)
# Which of the instances ran: 'name_0_0', and 'name' in newer servers.
_INSTANCE = re.compile(r"_\d+(_\d+)?'")
_FOLDER = re.compile(r"[^\s'\"]*/models/")
_ADDRESS = re.compile(r"0x[0-9a-f]+")


def normal(text: str) -> str:
    """Return an error's text without what differs from run to run, and without a front's prefix."""
    text = _TRACEBACK.sub("", PREFIX.sub("", text))
    for pattern, told in _ENTRANCE:
        if pattern.fullmatch(text):
            return told
    text = _CLASS.sub(r"<class '\1'>", text)
    text = _ADDRESS.sub("0x", _INSTANCE.sub("'", _FOLDER.sub("", text)))
    return " ".join(text.split()).strip(" ;")


def ask(
    stub: Any, model: str, inputs: Iterable[Tensor], parameters: Mapping[str, Any], decoupled: bool, seconds: float
) -> list[Answer]:
    """Send a request by gRPC, and return its responses; a final flag alone is none, but where it is all."""
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
        told = list(stub.ModelStreamInfer(iter([message]), timeout=seconds))
        return [_answer(each.error_message, each.infer_response) for each in told if _says(each)] or [("", {})]
    try:
        return [_answer("", stub.ModelInfer(message, timeout=seconds))]
    except grpc.RpcError as error:
        if error.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE):
            raise
        return [(error.details() or str(error.code()), {})]


def _says(told: Any) -> bool:
    """Whether it is a response, and no final flag alone."""
    response = told.infer_response
    alone = not response.outputs and response.parameters["triton_final_response"].bool_param
    return bool(told.error_message) or not alone


def _answer(error: str, response: Any) -> Answer:
    if error:
        return error, {}
    outputs = zip(response.outputs, response.raw_output_contents)  # noqa: B905  (Python 3.8 has no strict)
    return "", {each.name: (each.name, each.datatype, list(each.shape), data) for each, data in outputs}


def differences(expected: list[Answer], got: list[Answer], tolerance: float) -> Iterator[str]:
    """Yield what differs between the responses to a request."""
    if len(expected) != len(got):
        yield f"{len(expected)} responses expected, got {len(got)}"
    for number, (first, second) in enumerate(zip(expected, got)):  # noqa: B905
        at = f"response {number}: " if len(expected) > 1 else ""
        if normal(first[0]) != normal(second[0]):
            yield f"{at}error {first[0][:200]!r} expected, got {second[0][:200]!r}"
            continue
        for name in sorted({*first[1], *second[1]}):
            wanted, found = first[1].get(name), second[1].get(name)
            if wanted is None or found is None:
                yield f"{at}output {name!r} is {'not expected' if wanted is None else 'missing'}"
            elif wanted[1:3] != found[1:3]:
                yield f"{at}output {name!r}: {wanted[1]} {wanted[2]} expected, got {found[1]} {found[2]}"
            elif not _equal(wanted, found, tolerance):
                yield f"{at}output {name!r}: other values"


def _equal(wanted: Tensor, found: Tensor, tolerance: float) -> bool:
    if wanted[3] == found[3]:
        return True
    if wanted[1] not in _FLOATS:
        return False
    a, b = (np.frombuffer(each[3], _FLOATS[wanted[1]]) for each in (wanted, found))
    if np.array_equal(np.signbit(a), np.signbit(b)) and np.array_equal(a, b, equal_nan=True):
        return True  # any NaN equals any other
    return bool(tolerance) and bool(np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True))


def _tensor(told: Mapping[str, Any]) -> Tensor:
    return told["name"], told["datatype"], told["shape"], base64.b64decode(told["b64"])


def _expected(told: Mapping[str, Any]) -> Answer:
    return told.get("error", ""), {each["name"]: _tensor(each) for each in told.get("outputs", ())}


def _prove(stub: Any, name: str, model: Mapping[str, Any], tolerance: float, seconds: float) -> bool:
    unlike = 0
    for number, steps in enumerate(model["cases"]):
        correlation = next(_CORRELATIONS)
        for step, request in enumerate(steps):
            parameters = dict(request["parameters"])
            if model["sequence"]:
                parameters["sequence_id"] = correlation
                parameters["sequence_start"], parameters["sequence_end"] = step == 0, step == len(steps) - 1
            inputs = map(_tensor, request["inputs"])
            got = ask(stub, name, inputs, parameters, model["decoupled"], seconds)
            said = list(differences(list(map(_expected, request["answers"])), got, tolerance))
            unlike += bool(said)
            if said and unlike <= _SHOWN:
                print(f"{name}: request {number}{f', step {step}' if len(steps) > 1 else ''}: {'; '.join(said)}")
    count = sum(map(len, model["cases"]))
    print(f"{name}: {count - unlike} of {count} requests answered as expected")
    return not unlike


def main(arguments: list[str]) -> int:
    """Prove what the arguments name; return the exit status."""
    parser = argparse.ArgumentParser("prove.py", description=str(__doc__).partition("\n")[0])
    parser.add_argument("server", nargs="?", default="localhost:8001", help="host and port of gRPC")
    parser.add_argument("--model", action="append", default=[], metavar="NAME", help="this one (several)")
    parser.add_argument("--tolerance", type=float, default=0.0, help="floats may differ by so much")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds that an answer may take")
    given = parser.parse_args(arguments)
    models = json.loads(Path(__file__).with_name(REQUESTS).read_text(encoding="utf-8"))["models"]
    for name in given.model:
        if name not in models:
            parser.error(f"{REQUESTS} has no model {name!r}; it has {', '.join(models)}")
    import grpc
    from tritonclient.grpc import service_pb2_grpc

    most = [(f"grpc.max_{way}_message_length", -1) for way in ("send", "receive")]
    with grpc.insecure_channel(given.server.rpartition("://")[2], most) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        try:
            equal = [_prove(stub, name, models[name], given.tolerance, given.timeout) for name in given.model or models]
        except grpc.RpcError as error:
            print(f"{given.server}: {error.details() or error.code()}", file=sys.stderr)
            return 2
    return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
