"""Exercises of notebook 10: a line deep in a pipeline, one request of many, a tensor in the wrong order."""

# ruff: noqa: E501 - a table

from __future__ import annotations

from tests.course.exercises.exercise import Exercise, ch

PRODUCT = "packs.astype(np.float32) * PIECES_IN_A_PACK"
CUT = "strip.reshape(8, -1, 8).swapaxes(0, 1)"

EXERCISES = {
    "text is bytes": Exercise(
        "10_debugging", ("debug-01", "debug-03", "debug-04", "debug-05"), "debug-14", "debug-12",
        ch('"EUR": 1.0, "GBP": 1.2, "USD": 0.9, "JPY": 0.006', 'b"EUR": 1.0, b"GBP": 1.2, b"USD": 0.9, b"JPY": 0.006', "[0].decode()", "[0]"),
        (
            (ch("[0].decode()", "[0]"), "KeyError: b'USD'"),
            (ch("[0].decode()", "[0]", '"USD"', 'b"USD"'), "output TOTAL FP32 == 240: request failed"),
            (ch("[0].decode()", "[0]", "RATES[currency]", "RATES.get(currency, 1.0)"), "Response 1: got 1, expected 0.9"),
            (ch("[0].decode()", "[0]", "RATES[currency]", "RATES.get(currency)"), "got nan, expected 0.9"),
            (ch("[0].decode()", "[0]", "RATES[currency]", "RATES[str(currency)]"), 'KeyError: "b\'USD\'"'),
            (ch("np.array([RATES[currency]], np.float32)", "np.array([RATES[currency]])"), "RATE is FP64, expected FP32"),
            (ch("as_numpy()[0].decode()", "as_numpy().decode()"), "no attribute 'decode'"),
            (ch("[0].decode()", "[0].decode().lower()"), "KeyError: 'usd'"),
            (ch("RATES[currency]", "RATES['USD']"), "Every response has the same value, 0.9"),
        ),
    ),
    "more than 255 pieces": Exercise(
        "10_debugging", ("debug-01", "debug-14", "debug-04", "+" "orders = [(['EUR', 'EUR'], [2.0, 3.0], [1, 2]), 0, 0, 0, (['EUR', 'EUR'], [1.0, 4.0], [25, 1]), 0, (['USD', 'EUR'], [1.0, 1.0], [10, 10])]"),
        "debug-31", "debug-29",
        ch(PRODUCT, "np.multiply(packs, PIECES_IN_A_PACK, dtype=np.uint16)"),
        (
            (ch(PRODUCT, "packs * PIECES_IN_A_PACK"), "Response 2: got 92, expected 348. It is 256 too small"),
            (ch(PRODUCT, "(packs * PIECES_IN_A_PACK).astype(np.float32)"), "like a UINT8 that passed 255"),
            (ch(PRODUCT, "packs.astype(np.int8) * PIECES_IN_A_PACK"), "256 too small"),
            (ch(PRODUCT, "packs.astype(np.float64) * PIECES_IN_A_PACK"), "TOTAL is FP64, expected FP32"),
            (ch(PRODUCT, "np.minimum(packs.astype(np.float32) * PIECES_IN_A_PACK, 300)"), "Response 4: got 600, expected 6120"),
            (ch(PRODUCT, "packs.astype(np.float32)"), "Response 1: got 8, expected 96"),
            (ch(PRODUCT, "np.where(packs == 25, np.float32(300), packs * PIECES_IN_A_PACK)"), "Response 4: got 488, expected 6120"),
            (ch("keepdims=True", "keepdims=False"), "TOTAL"),
        ),
    ),
    "cut a strip": Exercise(
        "10_debugging", ("debug-01", "debug-37", "debug-38"), "debug-45", "debug-43",
        ch("import triton", "import numpy as np\nimport triton", CUT, "np.stack(np.split(strip, strip.shape[1] // 8, axis=1))"),
        (
            (ch(CUT, "strip.reshape(-1, 8, 8)"), "The values are right, but in another order"),
            (ch(CUT, "strip.T.reshape(-1, 8, 8)"), "The values are right, but in another order"),
            (ch(CUT, "strip.reshape(8, -1, 8)"), "The values are right, but in another order"),
            (ch(CUT, CUT + "[::-1]"), "The values are right, but in another order"),
            (ch(CUT, CUT + "[:3]"), "The response has 192 values, expected 320"),
            (ch(CUT, CUT + ".astype('float32')"), "IMAGES is FP32, expected UINT8"),
            (ch(CUT, "strip.reshape(4, 8, 8)"), "cannot reshape"),
            (ch(CUT, "strip.reshape(8, 3, 8).swapaxes(0, 1)"), "cannot reshape"),
            (ch(CUT, CUT + " // 16"), "element 2: got 4, expected 75"),
        ),
    ),
}  # fmt: skip
