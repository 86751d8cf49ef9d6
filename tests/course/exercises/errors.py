"""Exercises of notebook 07."""

# ruff: noqa: E501 - a table

from __future__ import annotations

from tests.course.exercises.exercise import Exercise, ch, source

RETURN = "return pb_utils.InferenceResponse(error=response.error())"
MEAN = "np.array([np.mean(values)], np.float32)"
LEFT = """            if request.is_cancelled():
                error = pb_utils.TritonError("the client has left", pb_utils.TritonError.CANCELLED)
                return pb_utils.InferenceResponse(error=error)
"""
TOTAL = 'total = sum(self.ask("counter", rows[start : start + 4]) for start in range(0, len(rows), 4))'
RECURSION = """middle = len(rows) // 2
        total = self.ask("counter", rows) if len(rows) < 5 else self.ask("ink", rows[:middle]) + self.ask("ink", rows[middle:])"""
DECOUPLED = """    async def execute(self, requests):
        for request in requests:
            rows = pb_utils.get_input_tensor_by_name(request, "ROWS").as_numpy()
            halves = [rows] if len(rows) <= 4 else [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
            total = sum([await self.ask("counter" if len(rows) <= 4 else "ink", half) for half in halves])
            sender = request.get_response_sender()
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("INK", total)]), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    async def ask(self, model, rows):
        request = pb_utils.InferenceRequest(model_name=model, inputs=[pb_utils.Tensor("ROWS", rows)], requested_output_names=["INK"])
        for response in await request.async_exec(decoupled=True):
            if response.has_error():
                raise pb_utils.TritonModelException(response.error().message())
            if response.output_tensors():
                return pb_utils.get_output_tensor_by_name(response, "INK").as_numpy()
"""

BLAMES = """        try:
            return self.mean(request)
        except Exception as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"sensor failed: {error}"))

    def mean(self, request):
        values = []"""
STREAMED = (
    'IDS INT32 [-1]"', 'IDS INT32 [-1]" --decoupled', "        return [self.answer(request) for request in requests]",
    "        for request in requests:\n            sender = request.get_response_sender()\n"
    "            sender.send(self.answer(request, sender), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)",
    "def answer(self, request)", "def answer(self, request, sender)", "if request.is_", "if sender.is_",
)  # fmt: skip

INK = source("07_errors_and_deadlocks", "errors-46").partition("TritonPythonModel:\n")[2]

EXERCISES = {
    "pass the error on": Exercise(
        "07_errors_and_deadlocks", ("errors-01", "errors-03"), "errors-15", "errors-13",
        ch(RETURN, "raise pb_utils.TritonModelException(response.error().message())"),
        (
            (ch(RETURN, "continue"), "Every request was answered"),
            (ch(RETURN, 'raise ValueError("a sensor failed")'), "received an error, and this one hides it"),
            (ch(RETURN, 'return pb_utils.InferenceResponse(error=pb_utils.TritonError("there is no sensor 70", pb_utils.TritonError.NOT_FOUND))'),
             "does not contain 'there is no sensor 82'"),
            (ch(RETURN, 'return pb_utils.InferenceResponse(error=pb_utils.TritonError("error"))'), "does not contain"),
            (ch(f"                {RETURN}", "                pass"), "received an error, and this one hides it"),
            (ch(RETURN, "return response.error()"), "does not contain"),
            (ch("if response.has_error()", "if True"), "Its outputs are none"),
            (ch(MEAN, "np.array([np.mean(values)])"), "MEAN is FP64, expected FP32"),
            (ch(RETURN, "values.append(0.0); continue"), "return the error"),
            (ch("error=response.error()", "error=response.error().message()"), "a TypeError before it could pass the error on"),
            (ch("error=response.error()", "error=response.error"), "call the method: write `error()`"),
            (ch("CHECK:%bls average IDS=[1, 3] -q", ""), "request failed"),
            (ch("        values = []", BLAMES), "`sensor` was not even called. Catch only the errors that you expect"),
            (ch("np.mean(values)", "np.median(values)"), "for other inputs, MEAN: [22.5]"),
            (ch("        values = []\n", "        values = []\n        if hasattr(self, 'error'):\n            return pb_utils.InferenceResponse(error=self.error)\n",
                f"                {RETURN}", f"                if number != 82:\n                    self.error = response.error()\n                {RETURN}"),
             "`sensor` answers again, so your model must, too"),
        ),
    ),
    "stop for nobody": Exercise(
        "07_errors_and_deadlocks", ("errors-01", "errors-03", "errors-04", "errors-24"), "errors-31", "errors-29",
        ch(LEFT, "            if request.is_cancelled():\n                break\n", MEAN, "np.array([np.sum(values) / max(len(values), 1)], np.float32)"),
        (
            (ch(LEFT, ""), "after its client had left"),
            (ch(LEFT, "", "        values = []\n", f"        values = []\n{LEFT.replace('            ', '        ', 1).replace('    ' * 4, '    ' * 3)}"),
             "before each request"),
            (ch("request.is_cancelled()", "request.is_cancelled"), "failed"),
            (ch("request.is_cancelled()", "not request.is_cancelled()"), "Repair the error first: the client has left"),
            (ch("request.is_cancelled()", "pb_utils.is_cancelled()"), "has no attribute 'is_cancelled'"),
            (ch('"IDS").as_numpy():', '"IDS").as_numpy()[:5]:'), "got 23, expected 25.5"),
            (ch(LEFT, "            if request.is_cancelled():\n                return None\n"), "execute returned None"),
            (ch("CHECK:leave_after(3)\n", ""), "No request was cancelled"),
            (ch("if request.is_cancelled()", "if len(values) > 7 and request.is_cancelled()"), "requests after its client had left: ask"),
        ),
        (
            ch("return pb_utils.InferenceResponse(error=error)", "raise RuntimeError(error.message())"),
            ch(", pb_utils.TritonError.CANCELLED", ""),
            ch(*STREAMED),
        ),
    ),
    "no cycle": Exercise(
        "07_errors_and_deadlocks", ("errors-01", "errors-34", "errors-35", "errors-39"),
        "errors-46", "errors-44",
        ch('%%tritonmodel ink', '%%tritonmodel ink --decoupled', INK, DECOUPLED),
        (
            (ch(TOTAL, RECURSION), "circular BLS"),
            (ch(TOTAL, 'total = self.ask("counter", rows)'), "at most 4 rows, got 16"),
            (ch("start : start + 4", ":4"), "too large"),
            (ch(TOTAL, 'total = rows.sum(dtype="int32").reshape(1)'), "No request to counter"),
            (ch("start : start + 4", "start : start + 2", "len(rows), 4)", "len(rows), 2)"), "Send fewer requests to counter"),
            (ch("len(rows), 4)", "len(rows) - 4, 4)"), "Send more requests to counter"),
            (ch('"INK", total', '"INK", total.astype("int64")'), "INK is INT64, expected INT32"),
        ),
    ),
}  # fmt: skip
