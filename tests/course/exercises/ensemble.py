"""Exercises of notebook 08."""

# ruff: noqa: E501 - a table

from __future__ import annotations

from tests.course.exercises.exercise import Exercise, ch

BEFORE = ("ensemble-01", "ensemble-03", "ensemble-04", "ensemble-05")
GATHER = "return await asyncio.gather(*[self.answer(request) for request in requests])"
BATCHING = """    @staticmethod
    def auto_complete_config(config):
        config.set_dynamic_batching()
        return config

"""
RESPONSE = "return pb_utils.InferenceResponse(list(both))"
DECOUPLED = """for request in requests:
            request.get_response_sender().send(await self.answer(request), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)"""
ROW = "np.full((len(image.as_numpy()), 1), -1, np.int32)"
IGNORED = """tensor, output, ignored=False):
        try:
            return await self.asked(model, tensor, output)
        except pb_utils.TritonModelException:
            if not ignored:
                raise
        import numpy as np

        return pb_utils.Tensor("ROW", np.full((len(tensor.as_numpy()), 1), -1, np.int32))

    async def asked(self, model, tensor, output):"""
FAILED = "if place.has_error():"
PASS = """            if (cleaner == image).all():
                break
"""

EXERCISES = {
    "eight clients": Exercise(
        "08_bls_or_ensemble", BEFORE, "ensemble-20", "ensemble-18",
        ch("by_bls --max", "by_bls --decoupled --max", GATHER, DECOUPLED, BATCHING, ""),
        (
            (ch(GATHER, "return [await self.answer(request) for request in requests]", BATCHING, ""), "by_bls executed 1 request at a time"),
            (ch(BATCHING, ""), "by_bls executed 1 request at a time"),
            (ch("by_bls --max", "by_bls --instances 2 --max", BATCHING, ""), "by_bls executed 2 requests at a time"),
            (ch(GATHER, "return [await self.answer(request) for request in requests]"), "each `await` waits"),
            (ch("await pb_utils.InferenceRequest(", "pb_utils.InferenceRequest(", ".async_exec()", ".exec()"), "`exec` blocks until"),
            (ch("pb_utils.get_input_tensor_by_name(request, \"IMAGE\"), \"CLEAN\")",
                "pb_utils.get_input_tensor_by_name(request, \"IMAGE\"), \"CLEAN\") if request is not None else None", GATHER,
                "first = await self.answer(requests[0])\n        return [first] * len(requests)"), "all: send 4"),
            (ch(RESPONSE, RESPONSE.replace("list(both)", "[both[1]]")), "no INK"),
            (ch('self.ask("ink", clean, "INK")', 'self.ask("ink", pb_utils.Tensor("CLEAN", clean.as_numpy() // 2), "INK")'),
             "too small"),
            (ch('self.ask("place", clean, "ROW")', 'self.ask("place", clean, "ROW", ignored=True)', "tensor, output):", IGNORED), "while place fails"),
        ),
    ),
    "an answer without a row": Exercise(
        "08_bls_or_ensemble", BEFORE, "ensemble-29", "ensemble-27",
        ch(ROW, "np.array([[-1]] * image.shape()[0], np.int32)"),
        (
            (ch(FAILED, "if False:"), "failed before: a blank picture has no center"),
            (ch(FAILED, "if True:"), "Every response has the same value, -1"),
            (ch(FAILED, "if not place.has_error():"), "failed before: a blank picture has no center"),
            (ch(ROW, "np.full((len(image.as_numpy()), 1), -1)"), "ROW is INT64, expected INT32"),
            (ch(ROW, "np.full((1, 1), 0, np.int32)"), "Response 2: got 0, expected -1"),
            (ch(FAILED, "if place.has_error():\n            return pb_utils.InferenceResponse(error=place.error())\n        if False:"), "a blank picture has no center"),
            (ch("        ink, place =", "        if not image.as_numpy().any():\n            return pb_utils.InferenceResponse([pb_utils.Tensor(\"INK\", np.zeros((1, 1), np.int32)), pb_utils.Tensor(\"ROW\", np.full((1, 1), -1, np.int32))])\n        ink, place ="),
             "Request 2 calls place 0 times, expected 1"),
            (ch('[pb_utils.get_output_tensor_by_name(ink, "INK"), row]', "[row]"), "no INK"),
        ),
    ),
    "scrub": Exercise(
        "08_bls_or_ensemble", BEFORE[:2], "ensemble-36", "ensemble-34",
        ch("for _ in range(255):", "cleaner = None\n        while cleaner is None or (cleaner != image).any():", PASS, "",
           "            cleaner = self.ask(image)\n            image = cleaner\n", "            image, cleaner = (image if cleaner is None else cleaner), self.ask(image if cleaner is None else cleaner)\n"),
        (
            (ch(PASS, "", "range(255)", "range(4)"), "Request 2 calls denoise 4 times, expected 1"),
            (ch(PASS, "", "range(255)", "range(1)"), "Request 1 calls denoise 1 time, expected 4"),
            (ch("(cleaner == image).all()", "(cleaner[0] == image[0]).all()"), "for other inputs, CLEAN"),
            (ch("(cleaner == image).all()", "(cleaner == image).any()"), "Request 1 calls denoise 1 time, expected 4"),
            (ch("(cleaner == image).all()", "(cleaner != image).any()", "range(255)", "range(9)"), "Request 1 calls denoise 1 time, expected 4"),
            (ch('Tensor("CLEAN", image)', 'Tensor("CLEAN", image.astype("int32"))'), "CLEAN is INT32, expected UINT8"),
            (ch("cleaner = self.ask(image)", "cleaner = image - ((image > 0) & (image < 4))"), "No request to denoise"),
            (ch("            image = cleaner\n", "            image = self.ask(cleaner)\n"), "times, expected"),
            (ch("return pb_utils.InferenceResponse([pb_utils.Tensor(\"CLEAN\", image)])",
                "return pb_utils.InferenceResponse([pb_utils.Tensor(\"CLEAN\", 2 * image)])"), "got 10, expected 5"),
        ),
    ),
}  # fmt: skip
