"""What to do about an error: from what is known of it to one line, with code to paste.

Asked when an error is shown, never when it happens. Any text is accepted as a message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from math import prod
from pathlib import Path

from . import units
from .errors import ErrorRecord, FrameRecord, InputSeen
from .repository import ModelRecord, TensorSpecRecord
from .visible_text import first_line, spoken

NUMPY = {
    "BOOL": "np.bool_", "UINT8": "np.uint8", "UINT16": "np.uint16", "UINT32": "np.uint32",
    "UINT64": "np.uint64", "INT8": "np.int8", "INT16": "np.int16", "INT32": "np.int32", "INT64": "np.int64",
    "FP16": "np.float16", "FP32": "np.float32", "FP64": "np.float64", "BYTES": "np.object_",
}  # fmt: skip
"""NumPy's names of Triton's data types; it has none for BF16."""

_MOST_NAMES = 8  # names in a list


@dataclass(frozen=True)
class Known:
    """The models as they are now.

    ``find`` gives the newest version that serves, ``every`` all that is known of, ``names`` are the names of
    `pb_utils`.
    """

    find: Callable[[str], ModelRecord | None] = lambda _: None
    every: Callable[[], Sequence[ModelRecord]] = tuple
    names: Sequence[str] = ()


Answer = Callable[["re.Match[str]", ErrorRecord, Known], str]


def answers(message: str, table: Mapping[str, str | Answer], record: ErrorRecord, known: Known) -> Iterator[str]:
    """Yield what a table of patterns, in its order, has to say about a message; ``{name}`` is a group."""
    for pattern, answer in table.items():
        if found := re.search(pattern, message):
            yield (answer.format(**found.groupdict()) if isinstance(answer, str) else answer(found, record, known))


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the name that was probably meant, empty if none comes near."""
    names = list(dict.fromkeys(known))
    for name in names:
        if name.casefold() == word.casefold():
            return name
    import difflib  # first needed here

    found = difflib.get_close_matches(word, names, 1, 0.7)
    if not found:
        within = [n for n in names if len(word) > 2 and (n.startswith(word) or word.startswith(n))]
        found = within if len(within) == 1 else []
    return found[0] if found else ""


def meant(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean `NAME`? ``, empty if no name comes near."""
    name = nearest(word, known)
    return f"did you mean `{name}`? " if name else ""


def listed(names: Iterable[str]) -> str:
    """Spell names as a list, in which many become few."""
    return units.listed([f"`{name}`" for name in names], _MOST_NAMES) or "none"


def signature(tensors: Sequence[TensorSpecRecord | InputSeen], batch: bool = False) -> str:
    """Spell tensors with their data types and shapes."""
    told = []
    for tensor in tensors[:_MOST_NAMES]:
        dims = tensor.dims if isinstance(tensor, TensorSpecRecord) else tensor.shape
        shape = ", ".join(["batch"] * batch + [str(n) for n in dims])
        optional = " (optional)" if isinstance(tensor, TensorSpecRecord) and tensor.optional else ""
        told.append(f"`{tensor.name}` {tensor.datatype} [{shape}]{optional}")
    more = f", and {len(tensors) - _MOST_NAMES} more" if len(tensors) > _MOST_NAMES else ""
    return ", ".join(told) + more or "none"


def ask_for(name: str) -> str:
    """Say how a model that is in the repository's folder is loaded."""
    return f"load it first: `%tritonrepo load {name}` or `repo.load({name!r})`"


def missing_model(name: str, known: Known, version: int = -1) -> str:
    """Say what to do about a model that does not serve."""
    rows = known.every()
    ready = {row.name for row in rows if row.state == "READY"}
    own = [row for row in rows if row.name == name]
    if name in ready:
        versions = ", ".join(str(row.version) for row in own if row.state == "READY")
        return f"`{name}` serves version {versions}: ask for that, or leave the version out"
    failed = next((row.reason for row in own if row.reason not in ("", "not loaded", "unloaded")), "")
    if failed and any(row.state == "UNAVAILABLE" for row in own):
        return f"`{name}` could not be loaded: {failed.strip().partition(chr(10))[0][:300]}"
    if own:
        return ask_for(name)
    close = nearest(name, sorted(ready))
    if close:
        return f"did you mean `{close}`? Models that serve: {listed(sorted(ready))}"
    close = nearest(name, sorted({row.name for row in rows} - ready))
    if close:
        return f"did you mean `{close}`? If so, {ask_for(close)}"
    return (
        f"define it in a cell, `%%tritonmodel {name}`, or name the folder that it is in, "
        f"`%tritonrepo use FOLDER`, and `%tritonrepo load {name}`; models that serve: {listed(sorted(ready))}"
    )


Shape = tuple[int, ...]
_MOST_DIMS = 6  # of arrays that permutations are tried for


def _takes(model: ModelRecord | None, name: str) -> str:
    if model is None:
        return ""
    return f"`{name}` takes {signature(model.inputs, model.max_batch_size > 0)}"


def _no_inputs(name: str, datatype: str = "FP32", dims: str = "[-1]") -> str:
    return (
        f"the model's configuration declares no inputs: give them with `--input {name} {datatype} {dims}` "
        "behind %%tritonmodel, in a %%tritonconfig cell, or in `auto_complete_config`"
    )


def _unexpected_input(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    wrong, name = found["input"], found["model"]
    model = known.find(name)
    if model is None:
        return ""
    if not model.inputs:
        return _no_inputs(wrong)
    sent = {tensor.name for tensor in record.inputs}
    return meant(wrong, (i.name for i in model.inputs if i.name not in sent)) + _takes(model, name)


def _wrong_count(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    name = found["model"]
    model = known.find(name)
    if model is None:
        return ""
    sent = [tensor.name for tensor in record.inputs] or re.findall(r"'(.*?)'", found["got"])
    declared = [i.name for i in model.inputs]
    extra = [each for each in sent if each not in declared]
    missing = [i for i in model.inputs if i.name not in sent and not i.optional]
    if not declared and extra:
        return _no_inputs(extra[0])
    for each in extra:
        close = nearest(each, (i.name for i in missing))
        if close:
            return f"did you mean `{close}` by `{each}`? {_takes(model, name)}"
    if extra:
        return f"leave out {listed(extra)}: {_takes(model, name)}"
    if missing:
        return f"send {signature(missing, model.max_batch_size > 0)} too: {_takes(model, name)}"
    return _takes(model, name)


def _wrong_datatype(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    name, got, wanted = found["input"], found["got"], found["wanted"]
    if wanted == "BF16":
        made = f"pb_utils.Tensor.from_dlpack({name!r}, tensor.bfloat16())"
        return f"NumPy has no BF16, PyTorch has: `{made}`"
    if wanted == "BYTES":
        return f'send text: `np.array(["some text"], dtype=np.object_)` for `{name}`'
    numpy = NUMPY.get(wanted)
    if numpy is None:
        return ""
    if got == "BYTES":
        return f"send numbers: `np.array([1, 2, 3], dtype={numpy})` for `{name}`"
    why = {"FP64": " (float64 is NumPy's default)", "INT64": " (int64 is NumPy's default)"}
    by_default = why.get(got, "")
    return f"convert it: `{name}.astype({numpy})`{by_default}, or declare {got} in the configuration"


def _wrong_shape(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    name, batched = found["input"], "NOTE: Setting a non-zero max_batch_size" in found.string
    wanted, got = _numbers(found["wanted"]), _numbers(found["got"])
    spelled = f"[{', '.join(map(str, wanted))}]"
    if batched and _fits(got, wanted[1:]):
        shape = ", ".join(map(str, (1, *got)))
        advice = f"the first dimension is the batch, so send [{shape}]: `{name}[None]`"
        if len(wanted) > 1 and wanted[1] == -1:
            dims = ", ".join(map(str, wanted[2:]))
            advice += (
                f"; or, if {got[0]} is the batch, leave it out of the configuration, `dims: [{dims}]`, "
                "because max_batch_size adds it"
            )
        return advice
    if not batched and len(got) == len(wanted) + 1 and _fits(got[1:], wanted):
        if got[0] == 1:
            return f"the model does not batch, so send it without the batch dimension: `{name}[0]`"
        return (
            f"the model does not batch: send the rows one by one, `{name}[0]`, or give it "
            "`--max-batch-size 8`, with which its inputs get a batch dimension in front"
        )
    first = (-1,) * (batched and wanted[:1] == (-1,))
    order = _order(got, wanted)
    if order:
        return f"the dimensions are in another order: `{name}.transpose({', '.join(map(str, order))})`"
    fixed = wanted[len(first) :]
    whole, row = prod(got), 0 if -1 in fixed else prod(fixed)
    if row and (whole == row or (first and whole % row == 0)):
        return f"as many elements in another shape: `{name}.reshape({', '.join(map(str, (*first, *fixed)))})`"
    any_size = ", where -1 is any size" * (-1 in wanted) + " and the first dimension is the batch" * batched
    return f"send `{name}` of shape {spelled}{any_size}, or change its dims in the model's configuration"


def _numbers(text: str) -> Shape:
    return tuple(int(number) for number in text.split(",") if number.strip())


def _fits(got: Shape, wanted: Shape) -> bool:
    return len(got) == len(wanted) and all(w in (-1, g) for g, w in zip(got, wanted, strict=True))


def _order(got: Shape, wanted: Shape) -> Shape:
    """The order that makes the dimensions right; empty where none does."""
    if len(got) != len(wanted) or not 1 < len(got) <= _MOST_DIMS:
        return ()
    orders = [o for o in permutations(range(len(got))) if _fits(tuple(got[i] for i in o), wanted)]
    # Where channels move to the other end, the rest stays in its order.
    orders.sort(key=lambda order: sum(b < a for a, b in pairwise(order)))
    return orders[0] if orders else ()


def _no_batch(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    model = known.find(found["model"])
    spec = next((i for i in model.inputs if i.name == found["input"]), None) if model else None
    dims = ", ".join(str(max(1, n)) for n in (1, *(spec.dims if spec else (1,))))
    return f"a single number has no dimensions; send one row: `np.reshape({found['input']}, ({dims}))`"


def _too_large(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    limit, model = int(found["limit"]), found["model"]
    rows = max((t.shape[0] for t in record.inputs if t.shape), default=0)
    name = record.inputs[0].name if record.inputs else "array"
    parts = f"`np.array_split({name}, {-(-rows // limit)})` makes the pieces" if rows else "send fewer rows"
    return f"send at most {limit} rows a request ({parts}), or raise max_batch_size of `{model}`"


def _unexpected_output(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    model = known.find(found["model"])
    if model is None:
        return ""
    names = [o.name for o in model.outputs]
    return f"{meant(found['output'], names)}The outputs of `{model.name}` are {listed(names)}"


def _decoupled(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    name = found["model"]
    if len(record.chain) > 1 or record.frames:
        return f"`{name}` gives any number of responses: `for response in request.exec(decoupled=True):`"
    return (
        f"`{name}` gives any number of responses: `%bls {name} ... --stream`, "
        f"`for response in repo.stream({name!r}, inputs):`, or in a model `request.exec(decoupled=True)`"
    )


_SEQUENCE = (
    "its first request starts a sequence: `%bls {model} ... --sequence 1:start`, or `correlation_id=1, "
    "flags=pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START`"
)
_MODEL, _INPUT = r"for model '(?P<model>.*?)'", r"input '(?P<input>.*?)'"
_DIMS = r"(?:-?[0-9]{1,19}(?:,-?[0-9]{1,19})*)?"
# What messages say, and what to do then.
# fmt: off
_REQUEST_REMEDIES: Mapping[str, str | Answer] = {
    rf"unexpected inference {_INPUT} {_MODEL}": _unexpected_input,
    rf"expected .{{0,60}}inputs.* but got \d+ inputs {_MODEL}\. Got input\(s\) (?P<got>\[.*?\])":
        _wrong_count,
    rf"{_INPUT} data-type is '(?P<got>\w+)', but model '(?P<model>.*?)' expects '(?P<wanted>\w+)'":
        _wrong_datatype,
    rf"unexpected shape for {_INPUT} {_MODEL}\. "
    rf"Expected \[(?P<wanted>{_DIMS})\], got \[(?P<got>{_DIMS})\]": _wrong_shape,
    rf"{_INPUT} has no shape but model requires batch dimension for '(?P<model>.*?)'": _no_batch,
    rf"{_INPUT} batch size does not match other inputs":
        "the first dimension, the batch, must be the same for all inputs",
    r"batch-size must be <= (?P<limit>[1-9][0-9]{0,18}) for '(?P<model>.*?)'": _too_large,
    rf"unexpected inference output '(?P<output>.*?)' {_MODEL}": _unexpected_output,
    r"Model '(?P<model>.*?)' is not ready":
        lambda found, record, known: missing_model(found["model"], known),
    r"Model (?P<model>\S+) is using the decoupled\.": _decoupled,
    r"model '(?P<model>.*?)' must specify a non-zero or non-empty correlation ID": _SEQUENCE,
    r"to model '(?P<model>.*?)' must specify the START flag": _SEQUENCE,
    r"input '(?P<input>.*?)' already exists in request": "send `{input}` once",
    r"^Request timeout expired":
        "it waited in the queue for longer than its timeout: more instances, or a longer timeout",
    r"Exceeds maximum queue size":
        "fewer requests at once, more instances, or a larger max_queue_size in default_queue_policy",
    r"out of bounds index 0: request has 0 inputs":
        "a model that batches needs an input, whose first dimension is the batch",
}
# fmt: on


_IMPORTS = {
    "np": "import numpy as np", "numpy": "import numpy", "torch": "import torch", "json": "import json",
    "pb_utils": "import triton_python_backend_utils as pb_utils", "asyncio": "import asyncio",
    "cp": "import cupy as cp", "os": "import os", "time": "import time", "pd": "import pandas as pd",
    "triton_python_backend_utils": "import triton_python_backend_utils",
}  # fmt: skip
_CHECK = "`if response.has_error(): raise pb_utils.TritonModelException(response.error().message())`"
_GIVES = re.compile(r"get_(input|output)_tensor_by_name\(.*?,\s*(?:name\s*=\s*)?(['\"])(.*?)\2")
_UNCHECKED = ("AttributeError", "IndexError", "TypeError", "KeyError", "ValueError", "StopIteration")


def _request_remedy(record: ErrorRecord, message: str, known: Known) -> str:
    return next(answers(message, _REQUEST_REMEDIES, record, known), "")


def _code_remedy(record: ErrorRecord, message: str, known: Known) -> str:
    said = next(filter(None, answers(message, _CODE_REMEDIES, record, known)), "")
    return said or (_unchecked(record, known) if record.kind in _UNCHECKED else "")


def _unchecked(record: ErrorRecord, known: Known) -> str:
    """Say what to do where the error of a request that the code sent was passed over."""
    if not record.unchecked:
        return ""
    failed = replace(record, inputs=(), chain=(*record.chain, ""))
    advice = _request_remedy(failed, record.unchecked, known)
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
    model = known.find(record.chain[-1]) if record.chain else None
    every = (*model.outputs, *model.inputs) if model else ()
    datatype = next((t.datatype for t in every if t.name == found["name"]), "FP32")
    value = f"np.array(value, dtype={NUMPY.get(datatype, 'np.float32')})"
    return f'a tensor is made of a NumPy array: `pb_utils.Tensor("{found["name"]}", {value})`'


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


def _text(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    if not any(tensor.datatype == "BYTES" for tensor in record.inputs):
        return ""
    return 'text arrives as bytes: `value.decode("utf-8")` makes it str'


def _config(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    return 'it is JSON text: `json.loads(args["model_config"])`' if "model_config" in _line(record) else ""


# What messages say, and what to do then.
# fmt: off
_RETURNED = r"Expected (?:a list in the execute return|an 'InferenceResponse' object .*), found type"
_CODE_REMEDIES: Mapping[str, str | Answer] = {
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
    r"Tensor\(arg0: str, arg1: numpy\.ndarray\)\s+Invoked with: '(?P<name>.*?)', ": _tensor,
    r"Tensor\(arg0: str, arg1: numpy\.ndarray\)\s+Invoked with":
        'the name comes first: `pb_utils.Tensor("NAME", array)`',
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
    r"InferenceRequest\.__init__\(\) got an unexpected keyword argument":
        "`pb_utils.InferenceRequest(model_name=..., requested_output_names=[...], inputs=[...])`",
    r"InferenceResponse\.__init__\(\) got an unexpected keyword argument":
        "`pb_utils.InferenceResponse(output_tensors=[...])`, or with `error=pb_utils.TritonError(...)`",
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
    rf"{_RETURNED} '<class '[\w.]*InferenceResponse'>'":
        "execute returns a list, one response for each request: `return [response]`",
    rf"{_RETURNED} '<class '[\w.]*Tensor'>'":
        "wrap the tensors of each request in a response: `pb_utils.InferenceResponse([tensor])`",
    rf"{_RETURNED} '<class 'generator'>'":
        "make it a list: `return [... for request in requests]`; for many responses, see `--decoupled`",
    _RETURNED: "return a list with `pb_utils.InferenceResponse([tensor])` for each request",
    r"Request\(s\) size is:(?P<requests>\d+), and .*size is:(?P<responses>\d+)":
        "{requests} came and {responses} left: answer each one, "
        "`for request in requests: ... responses.append(pb_utils.InferenceResponse([tensor]))`",
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
    r"No module named '(?P<name>\w+)":
        "install it for this kernel, `%pip install {name}`, or put the module beside model.py",
}
# fmt: on


_MOST_CHARACTERS = 4000  # characters of a message that are looked at
_CLASS = re.compile(r"^class\s+(\w+)", re.MULTILINE)


def advised(record: ErrorRecord, known: Known) -> ErrorRecord:
    """Return an error with what to do about it, where that is known."""
    if record.hint:
        return record
    message = record.message[:_MOST_CHARACTERS]
    hint = _request_remedy(record, message, known) or _code_remedy(record, message, known)
    return replace(record, hint=hint) if hint else record


def about_loading(record: ErrorRecord, file: Path | None = None) -> ErrorRecord:
    """Return the error of a model that could not be loaded with what to do; `file` has its code."""
    message = record.message[:_MOST_CHARACTERS]
    if "has no attribute 'TritonPythonModel'" in message:
        try:
            classes = _CLASS.findall("" if file is None else file.read_text("utf-8", "replace"))
        except OSError:
            classes = []
        found = nearest("TritonPythonModel", classes) or (classes[0] if len(classes) == 1 else "")
        hint = (
            f"rename the class `{found}`: `class TritonPythonModel:`"
            if found
            else "Triton looks for `class TritonPythonModel:` with `def execute(self, requests):` in it"
        )
    elif "'await' outside async function" in message:
        hint = "`async def execute(self, requests):`"
    else:
        hint = _code_remedy(record, message, Known())
    return replace(record, hint=hint) if hint else record
