"""Write a drill as a pytest file: one test for each case with an error or a problem."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bls_notebook.engine import BLSError
from bls_notebook.pb_utils import Tensor
from bls_notebook.records import first_line
from bls_notebook.repository import ModelRepository, tensors_of
from bls_notebook.shipping.exporter import export
from bls_notebook.testing.records import Drilled, DrilledCase

from .timed_request import TimedRequest

# The head of the file, and one test.
_HEAD, _TEST = Path(__file__).with_name("saved_tests.txt").read_text("utf-8").split("=====\n")
_MOST = 64  # arrays with more elements are saved beside the file
_ERRORS = ("error", "cancelled", "raises", "out-of-memory")


class TestFile:
    """The tests of one drill, in a file; large arrays are written beside it."""

    __test__ = False  # pytest would collect it because of its name

    def __init__(self, path: Path) -> None:
        if path.suffix != ".py" or not path.stem.startswith("test_"):
            raise BLSError(f"drill: save: got {str(path)!r}, expected a name such as tests/test_drill_x.py")
        self.path = path
        self._arrays: dict[str, np.ndarray[Any, Any]] = {}

    def write(self, drilled: Drilled, request: TimedRequest, pairs: bool) -> None:
        """Write the file, or raise a BLSError; export the models beside it unless one folder has them all."""
        inputs = tensors_of(drilled.model, request.inputs, request.spec)
        tests = [
            _test(case)
            for case in drilled.cases
            if case.worth == "bad" or case.verdict in ("vague", "stumbles") or case.faults[0].fault in _ERRORS
        ]
        options = dict(request.options) | {"timeout": drilled.timeout}
        text = _HEAD.format(
            model=drilled.model,
            models=self._folder(request.repository, [drilled.model, *drilled.callees]),
            names=json.dumps([*drilled.callees, drilled.model]),
            inputs=", ".join(f"{json.dumps(tensor._name)}: {self._array(tensor)}" for tensor in inputs),
            faults=json.dumps(sorted({each.fault for case in drilled.cases for each in case.faults})),
            options="".join(f"{name}={value!r}, " for name, value in options.items())
            + ("pairs=True, " if pairs else ""),
            arrays=f'\nARRAYS = np.load(HERE / "{self.path.stem}.npz")' if self._arrays else "",
        )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(text + "".join(tests), encoding="utf-8")
            if self._arrays:
                np.savez_compressed(self.path.with_suffix(".npz"), **self._arrays)  # type: ignore[arg-type]
        except OSError as error:
            raise BLSError(f"drill: save: {self.path}: {error}") from error

    def _folder(self, repository: ModelRepository, names: Sequence[str]) -> str:
        for folder in repository.paths:
            if all((folder / name).is_dir() for name in names):
                try:
                    relative = os.path.relpath(folder.resolve(), self.path.parent.resolve())
                except ValueError:  # another drive
                    relative = str(folder.resolve())
                return f"HERE / {json.dumps(Path(relative).as_posix())}"
        beside = self.path.with_name(f"{self.path.stem}_models")
        export(beside, *names, repo=repository)
        return f"HERE / {json.dumps(beside.name)}"

    def _array(self, tensor: Tensor) -> str:
        array: Any = tensor._array
        if array.dtype.kind == "O":
            flat = [text if isinstance(text, bytes) else str(text).encode() for text in array.reshape(-1)]
            return f"np.array({flat!r}, object).reshape({array.shape})"
        if array.size <= _MOST and np.isfinite(array).all():
            return f'np.array({array.reshape(-1).tolist()}, "{array.dtype}").reshape({array.shape})'
        key = f"{_name(tensor._name)}_{len(self._arrays)}"
        self._arrays[key] = array
        return f'ARRAYS["{key}"]'


def _test(case: DrilledCase) -> str:
    at = case.at or case.sent
    line = f" ({at.model}, line {at.line}: {at.code})" if at is not None and case.worth != "good" else ""
    seen = f"{case.verdict}: {first_line(case.said)}{line}".replace("\\", "/").replace('"', "'")
    name = _name("_and_".join(f"{each.model}_{each.fault}" for each in case.faults))
    expected = ("good",) if case.worth == "odd" else ("good", "odd", "open")
    return _TEST.format(name=name, seen=seen, case=case.name, expected=", ".join(f'"{worth}"' for worth in expected))


def _name(text: str) -> str:
    return re.sub(r"\W+", "_", text).strip("_")
