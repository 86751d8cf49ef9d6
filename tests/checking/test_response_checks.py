"""What `execute` does wrong with requests and responses: awaits, blocking calls, counts, final flags, errors."""

from __future__ import annotations

import pytest

from tests.checking.conftest import CONFIG, Check, execute, model

SCORED = 'output [ { name: "SCORE" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
BATCHED = f"{CONFIG}{SCORED}max_batch_size: 8\ndynamic_batching {{ }}\n"
DECOUPLED = CONFIG + "model_transaction_policy { decoupled: true }\n"
HEAD = execute("pass").partition("    def execute")[0]
REQUEST = 'pb_utils.InferenceRequest(model_name="b", requested_output_names=["OUT"], inputs=[x])'
READ = 'pb_utils.get_output_tensor_by_name(answer, "OUT").as_numpy()'
OK = "pb_utils.InferenceResponse([])"
FINAL = "sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)"


def source(body: str, head: str = "def execute(self, requests):", more: str = "") -> str:
    """Return a model; line 5 is the first one of `body`."""
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return f"{HEAD}    {head}\n{lines}{more}".replace("REQUEST", REQUEST).replace("READ", READ).replace("OK", OK)


def loop(body: str) -> str:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return source(f"out = []\nfor request in requests:\n{lines}return out")


def stream(body: str) -> str:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return source(
        f"for request in requests:\n    sender = request.get_response_sender()\n{lines}".replace("FINAL", FINAL)
    )


def asks(body: str, head: str = "async def execute(self, requests):", more: str = "") -> str:
    return source(
        f'import asyncio\nx = pb_utils.Tensor("IN", requests[0])\n{body}\nreturn [OK for _ in requests]', head, more
    )


GET = 'pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()'
IN, OUT, SCORE = f"x = {GET}", 'pb_utils.Tensor("OUT", x)', 'pb_utils.Tensor("SCORE", x)'
PLAIN = "def execute(self, requests):"
CHECKED = "\nassert not answer.has_error()\nREAD"
BUFFER = REQUEST.replace("[x]", '[pb_utils.Tensor("IN", buffer)]')
ASYNC_HELPER = "\n    async def one(self, x):\n        return OK\n"
CASES = [
    # -- await
    (asks("answer = REQUEST.async_exec()" + CHECKED, PLAIN), {"async-in-sync": 8}),
    (asks("self.ask(x)", PLAIN, "\n    def ask(self, x):\n        REQUEST.async_exec()\n"), {"async-in-sync": 12}),
    (asks("asyncio.run(self.ask(x))", PLAIN, "\n    async def ask(self, x):\n"
          "        await REQUEST.async_exec()\n"), {}),
    (asks("answer = REQUEST.async_exec()" + CHECKED), {"await-missing": 8}),
    (asks("answer = await REQUEST.async_exec()" + CHECKED), {}),
    (asks("answer = REQUEST.async_exec()\nanswer = await answer" + CHECKED), {}),
    (asks("for answer in asyncio.gather(REQUEST.async_exec()):\n    answer.error()"),
     {"await-missing": 8}),
    (asks("for answer in await asyncio.gather(REQUEST.async_exec()):\n    answer.error()"), {}),
    (asks("for answer in [REQUEST.async_exec() for _ in requests]:\n    answer.error()"), {"await-missing": 8}),
    # -- one buffer for several calls
    *(
        (asks(f"import numpy as np\nbuffer, calls = np.zeros(2), []\nfor n in 1, 2:\n    {fill}\n"
              f"    calls.append({send}.async_exec())\nawait asyncio.gather(*calls)"), expected)
        for fill, send, expected in (
            ("buffer[:] = n", BUFFER, {"buffer-reused": 11}),
            ("buffer[:len(calls)] = n", BUFFER.replace("buffer", "buffer[:1]"), {"buffer-reused": 11}),
            ("np.copyto(buffer, n)", BUFFER.replace("buffer", "buffer.reshape(1, 2)"), {"buffer-reused": 11}),
            ("buffer.fill(n)", BUFFER, {"buffer-reused": 11}),
            ("np.add(buffer, n, out=buffer)", BUFFER, {"buffer-reused": 11}),
            ("buffer = np.full(2, n)", BUFFER, {}),
            ("buffer = np.zeros(2); buffer[:] = n", BUFFER, {}),
            ("buffer[:] = n", BUFFER.replace("buffer", "buffer.copy()"), {}),
            ("buffer[n - 1] = n", BUFFER, {}),
            ("buffer[:] = n; await asyncio.sleep(0)", BUFFER, {}),
            ("pass", BUFFER, {}),
        )
    ),
    (asks("self.one(x)", more=ASYNC_HELPER), {"await-missing": 8}),
    (asks("await self.one(x)", more=ASYNC_HELPER), {}),
    (asks("answer = REQUEST.exec()" + CHECKED), {"exec-in-async": 8}),
    (asks("await asyncio.to_thread(lambda: REQUEST.exec())"), {}),
    (asks("await asyncio.to_thread(self.ask, x)",
          more="\n    def ask(self, x):\n        REQUEST.exec()\n"), {}),
    # -- errors
    (asks("answer = REQUEST.exec()\nREAD", PLAIN), {"error-unchecked": 9}),
    (asks("answer = REQUEST.exec()\nif answer.error() is None:\n    READ", PLAIN), {}),
    (asks("answer = REQUEST.exec()\nself.test(answer)\nREAD", PLAIN), {}),
    (asks("answer = REQUEST.exec()\nanswer.output_tensors()[0]", PLAIN), {"error-unchecked": 9}),
    (asks("answer = REQUEST.exec()\nif len(answer.output_tensors()):\n    READ", PLAIN), {}),
    (asks("answer = self.ask(x)\nREAD", PLAIN), {}),
    (asks("answer = REQUEST.exec()\ntry:\n    READ\nexcept AttributeError:\n    pass", PLAIN), {}),
    (asks("sent = []\nfor _ in requests:\n    sent.append(REQUEST.async_exec())\n"
          "for answer in await asyncio.gather(*sent):\n    READ"), {"error-unchecked": 12}),
    (asks("answer, _ = await asyncio.gather(REQUEST.async_exec(), REQUEST.async_exec())\nREAD"),
     {"error-unchecked": 9}),
    (asks("raise pb_utils.TritonError('no')", PLAIN), {"raise-no-exception": 8}),
    (asks("answer = pb_utils.InferenceResponse(error='no')", PLAIN), {"error-no-error": 8}),
    (asks("text = 'no ' + str(x)\nanswer = pb_utils.InferenceResponse([], text)", PLAIN), {"error-no-error": 9}),
    (asks("try:\n    1\nexcept ValueError as e:\n    pb_utils.InferenceResponse(error=e)", PLAIN),
     {"error-no-error": 11}),
    (asks("error = None\nif x:\n    error = pb_utils.TritonError(f'no {x}')\npb_utils.InferenceResponse(error=error)",
          PLAIN), {}),
    (asks("pb_utils.InferenceResponse([], pb_utils.TritonError('no' + x)), pb_utils.InferenceResponse(error=x.error())",
          PLAIN), {}),
    (asks("raise pb_utils.TritonModelException('no')", PLAIN), {}),
    # -- as many responses as requests
    (source("return [OK]"), {"response-missing": 6}),
    (source("out = []\nfor request in requests:\n    request.inputs()\nreturn out"), {"response-missing": 9}),
    (source("return [OK] * len(requests)"), {}),
    (source("if len(requests) > 1:\n    raise ValueError\nreturn [OK]"), {}),
    (source("out = []\nout.append(OK)\nreturn out"), {"response-missing": 8}),
    (source("return OK"), {"response-not-list": 6}),
    (source("print(requests)"), {"response-not-list": 5}),
    (source("raise NotImplementedError"), {}),
    (source("return [OK for request in requests if request.timeout()]"), {"response-missing": 6}),
    (source("for request in requests:\n    out = [OK]\n    return out"), {"response-missing": 8}),
    (loop("if request.timeout():\n    continue\nout.append(OK)"), {"response-missing": 9}),
    (loop("if request.timeout():\n    out.append(OK)\n    continue\nout.append(OK)"), {}),
    (loop("if request.timeout():\n    out.append(OK)"), {"response-missing": 8}),
    (loop("if request.timeout():\n    out.append(OK)\nelse:\n    out.append(OK)"), {}),
    (loop("if request.timeout():\n    out.append(OK)\nout.append(OK)"), {"response-missing": 10}),
    (loop("if request.timeout():\n    out.append(OK)\nif not request.timeout():\n    out.append(OK)"), {}),
    (loop("if request.timeout():\n    out.append(OK)\nelif not request.timeout():\n    out.append(OK)"), {}),
    (loop("try:\n    out.append(OK)\nexcept ValueError:\n    print('no')"), {"response-missing": 8}),
    (loop("try:\n    out.append(OK)\nexcept ValueError:\n    out.append(OK)"), {}),
    (loop("try:\n    answer = OK\nexcept ValueError:\n    answer = OK\nout.append(answer)"), {}),
    (loop("while not request:\n    out.append(OK)"), {}),
    (loop("self.answer(out, request)\nif request:\n    out.append(OK)"), {}),
    # -- the final flag
    (stream("sender.send(OK)"), {"final-missing": 8}),
    (stream("sender.send(OK)\nFINAL"), {}),
    (stream("if request.timeout():\n    continue\nFINAL"), {"final-missing": 9}),
    (stream("if request.timeout():\n    sender.send(OK)\nelse:\n    FINAL"), {"final-missing": 8}),
    (stream("if request.timeout():\n    self.later(sender)\nelse:\n    FINAL"), {}),
    (stream("if request.timeout():\n    sender.send(flags=LAST)\n    continue\nsender.send(OK, LAST)"), {}),
    (stream("if request.timeout():\n    continue\nsender.send(flags=1)"), {"final-missing": 9}),
    # -- a send after it
    (stream("FINAL\nsender.send(OK)"), {"send-after-final": 9}),
    (stream("sender.send(OK, flags=1)\nFINAL"), {"send-after-final": 9}),
    (stream("if request.timeout():\n    FINAL\nsender.send(OK)\nFINAL"), {"send-after-final": 10}),
    (stream("for _ in range(3):\n    sender.send(OK, flags=1)"), {"send-after-final": 9}),
    (stream("try:\n    FINAL\nfinally:\n    FINAL"), {"send-after-final": 11}),
    (stream("close(sender)\nFINAL") + "def close(s):\n    FINAL\n".replace("FINAL", FINAL.replace("sender", "s")),
     {"send-after-final": 9}),
    (stream("if request.timeout():\n    FINAL\n    continue\nsender.send(OK)\nFINAL"), {}),
    (stream("for last in 0, 1:\n    sender.send(OK, flags=1 if last else 0)"), {}),
    (stream("done = False\nif request.timeout():\n    FINAL\n    done = True\nif not done:\n    FINAL"), {}),
    (stream("while True:\n    sender.send(OK)\n    if request:\n        FINAL\n        break"), {}),
    # -- a response for each row
    *(
        (loop(f"{IN}\n{rows}"), {"response-missing": line} if line else {})
        for rows, line in (
            ("for row in x:\n    out.append(OK)", 10),
            ("y = x * 2\nfor i in range(len(y)): out.append(OK)", 10),
            ("out += [OK for _ in x]", 9),
            ("out.extend(OK for _ in x)", 9),
            ("y = [row for row in x]; out.append(OK)", 0),
            ("for _ in range(3):\n    out.append(OK)\n    break", 0),
        )
    ),
    (source("xs = [GET for request in requests]\nys = np.concatenate(xs)\nreturn [OK for y in ys]".replace("GET", GET)),
     {"response-missing": 8}),
    (source("xs = [GET for request in requests]\nys = np.stack(xs)\nreturn [OK for y in ys]".replace("GET", GET)), {}),
    # -- an output that only some responses have
    (loop(f"{IN}\nts = [{OUT}]\nif x.any():\n    ts.append({SCORE})\nout.append(pb_utils.InferenceResponse(ts))"),
     {"output-sometimes": 12}),
    (loop(f"{IN}\nts = [{OUT}] + ([{SCORE}] if x.any() else [])\nout.append(pb_utils.InferenceResponse(ts))"),
     {"output-sometimes": 10}),
    (loop(f"{IN}\nif x is not None:\n    x = x * 2\nts = [{OUT}]\nif x is not None:\n    ts.append({SCORE})\n"
          "out.append(pb_utils.InferenceResponse(ts))".replace(".as_numpy()", "")).replace(".as_numpy()", ""), {}),
    (loop(f"{IN}\nts = [{OUT}]\nif 'S' in request.requested_output_names():\n    ts.append({SCORE})\n"
          "out.append(pb_utils.InferenceResponse(ts))"), {}),
    (loop(f"{IN}\nts = [{OUT}]\nif x.any():\n    ts.append({SCORE})\nelse:\n    ts.append({SCORE})\n"
          "out.append(pb_utils.InferenceResponse(ts))"), {}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_wrong_awaits_and_responses_of_execute(check: Check, text: str, expected: dict[str, int]) -> None:
    config = DECOUPLED if "get_response_sender" in text else BATCHED
    rules = {
        "async-in-sync",
        "await-missing",
        "buffer-reused",
        "exec-in-async",
        "error-unchecked",
        "raise-no-exception",
        "error-no-error",
    }
    rules |= {"response-missing", "response-not-list", "final-missing", "send-after-final", "output-sometimes"}
    found = check({**model("a", config, text), **model("b")}, "a")
    assert {finding.code: finding.line for finding in found if finding.code in rules} == expected


def test_one_response_is_enough_without_a_batcher(check: Check) -> None:
    assert (
        check(model("a", CONFIG, source('return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", requests)])]')))
        == []
    )
