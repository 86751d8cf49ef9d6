"""Attempts at the puzzles about waits and batches."""

# ruff: noqa: E501 - a table

from __future__ import annotations

import sys

from tests.course.exercises.exercise import ch
from tests.course.puzzles.attempts import NAIVE, Attempts

GROUP = ch(  # its errors have words of its own
    "outputs = await asyncio.gather(\n            ",
    "async with asyncio.TaskGroup() as group:\n            tasks = [group.create_task(call) for call in (",
    'self.ask("ink", "INK", image)\n        )',
    'self.ask("ink", "INK", image))]\n        outputs = [task.result() for task in tasks]',
)
LOOP = """means = []
        for number in range(count):
            frame = self.frame(number)
            means.append(frame.mean())"""

ATTEMPTS = {
    "gather": Attempts(
        "`exec` blocks until its response arrives",
        ch(
            "outputs = await asyncio.gather(",
            "outputs = [await task for task in [asyncio.ensure_future(c) for c in [",
            'self.ask("ink", "INK", image)\n        )',
            'self.ask("ink", "INK", image)\n        ]]]',
        ),
        (
            (ch("await request.async_exec()", "request.exec()"), "`exec` blocks until its response arrives"),
            (
                ch(
                    "outputs = await asyncio.gather(",
                    "outputs = [await c for c in (",
                    'self.ask("ink", "INK", image)\n        )',
                    'self.ask("ink", "INK", image)\n        )]',
                ),
                "Each `await` waits for its response",
            ),
            (
                ch(
                    'self.ask("ink", "INK", image)\n        )',
                    ')\n        outputs = [*outputs, await self.ask("ink", "INK", image)]',
                ),
                "1 of these waits is not needed",
            ),
            (ch(', self.ask("ink", "INK", image)', ""), "has no INK"),
            (ch("await asyncio.gather(", "asyncio.gather("), "failed"),
            (
                ch(
                    'self.ask("ink", "INK", image)',
                    "self.total(image)",
                    "    async def ask",
                    "    async def total(self, image):\n"
                    "        return pb_utils.Tensor('INK', image.as_numpy().sum(keepdims=True))\n\n    async def ask",
                ),
                "your model must not do the work of a callee itself",
            ),
        ),
        (GROUP,) if sys.version_info >= (3, 11) else (),
    ),
    "in_order": Attempts(
        "Each `await` waits for its response",
        ch(
            "await asyncio.gather(*[self.score(photo) for photo in photos])",
            "[await task for task in [asyncio.ensure_future(self.score(photo)) for photo in photos]]",
        ),
        (
            (
                ch(
                    "await asyncio.gather(*[self.score(photo) for photo in photos])",
                    "[await task for task in asyncio.as_completed([self.score(photo) for photo in photos])]",
                ),
                "in another order",
            ),
            (
                ch(
                    "await asyncio.gather(*[self.score(photo) for photo in photos])",
                    "[*await asyncio.gather(*[self.score(p) for p in photos[:4]]), *[await self.score(p) for p in photos[4:]]]",
                ),
                "of these waits are not needed",
            ),
            (
                ch("await asyncio.gather(*[self.score(photo) for photo in photos])", "[photos.sum(axis=1)]"),
                "There were 0 requests",
            ),
            (ch("await request.async_exec()", "request.exec()"), "`exec` blocks until its response arrives"),
            (ch("for photo in photos])", "for photo in photos[:5]])"), "values, expected"),
            (
                ch(
                    "scores = await asyncio.gather(*[self.score(photo) for photo in photos])",
                    "scores = sorted([await task for task in asyncio.as_completed([self.score(photo) for photo in photos])])\n"
                    "        scores = [scores[place] for place in photos.sum(axis=1).argsort().argsort()]",
                ),
                "your model must not do the work of a callee itself",
            ),
        ),
    ),
    "two_steps": Attempts(
        "`exec` blocks until its response arrives",
        ch(
            "words = await asyncio.gather(*[self.read(page) for page in pages])",
            'straight = await asyncio.gather(*[self.ask("straighten", pb_utils.Tensor("PAGE", p), "STRAIGHT") for p in pages])\n'
            '        words = [t.as_numpy() for t in await asyncio.gather(*[self.ask("read", s, "WORDS") for s in straight])]',
        ),
        (
            (ch("await request.async_exec()", "request.exec()"), "`exec` blocks until its response arrives"),
            (
                ch(
                    "words = await asyncio.gather(*[self.read(page) for page in pages])",
                    'straight = await asyncio.gather(*[self.ask("straighten", pb_utils.Tensor("PAGE", p), "STRAIGHT") for p in pages])\n'
                    '        words = [(await self.ask("read", s, "WORDS")).as_numpy() for s in straight]',
                ),
                "Each `await` waits for its response",
            ),
            (
                ch(
                    'straight = await self.ask("straighten", pb_utils.Tensor("PAGE", page), "STRAIGHT")',
                    'straight = pb_utils.Tensor("STRAIGHT", page)',
                ),
                "expected 1",
            ),
            (
                ch(
                    "await asyncio.gather(*[self.read(page) for page in pages])",
                    "[await self.read(page) for page in pages]",
                ),
                "Each `await` waits for its response",
            ),
        ),
    ),
    "one_batch": Attempts(
        "fewer requests to tax",
        ch("prices.reshape(-1, 1)", "prices[:, None]", ".ravel()", "[:, 0]"),
        (
            (ch("reshape(-1, 1)", "reshape(1, -1)"), "failed"),
            (
                ch("self.tax(prices.reshape(-1, 1)).ravel()", "prices * self.tax((prices[:1] * 0 + 1)[None])[0, 0]"),
                "got",
            ),
            (ch(".ravel()", ""), "The shape of TAXED should be"),
            (
                ch(
                    "self.tax(prices.reshape(-1, 1)).ravel()",
                    "prices * np.float32(1.25)",
                    "import triton",
                    "import numpy as np\nimport triton",
                ),
                "more requests to tax",
            ),
            (ch("self.tax(prices.reshape(-1, 1)).ravel()", "self.tax(prices[:1].reshape(-1, 1)).ravel()"), "expected"),
            (
                ch(
                    "self.tax(prices.reshape(-1, 1)).ravel()",
                    "self.tax(prices.reshape(-1, 1)).ravel().astype('float64')",
                ),
                "FP64, expected FP32",
            ),
        ),
    ),
    "free_early": Attempts(
        "Alive at that moment: camera/FRAME",
        ch("means.append(frame.mean())", "means.append(float(frame.mean()))\n            del frame"),
        (
            (
                (
                    *NAIVE,
                    *ch(
                        "means = [frame.mean() for frame in frames]",
                        "means = [frame.mean() for frame in frames]\n        del frames",
                    ),
                ),
                "camera/FRAME 6 MiB",
            ),
            (
                ch(
                    LOOP,
                    "frames = [self.frame(number)[:4] for number in range(count)]\n        means = [frame.mean() for frame in frames]",
                ),
                "camera/FRAME 6 MiB",
            ),
            (ch("range(count)", "range(count - 1)"), "expected"),
            (ch(".mean()", ".sum()"), "got"),
            (
                ch(
                    LOOP,
                    "self.frames = [self.frame(number) for number in range(count)]\n        means = [frame.mean() for frame in self.frames]",
                ),
                "camera/FRAME 6 MiB",
            ),
            (
                (*NAIVE, *ch("self.frame(number)", "self.frame(number).copy()")),
                "5.0 MiB more in copies that are no tensors",
            ),
            (ch("frame.mean()", "frame[0]"), "got 4, expected 1"),
        ),
        (
            ch(LOOP, "means = [self.frame(number).mean() for number in range(count)]"),
            ch(LOOP, "frames = map(self.frame, range(count))\n        means = [frame.mean() for frame in frames]"),
        ),
    ),
    "pass_it_on": Attempts(
        "The error should be the callee's own",
        ch(
            "return pb_utils.InferenceResponse(error=response.error())",
            "raise pb_utils.TritonModelException(response.error().message())",
        ),
        (
            (
                ch("return pb_utils.InferenceResponse(error=response.error())", "continue"),
                "Expected an error response: no price for item -1",
            ),
            (
                ch("error=response.error()", 'error=pb_utils.TritonError("failed")'),
                "The error should be the callee's own",
            ),
            (ch("return pb_utils.InferenceResponse(error=response.error())", "break"), "Expected an error response"),
            (ch("error=response.error()", "error=response.error().message()"), "The error should be the callee's own"),
            (ch("            total +=", "            asked.exec()\n            total +="), "fewer requests to price"),
            (ch("response.has_error()", "response.has_error"), "`response.has_error` is a method that is not called"),
            (ch("error=response.error()", "error=response.error"), "The error should be the callee's own"),
        ),
        (
            ch(
                "error=response.error()",
                'error=pb_utils.TritonError(f"item {item}: {response.error().message()}, so no total")',
            ),
        ),
    ),
}
