"""The answers that claims such as ``output DIGIT INT32 == 3 then 5`` judge, and what is wrong with them. Pure."""

from __future__ import annotations

import ast
import itertools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bls_notebook.lifetimes.records import KeptGrowth, Life, kind_of_growth
from bls_notebook.pb_utils.dtypes import from_bits, triton_string_to_numpy
from bls_notebook.records import BLSError, Remedy, ResponseRecord, count, first_line, size, spoken

from .failure_text import as_array, equal
from .recording.payload_tape import copied

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne,
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
TOLERANCE = 1e-5  # relative and absolute, for floats

_Array = np.ndarray[Any, Any]
_Finding = tuple[bool, str, str, str]  # whether the claim holds, the observation, a hint, code


@dataclass(frozen=True)
class GivenAnswer:
    """A response: its record, and the values of those outputs whose values were kept."""

    record: ResponseRecord
    arrays: Mapping[str, _Array] = field(default_factory=dict)


def answer_of(response: Any) -> GivenAnswer:
    """Return the answer in a `Response`, with copies of its values, or in a record, with the values of its preview."""
    record: ResponseRecord = getattr(response, "record", response)
    arrays = {}
    for tensor in getattr(response, "output_tensors", tuple)():
        array = copied(tensor._array, tensor._datatype)
        arrays[tensor._name] = from_bits(array) if tensor._datatype == "BF16" else array
    for kept in () if arrays else record.tensors:
        try:
            arrays[kept.name] = as_array(ast.literal_eval(kept.preview), None)
        except (ValueError, SyntaxError):
            continue  # a preview of the first elements only
    return GivenAnswer(record, arrays)


def value_of(text: str, variables: Mapping[str, Any] | None) -> Any:
    """Return the value of a literal or, with `variables`, of an expression; other words are text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        pass
    words = text.strip("[] ").replace(",", " ").split()  # NumPy's form: [1 2 3]
    try:
        return [ast.literal_eval(word) for word in words]
    except (ValueError, SyntaxError):
        pass
    if variables is None or (text.isidentifier() and text not in variables):
        return text
    try:
        value = eval(text, dict(variables))
    except SyntaxError:
        return text
    except Exception as error:
        raise BLSError(f"claim: {text}: {type(error).__name__}: {error}") from None
    return value.get() if hasattr(value, "get") and hasattr(value, "dtype") else value  # an array on a GPU


def output(answers: Sequence[GivenAnswer], name: str, datatype: str, compare: str, expected: Sequence[Any]) -> _Finding:
    """Judge an output of the answers: each by its own expected value, or all by the only one."""
    having = {answer.record.model for answer in answers if name in [t.name for t in answer.record.tensors]}
    if not having:  # a model that only failed may have this output; one with other outputs has not
        having = {answer.record.model for answer in answers} - {a.record.model for a in answers if a.record.tensors}
    answers = [answer for answer in answers if not having or answer.record.model in having]
    tensors = [tensor for answer in answers for tensor in answer.record.tensors if tensor.name == name]
    seen = f"{name}: " + (
        ", ".join(t.preview for t in tensors[:4]) + (", …" if len(tensors) > 4 else "") or "no such output"
    )
    for number, answer in enumerate(answers, 1):
        which = f" {number}" if len(answers) > 1 else ""
        if answer.record.error is not None:
            error = first_line(spoken(answer.record.error.message).rpartition("message: ")[2])
            return False, f"request{which} failed", f"The model answered with an error: {error}", ""
        outputs = [tensor.name for tensor in answer.record.tensors]
        if name not in outputs:
            listed = ", ".join(outputs) or "none: a final flag alone, or an InferenceResponse without tensors"
            hint = f"Response{which} has no {name}. Its outputs are {listed}."
            return False, seen, hint, f'pb_utils.InferenceResponse([..., pb_utils.Tensor("{name}", ...)])'
        (tensor,) = (t for t in answer.record.tensors if t.name == name)
        if datatype and tensor.datatype != datatype.upper():
            kind = np.dtype(triton_string_to_numpy(f"TYPE_{datatype.upper()}")).name
            hint = f"The data type of {name} is {tensor.datatype}, expected {datatype.upper()}."
            if tensor.datatype in ("INT64", "FP64"):
                hint += f" NumPy makes {tensor.datatype} of Python's numbers unless you name another type."
            return False, f"{name} is {tensor.datatype}", hint, f'pb_utils.Tensor("{name}", array.astype("{kind}"))'
        if name not in answer.arrays:
            either = Remedy("", "check the request with `%%blscheck`, or ")
            return False, seen, f"Only the first values were kept: {either}judge the response itself.", ""
    got = [answer.arrays[name] for answer in answers]
    each = list(expected) if len(expected) > 1 else list(expected) * len(got)
    wanted = [as_array(value, array) for value, array in zip(each, got, strict=False)]
    holds = bool(got) and len(each) == len(got) and all(map(_compared(compare), got, wanted))
    if holds or (len(each) != len(got) and compare != "=="):
        return holds, seen, f"The model sent {count(len(got), 'response')}.", ""
    if compare != "==":
        number = next(i for i, pair in enumerate(zip(got, wanted, strict=True)) if not _compared(compare)(*pair))
        which = f"Response {number + 1}: " if len(got) > 1 else ""
        values = _few(got[number].ravel().tolist()), _few(wanted[number].ravel().tolist())
        return False, seen, f"{which}got {values[0]}, expected {compare} {values[1]}.", ""
    return False, seen, _mistake(got, [*wanted, *(as_array(value, None) for value in each[len(wanted) :])]), ""


def _compared(compare: str) -> Callable[[_Array, _Array], bool]:
    def holds(got: _Array, wanted: _Array) -> bool:
        is_same = got.size == wanted.size and equal(wanted.ravel(), got.ravel(), TOLERANCE, TOLERANCE)
        if compare in ("==", "!="):
            return is_same == (compare == "==")
        try:
            return got.size > 0 and bool(np.all(OPERATORS[compare](got, wanted.reshape(-1)[0])))
        except TypeError:
            return False

    return holds


def _mistake(got: Sequence[_Array], wanted: Sequence[_Array]) -> str:
    """Return what distinguishes wrong values from the expected ones, as far as the values show it."""
    have, need = [g.ravel().tolist() for g in got], [w.ravel().tolist() for w in wanted]
    flat, goal = list(itertools.chain(*have)), list(itertools.chain(*need))
    if not have:
        return f"There was no response, expected {count(len(need) or 1, 'response')}."
    if len(have) < len(need) and flat == goal:
        return f"{count(len(have), 'response').capitalize()} with all the values, expected one response for each."
    if len(have) > 1 and all(values == have[0] for values in have) and need.count(need[0]) < len(need):
        return f"{_difference(have, need)} Every response has the same value, {_few(have[0])}."
    return _difference(have, need)


def _difference(have: list[list[Any]], need: list[list[Any]]) -> str:
    flat, goal = list(itertools.chain(*have)), list(itertools.chain(*need))
    if len(have) != len(need):
        if have == need[: len(have)]:
            rest = need[len(have) :]
            missing = f"{_few(rest[0])} is missing" + (f" and {len(rest) - 1} more" if len(rest) > 1 else "")
            return f"{count(len(have), 'response')}, expected {len(need)}: they are right so far, but {missing}."
        if have[: len(need)] == need:
            return f"{count(len(have), 'response')}, expected {len(need)}: {_few(have[len(need)])} is too much."
        number, pair = next((n, p) for n, p in enumerate(zip(have, need, strict=False), 1) if p[0] != p[1])
        got = f"response {number} is {_few(pair[0])}, expected {_few(pair[1])}"
        return f"{count(len(have), 'response')}, expected {len(need)}: {got}."
    if [len(values) for values in have] != [len(values) for values in need]:
        number = next(i for i, pair in enumerate(zip(have, need, strict=True), 1) if len(pair[0]) != len(pair[1]))
        which = f"Response {number}" if len(have) > 1 else "The response"
        return f"{which} has {count(len(have[number - 1]), 'value')}, expected {len(need[number - 1])}."
    if len(goal) > 1 and sorted(map(repr, flat)) == sorted(map(repr, goal)):
        return "The values are right, but in another order."
    if len(goal) > 1 and all(isinstance(value, (int, float)) for value in flat + goal):
        off = np.subtract(flat, goal)
        if np.allclose(off, off[0]) and off[0]:
            return f"Every value is {abs(off[0]):.6g} too {'large' if off[0] > 0 else 'small'}."
        if np.allclose(flat, np.negative(goal)):
            return "Every value has the wrong sign."
    number, element = next(
        (number, element)
        for number, (values, goals) in enumerate(zip(have, need, strict=True))
        for element, pair in enumerate(zip(values, goals, strict=True))
        if pair[0] != pair[1]
    )
    which = (f"Response {number + 1}: " if len(have) > 1 else "") + (
        f"element {element}: " if len(have[number]) > 1 else ""
    )
    got, wanted = have[number][element], need[number][element]
    return f"{which}got {_few([got])}, expected {_few([wanted])}.{_overflow(got, wanted)}"


def _overflow(got: Any, wanted: Any) -> str:
    """Return a hint if two numbers differ as they do after an overflow of a small integer."""
    if not all(isinstance(number, (int, float)) and number == number // 1 for number in (got, wanted)):
        return ""
    for bits in (32, 16, 8):
        if got != wanted and (wanted - got) % (1 << bits) == 0:
            off = f"{abs(wanted - got):,.0f} too {'small' if got < wanted else 'large'}"
            return f" It is {off}, like a UINT{bits} that passed {(1 << bits) - 1:,} and began again at 0."
    return ""


def _few(values: Sequence[Any]) -> str:
    texts = [v.decode(errors="replace") if isinstance(v, bytes) else f"{v:.6g}" if isinstance(v, float) else str(v)
             for v in values[:4]]  # fmt: skip
    return first_line(", ".join(texts) + (", …" if len(values) > 4 else ""), 60)


def lines_that_name(text: str, name: str) -> list[tuple[int, str]]:
    """Return the lines of a source, with their numbers, that have a name in quotes."""
    found = enumerate(text.splitlines(), 1)
    return [(number, line.strip()) for number, line in found if re.search(rf"""["']{re.escape(name)}["']""", line)]


def left_words(lives: Sequence[Life]) -> tuple[str, str]:
    """Return the blocks that are left behind, in words, and a hint."""
    holders = [holder for life in lives for holder in life.holders]
    names = list(dict.fromkeys(holder.name.partition("[")[0] or holder.kind for holder in holders))
    by = f", held by {' and '.join(names[:3])}" if names else ""
    places = " and ".join(dict.fromkeys(life.device for life in lives))
    seen = f"{size(sum(life.bytes for life in lives))} on {places} in {count(len(lives), 'block')}{by}"
    remedy = next((holder.remedy for holder in holders if holder.remedy), "")
    hint = "A reference to a tensor, to its response or to a view keeps all of the tensor's memory."
    return seen, hint + (f" To free it: {remedy}" if remedy else "")


def growth_words(kept: Sequence[KeptGrowth]) -> tuple[str, str]:
    """Return what models keep that is no tensor, in words, and a hint with the lines that add to it; "" without it."""
    if not kept:
        return "", ""
    owners = " and ".join(dict.fromkeys(each.owner for each in kept[:3]))
    seen = f"{size(sum(each.bytes for each in kept))} {kind_of_growth(kept)}, held by {owners}"
    lines = [f"Line {line.line} of {line.file} adds to it: {line.text}." for each in kept for line in each.lines]
    hint = "A copy takes as much memory as the tensor. Keep what you need of it, such as a number or a shape."
    remedy = f"To free it: {kept[0].remedy}" if kept[0].remedy else ""
    return seen, " ".join(filter(None, (*lines[:3], hint, remedy)))
