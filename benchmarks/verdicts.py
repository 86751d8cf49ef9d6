"""Check that the verdict of a comparison is true, on workloads with known causes, many times each.

    python benchmarks/verdicts.py [--runs 20] [--only REGEX] [--busy N] [--quick] [--check] [--json PATH]

For each workload, prints how often the verdict named a true cause, and the error of the predicted speedups. See
README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from collections import Counter
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import bls_notebook as bls
from bls_notebook.profiling.records.verdicts import DOUBTFUL

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "verdicts.json"
sys.path.insert(0, str(HERE.parent))

from tests.profiling.workloads import WORKLOADS, Workload, define  # noqa: E402

TARGET = 0.2  # predicted against measured


def measure(workload: Workload, runs: int, repeat: int | None = None) -> dict[str, Any]:
    """Compare a workload many times."""
    causes: Counter[str] = Counter()
    off: list[float] = []
    sure: list[float] = []  # without the runs whose figures the comparison calls rough
    speedups: list[float] = []
    rough = 0
    for _ in range(runs):
        with bls.ModelRepository() as repo:
            define(repo, workload)
            n = 8 if repeat is None else 3
            found = bls.compare(workload.model, workload.inputs, n=n, repeat=repeat, verify=True, repo=repo)
        causes[found.verdict.cause] += 1
        speedups.append(found.speedup)
        rough += bool(found.verdict.note)
        # If the trial refutes a prediction, the verdict names another cause and no count. Some gains are unknown.
        if found.verification is not None and found.verdict.count and found.verification.predicted:
            off.append(found.verification.off)
            if not found.verdict.note and found.verification.relative_error < DOUBTFUL:
                sure.append(found.verification.off)
    return {
        "workload": workload.name,
        "truth": workload.cause.split(),
        "causes": dict(causes),
        # With the reason, "unknown" is true, too.
        "true": sum(causes[cause] for cause in {*workload.cause.split(), "busy"}),
        "runs": runs,
        "speedup": median(speedups),
        "off_median": median(off) if off else None,
        "off_most": max(off) if off else None,
        "off_median_of_not_rough": median(sure) if sure else None,
        "off_most_of_not_rough": max(sure) if sure else None,
        "within_target": sum(value <= TARGET for value in off),
        "off": [round(value, 3) for value in off],
        "rough": rough,
        "load": round(_load(), 1),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a text table."""
    heads = f"{'workload':<26}{'true':>8}{'speed-up':>10}{'off by, median':>16}{'most':>7}{'rough':>7}"
    lines = [heads + "  causes named"]
    for row in rows:
        off = ["" if row[key] is None else f"{row[key]:.0%}" for key in ("off_median", "off_most")]
        causes = ", ".join(f"{cause} {count}" for cause, count in row["causes"].items())
        true = f"{row['true']}/{row['runs']}"
        lines.append(
            f"{row['workload']:<26}{true:>8}{row['speedup']:>9.1f}x{off[0]:>16}{off[1]:>7}{row['rough']:>7}  {causes}"
        )
    return "\n".join(lines)


def result(rows: list[dict[str, Any]], busy: int) -> dict[str, Any]:
    """Return the content of the JSON file: the day, the machine, the number of busy processes, and the rows."""
    machine = {"processors": os.cpu_count(), "python": platform.python_version()}
    return {"date": date.today().isoformat(), "machine": machine, "busy": busy, "rows": rows}


def _load() -> float:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--only", default="", metavar="REGEX", help="only workloads whose names match")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="run beside N processes that compute")
    parser.add_argument("--quick", action="store_true", help="one workload of each cause, once: a trial")
    parser.add_argument("--check", action="store_true", help="exit status 1 if a target is missed")
    parser.add_argument("--json", type=Path, metavar="PATH")
    arguments = parser.parse_args()
    runs = 1 if arguments.quick else arguments.runs
    rows = []
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.busy)]
    try:
        chosen = [w for w in WORKLOADS if re.search(arguments.only, w.name)]
        if arguments.quick:  # one of each cause
            chosen = list({workload.cause: workload for workload in chosen}.values())
        for workload in chosen:
            rows.append(measure(workload, runs, 1 if arguments.quick else None))
            print(table(rows[-1:]).splitlines()[-1], flush=True)
            if arguments.json or not arguments.quick:
                (arguments.json or RESULTS).write_text(json.dumps(result(rows, arguments.busy), indent=1) + "\n")
    finally:
        for other in others:
            other.kill()
    print("\n" + table(rows))
    print(f"\n{os.cpu_count()} processors, load {_load():.1f}, Python {platform.python_version()}")
    good = all(row["true"] == runs and (row["off_median"] or 0) <= TARGET for row in rows)
    return 0 if good or not arguments.check else 1


if __name__ == "__main__":
    raise SystemExit(main())
