"""One response, the responses of many requests with their times, and a stream."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.display import render
from bls_notebook.display.records.responses import histogram_html, histogram_line
from bls_notebook.records.measurements import latency
from bls_notebook.records.responses import Media, StreamRecord
from tests.display.page import Page, as_html, as_text
from tests.display.samples import DOT, error, response, seen, tensor


def test_text_of_a_response() -> None:
    record = response(
        request_id="r-7",
        tensors=(tensor(), tensor(name="PIXELS", device="gpu:0", bytes=2048, preview="on gpu:0, not copied")),
        parameters=(("mode", "fast"), ("n", 3), ("on", True)),
        warnings=("OUT2 was not sent",),
    )
    assert as_text(record).split("\n") == [
        "✓ square  version 3  request r-7  1.00 ms",
        "  name    datatype  shape  device   size  values",
        "  OUT     INT32     [1]    cpu       4 B  [7]",
        "  PIXELS  INT32     [1]    gpu:0   2 KiB  on gpu:0, not copied",
        "  parameters: mode='fast', n=3, on=True",
        "  warning: OUT2 was not sent",
    ]


def test_figures_and_pictures_of_an_output() -> None:
    record = response(tensors=(seen(), tensor(name="PLAIN")))
    assert as_text(record).split("\n")[1:] == [
        "  name   datatype  shape  device  size  range and mean                            values",
        "  OUT    INT32     [1]    cpu      4 B  -2 to 9.5, mean 0.25 3 NaN 1 Inf 1/16 r…  [7]",
        "  PLAIN  INT32     [1]    cpu      4 B                                            [7]",
    ]
    page = Page(as_html(record))
    assert {a["alt"] for a in page.find("img")} == {"OUT: 8×16, 0 to 255 as they are"}
    assert [(a["width"], a["height"]) for a in page.find("img")] == [("28", "56")] * 2


@pytest.mark.parametrize("media", [Media("image/png", "x' onerror='"), Media("text/html", DOT), Media("image/png", "")])
def test_hostile_media_is_not_shown_as_an_image(media: Media) -> None:
    assert not Page(as_html(response(tensors=(tensor(pictures=(media,)),)))).find("img")


def test_a_long_preview_is_cut_and_whole_in_its_tooltip() -> None:
    long = "[" + ", ".join(str(i) for i in range(99)) + "]"
    page = Page(as_html(response(tensors=(tensor(preview=long),))))
    assert page.find("code", "bls-value") == [{"class": "bls-value", "title": long}]
    assert long not in page.text
    assert "…" in page.text
    assert max(map(len, as_text(response(tensors=(tensor(preview=long),))).split("\n"))) <= 100


def test_a_response_without_tensors_or_with_an_error() -> None:
    flag = response(tensors=(), warnings=())
    assert "no tensors; only the final flag" in as_text(flag)
    assert "no tensors; only the final flag" in Page(as_html(flag)).text
    assert "final flag" not in as_text(response(tensors=(), warnings=("model 'm', output 'Y': missing",)))
    assert "final flag" not in as_text(response(tensors=(), final=False))
    record = response(model="caller", tensors=(), error=error())
    text = as_text(record)
    assert text.startswith("✗ caller  version 3  1.00 ms\n  callee failed · INTERNAL\n  ValueError: no weights")
    assert "no tensors" not in text
    page = Page(as_html(record))
    assert page.find("div", "bls-error")
    assert "no tensors" not in page.text


def test_a_stream() -> None:
    records = [response(i, final=False) for i in range(3)] + [response(3, tensors=())]
    assert as_text(records, stream=True).split("\n") == [
        "✓ square · version 3 · 3 responses · first after 1.00 ms · last after 4.00 ms",
        "       after  OUT INT32 [1]",
        "  0  1.00 ms  [0]",
        "  1  2.00 ms  [1]",
        "  2  3.00 ms  [2]",
        "  3  4.00 ms                 final",
    ]
    page = Page(as_html(records, stream=True))
    assert len(page.find("tr")) == 5
    assert page.text.endswith("3.00 ms[2]34.00 msfinal")
    assert not page.find("li")


def test_a_stream_that_is_not_finished_says_so_unless_it_runs() -> None:
    records = [response(i, final=False) for i in range(3)]
    assert as_text(records, stream=True).startswith("! square")
    assert "warning: no final flag" in as_text(records, stream=True)
    assert "no final flag" in Page(as_html(records, stream=True)).text
    assert "no final flag" not in as_text(records)
    shown = render(records, stream=True, running=True)
    assert shown.text.split("\n")[0].startswith("· square")
    assert shown.text.split("\n")[0].endswith("· running")
    assert "warning" not in shown.text
    assert not Page(shown.html).find("li")
    ended = [*records, response(3)]  # as the last update before its end may be
    assert "running" not in render(ended, stream=True, running=True).text
    warned = [replace(r, warnings=("odd",)) for r in records]
    assert "warning: odd (3 times)" in render(warned, stream=True, running=True).text


def test_a_stream_that_ends_in_an_error() -> None:
    records = [response(0, final=False), response(1, tensors=(), error=error())]
    lines = as_text(records, stream=True).split("\n")
    assert lines[0].startswith("✗ square · version 3 · 1 response · 1 error")
    assert "  1  ✗  2.00 ms  ValueError: no weights" in lines
    assert "  →  9          raise ValueError('no weights')" in lines
    page = Page(as_html(records, stream=True))
    assert len(page.find("tr", "bls-bad")) == 1
    assert page.find("div", "bls-error")


def test_many_requests() -> None:
    records = [response(i) for i in range(4)]
    records[2] = response(2, tensors=(), error=error(frames=(), chain=("square",), hint=""), warnings=())
    records[3] = response(3, warnings=("odd",))
    assert as_text(records).split("\n") == [
        "✗ square · version 3 · 4 requests · 1 error · median 2.50 ms · 1.00 ms to 4.00 ms",
        "           time  OUT INT32 [1]",
        "  0     1.00 ms  [0]",
        "  1     2.00 ms  [1]",
        "  2  ✗  3.00 ms  ValueError: no weights",
        "  3  !  4.00 ms  [3]",
        "  warning: odd",
        "",
        "  square failed · INTERNAL",
        "  ValueError: no weights",
    ]
    page = Page(as_html(records))
    assert page.text.count("!") == 1
    assert page.find("span", "bls-warn")[3]["title"] == "odd"


@pytest.mark.parametrize(("total", "rows"), [(20, 20), (21, 8 + 3), (1000, 8 + 3)])
def test_long_runs_are_thinned_out(total: int, rows: int) -> None:
    records = [response(i) for i in range(total)]
    text = as_text(records)
    assert sum(line.strip()[:1].isdigit() and "█" not in line for line in text.split("\n")) == rows
    hidden = total - rows
    assert (f"… {hidden:,} more" in text) == (hidden > 0)
    assert len(Page(as_html(records)).find("tr", "bls-gap")) == (hidden > 0)


def test_the_first_errors_of_a_long_run_are_never_thinned_out() -> None:
    records = [response(i) for i in range(1000)]
    for i in range(49, 1000, 50):
        records[i] = response(i, tensors=(), error=error(message=f"no {i}"))
    lines = as_text(records).split("\n")
    assert [line.split()[0] for line in lines if "✗  " in line] == ["49", "99", "149", "199", "249", "999"]
    assert "20 errors" in lines[0]


def test_columns_have_the_facts_that_are_not_shared() -> None:
    mixed = [response(0), response(1, tensors=(tensor(1, shape=(2,), device="gpu:0"),))]
    text = as_text(mixed)
    assert "OUT INT32\n" in text
    assert "[1] [0]" in text
    assert "[2] gpu:0 [1]" in text
    same = as_text([response(0, tensors=(tensor(device="gpu:0"),))])
    assert "OUT INT32 [1] gpu:0\n" in same
    tensors = tuple(tensor(i, name=f"T{i}") for i in range(5))
    text = as_text([response(0, tensors=tensors)])
    assert "T0 INT32 [1] [0]; T1 INT32 [1] [1]; T2 INT32 [1] [2]" in text
    assert "T4 INT32 [1] [4]" in " ".join(text.split())
    assert "T4 INT32 [1] [4]" in Page(as_html([response(0, tensors=tensors)])).text


def test_no_responses() -> None:
    for shown in (
        as_text([], empty="ResponseRecord"),
        as_text([], stream=True),
        Page(as_html([], empty="ResponseRecord")).text,
        Page(as_html([], stream=True)).text,
    ):
        assert shown == "no responses"


def test_html_rows_have_as_many_cells_as_the_heading() -> None:
    records = [response(i) for i in range(30)]
    records[9] = response(9, tensors=(), error=error())
    for seconds in (0.001, None):
        timed = [replace(record, seconds=seconds) for record in records]
        page = as_html(timed).split("<thead>")[1].split("</table>")[0]
        spans = []
        for row in page.split("<tr")[1:]:
            cells = row.count("<td") + row.count("<th ")
            spans.append(cells + sum(int(part.split('"')[0]) - 1 for part in row.split('colspan="')[1:]))
        assert set(spans) == {4 if seconds else 3}


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
