"""Times of many requests: percentiles, histograms, streams."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.display import render
from bls_notebook.display.latency import histogram_html, histogram_line
from bls_notebook.records.measurements import latency
from bls_notebook.records.repository import StreamRecord
from tests.display.page import Page
from tests.display.samples import error, response


def test_percentiles() -> None:
    found = latency(float(n) for n in range(1, 101))
    assert found is not None
    assert (found.median, found.p90, found.least, found.most) == (50.5, pytest.approx(90.1), 1.0, 100.0)
    assert found.p99 == pytest.approx(99.01)
    assert latency([]) is None


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_every_time_is_in_one_bin(seconds: list[float]) -> None:
    found = latency(seconds, 10)
    assert found is not None
    assert sum(found.counts) == len(seconds)
    assert len(found.edges) == len(found.counts) + 1 == 11
    assert list(found.edges) == sorted(found.edges)
    assert (found.edges[0], found.edges[-1]) == (min(seconds), max(seconds))
    line = histogram_line(found)
    assert line.count("█") >= 1
    assert Page(histogram_html(found, line)).find("img")[0]["alt"] == line


def test_many_requests_have_figures_and_a_histogram() -> None:
    times = random.Random(7)
    records = [response(index=i, seconds=times.uniform(1e-3, 2e-3)) for i in range(150)]
    shown = render(records, stream=False)
    second, third = shown.text.split("\n")[1:3]
    assert all(name in second for name in ("median ", "p90 ", "p99 ", "fastest ", "slowest "))
    assert "█" in third
    page = Page(shown.html)
    assert len(page.find("img", "bls-figure")) == 1
    assert [("open" in a) for a in page.find("details")] == [False]  # the responses are at hand
    few = render(records[:19])
    assert "median" in few.text.split("\n")[0]
    assert "█" not in few.text
    assert "p99" not in render(records[:50]).text
    failed = render([response(index=i, tensors=(), error=error()) for i in range(150)])
    assert "p90" not in failed.text  # what was refused took no time


def test_text_that_streams_stands_above_its_pieces() -> None:
    records = [response(index=i, final=i == 2) for i in range(3)]
    shown = render(records, stream=True, texts=[("OUT", "one\n<b>two</b>")])
    assert shown.text.split("\n")[1:4] == ["  OUT:", "    one", "    <b>two</b>"]
    assert '<div class="bls-stream-text">one\n&lt;b&gt;two&lt;/b&gt;</div>' in shown.html
    assert [("open" in a) for a in Page(shown.html).find("details")] == [False]
    long = render(records, stream=True, texts=[("OUT", "x" * 1_000_000)])
    assert "980,000 more characters" in long.text
    assert len(long.html) < 60_000


def test_streams() -> None:
    records = [StreamRecord("m", 1, i, 5, 0.01 * (i + 1), 0.02 * (i + 1), "<i>all</i>") for i in range(30)]
    few, many = render(records[:3]), render(records)
    assert few.text.split("\n")[0].startswith("✓ m · version 1 · 3 streams · 15 responses · first after 20.0 ms")
    assert "█" not in few.text
    assert many.text.count("█") >= 2
    assert "first response: median" in many.text
    assert "last response: median" in many.text
    assert "… 19 more" in many.text
    assert "&lt;i&gt;all" in many.html
    failed = render([*records[:2], StreamRecord("m", 1, 2, error=error(), warnings=("late",))])
    assert failed.text.startswith("✗ m · version 1 · 3 streams · 10 responses · 1 error")
    assert "no weights" in failed.text
    assert "warning: late" in failed.text
    assert "callee failed" in Page(failed.html).text
