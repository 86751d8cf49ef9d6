"""Sessions made by hand, as a profile would record them: one for each thing that a timeline has to show."""

from __future__ import annotations

import heapq
import random
from dataclasses import replace
from typing import Any

from bls_notebook.profiling.records.spans import LockHeld
from bls_notebook.profiling.session import Mark, ModelSeen, Session, Span

MS = 1_000_000
US = 1_000
ANSWER = 15 * US


class Made:
    """Collects spans; the models serve first come, first served, on as many instances as they have."""

    def __init__(self, **instances: int) -> None:
        self.spans: list[Span] = []
        self.counts = instances
        self.free = {model: [(0, i) for i in range(count)] for model, count in instances.items()}

    def call(self, model: str, sent: int, ns: int, parent: int = 0, **changes: Any) -> Span:
        """A request that runs for `ns` as soon as an instance is free."""
        queued = sent + 20 * US
        free, instance = heapq.heappop(self.free[model])
        started = max(queued + 5 * US, free)
        heapq.heappush(self.free[model], (started + ns + ANSWER, instance))
        return self.add(model, sent, started, ns, instance, parent, queued=queued, **changes)

    def add(
        self, model: str, sent: int, started: int, ns: int, number: int = 0, parent: int = 0, **changes: Any
    ) -> Span:
        given: dict[str, Any] = {
            "id": len(self.spans) + 1, "model": model, "parent": parent, "instance": f"{model}_0_{number}",
            "sent": sent, "queued": min(sent + 20 * US, started), "started": started,
            "inferred": started + ns, "ended": started + ns + ANSWER, "kind": "sync",
            "bytes_in": 4096, "bytes_out": 1024,
        }  # fmt: skip
        self.spans.append(Span(**{**given, **changes}))
        return self.spans[-1]

    def lasts(self, index: int, end: int) -> None:
        """Let a span that waits for others run until `end`."""
        old = self.spans[index]
        changes = {"inferred": end, "ended": end + ANSWER}
        fields = {name: getattr(old, name) for name in type(old).__slots__}
        self.spans[index] = Span(**{**fields, **changes})

    def session(self, name: str = "", wall: int = 0, **changes: Any) -> Session:
        models = tuple(
            ModelSeen(model, backend="python", instances=tuple(f"{model}_0_{i}" for i in range(count)))
            for model, count in self.counts.items()
        )
        spans = tuple(sorted(self.spans, key=lambda span: (span.sent, span.id)))
        wall = wall or max((span.ended for span in spans), default=0)
        return Session(spans, models, wall, "2026-05-04T12:00:00+00:00", name, **changes)


def pipeline(gathered: bool, calls: int = 8, instances: int = 1, name: str = "") -> Session:
    """`reader` asks `resize` and then `classify` about each of several images, in turn or all at once."""
    made = Made(reader=1, resize=instances, classify=2)
    reader = made.add("reader", 0, 40 * US, 1, request_id="page 7", bytes_in=65536, bytes_out=64)
    kind = "async" if gathered else "sync"
    now, end = 1 * MS, 0
    ready = []
    for i in range(calls):
        at = now + i * 60 * US if gathered else now
        resized = made.call("resize", at, 12 * MS, reader.id, kind=kind, request_id=f"image {i}")
        ready.append((i, resized.ended))
        if not gathered:
            now = made.call("classify", resized.ended + 30 * US, 21 * MS, reader.id, request_id=f"image {i}").ended
            end = now = now + 500 * US
    if gathered:
        for i, at in ready:
            answer = made.call("classify", at + 30 * US, 21 * MS, reader.id, kind=kind, request_id=f"image {i}")
            end = max(end, answer.ended)
    made.lasts(0, end + 1 * MS)
    return made.session(name or ("gathered" if gathered else "sequential"))


def everything() -> Session:
    """One of each: nested calls, a stream, a batch, an ensemble, a GPU, errors, a cancelled request."""
    made = Made(reader=1, detect=2, embed=1, speak=1, flow=0)
    reader = made.add("reader", 1 * MS, 2 * MS, 60 * MS, request_id="page 7")
    detect = made.add("detect", 4 * MS, 4 * MS + 30 * US, 14 * MS, 0, reader.id, device="gpu:0", device_ns=9 * MS)
    made.add("embed", 6 * MS, 7 * MS, 4 * MS, 0, detect.id)
    for i in range(4):  # one batch
        made.add(
            "embed", (20 + i) * MS, 26 * MS, 9 * MS, 0, reader.id, kind="async", batch=3, rows=2,
            request_id=f"row {i}",
        )  # fmt: skip
    made.add(
        "detect", 24 * MS, 24 * MS + 40 * US, 12 * MS, 1, reader.id, kind="async", device="gpu:0",
        device_ns=5 * MS, state="error", error="ValueError: no weights for <digit> 7",
    )  # fmt: skip
    for i in range(3):  # streams that share an instance
        begin = (38 + 4 * i) * MS
        marks = tuple(Mark(begin + (k + 1) * 3 * MS) for k in range(5))
        made.add(
            "speak", begin, begin + 40 * US, 2 * MS, 0, reader.id, kind="stream", ended=begin + 18 * MS,
            marks=(*marks, Mark(begin + 18 * MS, "final")),
        )  # fmt: skip
    flow = made.add("flow", 66 * MS, 66 * MS, 12 * MS, instance="flow", kind="sync")
    made.add("detect", 67 * MS, 67 * MS, 5 * MS, 0, flow.id, kind="ensemble")
    made.add("embed", 73 * MS, 73 * MS, 4 * MS, 0, flow.id, kind="ensemble")
    made.add("embed", 50 * MS, 54 * MS, 0, 0, state="cancelled", instance="", queued=50 * MS, ended=54 * MS)
    made.add(
        "speak", 70 * MS, 70 * MS, 0, 0, state="error", instance="", queued=70 * MS, ended=70 * MS + 40 * US,
        error="request to model 'speak' is not ready",
    )  # fmt: skip
    return made.session("everything", dropped=12)


def many(count: int, seed: int = 1, name: str = "") -> Session:
    """A busy server: `count` spans of six models on 14 instances, in waves, one in four hundred failing."""
    random_ = random.Random(seed)
    made = Made(gateway=4, tokenize=2, embed=3, search=2, rerank=2, log=1)
    plan = (("tokenize", 0.3), ("embed", 1.1), ("search", 0.7), ("rerank", 0.8), ("log", 0.2))
    now = 0
    while len(made.spans) < count:
        wave = 1.0 if (now // (400 * MS)) % 3 else 0.35
        now += int(random_.expovariate(wave / (0.62 * MS)))
        gateway = made.call("gateway", now, int(2.2 * MS), request_id=f"user {random_.randrange(1000)}")
        at = gateway.started + 50 * US
        for model, ms in plan[: random_.randint(1, 5)]:
            if len(made.spans) >= count:
                break
            bad = random_.random() < 1 / 400
            done = made.call(
                model, at, int(random_.lognormvariate(0, 0.4) * ms * MS * 0.55), gateway.id, kind="async",
                **({"state": "error", "error": f"RuntimeError: {model} gave up"} if bad else {}),
            )  # fmt: skip
            at = done.ended
    return made.session(name or f"{count:,} spans")


def _with_lock(session: Session, threads: tuple[int, ...]) -> Session:
    """The session, with the GIL held for 8 of every 9 ms."""
    held = tuple(LockHeld(begin, begin + 8 * MS, threads) for begin in range(0, session.wall, 9 * MS))
    return replace(session, lock=held, cpu=session.wall, cores=2)


def idle_instances(count: int) -> Session:
    """Requests sent at once; four instances take 2 ms each, and then as long to begin with the next request."""
    made = Made(a=4)
    for i in range(count):
        span = made.call("a", i * 30 * US, 2 * MS)
        made.spans[-1] = replace(span, thread=1 + int(span.instance[-1]))
        free = [(at + 2 * MS * (at == span.ended), k) for at, k in made.free["a"]]
        made.free["a"] = sorted(free)
    return _with_lock(made.session(), (1, 2, 3, 4))


def shared_loop(count: int) -> Session:
    """Coroutines that all run in one event loop, and a model on another thread, while both want the GIL."""
    made = Made(b=1)
    for i in range(count):
        made.add("a", i * US, i * US, count * MS, kind="stream", thread=1)
    made.call("b", 0, count * MS, thread=2)
    loop = ModelSeen("a", decoupled=True, is_async=True, instances=("a_0_0",))
    session = made.session()
    return _with_lock(replace(session, models=(*session.models, loop)), (1, 2))
