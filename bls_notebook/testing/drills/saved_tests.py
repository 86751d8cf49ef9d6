"""Write a drill as a pytest file, one test for each fault, to keep and to edit."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bls_notebook.engine.errors import BLSError
from bls_notebook.pb_utils import InferenceResponse, Tensor
from bls_notebook.records.visible_text import first_line
from bls_notebook.repository.repository import ModelRepository
from bls_notebook.shipping.exports.exporter import export
from bls_notebook.testing.records.drilled import Drilled, DrilledCase

from .callees import Callee
from .faults import STREAMS, spoilt

_MOST = 64  # elements that are written out; more are kept beside the tests
_BY_DRILL = ("not-ready", "unloaded", "stall", "no-final-flag", "slow", "other-order")
_ERRORS = {
    "error": 'pb_utils.TritonError("{words}")',
    "cancelled": 'pb_utils.TritonError("{words}", pb_utils.TritonError.CANCELLED)',
    "raises": 'RuntimeError("{words}")',
    "out-of-memory": 'MemoryError("{words}: out of memory")',
}


class TestFile:
    """The tests of one drill, in a file; large arrays are written beside it."""

    __test__ = False  # for pytest, which would collect it by its name

    def __init__(self, path: Path) -> None:
        if path.suffix != ".py" or not path.stem.startswith("test_"):
            raise BLSError(f"drill: save: got {str(path)!r}, expected a name such as tests/test_drill_x.py")
        self.path = path
        self._arrays: dict[str, np.ndarray[Any, Any]] = {}

    def write(
        self,
        drilled: Drilled,
        repository: ModelRepository,
        callees: Sequence[Callee],
        inputs: Mapping[str, Tensor],
        options: Mapping[str, Any],
        decoupled: bool,
    ) -> Path:
        """Write the file; models that are in no folder are exported beside it. A BLSError where that
        cannot be.
        """
        by_name = {callee.name: callee for callee in callees}
        given = ", ".join(f"{json.dumps(name)}: {self._tensor_array(tensor)}" for name, tensor in inputs.items())
        more = "".join(f", {name}={value!r}" for name, value in options.items())
        tests = [
            test
            for case in drilled.cases
            if case.worth == "bad" or case.verdict in ("vague", "stumbles") or case.faults[0].fault in _ERRORS
            for test in self._test(case, by_name, drilled.model)
        ]
        models = self._models(repository, [drilled.model, *drilled.callees])
        sent = f"({json.dumps(drilled.model)}, INPUTS{more})"
        text = _HEAD.format(
            model=drilled.model, models=models, names=json.dumps([*drilled.callees, drilled.model]),
            inputs=given, ask=f"list(repo.stream{sent})" if decoupled else f"[repo.infer{sent}]",
            arrays=f'\nARRAYS = np.load(HERE / "{self.path.stem}.npz")' if self._arrays else "",
        ) + "".join(tests)  # fmt: skip
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(text, encoding="utf-8")
            if self._arrays:
                np.savez_compressed(self.path.with_suffix(".npz"), **self._arrays)  # type: ignore[arg-type]
        except OSError as error:
            raise BLSError(f"drill: save: {self.path}: {error}") from error
        return self.path

    def _models(self, repository: ModelRepository, names: Sequence[str]) -> str:
        """An expression for the folder that the models are in."""
        for folder in repository.paths:
            if all((folder / name / "config.pbtxt").is_file() or (folder / name).is_dir() for name in names):
                try:
                    way = os.path.relpath(folder.resolve(), self.path.parent.resolve())
                except ValueError:  # another drive
                    way = str(folder.resolve())
                return f"HERE / {json.dumps(Path(way).as_posix())}"
        beside = self.path.with_name(f"{self.path.stem}_models")
        export(beside, *names, repo=repository)
        return f"HERE / {json.dumps(beside.name)}"

    # -- tests ---------------------------------------------------------------------------------------

    def _test(self, case: DrilledCase, callees: Mapping[str, Callee], model: str) -> Iterator[str]:
        name = _name("_and_".join(f"{each.model}_{each.fault}" for each in case.faults))
        at = case.at or case.sent
        where = f" ({at.model}, line {at.line}: {at.code})" if at is not None and case.worth != "good" else ""
        doc = f"{case.verdict}: {first_line(case.said)}{where}".replace("\\", "/").replace('"', "'")
        by_drill = [each.fault in _BY_DRILL for each in case.faults]
        if len(case.faults) == 1:
            fault = case.faults[0]
            # Answers that differ from request to request, made wrong, are more than a line can say.
            if by_drill[0] or not (fault.fault in _ERRORS or callees[fault.model].answers.alike):
                expected = 'case.worth == "good"' if case.worth == "odd" else 'case.worth != "bad"'
                yield _BY_DRILL_TEST.format(
                    name=name, doc=doc, model=model, fault=fault.fault, callee=fault.model, expected=expected
                )
                return
        if any(by_drill):
            return
        functions, stubs = [], []
        for each in case.faults:
            answer, function = self._answer(callees[each.model], each.fault)
            functions.append(function)
            stubs.append(f'repo.stub("{each.model}", {answer})')
        told = " or ".join(f'"{each.model}" in told' for each in case.faults)
        told_of = case.verdict == "clear" or case.worth in ("bad", "odd")
        check = _CHECK.format(told=told) if told_of else _FALLBACK
        yield _TEST.format(name=name, doc=doc, functions="".join(functions), stubs=", ".join(stubs), check=check)

    def _answer(self, callee: Callee, fault: str) -> tuple[str, str]:
        """An expression for the answer of a stub, and the function that it names."""
        words = f"'{callee.name}' fails on purpose"
        if fault in _ERRORS:
            return _ERRORS[fault].format(words=words), ""
        responses = callee.answers.first()
        if fault in STREAMS:
            half = responses[: len(responses) // 2]
            sent = {
                "no-response": [], "early-end": half, "error-midway": half,
                "duplicate": [each for each in responses for _ in range(2)],
            }[fault]  # fmt: skip
            said = [self._response(each) for each in sent]
            if fault == "error-midway":
                said.append(_ERRORS["error"].format(words=words))
        else:
            said = []
            for response in responses:
                changed = spoilt(response.output_tensors(), fault, callee.batching)
                said.append(self._response(response if changed is None else InferenceResponse(changed)))
        value = f"[{', '.join(said)}]" if callee.model.decoupled else said[0]
        function = _name(callee.name)
        return f"{function}_stub", f"    def {function}_stub(request):\n        return {value}\n\n"

    # -- values --------------------------------------------------------------------------------------

    def _response(self, response: InferenceResponse) -> str:
        tensors = (f"{json.dumps(tensor._name)}: {self._tensor_array(tensor)}" for tensor in response.output_tensors())
        return f"response({{{', '.join(tensors)}}})"

    def _tensor_array(self, tensor: Tensor) -> str:
        array: Any = tensor._array
        shape = array.shape
        if array.dtype.kind == "O":
            flat = [each if isinstance(each, bytes) else str(each).encode() for each in array.reshape(-1)]
            if flat and len(set(flat)) == 1:
                return f"np.full({shape}, {_bytes(flat[0])}, object)"
            return f"np.array([{', '.join(map(_bytes, flat))}], object).reshape({shape})"
        kind = f"np.{array.dtype.name}".replace("np.bool", "bool")
        if not array.size:
            return f"np.empty({shape}, {kind})"
        if array.size > 1 and (np.all(array == array.reshape(-1)[0]) or _all_nan(array)):
            return f"np.full({shape}, {_number(array.reshape(-1)[0])}, {kind})"
        if array.size <= _MOST and not (array.dtype.kind == "f" and not np.isfinite(array).all()):
            return f"np.array({array.tolist()}, {kind})"
        if array.size <= _MOST:
            return f"np.array([{', '.join(map(_number, array.reshape(-1)))}], {kind}).reshape({shape})"
        for key, kept in self._arrays.items():
            if kept.dtype == array.dtype and np.array_equal(kept, array):
                return f'ARRAYS["{key}"]'
        key = f"{_name(tensor._name)}_{len(self._arrays)}"
        self._arrays[key] = array
        return f'ARRAYS["{key}"]'


def _all_nan(array: np.ndarray[Any, Any]) -> bool:
    return array.dtype.kind == "f" and bool(np.isnan(array).all())


def _number(value: Any) -> str:
    plain = value.item()
    if isinstance(plain, float) and not np.isfinite(plain):
        return "np.nan" if plain != plain else "np.inf" if plain > 0 else "-np.inf"
    return repr(plain)


def _bytes(value: bytes) -> str:
    if len(value) > 80 and len(set(value)) == 1:
        return f"{value[:1]!r} * {len(value)}"
    return repr(value)


def _name(text: str) -> str:
    return re.sub(r"\W+", "_", text).strip("_")


_HEAD = '''"""What `{model}` does while a model that it calls misbehaves: kept from a drill by bls_notebook.

Each test says in its first line what the drill saw. One that fails shows what is to be mended, or expects
too much: then change it.
"""

from pathlib import Path

import numpy as np
import pytest

import bls_notebook as bls
from bls_notebook import pb_utils

HERE = Path(__file__).parent{arrays}
INPUTS = {{{inputs}}}


@pytest.fixture(scope="module")
def repo():
    with bls.ModelRepository({models}) as repository:
        for name in {names}:
            repository.load(name)
        yield repository


def response(tensors):
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in tensors.items()])


def answers(repo):
    return {ask}


def error_in(responses):
    return next((each.error.message() for each in responses if each.error is not None), None)
'''
_TEST = '''

def test_{name}(repo):
    """{doc}."""

{functions}    with {stubs}:
        responses = answers(repo)
{check}'''
_CHECK = """    told = error_in(responses)
    assert told is not None, "an answer without an error"
    assert {told}, f"an error that does not tell who failed: {{told}}"
"""
_FALLBACK = """    assert error_in(responses) is None
"""
_BY_DRILL_TEST = '''

def test_{name}(repo):
    """{doc}."""
    found = bls.drill("{model}", INPUTS, faults=["{fault}"], repo=repo)
    case = found.case("{callee}", "{fault}")
    assert {expected}, case.said
'''
