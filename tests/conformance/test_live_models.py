"""The suite's own models, on both sides: shapes, batches, versions, sequences, caches, configs, loading."""

from __future__ import annotations

import ast
import json
import threading
from typing import Any

import numpy as np
import pytest

from bls_notebook.repository.config import to_json
from tests.conformance.conftest import FOLDERS, is_loaded_at_start
from tests.conformance.sides import Sides, normal, without_newer

pytestmark = pytest.mark.triton
F32, I32, I64, WORDS = np.float32, np.int32, np.int64, np.object_
LOADED = sorted(
    path.name for folder in FOLDERS for path in folder.iterdir() if path.is_dir() and is_loaded_at_start(path.name)
)


def echoes(name: str) -> Any:
    return np.array([name], WORDS)


SHAPED = {"IN0": np.ones(1, F32), "IN1": np.arange(6, dtype=I32).reshape(2, 3)}
REQUESTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "no inputs": ("identity", {}, {}),
    "unknown input": ("identity", {"X": np.zeros(1, F32)}, {}),
    "wrong rank": ("identity", {"FP32_2": np.zeros(1, F32)}, {}),
    "rank 0": ("identity", {"FP32_1": np.array(1, F32)}, {}),
    "wrong dtype": ("identity", {"FP32_2": np.zeros((1, 1))}, {}),
    "some outputs": ("identity", {"FP32_1": np.zeros(1, F32), "INT8_1": np.zeros(1, np.int8)}, {"outputs": ["INT8_1"]}),
    "output not made": ("identity", {"FP32_1": np.zeros(1, F32)}, {"outputs": ["INT8_1"]}),
    "unknown output": ("identity", {"FP32_1": np.zeros(1, F32)}, {"outputs": ["NOBODY"]}),
    "output twice": ("identity", {"FP32_1": np.zeros(1, F32)}, {"outputs": ["FP32_1", "FP32_1"]}),
    "floats in parameters": ("script", {"DO": echoes("describe")}, {
        "parameters": {"a": 1.5, "b": 2.0, "c": True, "d": "x", "e": 3, "f": 1e300, "g": 2**63},
    }),
    "request id": ("identity", {"FP32_1": np.zeros(1, F32)}, {"request_id": "é 1"}),
    "no config, batch of 2": ("completed", {"IN": np.arange(12, dtype=I64).reshape(2, 3, 2)}, {}),
    "no config, no batch": ("completed", {"IN": np.zeros((3, 2), I64)}, {}),
    "no config, batch of 0": ("completed", {"IN": np.zeros((0, 3, 2), I64)}, {}),
    "no config, batch of 4": ("completed", {"IN": np.zeros((4, 1, 2), I64)}, {}),
    "reshaped": ("reshaped", {**SHAPED, "IN2": np.array(["a", "bc"], WORDS)}, {}),
    "reshaped, the model's shape": ("reshaped", {**SHAPED, "IN0": np.array(1, F32), "IN2": echoes("a")}, {}),
    "reshaped, empty": ("reshaped", {**SHAPED, "IN2": np.zeros(0, WORDS)}, {}),
    "batched": ("batched", {"IN0": np.arange(6, dtype=F32).reshape(2, 3)}, {}),
    "batched, optional": ("batched", {
        "IN0": np.zeros((3, 0), F32), "IN1": np.array([["a"], ["é"], [""]], WORDS),
        "IN2": np.arange(12, dtype=np.uint8).reshape(3, 2, 2),
    }, {}),
    "batched, full": ("batched", {"IN0": np.zeros((4, 1), F32)}, {}),
    "batched, too large": ("batched", {"IN0": np.zeros((5, 1), F32)}, {}),
    "batched, empty": ("batched", {"IN0": np.zeros((0, 1), F32)}, {}),
    "batched, one input of no rows": ("batched", {
        "IN0": np.zeros((2, 1), F32), "IN2": np.zeros((0, 2, 2), np.uint8),
    }, {}),
    "batched, rows of nothing": ("batched", {"IN0": np.zeros((2, 0), F32)}, {}),
    "batched, uneven": ("batched", {"IN0": np.zeros((2, 1), F32), "IN2": np.zeros((3, 2, 2), np.uint8)}, {}),
    "batched, required is missing": ("batched", {"IN2": np.zeros((3, 2, 2), np.uint8)}, {}),
    "batched, wrong dims": ("batched", {"IN0": np.zeros((1, 1), F32), "IN2": np.zeros((1, 2, 3), np.uint8)}, {}),
    "newest version": ("versions", {"IN": np.zeros(1, F32)}, {}),
    "version 1": ("versions", {"IN": np.zeros(1, F32)}, {"version": 1}),
    "version left out": ("versions", {"IN": np.zeros(1, F32)}, {"version": 2}),
    "unknown version": ("versions", {"IN": np.zeros(1, F32)}, {"version": 9}),
    "unknown model": ("nobody", {"IN": np.zeros(1, F32)}, {}),
    "ensemble": ("pipeline", {"A": np.ones(3, F32), "B": np.arange(3, dtype=F32)}, {}),
    "ensemble, some outputs": ("pipeline", {"A": np.ones(3, F32), "B": np.ones(3, F32)}, {"outputs": ["SUM"]}),
    "ensemble, a member's error": ("pipeline", {"A": np.ones(3, F32), "B": np.ones(2, F32)}, {}),
    "ensemble, wrong dtype": ("pipeline", {"A": np.ones(3, I32), "B": np.ones(3, F32)}, {}),
    "ensemble, input missing": ("pipeline", {"A": np.ones(3, F32)}, {}),
    "ensemble, batch": ("pipeline_batched", {"IN": np.linspace(0, 1, 192, dtype=F32).reshape(3, 64)}, {}),
    "ensemble, batch too large": ("pipeline_batched", {"IN": np.zeros((5, 64), F32)}, {}),
    "request's parts": ("script", {"DO": echoes("describe"), "N": np.zeros((2, 0), I32)}, {
        "request_id": "r7", "timeout": 9_000_000, "outputs": ["REPORT"],
        "parameters": {"n": -3, "b": False, "s": "é"},
    }),
    "zero in a parameter": ("script", {"DO": echoes("describe")}, {"parameters": {"s": "a\0b"}}),
    "requested output of another name": ("script", {"DO": echoes("every_output")}, {"outputs": ["MORE"]}),
    "correlation id without sequences": ("script", {"DO": echoes("describe")}, {"correlation_id": 5, "flags": 1}),
    "text correlation id": ("script", {"DO": echoes("describe")}, {"correlation_id": "blue"}),
    "long correlation id": ("script", {"DO": echoes("describe")}, {"correlation_id": "b" * 129}),
    "sequence without id": ("sums_direct", {"IN": np.ones((1, 1), I32)}, {}),
    "sequence not started": ("sums_oldest", {"IN": np.ones((1, 1), I32)}, {"correlation_id": 404}),
    "sequence, two rows": ("sums_direct", {"IN": np.ones((2, 1), I32)}, {"correlation_id": 9, "flags": 3}),
}  # fmt: skip


@pytest.mark.parametrize("case", REQUESTS)
def test_a_request(sides: Sides, case: str) -> None:
    model, inputs, more = REQUESTS[case]
    sides.same(model, inputs, **more)


@pytest.mark.parametrize("model", LOADED)
def test_completed_config(sides: Sides, model: str) -> None:
    got = json.loads(to_json(sides.here.config(model)))
    wanted = sides.on_real(lambda: sides.real.config(model))
    assert without_newer(got) == without_newer(wanted)


def test_arguments_of_initialize(sides: Sides) -> None:
    inputs = {"IN0": np.zeros((2, 3), np.int8)}
    got, wanted = (json.loads(ask("arguments", inputs).outputs["ARGS"][0]) for ask in (sides.ask_here, sides.ask_real))
    configs = [without_newer(json.loads(args.pop("model_config"))) for args in (got, wanted)]
    assert got == wanted
    assert configs[0] == configs[1]


@pytest.mark.parametrize("call", [False, True])
@pytest.mark.parametrize("values", [[], [1.0, -2.5, float("inf"), 3e38, 1e-40, -0.0]])
def test_bfloat16(sides: Sides, values: list[float], call: bool) -> None:
    """It has DLPack only, on both; a web client sees what `as_numpy` gives here: float32."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array(values, ml_dtypes.bfloat16)
    answer = sides.same("bfloat", {"IN": array, **({"CALL": np.array([True])} if call else {})})
    assert answer.outputs["OUT"].tolist() == array.astype(F32).tolist()
    seen = json.loads(answer.outputs["REPORT"][0])
    assert len(seen) == 1 + call
    assert all(each[2:5] == [4, 16, 1] for each in seen)  # kDLBfloat


@pytest.mark.parametrize("model", ["sums_direct", "sums_oldest"])
def test_sequences(sides: Sides, model: str) -> None:
    steps = [(1, 11, 1), (5, 12, 1), (2, 11, 0), (3, 12, 2), (4, 11, 1), (6, 11, 2), (7, 11, 0), (8, 12, 3)]
    for number, key, flags in steps:
        sides.same(model, {"IN": np.array([[number]], I32)}, correlation_id=key, flags=flags)


def test_response_cache(sides: Sides) -> None:
    one, other = np.array([1, 2, 3], I32), np.array([1, 2, 4], I32)
    for array in (one, one, other, one[::-1], one):
        sides.same("counted", {"IN": array})


def test_some_outputs_and_the_response_cache(sides: Sides) -> None:
    for outputs in (None, ["SUM"]):
        sides.same("counted", {"IN": np.array([40, 2], I32)}, outputs=outputs)


def test_errors_and_the_response_cache(sides: Sides) -> None:
    for _ in range(2):
        sides.same("counted", {"IN": np.array([-7], I32)})


def test_batches_from_many_threads_come_back_to_their_own(sides: Sides) -> None:
    arrays = [np.full((1 + n % 3, n % 2 + 1), n, F32) for n in range(24)]
    wrong: list[Any] = []

    def ask(array: Any) -> None:
        try:
            sides.same("batched", {"IN0": array})
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask, args=(array,)) for array in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    "name",
    ["bad_config", "bad_import", "bad_initialize", "bad_no_class", "bad_scalar", "bad_syntax", "bad_text", "not_there"],
)
def test_models_that_do_not_load(sides: Sides, name: str) -> None:
    assert sides.same_load(name) is not None
    rows = {row["name"]: row for row in sides.on_real(sides.real.index)}
    here = {row.name: row for row in sides.here.index()}
    assert sides.here.ready(name) is sides.on_real(lambda: sides.real.ready(name)) is False
    if name in rows and "reason" in rows[name]:
        assert here[name].state == rows[name]["state"] == "UNAVAILABLE"
        assert normal(here[name].reason)


def test_index_of_the_models_that_are_loaded(sides: Sides) -> None:
    got = {(row.name, row.version, row.state) for row in sides.here.index() if row.name in LOADED}
    rows = sides.on_real(sides.real.index)
    wanted = {(row["name"], int(row["version"]), row["state"]) for row in rows if row["name"] in LOADED}
    assert got == wanted


def deeds(model: str) -> list[Any]:
    files = sorted((FOLDERS[1] / model / "1").glob("*deeds.py"))
    body = [node for file in files for node in ast.parse(file.read_text()).body]
    names = [node.name for node in body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    assigned = [node for node in body if isinstance(node, ast.Assign)]
    tables = [node.value for node in assigned if ast.unparse(node.targets[0]) in ("OUTPUTS", "CALLS")]
    names += [ast.literal_eval(key) for table in tables for key in getattr(table, "keys", ())]
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
