"""Measure how long the static picture of a timeline takes, its bytes in the notebook's file, and the whole display.

    python benchmarks/pictures.py [--quick] [--check]

A notebook shows this picture without a kernel. The sessions are those of a busy server, drawn as HTML: 64 requests,
each drawn individually, and more. The whole display is what %%blsprofile shows: the verdict, the figures and the
picture, of requests whose instances wait for the GIL.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bls_notebook.display.mime_bundle import render  # noqa: E402
from bls_notebook.profiling.session import Session  # noqa: E402
from bls_notebook.profiling.timeline.picture import timeline_block  # noqa: E402
from tests.profiling.sessions import idle_instances, many  # noqa: E402

SIZES = (64, 1_000, 10_000)
MOST_MS, MOST_BYTES = 10.0, 12_000  # limits for the first size


DISPLAYS = (1_000, 5_000, 50_000)
MOST_GROWTH = 2.0  # limit for the time of a request in the last size, in the time of a request in the first


def measure(draw: Callable[[Session], str], session: Session, rounds: int) -> tuple[float, int]:
    """Return the median time (ms) to draw a session, and the bytes of its HTML."""
    times = []
    for _ in range(rounds + 1):
        fresh = replace(session)  # a session keeps what its analyses have in common
        begin = time.perf_counter()
        html = draw(fresh)
        times.append((time.perf_counter() - begin) * 1000)
    return statistics.median(times[1:]), len(html.encode())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a trial, not a measurement")
    parser.add_argument("--check", action="store_true", help="exit status 1 if a target is missed")
    options = parser.parse_args()
    print("requests      time      bytes")
    missed = False
    for count in SIZES[:1] if options.quick else SIZES:
        ms, size = measure(lambda session: timeline_block([session]).html, many(count), 3 if options.quick else 15)
        print(f"{count:8,}{ms:7.1f} ms{size:11,}")
        missed |= count == SIZES[0] and (ms > MOST_MS or size > MOST_BYTES)
    print(f"target for {SIZES[0]} requests: {MOST_MS:.0f} ms, {MOST_BYTES:,} bytes")
    print("\nwhole display of a session with waits for the GIL\nrequests      time    a request")
    each = []
    for count in DISPLAYS[:2] if options.quick else DISPLAYS:
        ms, _ = measure(lambda session: render(session).html, idle_instances(count), 1 if options.quick else 5)
        each.append(1000 * ms / count)
        print(f"{count:8,}{ms:7.0f} ms{each[-1]:10.0f} us")
    print(f"target: a request of the largest takes at most {MOST_GROWTH:.0f} times as long as one of the smallest")
    missed |= each[-1] > MOST_GROWTH * each[0]
    return 1 if missed and options.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
