"""Check the dependences and the speedup that `bls.overlap` predicts, on graphs with known dependences.

    python benchmarks/overlap.py [--delay SECONDS] [--only REGEX] [--quick] [--json PATH]

Each callee takes `--delay` seconds. For each graph, prints the predicted and the measured speedup, the error of the
prediction, and whether the order of the calls is the true one. See README.md.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import bls_notebook as bls

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.profiling.overlap_graphs import CONFIG, GRAPHS, Graph, define_callees, source_of

TARGET = 0.15  # error of the predicted speedup, relative to the measured one


def measure(repo: bls.ModelRepository, graph: Graph, repeat: int | None, place: str) -> dict[str, Any]:
    """Analyze a graph, and measure its changed program."""
    repo.define("caller", source_of(graph, place), CONFIG)
    inputs = {"IN": np.array([1, 2, 3], np.float32)}
    found = bls.overlap("caller", inputs, repeat=repeat, apply=True, repo=repo)
    stages = ("+".join(sorted(found.calls[n].model for n in stage)) for stage in found.stages)
    order = ", ".join(stages) if not found.problem else "?"
    truth = ", ".join("+".join(sorted(stage.split("+"))) for stage in graph.order.split(", "))
    off = abs(found.predicted - found.speedup) / found.speedup if found.speedup else None
    return {
        "graph": graph.name,
        "predicted": found.predicted,
        "proven": found.speedup,
        "off": off,
        "as it should be": order == truth,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--delay", type=float, default=0.02, help="seconds of each call")
    parser.add_argument("--only", default="", help="graphs whose names match")
    parser.add_argument(
        "--quick", action="store_true", help="short calls, one run, some graphs: a trial, not a measurement"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    rows = []
    with bls.ModelRepository() as repo, TemporaryDirectory() as place:
        define_callees(repo, place, min(options.delay, 0.01) if options.quick else options.delay, instances=4)
        for graph in GRAPHS[:: 16 if options.quick else 1]:
            if re.search(options.only, graph.name):
                rows.append(measure(repo, graph, 1 if options.quick else None, place))
                row = rows[-1]
                off = "" if row["off"] is None else f"{row['off']:6.0%}"
                told = "" if row["as it should be"] else "   ORDER"
                print(f"{row['graph']:<40}{row['predicted']:7.2f}x{row['proven']:8.2f}x {off}{told}", flush=True)
    offs = [row["off"] for row in rows if row["off"] is not None]
    if offs:
        within = sum(off <= TARGET for off in offs)
        print(f"predicted within {TARGET:.0%} of proven: {within} of {len(offs)}, median {median(offs):.0%} off")
    if options.json:
        options.json.write_text(json.dumps({"delay": options.delay, "graphs": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
