"""Short words for the tests of ensembles: configurations, and the models that their steps run."""

from __future__ import annotations

import bls_notebook as bls
from tests.engine.sources import DOUBLE, model, pbtxt

Step = tuple[str, dict[str, str], dict[str, str]]


def tensors(kind: str, names: str, datatype: str = "INT32", dims: str = "-1") -> str:
    out = []
    for name in names.split():
        optional = " optional: true" if name.endswith("?") else ""
        given = name.rstrip("?")
        spec = f'name: "{given}" data_type: TYPE_{datatype} dims: [ {dims} ]'
        out.append(f"{kind} [ {{ {spec}{optional} }} ]")
    return "\n".join(out)


def ensemble(*steps: Step, inputs: str = "X", outputs: str = "Y", more: str = "", batch: int = 0) -> str:
    """The config.pbtxt of an ensemble."""
    lines = [
        f'platform: "ensemble"\nmax_batch_size: {batch}',
        tensors("input", inputs),
        tensors("output", outputs),
        more,
        "ensemble_scheduling {",
    ]
    for name, reads, writes in steps:
        lines.append(f'step {{ model_name: "{name.partition("/")[0]}" model_version: {name.partition("/")[2] or -1}')
        lines += [f'input_map {{ key: "{k}" value: "{v}" }}' for k, v in reads.items()]
        lines += [f'output_map {{ key: "{k}" value: "{v}" }}' for k, v in writes.items()]
        lines.append("}")
    return "\n".join([*lines, "}"])


def chain(*names: str) -> str:
    """An ensemble whose steps follow each other."""
    steps: list[Step] = []
    for number, name in enumerate(names):
        source = f"t{number}" if number else "X"
        target = "Y" if number == len(names) - 1 else f"t{number + 1}"
        steps.append((name, {"X": source}, {"Y": target}))
    return ensemble(*steps)


SUM = model("""
def execute(self, requests):
    return [answer(number(r, "A") + number(r, "B")) for r in requests]
""")

RAISES = model("""
def execute(self, requests):
    raise ValueError("no good")
""")

COUNTDOWN = model("""
def execute(self, requests):
    for r in requests:
        sender = r.get_response_sender()
        for value in range(number(r), 0, -1):
            sender.send(answer(value))
        sender.send(flags=FINAL)
""")

SILENT = model("""
def execute(self, requests):
    return [pb.InferenceResponse([]) for _ in requests]
""")


JOIN = pbtxt(inputs="A:INT32 B:INT32")
PLUS_ONE = model("""
def execute(self, requests):
    return [answer(number(r) + 1) for r in requests]
""")


def with_steps(repo: bls.ModelRepository) -> bls.ModelRepository:
    """The models that the steps of ensembles are made of."""
    repo.define("double", DOUBLE, pbtxt())
    repo.define("plus", PLUS_ONE, pbtxt())
    repo.define("sum", SUM, JOIN)
    repo.define("raises", RAISES, pbtxt())
    repo.define("silent", SILENT, pbtxt())
    repo.define("countdown", COUNTDOWN, pbtxt(decoupled=True))
    return repo
