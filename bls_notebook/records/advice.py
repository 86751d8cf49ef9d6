"""Remedies for errors: one line with code to paste, found by the message, the request and the models.

Displays ask for a remedy when they show an error; it costs nothing when the error happens. Any text may be a message.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, permutations
from math import prod
from pathlib import Path

from . import units
from .errors import ErrorRecord, InputSeen
from .models import ModelRecord, TensorSpecRecord, fits
from .regular_file import source_text
from .remedy_words import Remedy, remedy
from .visible_text import first_line, spoken

_MOST_NAMES = 8  # names in a list
_TEXTS = json.loads(Path(__file__).with_name("remedies.json").read_text("utf-8"))  # by patterns of messages


@dataclass(frozen=True)
class Known:
    """The current models: `find` returns the newest version in service, `every` all models; `names`: pb_utils' API.

    `elsewhere` returns a remedy for a model that another repository serves, or "". `written` are the user's
    expressions for the inputs of a request, "" for an unknown one.
    """

    find: Callable[[str], ModelRecord | None] = lambda _: None
    every: Callable[[], Sequence[ModelRecord]] = tuple
    names: Sequence[str] = ()
    elsewhere: Callable[[str], str] = lambda _: ""
    written: Mapping[str, str] = field(default_factory=dict)


RemedyText = Callable[["re.Match[str]", ErrorRecord, Known], str | Remedy]


def _answer(message: str, table: Mapping[str, str | RemedyText], record: ErrorRecord, known: Known) -> str | Remedy:
    """Return the remedy of the first pattern that matches a message and has one; ``{name}`` is a group."""
    for pattern, answer in table.items():
        if match := re.search(pattern, message):
            text = remedy(answer, **match.groupdict()) if isinstance(answer, str) else answer(match, record, known)
            if text:
                return text
    return ""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the most similar name, which was probably meant; "" if none is similar."""
    names = list(dict.fromkeys(known))
    for name in names:
        if name.casefold() == word.casefold():
            return name
    import difflib  # imported on first use

    close = difflib.get_close_matches(word, names, 1, 0.7)
    if not close:
        prefixes = [n for n in names if len(word) > 2 and (n.startswith(word) or word.startswith(n))]
        close = prefixes if len(prefixes) == 1 else []
    return close[0] if close else ""


def meant(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean `NAME`? ``, or "" if no name is similar."""
    name = nearest(word, known)
    return f"did you mean `{name}`? " if name else ""


def listed(names: Iterable[str]) -> str:
    """Return names as a list that is cut after a few."""
    return units.listed([f"`{name}`" for name in names], _MOST_NAMES) or "none"


def signature(tensors: Sequence[TensorSpecRecord | InputSeen], batch: bool = False) -> str:
    """Return tensors with their data types and shapes as text."""
    texts = []
    for tensor in tensors:
        dims = tensor.dims if isinstance(tensor, TensorSpecRecord) else tensor.shape
        shape = ", ".join((["batch"] if batch else []) + [str(n) for n in dims])
        optional = " (optional)" if isinstance(tensor, TensorSpecRecord) and tensor.optional else ""
        texts.append(f"`{tensor.name}` {tensor.datatype} [{shape}]{optional}")
    return units.listed(texts, _MOST_NAMES) or "none"


def missing_model(name: str, known: Known) -> str | Remedy:
    """Return how to get a model that is not in service."""
    if other := known.elsewhere(name):
        return other
    rows = known.every()
    ready = {row.name for row in rows if row.state == "READY"}
    own = [row for row in rows if row.name == name]
    if name in ready:
        versions = ", ".join(str(row.version) for row in own if row.state == "READY")
        return f"`{name}` has version {versions} in service: request that version, or leave the version out"
    failed = next((row.reason for row in own if row.reason not in ("", "not loaded", "unloaded")), "")
    if failed and any(row.state == "UNAVAILABLE" for row in own):
        return f"`{name}` could not be loaded: {failed.strip().partition(chr(10))[0][:300]}"
    if own:
        return remedy("load it first: {load}", name=name)
    if close := nearest(name, sorted(ready)):
        return f"did you mean `{close}`? Models in service: {listed(sorted(ready))}"
    if close := nearest(name, sorted({row.name for row in rows} - ready)):
        return remedy("did you mean `{name}`? If so, load it first: {load}", name=close)
    template = "define it, {define}, or load it from its folder: {use} and {load}; models in service: {ready}"
    return remedy(template, name=name, folder="FOLDER", ready=listed(sorted(ready)))


Shape = tuple[int, ...]
_MOST_DIMS = 6  # the largest rank for which permutations are tried


def _takes(model: ModelRecord) -> str:
    return f"`{model.name}` takes {signature(model.inputs, model.max_batch_size > 0)}"


def _no_inputs(name: str) -> str | Remedy:
    template = "the model's configuration declares no inputs: declare them with {declare}, or in `auto_complete_config`"
    return remedy(template, name=name)


def _unexpected_input(found: re.Match[str], record: ErrorRecord, known: Known) -> str | Remedy:
    if (model := known.find(found["model"])) is None:
        return ""
    if not model.inputs:
        return _no_inputs(found["input"])
    sent = {tensor.name for tensor in record.inputs}
    return meant(found["input"], (i.name for i in model.inputs if i.name not in sent)) + _takes(model)


def _wrong_count(found: re.Match[str], record: ErrorRecord, known: Known) -> str | Remedy:
    if (model := known.find(found["model"])) is None:
        return ""
    sent = [tensor.name for tensor in record.inputs] or re.findall(r"'(.*?)'", found["got"])
    declared = [i.name for i in model.inputs]
    extra = [name for name in sent if name not in declared]
    missing = [i for i in model.inputs if i.name not in sent and not i.optional]
    if not declared and extra:
        return _no_inputs(extra[0])
    for unknown in extra:
        if close := nearest(unknown, (i.name for i in missing)):
            return f"did you mean `{close}` instead of `{unknown}`? {_takes(model)}"
    if extra:
        return f"leave out {listed(extra)}: {_takes(model)}"
    if missing:
        return f"also send {signature(missing, model.max_batch_size > 0)}: {_takes(model)}"
    return f"the configuration of `{model.name}` declares an input twice: remove one declaration"


def _numpy(datatype: str) -> str:
    """Return NumPy's name of a data type; "" for BF16, which NumPy lacks, and unknown ones."""
    by_name = {"BOOL": "np.bool_", "BYTES": "np.object_"}
    name = f"np.{datatype.lower().replace('fp', 'float')}" if re.fullmatch(r"(U?INT|FP)\d\d?", datatype) else ""
    return by_name.get(datatype, name)


def _wrong_datatype(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    name, got, wanted = found["input"], found["got"], found["wanted"]
    if wanted == "BF16":
        return f"NumPy has no BF16; use PyTorch: `pb_utils.Tensor.from_dlpack({name!r}, tensor.bfloat16())`"
    if wanted == "BYTES":
        return f'send text: `np.array(["some text"], dtype=np.object_)` for `{name}`'
    if not (numpy := _numpy(wanted)):
        return ""
    if got == "BYTES":
        return f"send numbers: `np.array([1, 2, 3], dtype={numpy})` for `{name}`"
    by_default = {"FP64": " (float64 is NumPy's default)", "INT64": " (int64 is NumPy's default)"}.get(got, "")
    return f"convert it: `{name}.astype({numpy})`{by_default}, or declare {got} in the configuration"


def _wrong_shape(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    name, batched = found["input"], "NOTE: Setting a non-zero max_batch_size" in found.string
    wanted, got = _numbers(found["wanted"]), _numbers(found["got"])
    spelled = f"[{', '.join(map(str, wanted))}]"
    if batched and fits(got, wanted[1:]):
        shape = ", ".join(map(str, (1, *got)))
        advice = f"the first dimension is the batch, so send [{shape}]: `{name}[None]`"
        if len(wanted) > 1 and wanted[1] == -1:
            dims = ", ".join(map(str, wanted[2:]))
            advice += (
                f"; or, if {got[0]} is the batch size, remove that dimension from the configuration, "
                f"`dims: [{dims}]`, because max_batch_size adds it"
            )
        return advice
    if not batched and len(got) == len(wanted) + 1 and fits(got[1:], wanted):
        if got[0] == 1:
            return f"the model does not batch, so send it without the batch dimension: `{name}[0]`"
        return (
            f"the model does not batch: send the rows one by one, `{name}[0]`, or configure `max_batch_size: 8`, "
            "which adds a batch dimension in front of its inputs"
        )
    first = (-1,) if batched and wanted[:1] == (-1,) else ()
    if order := _order(got, wanted):
        return f"the dimensions are in another order: `{name}.transpose({', '.join(map(str, order))})`"
    fixed = wanted[len(first) :]
    whole, row = prod(got), 0 if -1 in fixed else prod(fixed)
    if row and whole and (whole == row or (first and whole % row == 0)):
        return f"the number of elements fits: `{name}.reshape({', '.join(map(str, (*first, *fixed)))})`"
    any_size = (", where -1 is any size" if -1 in wanted else "") + (
        " and the first dimension is the batch" if batched else ""
    )
    return f"send `{name}` with shape {spelled}{any_size}, or change its dims in the model's configuration"


def _numbers(text: str) -> Shape:
    return tuple(int(number) for number in text.split(",") if number.strip())


def _order(got: Shape, wanted: Shape) -> Shape:
    """Return the permutation that makes `got` fit `wanted`; () if there is none."""
    if len(got) != len(wanted) or not 1 < len(got) <= _MOST_DIMS:
        return ()
    orders = (o for o in permutations(range(len(got))) if fits(tuple(got[i] for i in o), wanted))
    # Prefer the fewest changes of order: moving channels to the other end keeps the rest in order.
    return min(orders, key=lambda order: sum(b < a for a, b in pairwise(order)), default=())


def _no_batch(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    model = known.find(found["model"])
    spec = next((i for i in model.inputs if i.name == found["input"]), None) if model else None
    dims = ", ".join(str(max(1, n)) for n in (1, *(spec.dims if spec else (1,))))
    return f"a single number has no dimensions; send one row: `np.reshape({found['input']}, ({dims}))`"


def _too_large(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    limit, model = int(found["limit"]), found["model"]
    spec = known.find(model)
    dims = {tensor.name: tensor.dims for tensor in spec.inputs} if spec else {}
    if any(t.name in dims and fits(t.shape, dims[t.name]) for t in record.inputs):
        names = listed([f"{t.name}[None]" for t in record.inputs if t.name in dims and fits(t.shape, dims[t.name])])
        return f"the first dimension is the batch, and is missing: send {names}"
    rows = max((t.shape[0] for t in record.inputs if t.shape), default=0)
    name = next((t.name for t in record.inputs if t.shape[:1] == (rows,)), "array")
    parts = f" (`np.array_split({name}, {-(-rows // limit)})` splits them)" if rows else ""
    return f"send at most {limit} rows per request{parts}, or raise max_batch_size of `{model}`"


def _unexpected_output(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    if (model := known.find(found["model"])) is None:
        return ""
    names = [o.name for o in model.outputs]
    return f"{meant(found['output'], names)}The outputs of `{model.name}` are {listed(names)}"


def _decoupled(found: re.Match[str], record: ErrorRecord, known: Known) -> str | Remedy:
    outside = "" if len(record.chain) > 1 or record.frames else "{stream}, or in a model "
    template = f"`{{model}}` sends any number of responses: {outside}`for response in request.exec(decoupled=True):`"
    return remedy(template, model=found["model"])


def _deadlock(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    model = known.find(found["model"])
    outputs = f" ({listed(output.name for output in model.outputs)})" if model else ""
    return (
        f"request all outputs of `{found['model']}`{outputs}: asked for fewer, Triton leaves out steps that the others "
        "need, if an output is also the input of a step; or let its model write that output twice, under two names"
    )


def _not_ready(found: re.Match[str], record: ErrorRecord, known: Known) -> str | Remedy:
    name = found["model"] or found["own"] or ""
    if found["own"] and known.find(name) is not None:  # on servers before 26.07, also a model that is not in service
        return f"`is_ready` of `{name}` does not return True: until it does, a server refuses BLS requests to it"
    return missing_model(name, known)


_MODEL, _INPUT = r"for model '(?P<model>.*?)'", r"input '(?P<input>.*?)'"
_DIMS = r"(?:-?[0-9]{1,19}(?:,-?[0-9]{1,19})*)?"
_REQUEST_REMEDIES: Mapping[str, str | RemedyText] = {
    **_TEXTS["request"],
    rf"unexpected inference {_INPUT} {_MODEL}": _unexpected_input,
    rf"expected .{{0,60}}inputs.* but got \d+ inputs {_MODEL}\. Got input\(s\) (?P<got>\[.*?\])": _wrong_count,
    rf"{_INPUT} data-type is '(?P<got>\w+)', but model '(?P<model>.*?)' expects '(?P<wanted>\w+)'": _wrong_datatype,
    rf"unexpected shape for {_INPUT} {_MODEL}\. "
    rf"Expected \[(?P<wanted>{_DIMS})\], got \[(?P<got>{_DIMS})\]": _wrong_shape,
    rf"{_INPUT} has no shape but model requires batch dimension for '(?P<model>.*?)'": _no_batch,
    r"batch-size must be <= (?P<limit>[1-9][0-9]{0,18}) for '(?P<model>.*?)'": _too_large,
    rf"unexpected inference output '(?P<output>.*?)' {_MODEL}": _unexpected_output,
    r"in ensemble '(?P<model>[^']*)', \[request id: .*?\] unexpected deadlock": _deadlock,
    r"Request for unknown model: '(?P<model>.*?)' (?:is|has|version)|Model '(?P<own>.*?)' is not ready": _not_ready,
    r"Model (?P<model>\S+) is using the decoupled\.": _decoupled,
}


_CHECK = "`if response.has_error(): raise pb_utils.TritonModelException(response.error().message())`"
_GETS_TENSOR = re.compile(r"get_(input|output)_tensor_by_name\(.*?,\s*(?:name\s*=\s*)?(['\"])(.*?)\2")
_UNCHECKED = ("AttributeError", "IndexError", "TypeError", "KeyError", "ValueError", "StopIteration")


def _code_remedy(record: ErrorRecord, message: str, known: Known) -> str | Remedy:
    found = _answer(message, _CODE_REMEDIES, record, known)
    return found or (_unchecked(record, known) if record.kind in _UNCHECKED else "")


def _unchecked(record: ErrorRecord, known: Known) -> str | Remedy:
    """Return the remedy if the model ignored an error response before it failed."""
    if not record.unchecked:
        return ""
    caller = replace(record, inputs=(), chain=(*record.chain, ""))
    advice = _answer(record.unchecked, _REQUEST_REMEDIES, caller, known)
    template = "a request that the model sent failed before: {cause}{advice}; check each response: {check}"
    cause = first_line(spoken(record.unchecked), 300).removesuffix(".")
    return remedy(template, cause=cause, advice=remedy(" ({advice})", advice=advice) if advice else "", check=_CHECK)


def _empty(found: re.Match[str], record: ErrorRecord, known: Known) -> str | Remedy:
    return _unchecked(record, known) or (
        "`get_output_tensor_by_name` returns None for an error response, and for a name that the response lacks: check "
        "`response.has_error()` and the names"
    )


def _lines(record: ErrorRecord) -> list[str]:
    """Return the lines of the model's code that are known, up to the one that failed."""
    frame = next((frame for frame in reversed(record.frames) if frame.model), None)
    return [] if frame is None else [text for number, text in frame.source if number <= frame.line]


def _missing_tensor(record: ErrorRecord, attribute: str) -> tuple[str, str]:
    """Return the kind (input or output) and the name of the tensor whose lookup returned None."""
    *before, line = _lines(record) or [""]
    variable = re.search(rf"(\w+)\s*\.\s*{re.escape(attribute)}\b", line)
    assigned = [text for text in before if variable and re.match(rf"\s*{variable[1]}\s*=", text)]
    lookup = _GETS_TENSOR.search(line) or _GETS_TENSOR.search("".join(assigned[-1:]))
    return (lookup[1], lookup[3]) if lookup else ("", "")


def _none(found: re.Match[str], record: ErrorRecord, known: Known) -> str | Remedy:
    kind, name = _missing_tensor(record, found["attribute"])
    if kind != "input" and record.unchecked:
        return _unchecked(record, known)
    if kind == "output":
        return (
            f"the response has no output `{name}`: it must be an output of the callee and be listed in "
            "requested_output_names"
        )
    has = signature(record.inputs)
    if kind == "input":
        model = known.find(record.chain[-1]) if record.chain else None
        spec = next((i for i in model.inputs if i.name == name), None) if model else None
        if spec is not None and spec.optional:
            return f"the optional input `{name}` was not sent: check `if tensor is not None:` before using it"
        close = meant(name, (i.name for i in record.inputs)).strip()
        return f"the request has no input `{name}`, only {has}" + (f"; {close}" if close else "")
    if "get_input_tensor_by_name" in "\n".join(text for f in record.frames for _, text in f.source):
        return f"get_input_tensor_by_name returns None for an input that the request lacks; it has {has}"
    return ""


def _tensor(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    model = known.find(record.chain[-1]) if record.chain else None
    every = (*model.outputs, *model.inputs) if model else ()
    datatype = next((t.datatype for t in every if t.name == found["name"]), "FP32")
    value = f"np.array(value, dtype={_numpy(datatype) or 'np.float32'})"
    return f'create a tensor from a NumPy array: `pb_utils.Tensor("{found["name"]}", {value})`'


def _undefined(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    name = found["name"]
    if line := _TEXTS["imports"].get(name):
        return f"write `{line}` at the top of the model's cell: on Triton the cell is a separate file"
    return (
        f"define `{name}` in the model's cell: on Triton the cell is a separate file without the notebook's "
        "variables (`initialize` keeps values as `self.name`)"
    )


_TOO_EARLY = {
    "annotation": "make `from __future__ import annotations` the first line of the file, or quote the annotation",
    "import": "write `import triton_python_backend_utils as pb_utils`, and `pb_utils.{name}` where it is used",
    "base": "define the class in `initialize`, or derive it from another class, such as `Exception`",
    "value": "read it in `initialize` or later: `self.name = pb_utils.{name}`",
}


def too_early(name: str, use: str) -> str:
    """Return the remedy for a name of pb_utils that is used while model.py is imported; `use`: annotation, base, ..."""
    return _TOO_EARLY[use].format(name=name)


def _missing_at_import(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    name, line = found["name"], "".join(_lines(record)[-1:]).strip()
    use = "value"
    if re.match(r"from\b.*\bimport\b", line) or "cannot import name" in found[0]:
        use = "import"
    elif line.startswith("class "):
        use = "base"
    elif re.search(rf"(->|\w\s*:)[^=]*\b{name}\b", line):
        use = "annotation"
    return f"a server adds `{name}` to pb_utils only after it has imported model.py: {too_early(name, use)}"


def _no_such_name(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    return meant(found["name"], known.names).strip() or f"pb_utils has {listed(known.names)}"


def _text(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    if not any(tensor.datatype == "BYTES" for tensor in record.inputs):
        return ""
    return 'elements of a BYTES tensor are bytes: `value.decode("utf-8")` converts them to str'


def _config(found: re.Match[str], record: ErrorRecord, known: Known) -> str:
    is_config = "model_config" in "".join(_lines(record)[-1:])
    return 'model_config is JSON text: `json.loads(args["model_config"])`' if is_config else ""


# Names that the backend adds once it has imported model.py: `ADDED` of pb_utils/stub_modules.py.
_ADDED = (
    "InferenceRe(?:quest|sponse)|Logger|MetricFamily|PreferredMemory|TRITONSERVER_MEMORY_[CG]PU|Tensor|TritonError|"
    "TritonModelException|get_model_dir|is_model_ready|load_model|unload_model"
)
_UTILS = "triton_python_backend_utils"
_CODE_REMEDIES: Mapping[str, str | RemedyText] = {
    r"'NoneType' object has no attribute '(?P<attribute>\w+)'": _none,
    r"Tensor\(arg0: str, arg1: numpy\.ndarray\)\s+Invoked with: '(?P<name>.*?)', ": _tensor,
    r"(?:Output tensor for inference response|Input tensor for request with id .*?) should not be empty": _empty,
    r"string indices must be integers": _config,
    r"a bytes-like object is required, not 'str'|can only concatenate str \(not \"bytes\"\)|"
    r"can't concat str to bytes|'bytes' object has no attribute|argument should be.*bytes": _text,
    r"NameError: name '(?P<name>\w+)' is not defined": _undefined,
    r"_utils' has no attribute '(?:\w+_bytes?_tensor|ModelConfig)'|Cannot overload existing non-function": (
        "remove triton_python_backend_utils.py from the model's folder: a server imports it instead of its own"
    ),
    rf"(?:module '{_UTILS}' has no attribute|cannot import name) '(?P<name>{_ADDED})'": _missing_at_import,
    rf"module '(?:bls_notebook\.pb_utils|{_UTILS})' has no attribute '(?P<name>\w+)'": _no_such_name,
    **_TEXTS["code"],
}
_LONG = 40  # characters of an input's expression: a longer one is not repeated
_MOST_CHARACTERS = 4000  # characters of a message that are searched
_CLASS = re.compile(r"^class\s+(\w+)", re.MULTILINE)


def advised(record: ErrorRecord, known: Known) -> ErrorRecord:
    """Return an error with its remedy as `hint`, if there is one."""
    if record.hint:
        return record
    message = record.message[:_MOST_CHARACTERS]
    hint = _answer(message, _REQUEST_REMEDIES, record, known) or _code_remedy(record, message, known)
    if isinstance(hint, str) and len(record.chain) < 2 and not record.frames:
        hint = _as_written(hint, known.written)
    return replace(record, hint=hint) if hint else record


def _as_written(hint: str, written: Mapping[str, str]) -> str:
    """Return a remedy whose code has the user's expressions in place of the inputs' names; an ellipsis for others."""
    for name, expression in written.items():
        try:
            code = ast.parse(expression, mode="eval").body
        except (SyntaxError, ValueError):
            code = None
        if len(expression) > _LONG or not isinstance(code, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
            expression = "…"
        hint = re.sub(rf"(?<![\w.]){re.escape(name)}(?=\[|\.\w|, [\d(])", expression.replace("\\", r"\\"), hint)
    return hint


def guide_about(message: str) -> str:
    """Return the how-to guide about errors with such a message; "" if there is none."""
    pages = (page for pattern, page in _TEXTS["guides"].items() if re.search(pattern, message[:_MOST_CHARACTERS]))
    return next((f"docs/guides/{page}.md" for page in pages), "")


def about_loading(record: ErrorRecord, file: Path | None = None) -> ErrorRecord:
    """Return a load error with its remedy as `hint`; `file` is the model's code."""
    message = record.message[:_MOST_CHARACTERS]
    if "has no attribute 'TritonPythonModel'" in message:
        classes = _CLASS.findall("" if file is None else source_text(file))
        similar = nearest("TritonPythonModel", classes) or (classes[0] if len(classes) == 1 else "")
        hint = (
            f"rename the class `{similar}`: `class TritonPythonModel:`"
            if similar
            else "define `class TritonPythonModel:` with a method `def execute(self, requests):`"
        )
        return replace(record, hint=hint)
    found = _code_remedy(record, message, Known())
    return replace(record, hint=found) if found else record
