"""One function for each thing that a model may do with a request. Each returns what `execute` answers."""

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


# --- how to answer ---


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


def _call(model, inputs, outputs=(), **more):
    tensors = [pb_utils.Tensor(name, array) for name, array in inputs.items()]
    request = pb_utils.InferenceRequest(model_name=model, inputs=tensors, requested_output_names=list(outputs), **more)
    return request.exec()


TWO = {"INPUT0": np.array([1, 2], np.float32), "INPUT1": np.array([3, 5], np.float32)}


# --- outputs ---


def echo(request):
    return pb_utils.InferenceResponse([_out(pb_utils.get_input_tensor_by_name(request, "X").as_numpy())])


def every_output(request):
    more = np.array([1, 2], np.int32)
    words = np.array(["x"], np.object_)
    return pb_utils.InferenceResponse([_out(np.ones(3, np.float32)), _out(more, "MORE"), _out(words, "REPORT")])


def other_dtype(request):
    return pb_utils.InferenceResponse([_out(np.array([1, 2], np.int16))])


def other_shape(request):
    return pb_utils.InferenceResponse([_out(np.zeros((2, 2), np.int32), "MORE")])


def scalar(request):
    return pb_utils.InferenceResponse([_out(np.array(2.5, np.float32))])


def empty(request):
    return pb_utils.InferenceResponse([_out(np.zeros((0, 3), np.float32))])


def strided(request):
    return pb_utils.InferenceResponse([_out(np.arange(12, dtype=np.float32)[::-3])])


def fortran(request):
    return pb_utils.InferenceResponse([_out(np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)))])


def big_endian(request):
    return _report(_attempt(lambda: pb_utils.Tensor("OUT", np.array([1, 2], ">f4"))))


def words_of_all_kinds(request):
    words = np.array([b"a\0b", "é", b"", b"\xff\xfe", "end"], np.object_)
    return pb_utils.InferenceResponse([_out(words, "REPORT")])


def fixed_width_words(request):
    return pb_utils.InferenceResponse([_out(np.array([b"ab", b"c"], "S4"), "REPORT")])


def no_outputs(request):
    return pb_utils.InferenceResponse([])


def unknown_output(request):
    return pb_utils.InferenceResponse([_out(np.ones(1, np.float32), "NOBODY"), _out(np.ones(1, np.float32))])


def same_output_twice(request):
    return pb_utils.InferenceResponse([_out(np.zeros(1, np.float32)), _out(np.ones(2, np.float32))])


def unsupported_dtypes(request):
    kinds = ["complex64", "datetime64[s]", "timedelta64[s]", "U3", "float128", "S2", "V4"]
    return _report({kind: _attempt(lambda kind=kind: pb_utils.Tensor("T", np.zeros(1, kind))) for kind in kinds})


def wrong_arguments(request):
    return _report(
        [
            _attempt(pb_utils.Tensor, "T", [1, 2]).split(":")[0],
            _attempt(pb_utils.Tensor, 7, np.zeros(1)).split(":")[0],
            _attempt(pb_utils.InferenceRequest, model_name="").split(":")[0],
        ]
    )


# --- errors ---


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


# --- requests ---


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


# --- calls of other models ---


def calls_add_sub(request):
    return _report(_attempt(_call, "add_sub", TWO))


def calls_for_one_output(request):
    return _report(_attempt(_call, "add_sub", TWO, ["OUTPUT1"]))


def calls_for_an_output_twice(request):
    return _report(_attempt(_call, "add_sub", TWO, ["OUTPUT1", "OUTPUT1"]))


def calls_for_an_unknown_output(request):
    return _report(_attempt(_call, "add_sub", TWO, ["OUTPUT9"]))


def calls_nobody(request):
    return _report(_attempt(_call, "nobody", TWO))


def calls_no_such_version(request):
    return _report(_attempt(_call, "versions", {"IN": np.zeros(1, np.float32)}, model_version=2))


def calls_a_version(request):
    return _report(_attempt(_call, "versions", {"IN": np.zeros(1, np.float32)}, model_version=1))


def calls_without_an_input(request):
    return _report(_attempt(_call, "add_sub", {"INPUT0": TWO["INPUT0"]}))


def calls_with_an_unknown_input(request):
    return _report(_attempt(_call, "add_sub", {"INPUT0": TWO["INPUT0"], "INPUT9": TWO["INPUT1"]}))


def calls_with_too_many_inputs(request):
    return _report(_attempt(_call, "add_sub", {**TWO, "INPUT9": TWO["INPUT1"]}))


def calls_with_a_wrong_dtype(request):
    return _report(_attempt(_call, "add_sub", {name: array.astype(np.int32) for name, array in TWO.items()}))


def calls_with_a_wrong_shape(request):
    return _report(_attempt(_call, "add_sub", {name: array[None] for name, array in TWO.items()}))


def calls_with_too_large_a_batch(request):
    return _report(_attempt(_call, "batched", {"IN0": np.zeros((5, 1), np.float32)}))


def calls_with_a_batch(request):
    return _report(_attempt(_call, "batched", {"IN0": np.zeros((4, 2), np.float32)}))


def calls_with_an_empty_batch(request):
    return _report(_attempt(_call, "batched", {"IN0": np.zeros((0, 1), np.float32)}))


def calls_without_the_required_input(request):
    return _report(_attempt(_call, "batched", {"IN2": np.zeros((1, 2, 2), np.uint8)}))


def calls_with_reshapes(request):
    inputs = {"IN0": np.ones(1, np.float32), "IN1": np.ones((2, 3), np.int32)}
    return _report(_attempt(_call, "reshaped", {**inputs, "IN2": np.array(["a", "b"], np.object_)}))


def calls_one_that_returns_an_error(request):
    return _report(_attempt(_call, "script", {"DO": np.array(["returns_error"], np.object_)}))


def calls_one_that_disagrees(request):
    return _report(_attempt(_call, "add_sub", {**TWO, "INPUT1": np.zeros(3, np.float32)}))


def calls_an_ensemble(request):
    return _report(_attempt(_call, "pipeline", {"A": TWO["INPUT0"], "B": TWO["INPUT1"]}))


def calls_a_chain(request):
    name = np.array(["add_sub"], np.object_)
    return _report([_attempt(_call, model, {"MODEL_NAME": name, **TWO}) for model in ("bls_sync", "bls_async")])


def calls_a_chain_to_nobody(request):
    return _report(_attempt(_call, "bls_sync", {"MODEL_NAME": np.array(["nobody"], np.object_), **TWO}))


def calls_without_a_sequence(request):
    return _report(_attempt(_call, "sums_direct", {"IN": np.zeros((1, 1), np.int32)}))


def calls_a_sequence(request):
    steps = [(1, pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START), (2, 0)]
    steps.append((3, pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END))
    return _report(
        [
            _attempt(_call, "sums_oldest", {"IN": np.array([[n]], np.int32)}, correlation_id=77, flags=flags)
            for n, flags in steps
        ]
    )


def calls_without_decoupled(request):
    return _report(_attempt(_call, "streams", {"SENDS": np.array(["a", "final"], np.object_)}))


def collects(request):
    """Every stream, by what it was asked to send."""
    seen = {}
    for sends in ("final", "a!", "a final", "a bb ccc!", "error:early!", "a error:mid bb!", "raise"):
        tensor = pb_utils.Tensor("SENDS", np.array(sends.split(), np.object_))
        stream = pb_utils.InferenceRequest(model_name="streams", inputs=[tensor], requested_output_names=[]).exec(
            decoupled=True
        )
        seen[sends] = [_told(response) for response in stream]
    return _report(seen)


def collects_some_outputs(request):
    tensor = pb_utils.Tensor("SENDS", np.array(["a", "bb", "final"], np.object_))
    stream = pb_utils.InferenceRequest(model_name="streams", inputs=[tensor], requested_output_names=["TEXT"]).exec(
        decoupled=True
    )
    return _report([_told(response) for response in stream])


def collects_of_a_plain_model(request):
    tensors = [pb_utils.Tensor(name, array) for name, array in TWO.items()]
    stream = pb_utils.InferenceRequest(model_name="add_sub", inputs=tensors, requested_output_names=[]).exec(
        decoupled=True
    )
    return _report([_told(response) for response in stream])


def describes_a_call(request):
    response = _call(
        "script",
        {"DO": np.array(["describe"], np.object_)},
        ["REPORT"],
        request_id="r 1",
        correlation_id=5,
        flags=3,
        timeout=99_000_000,
        parameters={"n": 1, "b": True, "s": "é"},
    )
    return _report(_told(response))


def is_model_ready(request):
    asked = [("add_sub",), ("add_sub", "1"), ("add_sub", "2"), ("nobody",), ("versions", "2"), ("pipeline",)]
    return _report([_attempt(pb_utils.is_model_ready, *arguments) for arguments in asked])
