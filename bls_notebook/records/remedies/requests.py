"""Advice on requests that Triton refuses, by its words for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise, permutations
from math import prod

from bls_notebook.records.errors import ErrorRecord
from bls_notebook.records.repository import ModelRecord

from .context import NUMPY, Answer, Known, answers, listed, meant, missing_model, nearest, signature

Shape = tuple[int, ...]
_MOST_DIMS = 6  # of arrays that permutations are tried for


def about_request(record: ErrorRecord, message: str, known: Known) -> str:
    """Return what to do about a request that was refused; empty where that is not known."""
    return next(answers(message, _ANSWERS, record, known), "")


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


def _batch_mismatch(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    sent = f"; sent were {signature(record.inputs)}" if record.inputs else ""
    return f"the first dimension, the batch, must be the same for all inputs{sent}"


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


def _not_ready(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    return missing_model(found["model"], known)


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
_ANSWERS: Mapping[str, str | Answer] = {
    rf"unexpected inference {_INPUT} {_MODEL}": _unexpected_input,
    rf"expected .{{0,60}}inputs.* but got \d+ inputs {_MODEL}\. Got input\(s\) (?P<got>\[.*?\])":
        _wrong_count,
    rf"{_INPUT} data-type is '(?P<got>\w+)', but model '(?P<model>.*?)' expects '(?P<wanted>\w+)'":
        _wrong_datatype,
    rf"unexpected shape for {_INPUT} {_MODEL}\. "
    rf"Expected \[(?P<wanted>{_DIMS})\], got \[(?P<got>{_DIMS})\]": _wrong_shape,
    rf"{_INPUT} has no shape but model requires batch dimension for '(?P<model>.*?)'": _no_batch,
    rf"{_INPUT} batch size does not match other inputs": _batch_mismatch,
    r"batch-size must be <= (?P<limit>[1-9][0-9]{0,18}) for '(?P<model>.*?)'": _too_large,
    rf"unexpected inference output '(?P<output>.*?)' {_MODEL}": _unexpected_output,
    r"Model '(?P<model>.*?)' is not ready": _not_ready,
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
