"""Exercises of notebook 11: a test that notices mistakes, and a model that copes with a callee's failures."""

# ruff: noqa: E501 - a table

from __future__ import annotations

from tests.course.exercises.exercise import Exercise, ch

CALLED = '    triton_repository.assert_called("rate", 1, inputs={"CURRENCY": ["USD"]})'
STUB = """with triton_repository.stub("rate", {"RATE": [0.5]}):
        answer = triton_repository.infer("price", {"CURRENCY": ["USD"], "PRICE": [1.0, 3.0]})"""
FAILED = "        if response.has_error():\n            return pb_utils.InferenceResponse(error=response.error())\n"
CHECK = "rate.shape != (1,) or not np.isfinite(rate).all()"
TOLD = "pb_utils.InferenceResponse(error=pb_utils.TritonError(f\"price: 'rate' answered {rate.tolist()}\"))"

EXERCISES = {
    "a test that notices": Exercise(
        "11_testing", ("testing-01", "testing-02", "testing-03", "testing-04", "+right = (shop / 'models/price/1/model.py').read_text()", "testing-13"),
        "testing-17", "testing-18",
        ch(STUB, STUB.partition("\n")[2].strip(), "[0.5, 1.5]})", "[0.9, 2.7]}, atol=1e-6)"),
        (
            (ch(STUB, STUB.replace("[0.5]", "[1.0]"), "[0.5, 1.5]", "[1.0, 3.0]"), "mistakes is ['divides by the rate'"),
            (ch(STUB, STUB.replace("[1.0, 3.0]", "[1.0]"), "[0.5, 1.5]", "[0.5]"), "mistakes is ['converts only the first price']"),
            (ch(STUB, STUB.replace("[1.0, 3.0]", "[2.0, 4.0]"), "[0.5, 1.5]", "[1.0, 2.0]"), "mistakes is ['rounds to whole euros']"),
            (ch(CALLED, ""), "mistakes is ['always asks for euros', 'calls rate twice']"),
            (ch(", inputs={\"CURRENCY\": [\"USD\"]}", ""), "mistakes is ['always asks for euros']"),
            (ch('"rate", 1, inputs', '"rate", inputs'), "mistakes is ['calls rate twice']"),
            (ch('"rate", 1, inputs', '"rate", 2, inputs'), "it fails with the right model"),
            (ch("[0.5, 1.5]})", "[0.5, 1.5]})\n    pytest.fail('too early')"), "it fails with the right model: too early"),
            (ch("[0.5, 1.5]})", "[0.5, 1.5]})\n    assert False"), "it fails with the right model: AssertionError()"),
            (ch("def test_price(triton_repository):", "runs = iter(range(99))\n\ndef test_price(triton_repository):\n    assert next(runs) % 7 == 0\n    return"),
             "it fails with the right model"),
            (ch("[0.5, 1.5]", "[2.0, 6.0]"), "it fails with the right model: price: EUROS differ"),
            (ch('    triton_repository.assert_answer(answer, {"EUROS": [0.5, 1.5]})', "    assert answer.error is None"), "mistakes is ['divides by the rate'"),
        ),
    ),
    "a callee that fails": Exercise(
        "11_testing", ("+import numpy as np\nimport bls_notebook as bls\n%load_ext bls_notebook\n%tritonrepo use", "testing-02"), "testing-30", "testing-31",
        ch(f"return {TOLD}", "raise pb_utils.TritonModelException(f'rate is no number: {rate}')"),
        (
            (ch(FAILED, "", "rate = np.zeros(0) if tensor is None else tensor.as_numpy()", "rate = tensor.as_numpy()", CHECK, "False"), "error: hides the error of 'rate'"),
            (ch("rate = np.zeros(0) if tensor is None else tensor.as_numpy()", "rate = tensor.as_numpy()"), "missing-output: raises an unintended exception"),
            (ch("rate.shape != (1,) or ", "tensor is None or "), "shape: no error, but EUROS has the shape"),
            (ch(" or not np.isfinite(rate).all()", ""), "nan: no error, but EUROS has 2 elements that are NaN"),
            (ch("return pb_utils.InferenceResponse(error=response.error())", "return pb_utils.InferenceResponse([pb_utils.Tensor('EUROS', prices)])"), "error: a response without 'rate'"),
            (ch("return pb_utils.InferenceResponse(error=response.error())", "raise pb_utils.TritonModelException('sorry')"), "error: "),
            (ch("        response = pb", "        rate = np.float32(0.9)\n        return pb_utils.InferenceResponse([pb_utils.Tensor('EUROS', prices * rate)])\n        response = pb"),
             "so no fault was tried"),
            (ch("prices * rate", "prices * min(rate, 1.2)"), "with another rate, EUROS"),
            (ch(CHECK, "True"), "model 'price' fails without a fault"),
            (ch("prices * rate", "(prices * rate).astype(float)"), "EUROS is FP64, expected FP32"),
        ),
        (ch(FAILED, FAILED.replace("return pb_utils.InferenceResponse(error=response.error())", "raise ValueError(response.error().message())"), CHECK, f"{CHECK} or rate[0] <= 0"),
         ch("        prices = pb", "        try:\n            return self.euros(request)\n        except ValueError as error:\n            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))\n\n    def euros(self, request):\n        prices = pb", f"return {TOLD}", "raise ValueError('rate is no number')")),
    ),
}  # fmt: skip
