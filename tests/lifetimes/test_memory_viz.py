"""Memory tracks as PyTorch's memory snapshots, read as PyTorch reads them."""

from __future__ import annotations

import pickle
import pickletools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from bls_notebook.lifetimes.records import Lifetimes, memory_viz
from bls_notebook.records.errors import FileError
from tests.lifetimes import samples
from tests.lifetimes.test_block_facts import tracks

# What the page's own reader of pickles knows.
READABLE = {
    "APPEND", "APPENDS", "BINFLOAT", "BINGET", "BININT", "BININT1", "BININT2", "BINPUT", "BINUNICODE",
    "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "FRAME", "LONG1", "LONG_BINGET", "MARK", "MEMOIZE", "NEWFALSE",
    "NEWTRUE", "NONE", "PROTO", "SETITEM", "SETITEMS", "SHORT_BINUNICODE", "STOP", "TUPLE", "TUPLE1",
    "TUPLE2", "TUPLE3",
}  # fmt: skip


@given(tracks())
def test_events_lead_to_what_is_alive(record: Lifetimes) -> None:
    snapshot = memory_viz(record.lives)
    for segment, events in zip(snapshot["segments"], snapshot["device_traces"], strict=True):
        there: dict[int, int] = {}
        for event in events:
            if event["action"] == "alloc":
                assert all(
                    at + size <= event["addr"] or event["addr"] + event["size"] <= at for at, size in there.items()
                )
                there[event["addr"]] = event["size"]
            elif event["action"] == "free_completed":
                assert there.pop(event["addr"]) == event["size"]
        blocks = segment["blocks"]
        assert there == {b["address"]: b["size"] for b in blocks if b["state"] == "active_allocated"}
        assert sum(block["size"] for block in blocks) == segment["total_size"]
        assert sum(there.values()) == segment["allocated_size"]
        at = segment["address"]
        for block in blocks:
            assert block["address"] == at
            at += block["size"]
    alive = Counter({life.device: 0 for life in record.lives if life.bytes})
    for life in record.alive():
        if life.bytes:
            alive[life.device] += life.bytes
    assert sorted(alive.values()) == sorted(each["allocated_size"] for each in snapshot["segments"])


def test_frames_say_the_line_and_the_request() -> None:
    events = memory_viz(samples.lined().lives)["device_traces"][0]
    kept = next(event for event in events if event["size"] == 96 * samples.MIB)
    assert kept["frames"] == [
        {"filename": "model.py", "line": 14, "name": "keep"},
        {"filename": "leaky", "line": 1, "name": "new STATES FP32 [25165824] on gpu:0"},
        {"filename": "In [3]", "line": 0, "name": "cell"},
    ]


@pytest.mark.parametrize("name", samples.ALL)
def test_the_file_is_one_that_the_page_can_read(name: str, tmp_path: Path) -> None:
    path = samples.ALL[name]().save(tmp_path / "track.pickle")
    data = path.read_bytes()
    assert {opcode.name for opcode, _, _ in pickletools.genops(data)} <= READABLE
    assert set(pickle.loads(data)) >= {"segments", "device_traces"}


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"cannot save to 'track\.pickle'"):
        samples.leak().save(tmp_path / "nowhere" / "track.pickle")


@pytest.mark.parametrize("name", samples.ALL)
def test_torch_reads_it(name: str) -> None:
    viz: Any = pytest.importorskip("torch.cuda._memory_viz")
    snapshot = memory_viz(samples.ALL[name]().lives)
    assert "segments: " in viz.segsum(snapshot)
    assert "TOTAL MEM" in viz.trace(snapshot) or not snapshot["device_traces"]
    stacks = viz.memory(snapshot, format_flamegraph=str)
    if name == "lined":
        assert "leaky;model.py:14:keep" in stacks.replace(":1:new STATES FP32 [25165824] on gpu:0", "")
    assert "MemoryViz" in viz.trace_plot(snapshot)
