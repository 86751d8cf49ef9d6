"""Deeds of the models `script`, `script_async`, `siblings`: each is done on both sides and answered alike."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conformance.sides import Sides

pytestmark = pytest.mark.triton
FOLDER = Path(__file__).parent / "model_repository"


def deeds(model: str) -> list[Any]:
    files = sorted((FOLDER / model / "1").glob("*deeds.py"))
    body = [node for file in files for node in ast.parse(file.read_text()).body]
    names = [node.name for node in body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return [pytest.param(model, name, id=f"{model}-{name}") for name in names if not name.startswith("_")]


@pytest.mark.parametrize(("model", "name"), [*deeds("script"), *deeds("script_async"), *deeds("siblings")])
def test_a_deed(sides: Sides, model: str, name: str) -> None:
    inputs = {"DO": np.array([name], np.object_), "X": np.array([1.5, -0.0, np.nan], np.float32)}
    answer = sides.ask_here(model, inputs)
    if answer.error is None and "REPORT" in answer.outputs and set(answer.outputs) == {"REPORT"}:
        text = answer.outputs["REPORT"].ravel()[0]
        if text[:1] in b'{["':
            sides.same_report(model, inputs)
            return
    sides.same(model, inputs)
