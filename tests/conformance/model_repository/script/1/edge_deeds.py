"""Deeds at the edges of the API: empty and strided arrays, elements of texts, DLPack, and what objects keep."""

import copy
import gc

import numpy as np
import triton_python_backend_utils as pb_utils
from deeds import _report, _words

FLOAT = np.arange(3, dtype=np.float32)


def _told(value):
    if isinstance(value, np.ndarray):
        return [str(value.dtype), value.shape, [_told(e) for e in value.ravel().tolist()], value.flags.writeable]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, pb_utils.Tensor):
        return [value.name(), _told(value.as_numpy())]
    if isinstance(value, pb_utils.InferenceResponse):
        return value.error().message() if value.has_error() else [_told(t) for t in value.output_tensors()]
    return [_told(each) for each in value] if isinstance(value, (list, tuple)) else value


def _kind(call, *arguments):
    """What a call returned, or the class of its exception: the words of some are pybind's."""
    try:
        return _told(call(*arguments))
    except Exception as error:
        return type(error).__name__


def _echo(kind, array, name=None):
    """What `identity` returns for an array."""
    name = name if name is not None else f"{kind}_{max(np.ndim(array), 1)}"
    tensor = pb_utils.Tensor(name, array)
    call = pb_utils.InferenceRequest(model_name="identity", inputs=[tensor], requested_output_names=[name])
    return call.exec()


def empty_arrays(request):
    shapes = [(0,), (0, 3), (2, 0), ()]
    return _report(
        [_kind(_echo, kind, np.zeros(s, d)) for kind, d in (("FP32", "f4"), ("STRING", "O")) for s in shapes]
    )


def arrays_with_strides(request):
    grid = np.arange(6, dtype=np.float32).reshape(2, 3)
    windows = np.lib.stride_tricks.sliding_window_view(FLOAT, 2)
    some = [grid.T, np.asfortranarray(grid), grid[::-1], grid[:, ::2], np.broadcast_to(FLOAT[1], (2, 2)), windows]
    texts = _words(b"a", b"bb", b"c", b"dd").reshape(2, 2)
    return _report([
        *(_kind(_echo, "FP32", array) for array in some),
        *(_kind(_echo, "STRING", array) for array in (texts.T, texts[::-1], texts[:, 1:])),
    ])  # fmt: skip


def odd_bools(request):
    some = [np.array([0, 2, 255], np.uint8).view(np.bool_), np.array([True, False])[::-1], np.array([1, 0], np.uint8)]
    return _report([_kind(_echo, "BOOL", array) for array in some] + [_kind(_echo, "UINT8", np.array([True]))])


def elements_of_texts(request):
    some = [
        None, 3, 1.5, True, "é", np.str_("x"), np.bytes_(b"y"), bytearray(b"z"), [1], (1, 2), {}, np.int64(4),
        np.float32(0.1), "\udc80", "a\0b", np.zeros(1), float("nan"), 1j,
    ]  # fmt: skip
    return _report([_kind(_echo, "STRING", _words(each)) for each in some])


def elements_of_texts_that_are_not_sent(request):
    return _report([_kind(pb_utils.Tensor, "X", _words(each)) for each in (None, 3, "é", bytearray(b"z"))])


def fixed_texts(request):
    some = [["a", "bcd"], [b"a\0", b"b\0\0c"], [["x"], ["yy"]], [b""], [""]]
    return _report([_kind(_echo, "STRING", np.array(each)) for each in some])


def types_of_arrays(request):
    some = [
        "f2",
        "f4",
        "f8",
        "i1",
        "i2",
        "i4",
        "i8",
        "u1",
        "u2",
        "u4",
        "u8",
        "?",
        "c8",
        "c16",
        "M8[s]",
        "m8[s]",
        "V4",
        "g",
        ">f4",
        ">i8",
        "<f4",
        "U3",
        "S3",
    ]
    return _report([_kind(pb_utils.Tensor, "X", np.zeros(2, each)) for each in some])


def other_arrays(request):
    masked, record = np.ma.array([1.0, 2.0], mask=[0, 1]), np.zeros(2, [("a", "f4")])
    some = [
        masked,
        record,
        FLOAT[0],
        3,
        "x",
        None,
        [1.0],
        FLOAT.view(type("Own", (np.ndarray,), {})),
        FLOAT.view(np.recarray),
    ]
    return _report([_kind(pb_utils.Tensor, "X", each) for each in some])


def arrays_that_are_read_only(request):
    array = FLOAT.copy()
    array.flags.writeable = False
    tensor = pb_utils.Tensor("X", array)
    exported = pb_utils.Tensor.from_dlpack("Y", tensor.to_dlpack())
    return _report([_told(tensor), _told(exported), _kind(_echo, "FP32", array)])


def names_of_tensors(request):
    names = ["", "é", b"x", None, 3, "a b", "x" * 300]
    return _report([_kind(lambda name=name: pb_utils.Tensor(name, FLOAT).name()) for name in names])


def uses_of_a_tensor(request):
    tensor = pb_utils.Tensor("X", FLOAT)
    uses = [copy.copy, copy.deepcopy, len, bool, lambda t: t[0], lambda t: t == t, lambda t: t == copy, hash]
    got = [_kind(use, tensor) for use in uses[:-1]]
    return _report([*got, tensor.shape(), type(tensor.shape()).__name__, tensor.as_numpy() is tensor.as_numpy()])


def shapes_of_tensors(request):
    some = [np.zeros((2, 0), np.float32), np.zeros((), np.float32), np.array(["a", "b"]), _words(b"a")]
    return _report([pb_utils.Tensor("X", each).shape() for each in some])


def types_by_dlpack(request):
    def through(array):
        return pb_utils.Tensor.from_dlpack("Y", pb_utils.Tensor("X", array).to_dlpack())

    types = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]
    some = [np.ones(2, each) for each in types] + [np.zeros(shape, np.float32) for shape in ((), (1, 0), (0,))]
    return _report([_kind(through, array) for array in some])


def capsules_that_are_used_twice(request):
    capsule = pb_utils.Tensor("X", FLOAT.copy()).to_dlpack()
    return _report([_kind(pb_utils.Tensor.from_dlpack, "Y", capsule) for _ in range(2)])


def arrays_after_their_response(request):
    response = _echo("FP32", FLOAT)
    tensor = response.output_tensors()[0]
    array = tensor.as_numpy()
    del response
    gc.collect()
    first = _told(array)
    del tensor
    gc.collect()
    return _report([first, _told(array)])


def lists_of_a_response(request):
    tensor, given = pb_utils.Tensor("OUT", FLOAT), []
    response = pb_utils.InferenceResponse([tensor, tensor])
    response.output_tensors().append(tensor)
    later = pb_utils.InferenceResponse(given)
    given.append(tensor)
    found = pb_utils.get_output_tensor_by_name(response, "OUT") is not None
    none = pb_utils.get_output_tensor_by_name(response, "NO")
    return _report([len(response.output_tensors()), len(later.output_tensors()), found, none, response.error()])


def fields_of_a_request(request):
    tensor = pb_utils.Tensor("X", FLOAT)
    made = pb_utils.InferenceRequest(
        model_name="m", inputs=[tensor], requested_output_names=["OUT", "OUT"], request_id="a", correlation_id=3,
        timeout=7, flags=1, parameters={"a": 1, "b": "x", "c": True},
    )  # fmt: skip
    made.inputs().append(tensor)
    got = [made.request_id(), made.correlation_id(), made.timeout(), made.flags(), made.parameters()]
    made.set_flags(2)
    got += [len(made.inputs()), sorted(made.requested_output_names()), made.flags(), made.inputs()[0] is tensor]
    return _report([*got, _kind(made.set_flags, -1), _kind(made.set_release_flags, 9)])


def texts_of_objects(request):
    error, exception = pb_utils.TritonError("lost"), pb_utils.TritonModelException
    some = [str(error), f"{error}", str(exception(error)), str(exception()), str(exception("a", 2)), str(exception(3))]
    return _report([text.partition(" at 0x")[0] for text in some])


def names_that_are_close(request):
    return _report([_kind(_echo, "", FLOAT, name) for name in ("fp32_1", "FP32_1 ", "FP32_9")])


def big_texts(request):
    return _report(len(_echo("STRING", _words(b"x" * 3_000_000, b"")).output_tensors()[0].as_numpy()[0]))


def a_list_of_texts_serialized(request):
    some = [[b"a"], _words(b"a", "é", 1, None), np.array(["x"]), np.array([b"x"]), FLOAT, np.zeros(0, object)]
    return _report([_kind(pb_utils.serialize_byte_tensor, each) for each in some])


def constants_beside_numbers(request):
    some = [pb_utils.TritonError.INVALID_ARG, pb_utils.TRITONSERVER_MEMORY_CPU, pb_utils.Logger.INFO]
    some.append(pb_utils.MetricFamily.COUNTER)
    pairs = [[each == int(each), each != int(each), int(each) == each, each in {int(each)}] for each in some]
    order = [_kind(lambda a=a, b=b: a < b) for each in some for a, b in ((each, 9), (each, each), (-1, each))]
    same = [pb_utils.TritonError("a", some[0]).code() == some[0], some[0] == some[1], hash(some[0]) == 3]
    return _report(
        [pairs, order, same, list(range(4))[some[0]], *(_kind(f) for f in (lambda: some[0] + 1, lambda: 1 - some[1]))]
    )
