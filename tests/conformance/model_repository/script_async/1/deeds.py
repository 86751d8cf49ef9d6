"""Calls of other models from a running loop. Each coroutine returns what `execute` answers."""

import asyncio
import json

import numpy as np
import triton_python_backend_utils as pb_utils


def _report(value):
    text = json.dumps(value, sort_keys=True)
    return pb_utils.InferenceResponse([pb_utils.Tensor("REPORT", np.array([text], np.object_))])


def _told(response):
    if response.has_error():
        return {"error": response.error().message()}
    return {
        t.name(): [str(t.as_numpy().dtype), [str(item) for item in t.as_numpy().ravel().tolist()]]
        for t in response.output_tensors()
    }


def _request(model, inputs, **more):
    tensors = [pb_utils.Tensor(name, array) for name, array in inputs.items()]
    more.setdefault("requested_output_names", [])
    return pb_utils.InferenceRequest(model_name=model, inputs=tensors, **more)


def _pair(number):
    return {"INPUT0": np.full(3, number, np.float32), "INPUT1": np.arange(3, dtype=np.float32)}


async def echo(request):
    return pb_utils.InferenceResponse(
        [pb_utils.Tensor("OUT", pb_utils.get_input_tensor_by_name(request, "X").as_numpy())]
    )


async def raises(request):
    raise RuntimeError("raised in a coroutine")


async def returns_error(request):
    return pb_utils.InferenceResponse(error=pb_utils.TritonError("given back by a coroutine"))


async def gathers(request):
    calls = [_request("add_sub", _pair(number)).async_exec() for number in range(8)]
    return _report([_told(response) for response in await asyncio.gather(*calls)])


async def gathers_errors(request):
    calls = [
        _request("add_sub", _pair(1)),
        _request("nobody", _pair(1)),
        _request("add_sub", {}),
        _request("add_sub", _pair(2), requested_output_names=["OUTPUT9"]),
        _request("script", {"DO": np.array(["raises_triton"], np.object_)}),
    ]
    answers = await asyncio.gather(*[call.async_exec() for call in calls], return_exceptions=True)
    return _report([repr(a) if isinstance(a, Exception) else _told(a) for a in answers])


async def chains(request):
    first = await _request("add_sub", _pair(5)).async_exec()
    total = pb_utils.get_output_tensor_by_name(first, "OUTPUT0").as_numpy()
    second = await _request("pipeline", {"A": total, "B": total}).async_exec()
    return pb_utils.InferenceResponse(
        [pb_utils.Tensor("OUT", pb_utils.get_output_tensor_by_name(second, "SUM").as_numpy())]
    )


async def sync_call(request):
    return _report(_told(_request("add_sub", _pair(3)).exec()))


async def streams_side_by_side(request):
    sends = [["a", "final"], ["bb", "ccc!"], ["error:no!"], ["final"]]
    calls = [_request("streams", {"SENDS": np.array(words, np.object_)}).async_exec(decoupled=True) for words in sends]
    return _report([[_told(response) for response in stream] for stream in await asyncio.gather(*calls)])


# --- two pipelines, each in order and with calls together: `test_live_comparison.py` ---


def _rest(x):
    inputs = {"DO": np.array(["_rests"], np.object_), "X": x}
    return _request("script", inputs, requested_output_names=["OUT"])


def _out(response):
    return pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()


def _sum(*responses):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", sum(map(_out, responses)))])


async def _pair_in_order(request):
    x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
    return _sum(_rest(x).exec(), _rest(x).exec())


async def _pair_together(request):
    x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
    return _sum(*await asyncio.gather(_rest(x).async_exec(), _rest(x).async_exec()))


async def _diamond_in_order(request):
    x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
    first = _out(_rest(x).exec())
    return _sum(_rest(first).exec(), _rest(first).exec())


async def _diamond_together(request):
    x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
    first = _out(await _rest(x).async_exec())
    return _sum(*await asyncio.gather(_rest(first).async_exec(), _rest(first).async_exec()))
