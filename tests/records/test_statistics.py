from __future__ import annotations

from typing import Any

import pytest

from bls_notebook.records.statistics import StatisticsRecord, Times, why_not_batched


def seen(requests: int, executions: int, **given: Any) -> StatisticsRecord:
    record = {"scheduler": "dynamic", "max_batch_size": 8, "waited": requests, **given}
    return StatisticsRecord("m", executions=executions, success=Times(requests, 1), **record)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (seen(64, 64, scheduler="default"), "while others waited, because without `dynamic_batching`"),
        (seen(64, 60, ended=(("shape:IN", 50), ("queue", 3))), "another shape of input 'IN'"),
        (seen(64, 64, ended=(("inputs", 50),)), "other optional inputs"),
        (seen(64, 64, ended=(("rows", 50),)), "too many rows"),
        (seen(64, 64, ended=(("preferred", 50),)), "preferred size"),
        (seen(64, 64, ended=(("queue", 50),)), "`max_queue_delay_microseconds` is 0"),
        (seen(64, 64, inferences=320, ended=(("queue", 50),)), "5 rows on average, so two exceed `max_batch_size` 8"),
        (seen(64, 64, waited=0, ended=(("delay", 60),)), "each request alone waits for it in vain"),
    ],
)
def test_why_requests_were_not_batched(record: StatisticsRecord, words: str) -> None:
    why = why_not_batched(record)
    assert why is not None
    assert words in why.sentence
    assert "64 requests" in why.said


@pytest.mark.parametrize(
    "record",
    [
        seen(64, 8, ended=(("full", 8),)),  # they were
        seen(64, 64, max_batch_size=0),
        seen(3, 3, ended=(("shape:IN", 3),)),  # few
        seen(64, 64, scheduler="default", waited=0),  # one after the other
        seen(64, 64, waited=0, ended=(("queue", 64),)),
        seen(64, 60, ended=(("shape:IN", 20), ("queue", 20), ("rows", 20))),  # of many causes
        seen(64, 64, scheduler="sequence"),
    ],
)
def test_nothing_is_said_where_nothing_is_wrong(record: StatisticsRecord) -> None:
    assert why_not_batched(record) is None
