"""Memory tracks made by hand: a pipeline, transfers to a GPU, a leak, thousands of lives, hostile names."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from bls_notebook.lifetimes.records import DeviceSeen, Holder, Life, Lifetimes, Maker, Stay, WorkerMemory
from bls_notebook.profiling.code_lines import CodeLine
from tests.display.samples import HOSTILE

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
US = 1_000


class Track:
    """Builds a track the way it happens: make, hand on, copy, let go. Times in microseconds."""

    def __init__(self, *devices: DeviceSeen, cell: str = "In [3]") -> None:
        self.devices = devices
        self.cell = cell
        self.lives: dict[int, Life] = {}

    def at(self, model: str = "", request: int = 0) -> Maker:
        instance = f"{model}_0_0" if model else ""
        return Maker(model, 1 if model else 0, instance, request, "", 0, self.cell)

    def make(self, us: float, tensor: str, size: int, model: str = "", **given: Any) -> int:
        request = given.pop("request", 0)
        given = {"datatype": "FP32", "shape": (size // 4,), "maker": self.at(model, request), **given}
        life = Life(len(self.lives) + 1, given.pop("device", "cpu"), size, round(us * US), tensor=tensor, **given)
        self.lives[life.id] = life
        return life.id

    def copy(self, us: float, source: int, device: str, model: str = "", took: float = 0, request: int = 0) -> int:
        old = self.lives[source]
        how = "transfer" if device != old.device else "copy"
        return self.make(
            us, old.tensor, old.bytes, model, device=device, source=source, how=how, request=request,
            transfer_ns=round(took * US), shape=old.shape,
        )  # fmt: skip

    def stay(self, us: float, life: int, model: str = "", role: str = "input", request: int = 0, **given: Any) -> None:
        old = self.lives[life]
        stop = Stay(
            round(us * US), role, given.get("tensor", old.tensor), old.datatype, old.shape, self.at(model, request)
        )
        self.lives[life] = replace(old, stays=(*old.stays, stop))

    def die(self, us: float, *lives: int) -> None:
        for life in lives:
            self.lives[life] = replace(self.lives[life], died=round(us * US))

    def hold(self, life: int, kind: str, name: str = "", remedy: str = "") -> None:
        old = self.lives[life]
        self.lives[life] = replace(old, holders=(*old.holders, Holder(kind, name, remedy)))

    def record(self, us: float, **given: Any) -> Lifetimes:
        lives = tuple(sorted(self.lives.values(), key=lambda life: (life.born, life.id)))
        return Lifetimes(lives, self.devices, round(us * US), "2026-03-04T05:06:07+00:00", self.cell, **given)


CPU = DeviceSeen("cpu", total=16 * GIB)
GPU = DeviceSeen("gpu:0", simulated=True, total=2 * GIB)


def digits() -> Lifetimes:
    """A pipeline on the CPU: the notebook keeps the answer."""
    t = Track(CPU)
    image = t.make(40, "IMAGE", 64 * KIB, shape=(1, 128, 128))
    t.stay(60, image, "digits", request=1)
    t.stay(110, image, "preprocess", request=2)
    features = t.make(300, "FEATURES", 256 * KIB, "preprocess", request=2)
    t.stay(330, features, "digits", "output", request=2)
    t.die(360, image)
    t.stay(400, features, "classify", request=3)
    hidden = t.make(450, "HIDDEN", 512 * KIB, "classify", request=3)
    logits = t.make(700, "LOGITS", 4 * KIB, "classify", request=3)
    t.die(760, hidden)
    t.stay(780, logits, "digits", "output", request=3)
    t.die(800, features)
    digit = t.make(900, "DIGIT", 8, "digits", request=1, datatype="INT64", shape=(1,))
    t.die(930, logits)
    t.stay(950, digit, "", "output", request=1)
    t.hold(digit, "variable", "answer", "del answer")
    return t.record(1000)


def transfers() -> Lifetimes:
    """Requests that go to a GPU and come back, one after the other."""
    t = Track(CPU, GPU)
    for i in range(3):
        start = 3000 * i
        image = t.make(start + 100, "IMAGE", 48 * MIB, shape=(4, 3, 1024, 1024))
        t.stay(start + 150, image, "resize", request=2 * i + 1)
        on_gpu = t.copy(start + 700, image, "gpu:0", "resize", took=500, request=2 * i + 1)
        t.die(start + 800, image)
        small = t.make(start + 900, "SMALL", 24 * MIB, "resize", device="gpu:0", request=2 * i + 1)
        t.die(start + 1100, on_gpu)
        t.stay(start + 1150, small, "segment", request=2 * i + 2)
        scratch = t.make(start + 1200, "", 160 * MIB, "segment", device="gpu:0", kind="allocation", shape=())
        mask = t.make(start + 1600, "MASK", 12 * MIB, "segment", device="gpu:0", request=2 * i + 2)
        t.die(start + 1700, scratch, small)
        back = t.copy(start + 2100, mask, "cpu", "segment", took=300, request=2 * i + 2)
        t.die(start + 2150, mask)
        t.stay(start + 2200, back, "", "output", request=2 * i + 2)
        t.hold(back, "variable", f"masks[{i}]", "del masks")
    return t.record(9200)


def tiles(takers: tuple[int, ...] = (1,) * 4, makers: tuple[int, ...] = (2, 3, 4, 5), table: int = 0) -> Lifetimes:
    """Tiles of requests `makers` that requests `takers` got (0: the notebook), all alive at once; and a table."""
    t = Track(CPU)
    for i, (taker, maker) in enumerate(zip(takers, makers, strict=True)):
        tile = t.make(100 * i, "TILE", MIB, "draw", request=maker)
        t.stay(100 * i + 50, tile, "atlas" if taker else "", "output", request=taker)
        t.die(900, tile)
    t.die(900, t.make(0, "TABLE", table, "atlas", request=1))
    return t.record(1000)


def leak(calls: int = 6) -> Lifetimes:
    """A model that keeps what it should not, on a GPU; another that is tidy."""
    t = Track(CPU, GPU)
    for i in range(calls):
        start = 2000 * i
        query = t.make(start + 50, "QUERY", 2 * MIB)
        t.stay(start + 80, query, "leaky", request=2 * i + 1)
        there = t.copy(start + 300, query, "gpu:0", "leaky", took=180, request=2 * i + 1)
        states = t.make(start + 500, "STATES", 96 * MIB, "leaky", device="gpu:0", request=2 * i + 1)
        t.hold(states, "attribute", f"leaky.kept[{i}]", "leaky.kept.clear()")
        t.die(start + 700, there)
        t.stay(start + 800, states, "tidy", request=2 * i + 2)
        best = t.make(start + 1300, "BEST", 16 * MIB, "tidy", device="gpu:0", request=2 * i + 2)
        answer = t.copy(start + 1500, best, "cpu", "tidy", took=100, request=2 * i + 2)
        t.die(start + 1550, best)
        t.stay(start + 1600, answer, "", "output", request=2 * i + 2)
        t.die(start + 1640, query)
        if i < calls - 1:
            t.die(start + 1900, answer)
        else:
            t.hold(answer, "variable", "best", "del best")
    return t.record(2000 * calls + 400)


def lined() -> Lifetimes:
    """The leak with the lines of the models that made what, and two holders of each block."""
    places = {
        "STATES": CodeLine("model.py", 14, "keep", 'self.kept.append(Tensor("STATES", states))'),
        "BEST": CodeLine("model.py", 31, "execute", 'best = Tensor("BEST", scores[:4])'),
    }
    also = Holder("variable", "cache", "del cache")
    lives = [replace(life, line=places.get(life.tensor, life.line)) for life in leak().lives]
    lives = [replace(each, holders=(also, *each.holders)) if each.tensor == "STATES" else each for each in lives]
    return replace(leak(), lives=tuple(lives))


def many(lives: int = 10_000, seed: int = 1) -> Lifetimes:
    """Thousands of lives from several models on three devices, some left behind."""
    rng = random.Random(seed)
    t = Track(CPU, GPU, DeviceSeen("gpu:1", simulated=True, total=2 * GIB))
    models = ["", "embed", "rank", "rerank", "generate", "cache"]
    for i in range(lives):
        model = rng.choice(models)
        device = rng.choice(["cpu", "gpu:0", "gpu:0", "gpu:1"])
        start = i * 20 + rng.random() * 200
        life = t.make(
            start, f"T{rng.randrange(6)}", rng.choice([4, 64, 256, 1024]) * KIB, model, device=device, request=i + 1
        )
        if model:
            t.stay(start + 5, life, rng.choice(models), request=i + 1)
        if model == "cache" and rng.random() < 0.05:
            t.hold(life, "attribute", f"cache.seen[{i}]", "cache.seen.clear()")
        else:
            t.die(start + 30 + rng.random() * 3000, life)
    return t.record(lives * 20 + 5000)


def empty() -> Lifetimes:
    return Lifetimes(wall=1000, devices=(CPU,))


def hostile() -> Lifetimes:
    h = HOSTILE
    maker = Maker(h, 1, h, 1, h, 0, h)
    life = Life(
        1, h, 5, 1, -1, h, h, h, (1,), maker, 0, h, 0, (Stay(2, h, h, h, (1,), maker),), (Holder(h, h, h),),
        CodeLine(h, 3, h, h),
    )  # fmt: skip
    workers = WorkerMemory(h, 1 << 30, 1 << 30), WorkerMemory(h, 1, known=False)
    lives = life, replace(life, id=2, source=1)
    return Lifetimes(lives, (DeviceSeen(h, True, 10),), 5, h, h, 3, 4, workers=workers)


ALL = {
    "digits": digits, "transfers": transfers, "leak": leak, "lined": lined, "many": many, "empty": empty,
    "hostile": hostile,
}  # fmt: skip
