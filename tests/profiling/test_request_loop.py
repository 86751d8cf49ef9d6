from __future__ import annotations

import pytest

from bls_notebook.profiling.analysis.request_loop import loop_of
from bls_notebook.profiling.dependences.batches import gathered_source

HEAD = "import pb_utils\nclass TritonPythonModel:\n"
GATHER = "await asyncio.gather(*[self.one(r) for r in requests])"


def model(body: str, how: str = "async def") -> str:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return f"{HEAD}    {how} execute(self, requests):\n{lines}"


@pytest.mark.parametrize(
    ("body", "line", "changed"),
    [
        ("return [await self.one(r) for r in requests]", 4, f"return {GATHER}"),
        ("out = []\nfor r in requests:\n    out.append(await self.one(r))\nreturn out", 5, f"out.extend({GATHER})"),
        ("for r in requests:\n    await self.one(r)", 4, GATHER),
        (
            "x = [get(r) for r in requests]\nout = [await self.one(r, n) for n, r in enumerate(requests) if r]", 5,
            "out = await asyncio.gather(*[self.one(r, n) for n, r in enumerate(requests) if r])",
        ),
        ("for r in requests:\n    x = await self.one(r)\n    self.out.append(x)", 4, ""),
        ("return [\n    await self.one(r)\n    for r in requests\n]", 4, ""),
    ],
)  # fmt: skip
def test_a_loop_that_awaits_each_request_becomes_a_gather(body: str, line: int, changed: str) -> None:
    text = model(body)
    found = loop_of(text, 3)
    assert found is not None
    assert (found.line, found.changed, found.is_async) == (line, changed, True)
    source = gathered_source(text, found)
    assert bool(source) == bool(changed)
    if source:
        compile(source, "model.py", "exec")
        assert source.startswith(f"{found.to_import}\n")
        assert found.to_import == "import asyncio"
        assert loop_of(f"import asyncio\n{text}", 4).to_import == ""
        assert loop_of(source) is None
        assert changed in source


def test_loops_of_other_code_are_not_named() -> None:
    assert loop_of(model(f"return {GATHER}")) is None
    assert loop_of(model("return await self.one(requests)")) is None
    assert loop_of(model("return [await self.one(p) for p in self.parts]")) is None
    assert loop_of("%%magic\nno Python") is None
    sync = loop_of(model("xs = [get(r) for r in requests]\nreturn [self.one(x) for x in zip(xs, requests)]", "def"))
    assert sync is not None
    assert (sync.line, sync.changed, sync.is_async) == (5, "", False)
    other = "    async def serve(self, requests):\n        return [await self.one(r) for r in requests]\n"
    found = loop_of(model("return await self.serve(requests)") + other, 3)
    assert found is not None
    assert found.line == 6
