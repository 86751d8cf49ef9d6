"""Requests that a newcomer can send at once."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from bls_notebook.records.models import ModelRecord, TensorSpecRecord
from bls_notebook.trying.example_request import example_inputs, json_text, request_line, takes_files

OPENS = "Image.open(io.BytesIO(data))"


def line_of(record: ModelRecord, sequence: bool = False, source: str = "") -> str:
    return request_line(record, example_inputs(record, sources=[source]), sequence)


@pytest.mark.parametrize(
    ("inputs", "batch", "expected"),
    [
        ([("IN", "FP32", (-1,))], 0, "IN=0.5"),
        ([("BOXES", "FP32", (-1, -1)), ("N", "INT32", (1, -1))], 0, "BOXES=[[" + ", ".join(["0.5"] * 8) + "]] N=1"),
        ([("IN", "FP32", (4,))], 0, "IN=[0.5, 0.5, 0.5, 0.5]"),
        ([("IDS", "INT64", (2,))], 8, "IDS=[[1, 1]]"),
        ([("INPUT_0", "UINT8", (-1, -1, -1))], 0, "INPUT_0=[[[1, 1, 1]] * 32] * 32"),
        ([("IMAGE", "FP32", (3, -1, -1))], 0, "IMAGE=[[[0.5] * 32] * 32] * 3"),
        ([("IMAGE", "FP32", (-1, 3, 16, 16))], 0, "IMAGE=[[[[0.5] * 16] * 16] * 3]"),
        ([("WAV", "FP32", (-1,)), ("WAV_LENS", "INT32", (1,))], 4, "WAV=[[0.5] * 8000] WAV_LENS=8000"),
        ([("ON", "BOOL", (1,)), ("TOP_P", "FP32", (1,)), ("max_tokens", "INT32", (1,))], 0,
         "ON=True TOP_P=0.5 max_tokens=64"),
        ([("X", "FP16", (1, -1, -1, 3))], 0, "X=[[[[0.5, 0.5, 0.5]] * 32] * 32]"),  # a picture by its shape
        ([("IMAGE_PATH", "BYTES", (1,)), ("AUDIO", "BYTES", (-1,))], 0,
         "IMAGE_PATH='example.png' AUDIO='It was a bright cold day in April.'"),
        ([("PROMPT", "BYTES", (2,))], 0, "PROMPT=['What is a model repository?'] * 2"),
    ],
)  # fmt: skip
def test_values_are_what_inputs_may_well_take(inputs: Any, batch: int, expected: str) -> None:
    specs = tuple(TensorSpecRecord(*each) for each in inputs)
    assert line_of(ModelRecord("m", inputs=specs, max_batch_size=batch)) == f"%bls m {expected}"


def test_a_picture_in_text_is_one() -> None:
    image = pytest.importorskip("PIL.Image")
    line = line_of(ModelRecord("m", inputs=(TensorSpecRecord("INPUT_IMAGE", "BYTES", (1,)),)))
    data = base64.b64decode(line.split("=", 1)[1].strip("'"))
    import io

    assert image.open(io.BytesIO(data)).size == (64, 64)


def test_optional_ones_are_left_out_and_streams_and_sequences_asked_for() -> None:
    specs = (TensorSpecRecord("A", "FP32", (1,)), TensorSpecRecord("B", "FP32", (1,), True))
    lines = line_of(ModelRecord("m", inputs=specs, decoupled=True), True).split("\n")
    assert lines == [f"%bls m A=0.5 --stream --sequence {part}" for part in ("1:start", "1", "1:end")]


def test_a_picture_is_a_file_where_the_code_opens_one() -> None:
    assert takes_files([OPENS])
    assert not takes_files(["cv2.imdecode(base64.b64decode(data))"])
    specs = (TensorSpecRecord("IMAGE", "BYTES", (1,)), TensorSpecRecord("CAPTION", "BYTES", (1,)))
    line = line_of(ModelRecord("m", inputs=specs), source=OPENS)
    assert r"IMAGE=b'\x89PNG\r\n" in line
    assert "CAPTION='It was" in line
    for dims, batch in (((-1,), 4), ((-1, -1), 0)):
        spec = TensorSpecRecord("RAW", "UINT8", dims)
        assert "RAW=[[137, 80, 78" in line_of(ModelRecord("m", inputs=(spec,), max_batch_size=batch), source=OPENS)


@pytest.mark.parametrize(
    ("datatype", "dims", "optional", "style", "expected"),
    [
        ("FP32", (1,), True, "", None),
        ("FP32", (1,), True, "optional", 0.5),
        ("INT32", (-1, 2), False, "wide", [[1, 1]] * 8),
        ("BYTES", (1,), False, "json", '{"key": "It was a bright cold day in April."}'),
        ("UINT8", (-1,), False, "json", list(b'{"key": "It was a bright cold day in April."}')),
    ],
)
def test_each_style_differs(datatype: str, dims: Any, optional: bool, style: Any, expected: Any) -> None:
    record = ModelRecord("m", inputs=(TensorSpecRecord("IN", datatype, dims, optional),))
    inputs = example_inputs(record, style=style, sources=("json.loads(text)['key']",))
    assert (eval(inputs["IN"]) if inputs else None) == expected
    assert not json_text(["config['key']"])
    assert not json_text(["json.loads(args['model_config'])['key']", "json.loads(model_config)['key']"])


@pytest.mark.parametrize(
    ("datatype", "dims", "rows"),
    [("UINT8", (-1, -1, 3), 0), ("FP32", (3, 20, 40), 1), ("FP32", (-1, 3, -1, -1), 2), ("UINT8", (-1, -1), None)],
)
def test_a_drawn_picture_shows_the_word(datatype: str, dims: Any, rows: int | None) -> None:
    spec = TensorSpecRecord("IMAGE", datatype, dims)
    (plain, drawn) = (
        np.array(eval(example_inputs(ModelRecord("m", inputs=(spec,)), style=style)["IMAGE"]))
        for style in ("", "drawn")
    )
    assert drawn.shape == plain.shape
    gray = drawn if rows is None else drawn.reshape(drawn.shape[-3:])
    gray = gray if rows is None else gray[0] if rows else gray[..., 0]
    pixels = gray[:: gray.shape[0] // 16 or 1, :: gray.shape[1] // 16] > 0
    if gray.shape == (32, 32):
        assert ["".join(".#"[int(p)] for p in row) for row in pixels[5:10]] == [
            "###.###.#.#.###.", ".#..#...#.#..#..", ".#..##...#...#..", ".#..#...#.#..#..", ".#..###.#.#..#..",
        ]  # fmt: skip
    assert 0 < pixels.mean() < 0.5
