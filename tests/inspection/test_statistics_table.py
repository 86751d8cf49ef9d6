"""What models have done, as text and as a table."""

from __future__ import annotations

from dataclasses import replace

from bls_notebook.records.statistics import BatchSeen, StatisticsRecord, Times, statistics_record
from tests.display.page import Page, as_html, as_text
from tests.display.samples import statistics


def test_text() -> None:
    idle = statistics(name="idle", executions=0, success=Times(), fail=Times(), failures=(), batches=())
    plain = statistics(name="plain", batching=False, cached=False, failures=(), fail=Times())
    plain = replace(plain, cache_hit=Times(), batches=())
    text = as_text([statistics(), idle, plain], width=130)
    heads, first, second, third, *rest = text.splitlines()
    assert heads.split()[-5:] == ["time", "queue", "input", "infer", "output"]
    assert first.split()[:7] == ["digit_classifier", "1", "40", "79", "13", "6.08", "3"]
    assert "1.00 ms  |······======|" in first
    assert first.endswith("500 µs  10.0 µs   450 µs  40.0 µs")
    assert second.endswith("no requests yet")
    assert "6.08" not in third
    assert rest[-4:] == [
        "digit_classifier version 1: batches: 2 of 1, 10 of 6, 1 of 8",
        "digit_classifier version 1: cache: 4 hits, 1 miss; a hit takes 100 µs; a miss costs 50.0 µs more",
        "digit_classifier version 1: failed: 1 cancelled, 2 in the model",
        "idle version 1: cache: 4 hits, 1 miss; a hit takes 100 µs; a miss costs 50.0 µs more",
    ]


def test_a_row_for_each_version_with_a_bar_of_its_phases() -> None:
    page = Page(as_html([statistics(), statistics(version="2")]))
    assert len(page.find("tr")) == 3
    bars = [a for a in page.find("span") if (a.get("style") or "").startswith("width:")]
    assert [bar["style"] for bar in bars[:4]] == ["width:50.0%", "width:1.0%", "width:45.0%", "width:4.0%"]
    assert [bar["class"] for bar in bars[:4]] == [
        f"bls-stats-{phase}" for phase in ("queue", "input", "infer", "output")
    ]
    assert bars[0]["title"] == "queue: 500 µs, 50% of the time"
    assert "1 cancelled" in page.text
    assert "4 hits, 1 miss" in page.text


def test_an_unused_column_and_an_empty_list() -> None:
    assert "batch" not in Page(as_html([statistics(batching=False, batches=())])).text
    assert "no models are loaded" in as_text([], empty="StatisticsRecord")
    assert "no models are loaded" in Page(as_html([], empty="StatisticsRecord")).text


def test_an_entry_of_a_real_server_which_omits_zeros() -> None:
    row = {
        "name": "m",
        "version": "3",
        "inference_count": "7",  # as protobuf's JSON has 64 bits
        "execution_count": 2,
        "inference_stats": {"success": {"count": 2, "ns": 100}, "queue": {"count": 2}},
        "batch_stats": [{"batch_size": 1, "compute_infer": {"count": 1}}, {"batch_size": 6}],
    }
    record = statistics_record(row)
    assert (record.name, record.version, record.inferences, record.batch) == ("m", "3", 7, 3.5)
    assert (record.success, record.queue, record.fail) == (Times(2, 100), Times(2, 0), Times())
    assert record.batches == (BatchSeen(1, 1), BatchSeen(6, 0))
    assert record.batching
    assert not record.cached
    assert StatisticsRecord.from_dict(record.to_dict()) == record
    assert (Times().seconds, Times(4, 2_000_000_000).seconds) == (0, 0.5)


def test_a_model_that_has_only_failed_was_asked() -> None:
    failed = statistics(success=Times())
    for shown in (as_text([failed]), Page(as_html([failed])).text):
        assert "no request has succeeded" in shown
        assert "no requests yet" not in shown
    assert "no requests yet" in as_text([statistics(success=Times(), fail=Times(), failures=())])
