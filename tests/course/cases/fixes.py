"""Fixes of the course's cases: right ones, and wrong ones with words of the hint.

A fix changes files of the faulty pipeline: ``model/config.pbtxt`` or ``model/1/model.py`` with old and new texts, in
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
            ((FIXED, "depot/1/model.py", "        return parcel\n", '        await self.ask("weigh", "IN", parcel, "OUT")\n        return parcel\n'), "would do: each occupies an instance"),
            ((FIXED, "depot/1/model.py", "np.concatenate(done)", "np.concatenate(done[::-1])"), "in another order"),
        ),
    ),
    2: Fixes(
        "`exec` blocks until its response arrives",
        (
            ("sports/1/model.py", "request.exec()", "await request.async_exec()",
             "texts = await asyncio.gather(*[self.look_up(article) for article in articles * 2])",
             "tasks = [asyncio.ensure_future(self.look_up(article)) for article in articles * 2]\n        texts = [await task for task in tasks]"),
            ("sports/1/model.py", "request.exec()", "await asyncio.to_thread(request.exec)"),
        ),
        (
            ((FIXED, "sports/1/model.py", "await asyncio.gather(*[self.look_up(article) for", "([await self.look_up(article) for"), "each `await` waits for its response"),
            (("archive/config.pbtxt", "count: 16", "count: 32"), "`exec` blocks until its response arrives"),
            (("sports/config.pbtxt", 'backend: "python"', 'backend: "python" instance_group [ { kind: KIND_CPU count: 4 } ]'), "`exec` blocks until its response arrives"),
            ((FIXED, "sports/1/model.py", "articles * 2", "articles"), "got"),
            ((FIXED, "archive/1/model.py", "time.sleep(0.05)", "pass"), "does not wait or work as long"),
            ((FIXED, "sports/1/model.py", "await request.async_exec()", "request.async_exec()"), "The model answered with an error"),
        ),
    ),
    3: Fixes(
        "waited in a queue",
        (
            ("gate/config.pbtxt", 'backend: "python"', 'backend: "python" instance_group [ { kind: KIND_CPU count: 8 } ]'),
            ("gate/1/model.py", """        return [await self.answer(request) for request in requests]
""", """        for request in requests:
            sender = request.get_response_sender()
            sender.send(await self.answer(request), flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""", "gate/config.pbtxt", 'backend: "python"', 'backend: "python" model_transaction_policy { decoupled: true }'),
        ),
        (
            (("scan/config.pbtxt", "count: 8", "count: 16"), "waited in a queue"),
            (("gate/1/model.py", "await self.answer(request) for request in requests]", "*await __import__('asyncio').gather(*[self.answer(request) for request in requests])]"), "waited in a queue"),
            (("gate/config.pbtxt", 'backend: "python"', 'backend: "python" instance_group [ { kind: KIND_CPU count: 2 } ]'), "waited in a queue"),
            ((FIXED, "gate/1/model.py", '"IN", checked', '"IN", ticket'), "expected"),
            ((FIXED, "scan/1/model.py", "time.sleep(0.03)", "pass"), "does not wait or work as long"),
            ((FIXED, "gate/1/model.py", "return [await", "return [] and [await"), "The model answered with an error"),
        ),
    ),
    4: Fixes(
        "the coroutine of tuner blocks its event loop",
        (
            ("tuner/1/model.py", "time.sleep(0.04)", "await asyncio.to_thread(time.sleep, 0.04)", "import time", "import asyncio\nimport time"),
            ("tuner/1/model.py", "time.sleep(0.04)", "await asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.04)", "import time", "import asyncio\nimport time"),
        ),
        (
            ((FIXED, "tuner/1/model.py", "await asyncio.sleep(0.04)", "__import__('time').sleep(0.04)"), "the coroutine of tuner blocks its event loop"),
            ((FIXED, "tuner/1/model.py", "await asyncio.sleep(0.04)", "pass"), "does not wait or work as long"),
            ((FIXED, "tuner/1/model.py", "value * 2", "value"), "got"),
            ((FIXED, "tuner/1/model.py", "for request in requests:", "for request in requests[:0]:"), "The model answered with an error"),
            (("studio/config.pbtxt", 'backend: "python"', 'backend: "python" instance_group [ { kind: KIND_CPU count: 4 } ]'), "the coroutine of tuner blocks its event loop"),
        ),
    ),
    5: Fixes(
        "Send fewer requests to rate",
        (("invoice/1/model.py", '[self.ask("rate", "IN", prices[i : i + 1], "OUT") for i in range(len(prices))]', '[self.ask("rate", "IN", prices.copy(), "OUT")]'),),
        (
            (("invoice/1/model.py", "for i in range(len(prices))]", "for i in range(len(prices) - 1)]"), "got"),
            (("invoice/1/model.py", "prices[i : i + 1]", "prices[i : i + 2]", "range(len(prices))", "range(0, len(prices), 2)"), "Send fewer requests to rate"),
            (("rate/config.pbtxt", 'backend: "python"', 'backend: "python" instance_group [ { kind: KIND_CPU count: 8 } ]'), "Send fewer requests to rate"),
            ((FIXED, "invoice/1/model.py", '"rate", "IN", prices, "OUT")', '"rate", "IN", prices[:1], "OUT")'), "got"),
            ((FIXED, "invoice/1/model.py", 'self.ask("rate", "IN", prices, "OUT")', "prices * 7 // 4"), "No request to rate was recorded"),
        ),
    ),
    7: Fixes(
        "Alive at that moment: draw/OUT 2 MiB",
        (
            ("atlas/1/model.py", "        areas = [", "        areas = []\n        while tiles:\n            areas.append(self.ask('measure', 'IN', tiles.pop(0)(), 'OUT'))\n        areas += [", '[self.ask("draw"', '[lambda i=i: self.ask("draw"'),
            ("atlas/1/model.py", """        tiles = [self.ask("draw", "IN", numbers[i : i + 1], "OUT") for i in range(len(numbers))]
        areas = [self.ask("measure", "IN", tile, "OUT") for tile in tiles]
""", """        areas = []
        for i in range(len(numbers)):
            tile = self.ask("draw", "IN", numbers[i : i + 1], "OUT")
            areas.append(self.ask("measure", "IN", tile, "OUT"))
"""),
        ),
        (
            (("atlas/1/model.py", "        return pb_utils.InferenceResponse(", "        del tiles\n        return pb_utils.InferenceResponse("), "Alive at that moment: draw/OUT 2 MiB"),
            ((FIXED, "atlas/1/model.py", "for tile in tiles]", "for tile in list(tiles)]"), "Alive at that moment: draw/OUT 2 MiB"),
            (("atlas/1/model.py", "for tile in tiles]", "for tile in reversed(tiles)]"), "in another order"),
            (("atlas/1/model.py", "range(len(numbers))]", "range(min(4, len(numbers)))]"), "expected 8"),
            ((FIXED, "measure/1/model.py", "value.sum()", "value.max()"), "got"),
        ),
    ),
    6: Fixes(
        "held by sharpen.seen",
        (("sharpen/1/model.py", "self.seen[len(self.seen)] = picture  # for the statistics", "pass"),
         ("sharpen/1/model.py", "] = picture ", "] = (picture.shape(), int(picture.as_numpy().sum())) "),
         ("sharpen/1/model.py", "self.seen[len(self.seen)] = picture ", "self.seen[0] = picture.as_numpy().copy() ")),
        (
            (("sharpen/1/model.py", "self.seen[len(self.seen)]", "self.seen[0]"), "held by sharpen.seen"),
            (("sharpen/1/model.py", "] = picture ", "] = picture.as_numpy()[0, :1] "), "a view keeps all of the tensor's memory"),
            (("sharpen/1/model.py", "    def execute", "    def finalize(self):\n        self.seen.clear()\n\n    def execute"), "held by sharpen.seen"),
            (("sharpen/1/model.py", "] = picture ", "] = request "), "held by sharpen.seen"),
            ((FIXED, "darkroom/1/model.py", "            raise", "            self.failed = array\n            raise"), "while a callee fails: "),
            (("sharpen/1/model.py", "] = picture ", "] = picture.as_numpy().copy() "), "copies, held by sharpen.seen"),
            (("sharpen/1/model.py", "self.seen[len(self.seen)] = picture ", "self.seen[0] = np.append(self.seen.get(0, []), picture.as_numpy()) "), "added to a copy, held by sharpen.seen"),
            ((FIXED, "sharpen/1/model.py", "value ^ np.uint8(21)", "value"), "got"),
            ((FIXED, "darkroom/1/model.py", "for step in STEPS:", "for step in STEPS[:2]:"), "same answers: request 1"),
        ),
    ),
    8: Fixes(
        "Expected an error response: style got",
        (("quiz/1/model.py", "        points = pb", "        if response.error() is not None:\n            raise pb_utils.TritonModelException(response.error().message())\n        points = pb"),
         ("quiz/1/model.py", "return 0 if points is None else int", "return int",
          "        points = pb", "        if response.has_error():\n            raise ValueError(f'{judge} failed: {response.error().message()}')\n        points = pb")),
        (
            (("quiz/1/model.py", "return 0 if", "return -1 if"), "Expected an error response: style got"),
            ((FIXED, "quiz/1/model.py", "response.error().message()", '"a judge failed"'), "The error should be the callee's own"),
            (("quiz/1/model.py", "return 0 if points is None else int", "return int"), "The error should be the callee's own"),
            ((FIXED, "quiz/1/model.py", "if response.has_error()", "if not response.has_error()"), "The model answered with an error"),
            ((FIXED, "style/1/model.py", "if value.min() < 0", "if False"), "Expected an error response: style got"),
            ((FIXED, "quiz/1/model.py", "raise pb_utils.TritonModelException(response.error().message())", "return pb_utils.InferenceResponse(error=response.error)"), "The error should be the callee's own"),
        ),
    ),
    9: Fixes(
        "The values are right, but in another order",
        (
            ("finish/1/model.py", "[await run for run in asyncio.as_completed(runs)]", "[await task for task in list(map(asyncio.ensure_future, runs))]"),
            ("finish/1/model.py", "[await run for run in asyncio.as_completed(runs)]", "[None] * len(lanes)\n\n        async def finished(lane):\n            times[lane] = await runs[lane]\n\n        await asyncio.gather(*map(finished, range(len(lanes))))"),
        ),
        (
            (("finish/1/model.py", "asyncio.as_completed(runs)", "runs"), "each `await` waits for its response"),
            ((FIXED, "finish/1/model.py", "np.concatenate(times)", "np.sort(np.concatenate(times))"), "in another order"),
            ((FIXED, "finish/1/model.py", "np.concatenate(times)", "np.concatenate(times[::-1])"), "in another order"),
            (("finish/1/model.py", "np.concatenate(times)", "np.concatenate(times)[lanes.argsort().argsort()]"), "in another order"),
            ((FIXED, "finish/1/model.py", "range(len(lanes))", "range(1, len(lanes))"), "3 values, expected 4"),
        ),
    ),
    10: Fixes(
        "The model answered with an error",
        (
            ("sorter/1/model.py", "        return [self.answer(request) for request in requests]", """        responses = []
        for request in requests:
            try:
                responses.append(self.answer(request))
            except pb_utils.TritonModelException as error:
                responses.append(pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error))))
        return responses"""),
        ),
        (
            (("sorter/1/model.py", "        street = self.ask(", """        if code[0, 0] < 0:
            error = pb_utils.TritonError(f"lookup got {code[0, 0]}, expected no negative code")
            self.ask("lookup", "IN", code.ravel() * 0, "OUT")
            return pb_utils.InferenceResponse(error=error)
        street = self.ask("""),
             "must not do the work of a callee itself"),
            (("sorter/config.pbtxt", "max_batch_size: 8", "", "dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 100000 }", "", "dims: [ 1 ]", "dims: [ 1, 1 ]"), "waited in a queue"),
            ((FIXED, "sorter/1/model.py", "return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))", "street = code * 0"), "Expected an error response"),
            ((FIXED, "sorter/1/model.py", "str(error)", '"bad code"'), "The error should be the callee's own"),
            (("sorter/1/model.py", "self.answer(request) for request in requests]", "self.answer(request) for request in requests if True][:3]"), "The model answered with an error"),
            ((FIXED, "sorter/1/model.py", "        code = pb", "        try:\n            return self.sorted(request)\n        except Exception as error:\n            return pb_utils.InferenceResponse(error=pb_utils.TritonError(f'lookup: {error}'))\n\n    def sorted(self, request):\n        code = pb"),
             "`lookup` was not even called"),
            ((FIXED, "sorter/1/model.py", "self.ask(", "1 / 0 or self.ask("), "The model answered with an error"),
        ),
    ),
}  # fmt: skip
