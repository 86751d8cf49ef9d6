from __future__ import annotations

import itertools
import warnings
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bls_notebook.lifetimes.display.block_facts import device_facts
from bls_notebook.lifetimes.display.flame_graph import flame_lines, flame_svg, flames
from bls_notebook.lifetimes.display.lifetime_chart import tall
from bls_notebook.lifetimes.records import Lifetimes, bytes_over_time
from bls_notebook.records.raw_events import CodeLine
from tests.display.page import svg_words
from tests.lifetimes import samples
from tests.lifetimes.test_block_facts import bytes_at, tracks


@st.composite
def lined(draw: st.DrawFn) -> Lifetimes:
    """Any track, of whose blocks some have lines."""
    record = draw(tracks())
    lines = st.sampled_from([CodeLine(), *(CodeLine("f", n, name) for n in (1, 2) for name in ("f", "g", ""))])
    return replace(record, lives=tuple(replace(life, line=draw(lines)) for life in record.lives))


@given(lined())
def test_every_byte_of_a_peak_is_in_one_line_and_boxes_stand_under_their_own(record: Lifetimes) -> None:
    for facts in device_facts(record):
        lines = record.lines(facts.name)
        assert sum(line.bytes for line in lines) == facts.peak
        assert len({(line.model, line.line.file, line.line.line, line.what) for line in lines}) == len(lines)
    for flame in flames(record):
        rows = [[box for box in flame.boxes if box.depth == depth] for depth in range(3)]
        assert sum(box.bytes for box in rows[0]) == sum(box.bytes for box in rows[1]) == flame.bytes
        for above, row in itertools.pairwise(rows):
            for box in row:
                [over] = [a for a in above if a.start <= box.start and box.start + box.bytes <= a.start + a.bytes]
                assert over.model == box.model
        for row in rows:
            ends = sorted((box.start, box.start + box.bytes) for box in row)
            assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))


@given(tracks())
def test_what_is_stacked_adds_up(record: Lifetimes) -> None:
    models = sorted({life.maker.model for life in record.lives})
    for device in {life.device for life in record.lives}:
        lives = [life for life in record.lives if life.device == device]
        for ns, whole, left, *tops in bytes_over_time(lives, models):
            assert whole == bytes_at(record, device, ns) == tops[-1]
            assert [left, *tops] == sorted([left, *tops])


def test_pictures_name_models_functions_and_lines() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        svg = flame_svg(samples.lined())
    words = svg_words(svg)
    assert "gpu:0 (simulated): 592 MiB at 11.3 ms" in words
    assert any(word.startswith("keep:14  576 MiB   self.kept.append") for word in words)
    ET.fromstring(svg)
    assert all(word in svg for word in ("leaky  576 MiB", "keep()  576 MiB"))
    ET.fromstring(flame_svg(samples.hostile()))
    nothing = flame_svg(samples.leak()), flame_lines(samples.leak()), flames(samples.empty())
    assert nothing == ("", [], [])  # without lines


@pytest.mark.parametrize("most", [1, 1 << 20, 1 << 40])
def test_what_is_larger_is_drawn_higher(most: int) -> None:
    heights = [tall(most >> shift, most) for shift in range(6)]
    assert (heights[0], heights) == (1, sorted(heights, reverse=True))
    assert tall(0, most) > 0  # it can be seen
