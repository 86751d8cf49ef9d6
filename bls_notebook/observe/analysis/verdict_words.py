"""The sentence of a verdict, and the advice: what was seen, in words and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bls_notebook.observe.records.profiles.spans import Span
from bls_notebook.observe.records.profiles.verdicts import Measured, Verdict
from bls_notebook.observe.records.seen import ModelSeen

ROUGH = 0.2  # of the time: without a processor
WORTH = 1.15  # times as fast: less is not worth a word
DOUBTFUL = 0.075  # standard error of a speed-up: from here on its figures are rough


@dataclass(frozen=True)
class Facts:
    """What the sentence of a verdict is made of: its figures, and what else was seen; times in ns."""

    verdict: Verdict
    measured: Measured
    seen: ModelSeen | None
    python: int
    waiting: int
    batch: int
    cached: str = ""  # what the response cache answered, in words
    alone: float = 0.0  # self time of a request, one after the other
    together: float = 0.0  # and beside others

    @property
    def instances(self) -> int:
        """How many instances the model has."""
        return len(self.seen.instances) if self.seen is not None else 0


def times(value: float) -> str:
    """Spell a factor: ``1.0``, ``7.8``, ``12``."""
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def give_or_take(relative_error: float) -> str:
    """Say how sure a speed-up is by its standard error, as what follows it; empty where it is sure enough."""
    return "" if relative_error < DOUBTFUL else f", give or take {2 * relative_error:.0%}"


def sentence(f: Facts) -> str:
    """Return the one sentence that says whether async helped, and why (not)."""
    v = f.verdict
    name, brought = f"`{v.model}`", f"async was {times(f.measured.speedup)} times as fast"
    if f.measured.speedup < WORTH:
        brought = "async brought nothing"
    cores = f.measured.cpu_gathered / max(1, f.measured.gathered)
    each = time_of(f.measured.sequential / max(1, f.measured.requests))
    several = f"{f.waiting} request{'' if f.waiting == 1 else 's'}"
    instances = "one instance" if f.instances == 1 else f"{f.instances} instances"
    match v.cause:
        case "queue":
            more = (
                f", and it cannot help more until `instance_group.count` > {f.instances}" if v.count else ""
            )
            where = f"queued on the {instances} of {name} for {v.queued:.0%} of the time"
            return f"{several} {where}: {brought}{more}."
        case "one_at_a_time":
            return (
                f"{several} queued for {name} for {v.queued:.0%} of the time: its execute is async "
                f"but the model is not decoupled, so an instance serves one batch at a time, and {brought}."
            )
        case "gil":
            return (
                f"{name} is pure Python that held the interpreter's lock (GIL) for "
                f"{min(1.0, f.python / max(1, f.measured.sequential)):.0%} of the time: its requests take "
                f"turns on {max(1.0, cores):.1f} of {f.measured.cores} cores, and {brought}."
            )
        case "cores":
            return (
                f"{name} keeps the processors busy ({cores:.1f} of {f.measured.cores} cores): {brought}, and "
                "no number of instances makes it faster on this machine."
            )
        case "sync_exec":
            return (
                f"{name} calls exec, which blocks, inside its async execute: its calls go one after the "
                f"other and nothing else runs in its event loop meanwhile, so {brought}."
            )
        case "blocking":
            return (
                f"The coroutine of {name} blocks its event loop (it waits without await): its requests ran "
                f"one after the other though they may share an instance, so {brought}."
            )
        case "contention":
            who = f"The {instances} of {name}" if f.instances > 1 else f"Requests to {name}"
            return (
                f"{who} wait for each other: beside others a request takes {time_of(f.together)} instead of "
                f"{time_of(f.alone)}, though processors are idle; {brought}, and more instances would bring "
                "nothing."
            )
        case "cached":
            return f"The response cache answered {f.cached}: nothing ran that async could overlap."
        case "batched":
            return f"The batcher of {name} served up to {f.batch} requests by one execute: {brought}."
        case "little":
            return (
                f"There is too little work: a request takes {each}, of which sending it is a large part; "
                f"{brought}."
            )
        case "helped":
            return f"Async helped: {times(f.measured.speedup)} times as fast, of {times(v.best)} at best."
        case "one":
            return "There was one request: nothing to overlap. Compare with n of 2 or more."
    return (
        f"Nothing queued for long: {brought}, of {times(v.best)} at best; "
        f"the longest request takes {time_of(v.chain)} by itself."
    )


def advice(f: Facts) -> str:
    """Return what to change, and what that is predicted to bring."""
    v = f.verdict
    whom = " and ".join(f"`{m}`" for m in v.models)
    more = ""
    if v.count:
        more = f"Set `instance_group.count` to {v.count} for {whom}: predicted {times(v.predicted)} times as"
        more += " fast as today's exec"
        if v.best > v.predicted * 1.15:
            more += f" ({times(v.best)} at best, with an instance for each request)"
        more += "."
    match v.cause:
        case "gil":
            on_server = max((w.on_server for w in f.verdict.what_ifs), default=0.0)
            there = f": up to {times(on_server)} times as fast there" if on_server > WORTH else ""
            return (
                "Do the work in code that releases the lock (NumPy on whole arrays, ONNX), or take fewer, "
                "larger requests. More instances do not help here, where they share one Python; on a Triton "
                f"server each instance is a process of its own{there}."
            )
        case "contention":
            return (
                f"Give each {'instance' if f.instances > 1 else 'request'} its own of what they share (a "
                "lock, a connection, a file), or use one that takes several at a time."
            )
        case "cached":
            return "Compare with inputs that differ, or without response_cache."
        case "sync_exec":
            return (
                "Send by async_exec, and await asyncio.gather of those that do not need each other: "
                f"predicted {times(v.predicted)} times as fast as today's exec."
            )
        case "blocking":
            return (
                "Await instead (asyncio.sleep, an async client), or hand it to asyncio.to_thread: predicted "
                f"{times(v.predicted)} times as fast as today's exec."
            )
        case "one_at_a_time":
            return " ".join(
                filter(None, (more, "Or make it decoupled: its coroutines then share an instance."))
            )
        case "queue":
            room = f.seen is not None and f.seen.max_batch_size > 1 and f.seen.scheduler == "default"
            batch = (
                f"Or let it batch: dynamic_batching, as it takes batches of {f.seen.max_batch_size}."
                if room and f.seen
                else ""
            )
            return " ".join(filter(None, (more, batch)))
        case "little":
            return "Put more into a request (a batch), or leave it at exec."
    return more


def roughness(f: Facts) -> str:
    """Return what makes the figures rough, empty where nothing does."""
    part = max(
        f.measured.waited_sequential / max(1, f.measured.sequential),
        f.measured.waited_gathered / max(1, f.measured.gathered * f.measured.cores),
    )
    if part < ROUGH:
        unsure = give_or_take(f.measured.relative_error)
        if not unsure or f.verdict.cause == "little":  # so little differs much anywhere
            return ""
        return (
            "The runs differed much from one to the next: the speed-up is "
            f"{times(f.measured.speedup)}{unsure}, and what is predicted is no surer. Others may share the "
            "machine; compare again when it is quiet."
        )
    return (
        f"Other programs kept the processors busy: for {min(1.0, part):.0%} of the time a thread that could "
        "have worked had none. The figures are rough; compare again on a quiet machine."
    )


def calls_of(spans: Sequence[Span]) -> list[str]:
    """Name the models of calls: ```resize```, ``3 calls of `detect```."""
    counts = Counter(span.model for span in spans)
    return [f"`{name}`" if n == 1 else f"{n} calls of `{name}`" for name, n in counts.items()]


def time_of(ns: float) -> str:
    """Spell a time with three digits at most: ``7.3 ms``."""
    for unit, size in (("s", 1e9), ("ms", 1e6)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns / 1e3:.3g} µs"
