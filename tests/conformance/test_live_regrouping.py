"""Loads that change only the instance groups: which instances begin, end and stay, on both sides."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bls_notebook.engine.errors import BLSError
from bls_notebook.shipping.servers.tritonserver import TritonRequestError
from tests.conformance.sides import Sides, normal

pytestmark = pytest.mark.triton
NAME = "regrouped"
SECONDS = 30.0


def group(count: int, kind: str = "KIND_CPU", **more: Any) -> dict[str, Any]:
    return {"count": count, "kind": kind, **more}


STEPS: dict[str, list[dict[str, Any]]] = {
    "the same": [group(2)],
    "one more": [group(3)],
    "two less": [group(1)],
    "another name": [group(1, name="other")],
    "two groups": [group(1, name="a"), group(2, name="b")],
    "another kind": [group(1, "KIND_MODEL")],
    "both kinds": [group(1, "KIND_MODEL"), group(1)],
    "another host policy": [group(1, "KIND_MODEL"), group(1, host_policy="policy")],
    "a priority": [group(1, "KIND_MODEL"), group(1, rate_limiter={"priority": 2})],
    "a passive one": [group(1), group(1, passive=True)],
    "none is given": [],
    "no GPU": [group(1, "KIND_GPU")],
    "back": [group(2)],
}


class Noted:
    """What the instances of one side wrote."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._read = 0

    def config(self, groups: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        parameters = {"file": {"string_value": str(self.file)}}
        tensors = {
            "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [1]}],
            "output": [{"name": "WHO", "data_type": "TYPE_STRING", "dims": [2]}],
        }
        config = {"backend": "python", "parameters": parameters, **tensors, **more}
        return {**config, "instance_group": groups} if groups else config

    def news(self, count: int) -> list[Any]:
        """So many lines more, in no order: new instances begin side by side there."""
        deadline = time.monotonic() + SECONDS
        while True:
            lines = self.file.read_text().splitlines() if self.file.exists() else []
            if len(lines) >= self._read + count or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        news, self._read = lines[self._read :], len(lines)
        return sorted(json.loads(line) for line in news)


@pytest.mark.extra
def test_instance_groups(sides: Sides, tmp_path: Path) -> None:
    here, real = Noted(tmp_path / "here"), Noted(tmp_path / "real")

    def load(groups: list[dict[str, Any]], **more: Any) -> tuple[str | None, str | None]:
        errors: list[str | None] = [None, None]
        try:
            sides.here.load(NAME, here.config(groups, **more))
        except BLSError as error:
            errors[0] = str(error)
        try:
            sides.on_real(lambda: sides.real.load(NAME, real.config(groups, **more)))
        except TritonRequestError as error:
            errors[1] = normal(str(error))
        assert (errors[0] is None) == (errors[1] is None), errors
        return errors[0], errors[1]

    def both(count: int) -> list[Any]:
        one, other = here.news(count), real.news(count)
        assert one == other, f"\nhere {one}\nreal {other}"
        return one

    load([group(2)])
    both(2)
    # Once more: that server sees what Python wrote beside model.py, and loads it anew.
    sides.real.load(NAME, real.config([group(2)]))
    real.news(4)
    began = {
        "one more": 1, "two less": 2, "two groups": 2, "another kind": 4, "both kinds": 1,
        "another host policy": 2, "a priority": 2, "a passive one": 3, "none is given": 1, "back": 1,
    }  # fmt: skip
    for step, groups in STEPS.items():
        errors = load(groups)
        assert (errors[0] is not None) == (step == "no GPU"), errors
        try:
            both(began.get(step, 0))
        except AssertionError as error:
            raise AssertionError(f"{step}: {error}") from None
        there = sides.real.config(NAME)["instance_group"]
        mine = [(g.name, g.count) for g in sides.here.config(NAME).instance_group]
        assert mine == [(g["name"], g["count"]) for g in there], step
    for side in (sides.ask_here, sides.ask_real):
        answers = [side(NAME, {"X": np.zeros(1, np.float32)}).outputs["WHO"].tolist() for _ in range(4)]
        assert len({tuple(a) for a in answers}) == 4
    # a version policy changes no instance either; any other change makes all of them anew
    load([group(2)], version_policy={"all": {}})
    both(0)
    load([group(2)], max_batch_size=0, optimization={"priority": "PRIORITY_MAX"})
    assert [what for _, what, *_ in both(4)].count("initialize") == 2
