"""Measure the timeline in a browser: first paint and frames per second, at 1,000 to 100,000 requests.

    python benchmarks/timeline.py [--quick] [--check] [--json PATH]

A notebook in JupyterLab in headless Chromium shows sessions of a busy server. See README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser.lab import CHROMIUM_FLAGS, Lab, OpenNotebook, find_chromium, notebook_file  # noqa: E402

RESULTS = Path(__file__).resolve().parent / "results" / "timeline.json"
SIZES = (1_000, 10_000, 100_000)
MOST_MS, LEAST_FPS = 1000.0, 30.0

HEAD = """
import time
from tests.profiling.sessions import many
from bls_notebook.profiling.timeline.widget import Timeline
"""
MAKE = """
session = many({count})
begin = time.perf_counter()
timeline = Timeline(session)
made_ms = (time.perf_counter() - begin) * 1000
"""

# The time from the empty place in the page to the first frame that shows the timeline.
FIRST_PAINT = """async ([place, rounds]) => {
  const times = [];
  for (let k = 0; k < rounds; k += 1) {
    const element = document.createElement('div');
    element.dataset.blsPlace = place;
    element.style.cssText = 'position:fixed;left:120px;top:60px;width:1040px;z-index:99;background:white';
    await new Promise(requestAnimationFrame);
    const begin = performance.now();
    document.body.append(element);
    while (!element.querySelector('.bls-tl-over')) await new Promise(requestAnimationFrame);
    await new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)));
    times.push(performance.now() - begin);
    element.remove();
    await new Promise(done => setTimeout(done, 100));
  }
  return times;
}"""

# One turn of the wheel per frame: zoom in to a thousandth of the session and out again, at a moving position.
ZOOM = """async (seconds) => {
  const canvas = document.querySelector('.bls-tl-over'), box = canvas.getBoundingClientRect();
  const frames = [];
  let direction = -1, zoomed = 0;
  const begin = performance.now();
  let last = begin;
  while (last - begin < seconds * 1000 || frames.length < 8) {  // a busy machine draws few frames
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - last);
    last = now;
    zoomed -= direction;
    if (zoomed > 64 || zoomed < 1) direction = -direction;
    canvas.dispatchEvent(new WheelEvent('wheel', {
      deltaY: direction * 60, ctrlKey: true, bubbles: true, cancelable: true, clientY: box.top + 90,
      clientX: box.left + box.width * (0.3 + 0.4 * ((now / 5000) % 1)),
    }));
  }
  return frames.slice(3);
}"""


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def measure(lab: Lab, browser: Any, count: int, rounds: int, seconds: float) -> dict[str, Any]:
    """Return the figures of one size, measured on a new page."""
    name = f"timeline_{count}.ipynb"
    cells = [HEAD + MAKE.format(count=count), "timeline"]
    (lab.root / "notebooks" / name).write_text(json.dumps(notebook_file(cells)), encoding="utf-8")
    notebook = OpenNotebook(lab, browser.new_page(viewport={"width": 1200, "height": 900}), name)
    notebook.run(tries=1)
    page = notebook.page
    page.wait_for_selector(".bls-tl-over")
    paints = page.evaluate(FIRST_PAINT, [notebook.ask("timeline.place"), rounds])
    frames = sorted(page.evaluate(ZOOM, seconds))
    size = notebook.ask("sum(len(raw['data']) + len(raw['texts']) for raw in timeline.sessions)")
    made = notebook.ask("made_ms")
    if notebook.errors() or notebook.problems:
        raise SystemExit(f"{count:,}: {notebook.errors()} {notebook.problems}")
    notebook.close()
    return {
        "requests": count,
        "first_paint_ms": statistics.median(paints),
        "first_paint_ms_each": paints,
        "frames_per_second": 1000 * len(frames) / sum(frames),
        "frame_ms_median": statistics.median(frames),
        "frame_ms_p95": frames[int(len(frames) * 0.95)],
        "frames": len(frames),
        "encoded_bytes": size,
        "encode_ms": made,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the figures as a text table."""
    heads = ("requests", "first paint", "frames/s", "frame, median", "frame, 95%", "data", "made in Python")
    lines = ["  ".join(head.rjust(14) for head in heads)]
    for row in rows:
        cells = (
            f"{row['requests']:,}", f"{row['first_paint_ms']:.0f} ms", f"{row['frames_per_second']:.0f}",
            f"{row['frame_ms_median']:.1f} ms", f"{row['frame_ms_p95']:.1f} ms",
            f"{row['encoded_bytes'] / 1e6:.2f} MB", f"{row['encode_ms']:.0f} ms",
        )  # fmt: skip
        lines.append("  ".join(cell.rjust(14) for cell in cells))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a trial, not a measurement")
    parser.add_argument("--check", action="store_true", help="exit status 1 if a target is missed")
    parser.add_argument("--json", type=Path, default=None, help=f"default: {RESULTS.name}, none if quick")
    options = parser.parse_args()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        say("skipped: needs playwright (pip install playwright) and JupyterLab")
        return 0
    path = find_chromium()
    if path is None:
        say("skipped: needs a browser; install Chromium, or name one by the environment variable CHROMIUM")
        return 0
    rows = []
    rounds, seconds = (1, 0.2) if options.quick else (9, 5.0)
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        lab = Lab(Path(home))
        try:
            browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
            version = browser.version
            for count in SIZES[:1] if options.quick else SIZES:
                say(f"{count:,} requests")
                rows.append(measure(lab, browser, count, rounds, seconds))
            browser.close()
        finally:
            lab.close()
    print(table(rows))
    machine = {"cores": os.cpu_count(), "system": platform.system(), "python": platform.python_version()}
    result = {"browser": version, "rendering": "software, 2D canvas", "machine": machine, "sizes": rows}
    json_path = options.json or (None if options.quick else RESULTS)
    if json_path:
        json_path.parent.mkdir(exist_ok=True)
        json_path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    missed = [
        f"{row['requests']:,}: {row['first_paint_ms']:.0f} ms, {row['frames_per_second']:.0f} frames/s"
        for row in rows
        if row["first_paint_ms"] >= MOST_MS or row["frames_per_second"] < LEAST_FPS
    ]
    for line in missed:
        say(f"missed: {line} (target: under {MOST_MS:.0f} ms, {LEAST_FPS:.0f} frames/s)")
    return 1 if missed and options.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
