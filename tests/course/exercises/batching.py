"""Exercises of notebook 05."""

# ruff: noqa: E501 - a table

from __future__ import annotations

from tests.course.exercises.exercise import Exercise, ch

NAME = "05_batching"
RAGGED = ', "allow_ragged_batch": True'
BATCHER = '"dynamic_batching": delay'
GATHERED = """    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
        import asyncio

        lines = pb_utils.get_input_tensor_by_name(request, "LINES").as_numpy()
        totals = await asyncio.gather(*[self.ask(line[None]) for line in lines])"""
SYNC = """    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        lines = pb_utils.get_input_tensor_by_name(request, "LINES").as_numpy()
        totals = self.ask(lines)"""
ONE_BY_ONE = "[self.ask(line[None]) for line in lines]"
ASYNC = (
    SYNC,
    GATHERED,
    "    def ask",
    "    async def ask",
    "response = pb_utils",
    "response = await pb_utils",
    ").exec()",
    ").async_exec()",
)

EXERCISES = {
    "different lengths in one batch": Exercise(
        NAME, ("batch-01", "batch-03"), "batch-17", "batch-15",
        ch('"max_batch_size": 8', '"max_batch_size": 16', BATCHER, '"dynamic_batching": {"max_queue_delay_microseconds": 100_000}'),
        (
            (ch(RAGGED, ""), "had another shape of input 'TOKENS'"),
            (ch(RAGGED, "", BATCHER, '"dynamic_batching": {"max_queue_delay_microseconds": 5_000}'), "allow_ragged_batch"),
            (ch(RAGGED, "", BATCHER, '"dynamic_batching": {"preferred_batch_size": [8]}'), "had another shape"),
            (ch(BATCHER, '"dynamic_batching": {"preferred_batch_size": [4], **delay}'), "a `preferred_batch_size` waits for no more"),
            (ch(f", {BATCHER}", ""), "without `dynamic_batching` each request runs alone"),
            (ch('"max_batch_size": 8', '"max_batch_size": 4'), "executions of encoder: 2"),
            (ch(BATCHER, f'{BATCHER}, "instance_group": [{{"count": 8}}]', RAGGED, ""), "equal shapes"),
            (ch("CHECK:send([4, 6] * 4)", "send([4] * 8)", RAGGED, ""), "4, 4, 4"),
            (ch("CHECK:send([4, 6] * 4)", "send([4, 6])"), "There should be more requests to encoder"),
        ),
    ),
    "one execution for eight lines": Exercise(
        NAME, ("batch-01", "batch-03", "+repo.load('encoder', config={'max_batch_size': 8, 'dynamic_batching': {}})"), "batch-33", "batch-31",
        ch(*ASYNC),
        (
            (ch("self.ask(lines)", ONE_BY_ONE), "They were sent one after the other"),
            (ch("self.ask(lines)", "[self.ask(lines[:4]), self.ask(lines[4:])]"), "as rows of one request"),
            (ch(*ASYNC, "await asyncio.gather(*[self.ask(line[None]) for line in lines])", "[await self.ask(line[None]) for line in lines]"),
             "They were sent one after the other"),
            (ch("self.ask(lines)", "self.ask(lines[:1])"), "SUM"),
            (ch("self.ask(lines)", "self.ask(lines[:1]) if len(lines) < 8 else 0\n        totals = self.ask(lines)"), "2 waits: encoder, then encoder"),
            (ch("self.ask(lines)", "self.ask(lines.reshape(1, -1))", "np.sum(totals)", "np.sum(totals) + 1"), "got 497, expected 496"),
            (ch("totals = self.ask(lines)", "totals = lines"), "no request was recorded"),
            (ch("np.array([np.sum(totals)], np.int32)", "np.array([np.sum(totals)])"), "SUM is INT64, expected INT32"),
            (ch("self.ask(lines)", "self.ask(lines[None])"), "unexpected shape for input"),
            (ch("self.ask(lines)", "self.ask(lines.astype(np.int64))"), "expects 'INT32'"),
        ),
    ),
    "the batch dimension of a callee": Exercise(
        NAME, ("batch-01", "batch-03"), "batch-43", "batch-41",
        ch("line[None]", "line.reshape(1, -1)", ".as_numpy()[0]", ".as_numpy().reshape(1)"),
        (
            (ch("line[None]", "line"), "unexpected shape for input"),
            (ch(".as_numpy()[0]", ".as_numpy()"), "got shape [1, 1]"),
            (ch("line[None]", "line[:, None]"), "got 1, expected 10"),
            (ch("line[None]", "line[None, None]"), "unexpected shape for input"),
            (ch(".as_numpy()[0]", ".as_numpy()[0][0]"), "TOTAL"),
            (ch("line[None]", 'line[None].astype("float32")'), "expects 'INT32'"),
            (ch(".as_numpy()[0]", ".as_numpy()[0].astype('int64')"), "TOTAL is INT64"),
            (ch('inputs=[pb_utils.Tensor("TOKENS", line[None])]', "inputs=[]"), "missing required input"),
        ),
    ),
}  # fmt: skip
