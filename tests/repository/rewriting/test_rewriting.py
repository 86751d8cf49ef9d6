"""Models rewritten so that their calls are in flight together: the same answers, else they are left."""

from __future__ import annotations

import ast
import textwrap

import pytest

from bls_notebook.repository.rewriting.rewrite import rewritten
from tests.repository.graphs import GRAPHS, Graph, model_of

from .programs import Maker, run

HEAD = """\
\"\"\"A model.\"\"\"

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
"""
ASK = """\
    def ask(self, model, x):
        request = pb_utils.InferenceRequest(
            model_name=model, requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", x)])
        response = request.exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()

"""
REQUEST = "pb_utils.InferenceRequest(model_name='{}', requested_output_names=['OUT'], inputs=[{}])"
CHECK = "if {0}.has_error():\n    raise pb_utils.TritonModelException({0}.error().message())\n"
INPUT = "x = pb_utils.get_input_tensor_by_name(requests[0], 'IN')\n"


def model(body: str, before: str = "") -> str:
    return f"{HEAD}{before}    def execute(self, requests):\n{textwrap.indent(body, ' ' * 8)}"


def body_of(source: str) -> str:
    """The lines of `execute`, as they have become."""
    tree = ast.parse(source)
    (cls,) = (n for n in tree.body if isinstance(n, ast.ClassDef))
    (execute,) = (n for n in cls.body if isinstance(n, ast.AsyncFunctionDef) and n.name == "execute")
    lines = source.splitlines()[execute.body[0].lineno - 1 : execute.end_lineno]
    return textwrap.dedent("\n".join(lines))


# What becomes of the graphs of known truth: how many calls are gathered, or why not.
BECOMES = {
    "two apart": "a, b = await asyncio.gather(ask('add', x), ask('twice', x))",
    "diamond": "b, c = await asyncio.gather(ask('twice', a), ask('add2', a))",
    "a diamond by tensors": "b, c = await asyncio.gather(ask('twice', a), ask('add2', a))",
    "fan-out": "out = await asyncio.gather(*[ask(name, x) for name in",
    "fan-out of pieces": "out = await asyncio.gather(*[ask('add', x[i:i+1]) for i in range(3)])",
    "two chains": "b, d = await asyncio.gather(ask('twice', a), ask('twice2', c))",
    "a sequence beside another call": "flags=1), ask('add', x))\n",
    "a call for want of another": "a, r = await asyncio.gather(",
    "a global of two models": "a, b = await asyncio.gather(",  # its answers are not equal: never offered
}


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.name)
def test_graphs_of_known_truth(graph: Graph) -> None:
    found = rewritten(model_of(graph))
    if graph.name in BECOMES:
        assert BECOMES[graph.name] in found.source, found.reason
    else:
        assert not found.source
        assert found.reason
    if graph.name == "a buffer that is used again":
        assert found.reason == "line 18: `buffer` changes between two requests"


@pytest.mark.parametrize("start", range(0, 60, 20))
def test_programs_made_at_random(start: int) -> None:
    """The same answers, log and state, whenever answers come; where a request fails, it fails too."""
    together = 0
    for seed in range(start, start + 20):
        source = Maker(seed).source()
        found = rewritten(source)
        if not found.source:
            assert found.reason
            continue
        expected, _ = run(source)
        for order in (1, 2):
            became, world = run(found.source, order)
            together += world.together > 1
            if isinstance(expected[0], str):
                assert became[0] == expected[0], seed
            else:
                assert became == expected, f"{seed}\n{source}\n{found.source}"
    assert together > 8


def test_loops_whose_own_requests_were_not_seen_often_stay_and_those_within_are_taken() -> None:
    body = (
        "out = []\nfor x in requests:\n    a = self.ask('a', x)\n    for i in range(int(a)):\n"
        "        out.append(self.ask('b', i)[0])\n    found = {j: self.ask('c', a + j)[0] for j in (1, 2)}\n"
        "    out.append(found)\nreturn out\n"
    )
    source = model(body, ASK)
    often = frozenset(n for n, line in enumerate(source.splitlines(), 1) if "'b'" in line or "'c'" in line)
    assert body_of(rewritten(source, repeated=often).source) == (
        "out = []\nfor x in requests:\n    a = await self.ask('a', x)\n"
        "    for answer_1 in await asyncio.gather(*[self.ask('b', i) for i in range(int(a))]):\n"
        "        out.append(answer_1[0])\n"
        "    found = dict(zip([j for j in (1, 2)], [each[0] for each in await asyncio.gather("
        "*[self.ask('c', a + j) for j in (1, 2)])]))\n    out.append(found)\nreturn out"
    )


def test_what_is_not_touched_keeps_its_lines() -> None:
    body = INPUT + (
        "\n# the first\nfirst = {}  # made here\nresponse = first.exec()  # sent\n{}"
        "a = pb_utils.get_output_tensor_by_name(response, 'OUT')  # kept\n\n# the second\nsecond = {}\n"
        "response = second.exec()\n{}return [pb_utils.InferenceResponse([a,   response])]\n"
    ).format(
        REQUEST.format("a", "x"),
        CHECK.format("response"),
        REQUEST.format("b", "x"),
        CHECK.format("response"),
    )
    found = rewritten(model(body))
    assert body_of(found.source) == (
        INPUT + "\n# the first\nfirst = %s  # made here\n\n# the second\nsecond = %s\n"
        "response_1, response_2 = await asyncio.gather(first.async_exec(), second.async_exec())\n"
        "response = response_1  # sent\n%s"
        "a = pb_utils.get_output_tensor_by_name(response, 'OUT')  # kept\n"
        "response = response_2\n%sreturn [pb_utils.InferenceResponse([a,   response])]"
    ) % (
        REQUEST.format("a", "x"),
        REQUEST.format("b", "x"),
        CHECK.format("response"),
        CHECK.format("response"),
    )
    assert found.source.startswith('"""A model."""\n\nimport asyncio\nimport numpy as np\n')
    assert found.lines == (13, 20)


def test_a_request_that_is_made_anew_is_sent_first() -> None:
    body = INPUT + (
        "request = {}\nresponse = request.exec()\n{}a = response\n"
        "request = {}\nresponse = request.exec()\n{}return [a, response]\n"
    ).format(
        REQUEST.format("a", "x"),
        CHECK.format("response"),
        REQUEST.format("b", "x"),
        CHECK.format("response"),
    )
    became = body_of(rewritten(model(body)).source)
    assert "response_1 = request.async_exec()\nrequest = " in became
    assert "response_1, response_2 = await asyncio.gather(response_1, request.async_exec())\n" in became


@pytest.mark.parametrize(
    ("body", "becomes"),
    [
        (
            "out = []\nfor i in range(3):\n    out.append(self.ask('a', i))\nreturn out\n",
            "out = []\nfor answer_1 in await asyncio.gather(*[self.ask('a', i) for i in range(3)]):\n"
            "    out.append(answer_1)\nreturn out",
        ),
        (
            "out = {}\nfor name, x in requests:\n    a = self.ask(name, x)\n    out[name] = a\n"
            "return [out]\n",
            "out = {}\nfor (name, x), a in zip(requests, await asyncio.gather(*[self.ask(name, x) "
            "for name, x in requests])):\n    out[name] = a\nreturn [out]",
        ),
        (
            "out = []\nfor x in self.parts(requests):\n    y = x + 1  # kept\n    a = self.ask('a', y)\n"
            "    out.append(a + y)\nreturn out\n",
            "out = []\nsent = []\nheld = []\nfor x in self.parts(requests):\n    y = x + 1  # kept\n"
            "    held.append(y)\n    sent.append(self.ask('a', y))\n"
            "for y, a in zip(held, await asyncio.gather(*sent)):\n    out.append(a + y)\nreturn out",
        ),
        (
            "for x in requests:\n    call = pb_utils.InferenceRequest(inputs=[x])\n"
            "    assert not call.exec().has_error(), 'failed'\nreturn []\n",
            "sent = []\nfor x in requests:\n    call = pb_utils.InferenceRequest(inputs=[x])\n"
            "    sent.append(call.async_exec())\nfor answer_1 in await asyncio.gather(*sent):\n"
            "    assert not answer_1.has_error(), 'failed'\nreturn []",
        ),
        (
            "x = y = 1\nfor x in (x, y):\n    a = self.ask('a', 1)\n    print(x, a)\n",
            "x = y = 1\nsent = []\nheld = []\nfor x in (x, y):\n    held.append(x)\n"
            "    sent.append(self.ask('a', 1))\nfor x, a in zip(held, await asyncio.gather(*sent)):\n"
            "    print(x, a)",
        ),
        (
            "return [self.ask('a', x) for x in requests]\n",
            "return await asyncio.gather(*[self.ask('a', x) for x in requests])",
        ),
        (
            "return [{m: self.ask(m, 1) for m in self.names}, [self.ask(m, 1)[0] * 2 for m in (1, 2)]]\n",
            "answer_1, answer_2 = await asyncio.gather(\n"
            "    asyncio.gather(*[self.ask(m, 1) for m in self.names]),\n"
            "    asyncio.gather(*[self.ask(m, 1) for m in (1, 2)]),\n)\n"
            "return [dict(zip([m for m in self.names], answer_1)), [each[0] * 2 for each in answer_2]]",
        ),
        (
            "rs = [pb_utils.InferenceRequest(inputs=[x]) for x in requests]\n"
            "return [sum(r.exec() for r in rs)]\n",
            "rs = [pb_utils.InferenceRequest(inputs=[x]) for x in requests]\n"
            "return [sum(await asyncio.gather(*[r.async_exec() for r in rs]))]",
        ),
        (
            "return [np.stack(list(self.ask('a', x) for x in requests))]\n",
            "return [np.stack(list(await asyncio.gather(*[self.ask('a', x) for x in requests])))]",
        ),
        (
            "return [self.ask('a', 1) + self.ask('b', 2)]\n",
            "answer_1, answer_2 = await asyncio.gather(self.ask('a', 1), self.ask('b', 2))\n"
            "return [answer_1 + answer_2]",
        ),
        (
            "for request in requests:\n    try:\n        a = self.ask('a', request); b = self.ask('b', 2)\n"
            "        print(a, b)\n    except ValueError:\n        pass\n",
            "for request in requests:\n    try:\n"
            "        a, b = await asyncio.gather(self.ask('a', request), self.ask('b', 2))\n"
            "        print(a, b)\n    except ValueError:\n        pass",
        ),
    ],
    ids=lambda value: "",
)
def test_loops_and_helpers(body: str, becomes: str) -> None:
    parts = "    def parts(self, requests):\n        return list(requests)\n\n"
    found = rewritten(model(body, ASK + parts))
    assert body_of(found.source) == becomes, found.reason
    assert "    async def ask(self, model, x):\n" in found.source
    assert "response = await request.async_exec()\n" in found.source
    assert rewritten(found.source).source in ("", found.source)  # and then it is done


def test_what_an_answer_brings_is_not_looked_at_before_its_error() -> None:
    body = (
        "r = self.made(x).exec()\ns = pb_utils.InferenceRequest(inputs=[x]).exec()\n"
        "a = self.ask('a', 1)\nif s.has_error():\n    raise ValueError\n"
        "b = pb_utils.get_output_tensor_by_name(s, 'OUT')\nc = self.ask('c', b)\nreturn [a, b, c]\n"
    )
    became = body_of(rewritten(model(body, ASK)).source)
    assert became.index("s.has_error()") < became.index("get_output") < became.index("self.ask('c'")


def test_async_models() -> None:
    body = INPUT + ("a = await {}.async_exec()\n{}b = await {}.async_exec()\n{}return [a, b]\n").format(
        REQUEST.format("a", "x"),
        CHECK.format("a"),
        REQUEST.format("b", "x"),
        CHECK.format("b"),
    )
    source = model(body).replace("def execute", "async def execute")
    became = body_of(rewritten(source).source)
    assert "a, b = await asyncio.gather(\n    {}.async_exec(),\n".format(REQUEST.format("a", "x")) in became


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("a = self.ask('a', 1)\nself.strange()\nb = self.ask('b', 2)\n", "`self.strange()` may do more"),
        ("a = self.ask('a', 1)\nif a > 3:\n    return []\nb = self.ask('b', 2)\n", "may not be reached"),
        ("a = self.ask('a', 1)\nt = time.time()\nb = self.ask('b', t)\n", "does more than compute"),
        ("out = [*map(self.ask, requests)]\n", "would have to be awaited there"),
        ("f = lambda x: self.ask('a', x)\nout = [f(1), f(2)]\n", "would have to be awaited there"),
        ("out = dict((x, self.ask('a', x)) for x in requests)\n", "in a generator expression"),
        ("def one(x):\n    return r.exec()\nout = [one(1), self.ask('a', 1)]\n", "inside `execute`"),
        ("for x in requests:\n    a = self.ask('a', x)\n    if a > 1:\n        break\n", "leave the loop"),
        (
            "for x in requests:\n    if x > 1:\n        continue\n    a = self.ask('a', x)\n"
            "    print(x)\nprint(x)\n",
            "read after the loop",
        ),
        ("n = 0\nfor x in requests:\n    n = self.ask('a', x + n)\n", "of one round is used in the next"),
    ],
)  # fmt: skip
def test_what_is_not_plain_is_left_and_said(body: str, reason: str) -> None:
    found = rewritten(model(body, ASK).replace("import numpy", "import time\nimport numpy"))
    assert not found.source
    assert reason in found.reason


def test_what_is_not_this_kind_of_model_has_no_change() -> None:
    for source in ("", "def (", "x = 1\n", "class TritonPythonModel:\n    pass\n", "\ud800"):
        found = rewritten(source)
        assert not found.source
        assert found.reason
    both = "a = self.ask('a', 1)\nb = self.ask('b', 1)\nreturn [a, b]\n"
    called = ASK + "    def initialize(self, args):\n        self.ask('a', 0)\n\n"
    assert "`initialize` sends requests too" in rewritten(model(both, called)).reason
    assert (
        "decorator" in rewritten(model(both, ASK.replace("    def ask", "    @cached\n    def ask"))).reason
    )
    assert "another module" in rewritten(f"import aio as asyncio\n{model(both, ASK)}").reason


def test_names_that_are_taken_are_not_used_and_text_may_be_of_any_language() -> None:
    body = "answer_1 = 'é→日本' ; out = [self.ask('日', answer_1) + self.ask('本', 'é')]; é = out\nreturn é\n"
    became = body_of(rewritten(model(body, ASK)).source)
    assert (
        "answer_2, answer_3 = await asyncio.gather(self.ask('日', answer_1), self.ask('本', 'é'))" in became
    )
    assert "out = [answer_2 + answer_3]\né = out\nreturn é" in became
