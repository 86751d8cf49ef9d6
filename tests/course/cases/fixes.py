"""Fixes of the course's cases: right ones, and wrong ones with words of the hint.

A fix changes files of the pipeline as it is: ``model/config.pbtxt`` or ``model/1/model.py`` with old and new texts, in
the words of seed 0. A fix that begins with ``FIXED`` changes the files of the reference fix.
"""

# ruff: noqa: E501 - a table

from __future__ import annotations

from typing import NamedTuple

FIXED = "fixed"
Fix = tuple[str, ...]


class Fixes(NamedTuple):
    """Other right fixes than the reference, and wrong ones with words of their hints; ``naive`` are words of the hint for
    the unchanged pipeline."""

    naive: str
    right: tuple[Fix, ...]
    wrong: tuple[tuple[Fix, str], ...]


FIXES = {
    1: Fixes(
        "waited in a queue",
        (("label/config.pbtxt", "count: 1", "count: 8"),
         ("label/config.pbtxt", "[ { kind: KIND_CPU count: 1 } ]", "[ { kind: KIND_CPU count: 2 }, { kind: KIND_CPU count: 3 } ]")),
        (
            (("pack/config.pbtxt", "count: 6", "count: 12"), "waited in a queue"),
            (("depot/config.pbtxt", 'backend: "python"', 'backend: "python" instance_group [ { kind: KIND_CPU count: 4 } ]'), "waited in a queue"),
            (("label/config.pbtxt", "count: 1", "count: 2"), "waited in a queue"),
            ((FIXED, "label/1/model.py", "time.sleep(0.05)", "pass"), "does not wait or work as long"),
            ((FIXED, "depot/1/model.py", "done = await asyncio.gather(*[", "done = [await c for c in ([", "for i in range(len(parcels))])", "for i in range(len(parcels))])]"), "each `await` waits for its response"),
            ((FIXED, "depot/1/model.py", "np.concatenate(done)", "np.concatenate(done[::-1])"), "in another order"),
        ),
    ),
    6: Fixes(
        "held by sharpen.seen",
        (("sharpen/1/model.py", "self.seen[len(self.seen)] = picture  # for the statistics", "pass"),
         ("sharpen/1/model.py", "] = picture ", "] = (picture.shape(), int(picture.as_numpy().sum())) ")),
        (
            (("sharpen/1/model.py", "self.seen[len(self.seen)]", "self.seen[0]"), "held by sharpen.seen"),
            (("sharpen/1/model.py", "] = picture ", "] = picture.as_numpy()[0, :1] "), "a view keeps all of the tensor's memory"),
            (("sharpen/1/model.py", "    def execute", "    def finalize(self):\n        self.seen.clear()\n\n    def execute"), "held by sharpen.seen"),
            (("sharpen/1/model.py", "] = picture ", "] = request "), "held by sharpen.seen"),
            ((FIXED, "sharpen/1/model.py", "value ^ np.uint8(21)", "value"), "got"),
            ((FIXED, "darkroom/1/model.py", "for step in STEPS:", "for step in STEPS[:2]:"), "same answers: request 1"),
        ),
    ),
    8: Fixes(
        "Expected an error response: style",
        (("quiz/1/model.py", "        points = pb", "        if response.error() is not None:\n            raise pb_utils.TritonModelException(response.error().message())\n        points = pb"),
         ("quiz/1/model.py", "return 0 if points is None else int", "return int",
          "        points = pb", "        if response.has_error():\n            raise ValueError(response.error().message())\n        points = pb")),
        (
            (("quiz/1/model.py", "return 0 if", "return -1 if"), "Expected an error response: style"),
            ((FIXED, "quiz/1/model.py", "response.error().message()", '"a judge failed"'), "The error should be the callee's own"),
            (("quiz/1/model.py", "return 0 if points is None else int", "return int"), "The error should be the callee's own"),
            ((FIXED, "quiz/1/model.py", "if response.has_error()", "if not response.has_error()"), "the request failed"),
            ((FIXED, "style/1/model.py", "if value.min() < 0", "if False"), "Expected an error response: style"),
        ),
    ),
}  # fmt: skip
