"""Families of metrics, as text and as a table; histograms drawn."""

from __future__ import annotations

import math

import pytest

from bls_notebook.engine.metrics import Metrics
from bls_notebook.inspection.statistics_table import number
from bls_notebook.records.statistics import BucketSeen, FamilyRecord, MetricRecord, matching
from tests.display.page import Page, as_html, as_text
from tests.display.samples import family, histogram


def test_text() -> None:
    assert as_text([family(), histogram()]).splitlines() == [
        "calls  counter",
        "  How many calls",
        "  kind=a, model=m  1,234",
        "                     0.5",
        "",
        "seconds  histogram",
        "  model=m  5 observations, sum 12.5, mean 2.5",
        "    ≤ 0.5  1  #####",
        "     ≤ 10  4  ####################",
        "     > 10  0",
        "  0 observations, sum 0",
    ]
    for record in (family(), histogram()):
        assert FamilyRecord.from_dict(record.to_dict()) == record


def test_a_bar_for_each_bucket() -> None:
    page = Page(as_html([histogram()]))
    bars = [a for a in page.find("span") if (a.get("style") or "").startswith("width:")]
    assert [bar["style"] for bar in bars] == ["width:25.0%", "width:100.0%"]
    assert "sum 12.5, mean 2.5" in page.text
    assert "> 10" in page.text


def test_tritons_own_are_folded_away_beside_others() -> None:
    own = family(name="nv_own")
    assert not Page(as_html([own])).find("details")
    page = Page(as_html([family(), own, own]))
    assert page.find("details")
    assert "Triton's own metrics: 2 families" in page.text


def test_long_families_are_cut() -> None:
    long = family(metrics=(MetricRecord(),) * 60)
    assert "… 10 more" in as_text([long])
    assert "… 10 more" in Page(as_html([long])).text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1234567.0, "1,234,567"), (-3.0, "-3"), (0.125, "0.125"), (1 / 3, "0.333333"),
     (1e300, "1e+300"), (math.inf, "∞"), (-math.inf, "-∞"), (math.nan, "NaN")],
)  # fmt: skip
def test_values(value: float, text: str) -> None:
    assert number(value) == text


def made() -> Metrics:
    metrics = Metrics()
    metrics.family("hits", "Of the <b>cache</b>", "counter").metric({"model": "a"}, None).increment(2)
    metrics.family("requests_total", "d", "counter").metric({}, None).increment(3)
    metrics.family("depth", "d", "gauge").metric({"model": "b"}, None).set(-1)
    seconds = metrics.family("seconds", "d", "histogram").metric({"model": "a"}, [1, 2.5])
    for value in (0.5, 2, 2, 9):
        seconds.observe(value)
    return metrics


def test_families_have_the_names_that_they_were_given() -> None:
    metrics = made()
    hits, total, depth, seconds = metrics.families()
    assert hits == FamilyRecord("hits", "Of the <b>cache</b>", "counter", (MetricRecord((("model", "a"),), 2.0),))
    assert (total.name, total.metrics, depth.kind) == ("requests_total", (MetricRecord((), 3.0),), "gauge")
    buckets = (BucketSeen("1", 1), BucketSeen("2.5", 2), BucketSeen("+Inf", 1))
    assert seconds.metrics == (MetricRecord((("model", "a"),), 13.5, buckets),)
    assert seconds.metrics[0].count == 4
    for part, names in (
        ("HIT", ["hits"]), ("<b>CACHE", ["hits"]), ("_total", ["requests_total"]),
        ('model="a"', ["hits", "seconds"]), ("nothing", []),
    ):  # fmt: skip
        assert [found.name for found in metrics.families(part)] == names
        typed = [line for line in metrics.text(part).splitlines() if line.startswith("# TYPE")]
        assert [line.split()[2] for line in typed] == names


def test_matching_keeps_the_metrics_that_match_and_puts_models_first() -> None:
    two = family(metrics=(MetricRecord((("m", "a"),)), MetricRecord((("m", "b"),))))
    (matched,) = matching([two], 'm="b"')
    assert matched.metrics == (MetricRecord((("m", "b"),)),)
    assert matching([two], "calls") == [two]
    tritons, models = family(name="nv_first"), family(name="z")
    assert matching([tritons, models]) == [models, tritons]
