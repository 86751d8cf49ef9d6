"""Advice on what a model's code did: exceptions, and answers that Triton does not take."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from bls_notebook.records.errors import ErrorRecord, FrameRecord
from bls_notebook.records.visible_text import first_line, spoken

from .context import NUMPY, Answer, Known, answers, listed, meant, signature
from .requests import about_request

_IMPORTS = {
    "np": "import numpy as np", "numpy": "import numpy", "torch": "import torch", "json": "import json",
    "pb_utils": "import triton_python_backend_utils as pb_utils", "asyncio": "import asyncio",
    "cp": "import cupy as cp", "os": "import os", "time": "import time", "pd": "import pandas as pd",
    "triton_python_backend_utils": "import triton_python_backend_utils",
}  # fmt: skip
_CHECK = "`if response.has_error(): raise pb_utils.TritonModelException(response.error().message())`"
_GIVES = re.compile(r"get_(input|output)_tensor_by_name\(.*?,\s*(?:name\s*=\s*)?(['\"])(.*?)\2")
_UNCHECKED = ("AttributeError", "IndexError", "TypeError", "KeyError", "ValueError", "StopIteration")


def about_code(record: ErrorRecord, message: str, known: Known) -> str:
    """Return what to do about what a model's code did; empty where that is not known."""
    said = next(filter(None, answers(message, _ANSWERS, record, known)), "")
    return said or (_unchecked(record, known) if record.kind in _UNCHECKED else "")


def _unchecked(record: ErrorRecord, known: Known) -> str:
    """Say what to do where the error of a request that the code sent was passed over."""
    if not record.unchecked:
        return ""
    failed = replace(record, inputs=(), chain=(*record.chain, ""))
    advice = about_request(failed, record.unchecked, known)
    said = first_line(spoken(record.unchecked), 300) + f" ({advice})" * bool(advice)
    return f"a request that it sent had failed: {said}; look at each response: {_CHECK}"


def _frame(record: ErrorRecord) -> FrameRecord | None:
    return next((frame for frame in reversed(record.frames) if frame.model), None)


def _line(record: ErrorRecord) -> str:
    """The line of the model that failed."""
    frame = _frame(record)
    return "" if frame is None else dict(frame.source).get(frame.line, "")


def _asked_for(record: ErrorRecord, attribute: str) -> tuple[str, str]:
    """Where None came from: input or output, and the name that was asked for."""
    frame = _frame(record)
    if frame is None:
        return "", ""
    line = _line(record)
    found = _GIVES.search(line)
    if found is None:
        variable = re.search(rf"(\w+)\s*\.\s*{re.escape(attribute)}\b", line)
        given = [
            _GIVES.search(text)
            for number, text in frame.source
            if variable and number < frame.line and re.match(rf"\s*{variable[1]}\s*=", text)
        ]
        found = given[-1] if given else None
    return (found[1], found[3]) if found else ("", "")


def _none(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    kind, name = _asked_for(record, found["attribute"])
    if kind != "input" and record.unchecked:
        return _unchecked(record, known)
    if kind == "output":
        return (
            f"the response has no output `{name}`: the name must be one of the callee's outputs, "
            "and one of requested_output_names"
        )
    has = signature(record.inputs)
    if kind == "input":
        model = known.find(record.chain[-1]) if record.chain else None
        spec = next((i for i in model.inputs if i.name == name), None) if model else None
        if spec is not None and spec.optional:
            return f"the optional input `{name}` was not sent: `if tensor is not None:` before it is used"
        close = meant(name, (i.name for i in record.inputs)).strip()
        return f"the request has no input `{name}`, only {has}" + f"; {close}" * bool(close)
    if "get_input_tensor_by_name" in "\n".join(text for f in record.frames for _, text in f.source):
        return f"get_input_tensor_by_name gives None for a name that the request does not have; it has {has}"
    return ""


def _tensor(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    invoked = found["invoked"]
    name = re.match(r"'(.*?)', ", invoked)
    if name is None:
        return 'the name comes first: `pb_utils.Tensor("NAME", array)`'
    model = known.find(record.chain[-1]) if record.chain else None
    every = (*model.outputs, *model.inputs) if model else ()
    datatype = next((t.datatype for t in every if t.name == name[1]), "FP32")
    numpy = NUMPY.get(datatype, "np.float32")
    return f'a tensor is made of a NumPy array: `pb_utils.Tensor("{name[1]}", np.array(value, dtype={numpy}))`'


def _undefined(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    name = found["name"]
    if name in _IMPORTS:
        return f"write `{_IMPORTS[name]}` at the top of the model's cell: it is a file of its own on Triton"
    return (
        f"define `{name}` in the model's own cell: on Triton it is a file of its own, and the notebook's "
        "variables are not there (what `initialize` makes is kept as `self.name`)"
    )


def _no_such_name(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    return meant(found["name"], known.names).strip() or f"pb_utils has {listed(known.names)}"


def _argument(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    if found["cls"] == "InferenceRequest":
        return "`pb_utils.InferenceRequest(model_name=..., requested_output_names=[...], inputs=[...])`"
    return "`pb_utils.InferenceResponse(output_tensors=[...])`, or with `error=pb_utils.TritonError(...)`"


def _text(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    if not any(tensor.datatype == "BYTES" for tensor in record.inputs):
        return ""
    return 'text arrives as bytes: `value.decode("utf-8")` makes it str'


def _returned(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    kind = found["type"].rpartition(".")[2]
    if kind == "InferenceResponse":
        return "execute returns a list, one response for each request: `return [response]`"
    if kind == "Tensor":
        return "wrap the tensors of each request in a response: `pb_utils.InferenceResponse([tensor])`"
    if kind == "generator":
        return "make it a list: `return [... for request in requests]`; for many responses, see `--decoupled`"
    return "return a list with `pb_utils.InferenceResponse([tensor])` for each request"


def _count(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    return (
        f"{found['requests']} came and {found['responses']} left: answer each one, "
        "`for request in requests: ... responses.append(pb_utils.InferenceResponse([tensor]))`"
    )


def _missing_module(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    name = found["name"].partition(".")[0]
    return f"install it for this kernel, `%pip install {name}`, or put the module beside model.py"


def _config(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    return 'it is JSON text: `json.loads(args["model_config"])`' if "model_config" in _line(record) else ""


# What messages say, and what to do then.
# fmt: off
_ANSWERS: Mapping[str, str | Answer] = {
    r"'NoneType' object has no attribute '(?P<attribute>\w+)'": _none,
    r"'RequestFuture' object|'coroutine' object (?:has no attribute|is not)":
        "async_exec gives a future: `response = await request.async_exec()`",
    r"object InferenceResponse can't be used in 'await' expression":
        "exec gives the response itself; what is awaited is `await request.async_exec()`",
    r"RuntimeError: no running event loop":
        "async_exec needs `async def execute(self, requests):`; a plain one calls `request.exec()`",
    r"'ResponseIterator' object (?:has no|is not)":
        "decoupled=True gives an iterator: `for response in request.exec(decoupled=True):`",
    r"'async for' requires .*, got Re(?:sponseIterator|questFuture)":
        "awaited once, then walked: `for response in await request.async_exec(decoupled=True):`",
    r"'InferenceResponse' object is not iterable":
        "it is one response; with `decoupled=True`, exec gives an iterator over responses",
    r"'InferenceResponse' object (?:has no attribute 'as_numpy'|is not subscriptable)":
        '`pb_utils.get_output_tensor_by_name(response, "NAME").as_numpy()`',
    r"'Tensor' object (?:has no attribute|is not subscriptable)|unsupported operand.*'Tensor'":
        "a tensor is no array: `tensor.as_numpy()` is",
    r"'list' object has no attribute '(?:_inputs|inputs|get_response_sender|_outputs)'":
        "requests is a list, `for request in requests:`, and inputs are of one request",
    r"Tensor\(arg0: str, arg1: numpy\.ndarray\)\s+Invoked with: (?P<invoked>.*)": _tensor,
    r"NumPy dtype is not supported":
        "Triton has no such dtype; text: `array.astype(np.object_)`, numbers: `.astype(np.float32)`",
    r"output_tensors must be a list of Tensor, got Tensor\(":
        "put the tensors into a list: `pb_utils.InferenceResponse([tensor])`",
    r"(?:output_tensors|inputs) must be a list of Tensor, got (?:array|\[?np\.)":
        'make tensors of the arrays: `[pb_utils.Tensor("NAME", array)]`',
    r"inputs must be a list of Tensor, got \{":
        "`inputs=[pb_utils.Tensor(name, array) for name, array in arrays.items()]`",
    r"inputs must be a list of Tensor, which is missing":
        '`inputs=[pb_utils.Tensor("NAME", array)]` and `requested_output_names=["NAME"]` are required',
    r"error must be a TritonError": '`pb_utils.InferenceResponse(error=pb_utils.TritonError("why"))`',
    r"(?P<cls>Inference\w+)\.__init__\(\) got an unexpected keyword argument '(?P<name>\w+)'": _argument,
    r"execute\(\) (?:takes|missing) .*positional argument": "`def execute(self, requests):`",
    r"initialize\(\) (?:takes|missing) .*positional argument": "`def initialize(self, args):`",
    r"finalize\(\) (?:takes|missing) .*positional argument": "`def finalize(self):`",
    r"string indices must be integers": _config,
    r"a bytes-like object is required, not 'str'|can only concatenate str \(not \"bytes\"\)|"
    r"can't concat str to bytes|'bytes' object has no attribute|argument should be.*bytes": _text,
    r"NameError: name '(?P<name>\w+)' is not defined": _undefined,
    r"module '(?:bls_notebook\.pb|triton_python_backend)_utils' has no attribute '(?P<name>\w+)'":
        _no_such_name,
    r"Tensor is stored in GPU":
        "ask for it on the CPU, `preferred_memory=pb_utils.PreferredMemory(pb_utils."
        "TRITONSERVER_MEMORY_CPU)`, or use it there: `torch.from_dlpack(tensor)`",
    r"Tensor dtype is BF16": "`torch.from_dlpack(tensor.to_dlpack()).float()`",
    r"execute returned (?:\[?None)":
        "end execute with `return responses`, a list of one InferenceResponse for each request",
    r"Expected a list in the execute return, found type '<class '(?P<type>.*?)'>'": _returned,
    r"Expected an 'InferenceResponse' object .* found type '<class '(?P<type>.*?)'>'": _returned,
    r"Request\(s\) size is:(?P<requests>\d+), and .*size is:(?P<responses>\d+)": _count,
    r"using the decoupled mode and the execute function must return None":
        "a decoupled model sends its responses, `sender = request.get_response_sender(); "
        "sender.send(response)`, and returns nothing; or leave `--decoupled` out",
    r"dropped (?:before|without) its final flag|without its final flag":
        "end each request with `sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)`",
    r"Non-decoupled model cannot send more than one response":
        "for many responses the model must be decoupled: `--decoupled` behind %%tritonmodel",
    r"does not implement `execute` method":
        "write `def execute(self, requests):` inside the class TritonPythonModel",
    r"BLS is only supported during the 'execute' function":
        "send requests in `execute`; in the notebook by %bls, `repo.infer(...)` or a %%bls cell",
    r"Expected all tensors to be on the same device":
        "move one to where the other is: `tensor.to(other.device)`",
    r"Torch not compiled with CUDA|Found no NVIDIA driver|No CUDA GPUs are available":
        "simulate a GPU, `%config BLSNotebook.simulated_gpus = 1`, and reload the model",
    r"No module named '(?P<name>[\w.]+)'": _missing_module,
}
# fmt: on
