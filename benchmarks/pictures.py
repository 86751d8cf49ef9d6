"""Measure how long the static picture of a timeline takes, and how many bytes it adds to the notebook's file.

    python benchmarks/pictures.py [--quick] [--check]

A notebook shows this picture without a kernel. The sessions are those of a busy server, drawn as HTML: 64 requests,
each drawn individually, and more.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bls_notebook.profiling.timeline.picture import timeline_picture  # noqa: E402
from tests.profiling.sessions import many  # noqa: E402

SIZES = (64, 1_000, 10_000)
MOST_MS, MOST_BYTES = 10.0, 12_000  # limits for the first size


def measure(count: int, rounds: int) -> tuple[float, int]:
    """Return the median time (ms) to draw a picture, and its bytes."""
    session = many(count)
    times = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        picture = timeline_picture(session)
        times.append((time.perf_counter() - begin) * 1000)
    return statistics.median(times[1:]), len(picture.encode())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a trial, not a measurement")
    parser.add_argument("--check", action="store_true", help="exit status 1 if a target is missed")
    options = parser.parse_args()
    print("requests      time      bytes")
    missed = False
    for count in SIZES[:1] if options.quick else SIZES:
        ms, size = measure(count, 3 if options.quick else 15)
        print(f"{count:8,}{ms:7.1f} ms{size:11,}")
        missed |= count == SIZES[0] and (ms > MOST_MS or size > MOST_BYTES)
    print(f"target for {SIZES[0]} requests: {MOST_MS:.0f} ms, {MOST_BYTES:,} bytes")
    return 1 if missed and options.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
