"""Random systems of models through the engine: every request has one span, and spans nest as calls do."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bls_notebook as bls
from bls_notebook.profiling.session import Session
from tests.engine import gates
from tests.engine.harness import Caller, ints
from tests.engine.sources import model, pbtxt
from tests.engine.span_checks import check

NAMES = "abcd"
Call = tuple[str, tuple[str, ...]]  # how: exec, stream or gather; and whom


@dataclass(frozen=True)
class Plan:
    """What a model does: it sends these requests, one call after the other."""

    calls: tuple[Call, ...]
    is_async: bool
    decoupled: bool
    instances: int
    fails: bool

    def source(self, plans: dict[str, Plan]) -> str:
        """Its source; a decoupled callee is asked for a stream, whatever the plan says."""
        lines = []
        for how, names in self.calls:
            if how == "gather" and self.is_async:
                asked = ", ".join(f"ask({n!r}).async_exec(decoupled={plans[n].decoupled})" for n in names)
                lines.append(f"for r in await asyncio.gather({asked}): drain(r)")
            else:
                lines += [f"drain(ask({n!r}).exec(decoupled={plans[n].decoupled or how == 'stream'}))" for n in names]
        body = "".join(f"        {line}\n" for line in lines)
        end = "raise ValueError('as planned')" if self.fails else (
            "request.get_response_sender().send(answer(1), FINAL)" if self.decoupled else "pass"
        )  # fmt: skip
        answers = "None" if self.decoupled else "[answer(1) for _ in requests]"
        return model(f"""
{"async " if self.is_async else ""}def execute(self, requests):
    def drain(response):
        if not isinstance(response, pb.InferenceResponse):
            list(response)
    for request in requests:
{body}        {end}
    return {answers}
""")

    def kinds(self, plans: dict[str, Plan]) -> list[tuple[str, str]]:
        """Whom one execute asks, and how that is recorded."""
        out = []
        for how, names in self.calls:
            for name in names:
                if plans[name].decoupled or how == "stream":
                    out.append((name, "stream"))
                else:
                    out.append((name, "async" if how == "gather" and self.is_async else "sync"))
        return out


@st.composite
def systems(draw: st.DrawFn) -> dict[str, Plan]:
    """Models that send requests to later ones only, so that nobody waits for ever."""
    plans = {}
    for at, name in enumerate(NAMES):
        callees = NAMES[at + 1 :]
        one = st.tuples(
            st.sampled_from(["exec", "stream", "gather"]),
            st.lists(st.sampled_from(callees or "d"), min_size=1, max_size=3).map(tuple),
        )
        calls = draw(st.lists(one, max_size=2)) if callees else []
        plans[name] = Plan(
            tuple(calls),
            draw(st.booleans()),
            draw(st.sampled_from([False, False, True])),
            draw(st.integers(1, 2)),
            draw(st.sampled_from([False] * 5 + [True])),
        )
    return plans


def expected(plans: dict[str, Plan], root: str, times: int) -> Counter[tuple[str, str, str]]:
    """How many spans there must be of each sender, model and kind."""
    out: Counter[tuple[str, str, str]] = Counter()
    todo = [("", root, "stream" if plans[root].decoupled else "sync")] * times
    while todo:
        edge = todo.pop()
        out[edge] += 1
        todo += [(edge[1], name, kind) for name, kind in plans[edge[1]].kinds(plans)]
    return out


def seen(session: Session) -> Counter[tuple[str, str, str]]:
    names = {s.id: s.model for s in session.spans} | {0: ""}
    return Counter((names[s.parent], s.model, s.kind) for s in session.spans)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(plans=systems(), callers=st.integers(1, 3))
def test_every_request_has_one_span_and_they_nest(plans: dict[str, Plan], callers: int) -> None:
    gates.reset()
    with bls.ModelRepository() as repo:
        for name, plan in reversed(plans.items()):
            repo.define(name, plan.source(plans), pbtxt(plan.instances, plan.decoupled))

        def send() -> None:
            if plans["a"].decoupled:
                list(repo.stream("a", ints(1)))
            else:
                repo.infer("a", ints(1))

        with bls.profile() as profile:
            for caller in [Caller(send) for _ in range(callers)]:
                caller.result()
        session = check(profile.record)
    assert seen(session) == expected(plans, "a", callers)
    by_id = {s.id: s for s in session.spans}
    for span in session.spans:
        assert span.ran
        assert span.state == ("error" if plans[span.model].fails else "ok")
        parent = by_id.get(span.parent)
        if parent is not None and not plans[parent.model].decoupled:
            assert span.ended <= parent.ended  # every call was waited for
    figures = session.statistics()
    assert figures.requests == sum(expected(plans, "a", callers).values())
    for name, plan in plans.items():
        if not (plan.decoupled and plan.is_async):
            own = [s for s in session.spans if s.model == name]
            for instance in {s.instance for s in own}:
                runs = sorted((s.started, s.released) for s in own if s.instance == instance)
                assert all(a[1] <= b[0] for a, b in itertools.pairwise(runs))
