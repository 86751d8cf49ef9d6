"""What a model may do with a request: functions that return what `execute` answers, and two tables of short ones."""

import json
import time

import numpy as np
import triton_python_backend_utils as pb_utils
from parts import numbers


def _rests(request):
    """Give back X, 40 ms later, and one more."""
    time.sleep(0.04)
    x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x + 1)])


def _report(value):
    text = json.dumps(value, sort_keys=True)
    return pb_utils.InferenceResponse([pb_utils.Tensor("REPORT", np.array([text], np.object_))])


def _out(array, name="OUT"):
    return pb_utils.Tensor(name, array)


def _attempt(function, *arguments, **more):
    """What a call gave, or how it failed."""
    try:
        return _told(function(*arguments, **more))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _told(value):
    if isinstance(value, pb_utils.InferenceResponse):
        if value.has_error():
            return {"error": value.error().message(), "code": str(value.error().code())}
        return {t.name(): _told(t) for t in value.output_tensors()}
    if isinstance(value, pb_utils.Tensor):
        return [value.name(), list(value.shape()), _told(value.as_numpy())]
    if isinstance(value, np.ndarray):
        return [str(value.dtype), list(value.shape), [_told(item) for item in value.ravel().tolist()]]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value


def _words(*words):
    return np.array(words, np.object_)


def _request(model, inputs, outputs=(), **more):
    tensors = [pb_utils.Tensor(name, array) for name, array in inputs.items()]
    return pb_utils.InferenceRequest(model_name=model, inputs=tensors, requested_output_names=list(outputs), **more)


def _call(*arguments, **more):
    return _request(*arguments, **more).exec()


TWO = {"INPUT0": np.array([1, 2], np.float32), "INPUT1": np.array([3, 5], np.float32)}

# Deeds that answer with tensors.
OUTPUTS = {
    "echo": lambda request: [_out(pb_utils.get_input_tensor_by_name(request, "X").as_numpy())],
    "other_dtype": lambda request: [_out(np.array([1, 2], np.int16))],
    "other_shape": lambda request: [_out(np.zeros((2, 2), np.int32), "MORE")],
    "scalar": lambda request: [_out(np.array(2.5, np.float32))],
    "empty": lambda request: [_out(np.zeros((0, 3), np.float32))],
    "strided": lambda request: [_out(np.arange(12, dtype=np.float32)[::-3])],
    "fortran": lambda request: [_out(np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)))],
    "fixed_width_words": lambda request: [_out(np.array([b"ab", b"c"], "S4"), "REPORT")],
    "no_outputs": lambda request: [],
    "unknown_output": lambda request: [_out(np.ones(1, np.float32), "NOBODY"), _out(np.ones(1, np.float32))],
    "same_output_twice": lambda request: [_out(np.zeros(1, np.float32)), _out(np.ones(2, np.float32))],
    "every_output": lambda request: [
        _out(np.ones(3, np.float32)),
        _out(np.array([1, 2], np.int32), "MORE"),
        _out(_words("x"), "REPORT"),
    ],
    "words_of_all_kinds": lambda request: [_out(_words(b"a\0b", "é", b"", b"\xff\xfe", "end"), "REPORT")],
}
# Deeds that report a call of another model.
CALLS = {
    "calls_add_sub": lambda: _call("add_sub", TWO),
    "calls_for_one_output": lambda: _call("add_sub", TWO, ["OUTPUT1"]),
    "calls_for_an_output_twice": lambda: _call("add_sub", TWO, ["OUTPUT1", "OUTPUT1"]),
    "calls_for_an_unknown_output": lambda: _call("add_sub", TWO, ["OUTPUT9"]),
    "calls_nobody": lambda: _call("nobody", TWO),
    "calls_no_such_version": lambda: _call("versions", {"IN": np.zeros(1, np.float32)}, model_version=2),
    "calls_a_version": lambda: _call("versions", {"IN": np.zeros(1, np.float32)}, model_version=1),
    "calls_without_an_input": lambda: _call("add_sub", {"INPUT0": TWO["INPUT0"]}),
    "calls_with_an_unknown_input": lambda: _call("add_sub", {"INPUT0": TWO["INPUT0"], "INPUT9": TWO["INPUT1"]}),
    "calls_with_too_many_inputs": lambda: _call("add_sub", {**TWO, "INPUT9": TWO["INPUT1"]}),
    "calls_with_a_wrong_shape": lambda: _call("add_sub", {name: array[None] for name, array in TWO.items()}),
    "calls_with_too_large_a_batch": lambda: _call("batched", {"IN0": np.zeros((5, 1), np.float32)}),
    "calls_with_a_batch": lambda: _call("batched", {"IN0": np.zeros((4, 2), np.float32)}),
    "calls_with_an_empty_batch": lambda: _call("batched", {"IN0": np.zeros((0, 1), np.float32)}),
    "calls_without_the_required_input": lambda: _call("batched", {"IN2": np.zeros((1, 2, 2), np.uint8)}),
    "calls_one_that_returns_an_error": lambda: _call("script", {"DO": _words("returns_error")}),
    "calls_one_that_disagrees": lambda: _call("add_sub", {**TWO, "INPUT1": np.zeros(3, np.float32)}),
    "calls_an_ensemble": lambda: _call("pipeline", {"A": TWO["INPUT0"], "B": TWO["INPUT1"]}),
    "calls_a_chain_to_nobody": lambda: _call("bls_sync", {"MODEL_NAME": _words("nobody"), **TWO}),
    "calls_without_a_sequence": lambda: _call("sums_direct", {"IN": np.zeros((1, 1), np.int32)}),
    "calls_without_decoupled": lambda: _call("streams", {"SENDS": _words("a", "final")}),
    "calls_with_a_wrong_dtype": lambda: _call("add_sub", {name: a.astype(np.int32) for name, a in TWO.items()}),
    "calls_with_reshapes": lambda: _call(
        "reshaped", {"IN0": np.ones(1, np.float32), "IN1": np.ones((2, 3), np.int32), "IN2": _words("a", "b")}
    ),
    "describes_a_call": lambda: _call(
        "script", {"DO": _words("describe")}, ["REPORT"], request_id="r 1", correlation_id=5, flags=3,
        timeout=99_000_000, parameters={"n": 1, "b": True, "s": "é"},
    ),
}  # fmt: skip


def _answers(tensors):
    return lambda request: pb_utils.InferenceResponse(tensors(request))


def _reports(call):
    return lambda request: _report(_attempt(call))


globals().update({name: _answers(tensors) for name, tensors in OUTPUTS.items()})
globals().update({name: _reports(call) for name, call in CALLS.items()})


def big_endian(request):
    return _report(_attempt(lambda: pb_utils.Tensor("OUT", np.array([1, 2], ">f4"))))


def unsupported_dtypes(request):
    kinds = ["complex64", "datetime64[s]", "timedelta64[s]", "U3", "float128", "S2", "V4"]
    return _report({kind: _attempt(lambda kind=kind: pb_utils.Tensor("T", np.zeros(1, kind))) for kind in kinds})


def wrong_arguments(request):
    calls = [lambda: pb_utils.Tensor("T", [1, 2]), lambda: pb_utils.Tensor(7, np.zeros(1))]
    calls.append(lambda: pb_utils.InferenceRequest(model_name=""))
    return _report([_attempt(call).split(":")[0] for call in calls])


def returns_error(request):
    return pb_utils.InferenceResponse(error=pb_utils.TritonError("given back: é\n\tsecond line"))


def returns_error_and_outputs(request):
    return pb_utils.InferenceResponse([_out(np.ones(1, np.float32))], pb_utils.TritonError("both"))


def returns_error_code(request):
    code = pb_utils.TritonError.INVALID_ARG
    return pb_utils.InferenceResponse(error=pb_utils.TritonError("with a code", code))


def raises_triton(request):
    raise pb_utils.TritonModelException("raised by the model")


def raises_value(request):
    return int("seven")


def raises_key(request):
    return {}["missing"]


def raises_own(request):
    class OddError(Exception):
        def __str__(self):
            return "odd: 100%"

    raise OddError


def raises_assertion(request):
    raise AssertionError


def raises_from(request):
    try:
        raises_value(request)
    except ValueError as error:
        raise RuntimeError("the outer one") from error


def returns_a_number(request):
    return 7


def returns_a_tensor(request):
    return _out(np.ones(1, np.float32))


def describe(request):
    return _report(
        {
            "request_id": request.request_id(),
            "correlation_id": request.correlation_id(),
            "flags": request.flags(),
            "timeout": request.timeout(),
            "parameters": json.loads(request.parameters() or "{}"),
            "outputs": sorted(request.requested_output_names()),
            "inputs": sorted([t.name(), list(t.shape()), str(t.as_numpy().dtype)] for t in request.inputs()),
            "on cpu": [t.is_cpu() for t in request.inputs()],
            "cancelled": request.is_cancelled(),
            "none": pb_utils.get_input_tensor_by_name(request, "N") is None,
        }
    )


def writes_to_input(request):
    array = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
    array *= 2
    return pb_utils.InferenceResponse([_out(array)])


def siblings(request):
    return _report([numbers.SEVEN, numbers.__doc__])


def calls_a_chain(request):
    name = _words("add_sub")
    return _report([_attempt(_call, model, {"MODEL_NAME": name, **TWO}) for model in ("bls_sync", "bls_async")])


def calls_a_sequence(request):
    start, end = pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START, pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END
    inputs = [({"IN": np.array([[n]], np.int32)}, flags) for n, flags in ((1, start), (2, 0), (3, end))]
    return _report([_attempt(_call, "sums_oldest", x, correlation_id=77, flags=flags) for x, flags in inputs])


def _collect(model, inputs, outputs=()):
    """Every response of a stream."""
    return [_told(response) for response in _request(model, inputs, outputs).exec(decoupled=True)]


def collects(request):
    some = ("final", "a!", "a final", "a bb ccc!", "error:early!", "a error:mid bb!", "raise")
    return _report({sends: _collect("streams", {"SENDS": _words(*sends.split())}) for sends in some})


def collects_some_outputs(request):
    return _report(_collect("streams", {"SENDS": _words("a", "bb", "final")}, ["TEXT"]))


def collects_of_a_plain_model(request):
    return _report(_collect("add_sub", TWO))


def is_model_ready(request):
    asked = [("add_sub",), ("add_sub", "1"), ("add_sub", "2"), ("nobody",), ("versions", "2"), ("pipeline",)]
    return _report([_attempt(pb_utils.is_model_ready, *arguments) for arguments in asked])
