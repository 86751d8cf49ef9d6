"""Judgements on responses that differ from the expected ones, and on copies of tensors that models keep.

No recording of memory contains such copies.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from bls_notebook.extending import Host
from bls_notebook.lifetimes.owners import reachable, roots_of
from bls_notebook.records import count, size
from bls_notebook.testing.claim_checks import Judgement
from bls_notebook.testing.claim_values import GivenAnswer, output

from .puzzle_check import SAME

FAILED = "a request failed"
RAISED = re.compile(r"Failed to process the request\(s\) for model '[^']*', message: ")  # then the exception's type
_ACCIDENT = re.compile("(Type|Attribute|Name|Index|Key)Error: ")  # raised by Python itself


def error_line(answer: GivenAnswer, is_typed: bool = False) -> str:
    """Return the model's own words of an error response; empty without an error.

    With `is_typed`, the type of an exception precedes them, except the one that only passes words on.
    """
    if answer.record.error is None:
        return ""
    *wrapped, words = RAISED.split(answer.record.error.message)
    words = re.sub(r":\n\s*", ": ", words.strip()).partition("\n")[0].rstrip()
    kind = "TritonModelException" if is_typed else r"[^\W\d]\w*"
    return re.sub(f"^{kind}: ", "", words) if wrapped else words


def difference(got: Sequence[GivenAnswer], expected: Sequence[GivenAnswer]) -> Judgement | None:
    """Return a judgement on how the responses to a request differ; None if they agree."""

    def wrong(seen: str, hint: str, *steps: tuple[str, str]) -> Judgement:
        return Judgement(SAME, False, seen, hint, steps)

    for mine, wanted in zip_longest(got, expected):
        error, expected_error = (error_line(answer) if answer else "" for answer in (mine, wanted))
        typed = error_line(mine, True) if error else ""
        if error and not expected_error:
            hint = f"The model answered with an error: {typed}" + ("." if not typed.endswith((".", ".)")) else "")
            return wrong(FAILED, hint, ("how to fix", str(mine.record.error.hint) if mine.record.error else ""))
        if expected_error and not error:
            return wrong("the request succeeded", f"Expected an error response: {expected_error}")
        accident = typed if _ACCIDENT.match(typed) else ""
        if accident or (error and expected_error not in error):  # it may say more
            return wrong(f"error: {accident or error}", f"The error should be the callee's own: {expected_error}")
    if any(map(error_line, expected)):
        return None
    if len(got) != len(expected) and (not got or len(expected) < 2):
        seen = f"{count(len(got), 'response')}" if got else "no response"
        sent = seen if got else "no response, only the end of the stream"
        return wrong(seen, f"The model sent {sent}; expected {len(expected) or 'none'}.")
    names = {tensor.name: tensor for answer in expected for tensor in answer.record.tensors}
    for name, tensor in names.items():
        values = [answer.arrays[name] for answer in expected]
        holds, seen, hint, code = output(got, name, tensor.datatype, "==", values)
        if not holds:
            return wrong(seen, hint, ("code", code))
        shapes = [(mine.arrays[name].shape, value.shape) for mine, value in zip(got, values, strict=True)]
        pair = next((pair for pair in shapes if pair[0] != pair[1]), None)
        if pair:
            return wrong(f"{name} has the shape {list(pair[0])}", f"The shape of {name} should be {list(pair[1])}.")
    extra = [t.name for answer in got for t in answer.record.tensors if t.name not in names]
    if extra:
        return wrong(f"an output {extra[0]}", f"{extra[0]} was not requested: return only the requested outputs.")
    return None


def summary(answers: Sequence[GivenAnswer]) -> str:
    """Return the responses to a request in a few words."""
    texts = []
    for answer in answers:
        error = error_line(answer, True)
        pairs: Mapping[str, Any] = answer.arrays
        outputs = ", ".join(f"{k} {v.tolist()}" for k, v in pairs.items()) or "no outputs"
        texts.append(f"error: {error}" if error else outputs)
    return " then ".join(texts) or "no response"


_LEAST = 4096  # bytes of a copy that is large
_COPIES = (np.ndarray, list, bytes, bytearray, array)


def kept_sizes(host: Host) -> dict[str, list[int]]:
    """Return the sizes of the large copies that models keep, by owner."""
    found: dict[str, list[int]] = {}
    for name in host.names():
        for model in host.versions(name).values():
            for value, owner in reachable(roots_of(model)):
                if isinstance(value, _COPIES) and sys.getsizeof(value) >= _LEAST:
                    found.setdefault(owner().partition("[")[0], []).append(sys.getsizeof(value))
    return found


def judge_copies(before: Mapping[str, list[int]], host: Host, requests: int) -> Judgement | None:
    """Return a judgement that fails if a model keeps more after each of so many requests; None if none does.

    `before` are the sizes after the same requests: a copy that all requests share, such as their sum, does not grow.
    """
    for name, sizes in kept_sizes(host).items():
        earlier = before.get(name, [])
        added, grown = len(sizes) - len(earlier), sum(sizes) - sum(earlier)
        if grown >= requests * _LEAST and (earlier or added >= requests):
            seen = f"{size(grown)} {f'in {added} copies' if added >= requests else 'added to a copy'}, held by {name}"
            hint = "A copy takes as much memory as the tensor. Keep what you need of it, such as a number or a shape."
            return Judgement("nothing_left", False, seen, hint)
    return None
