from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bls_notebook.display import render
from bls_notebook.display.svg import Pen, width_of
from bls_notebook.lifetimes.display.block_facts import device_facts
from bls_notebook.lifetimes.display.flame_graph import flame_lines, flame_svg, flames
from bls_notebook.lifetimes.display.lifetime_chart import lifetimes_svg, tall
from bls_notebook.lifetimes.display.report import verdict
from bls_notebook.lifetimes.display.widget import packed
from bls_notebook.lifetimes.records import Lifetimes, bytes_over_time
from bls_notebook.profiling.code_lines import CodeLine
from tests.display.page import Page, as_html, as_text, svg_words
from tests.display.test_escaping import ALLOWED_ATTRIBUTES, ALLOWED_STYLES, ALLOWED_TAGS
from tests.lifetimes import samples
from tests.lifetimes.test_block_facts import bytes_at, tracks


@pytest.fixture(scope="module")
def svgs() -> dict[str, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return {name: lifetimes_svg(make()) for name, make in samples.ALL.items()}


def test_the_span_of_a_request_is_named_where_a_profile_was_on() -> None:
    record = samples.leak(1)
    assert "span" not in as_text(record)
    lives = tuple(replace(life, maker=replace(life.maker, span=7)) for life in record.lives)
    record = replace(record, lives=lives)
    assert "leaky, span 7" in as_text(record)
    assert "leaky, span 7" in Page(as_html(record)).text
    assert any("span 7 of the profile" in word for word in packed(record)["info"]["words"])


def test_text_of_a_leak() -> None:
    lines = as_text(samples.leak(3)).split("\n")
    assert lines == [
        "memory of In [3] · 15 blocks · 2 models · 6.40 ms",
        "  device                peak  capacity  left behind  alive at the peak",
        "  gpu:0 (simulated)  304 MiB     2 GiB      288 MiB  leaky/STATES ×3 288 MiB, tidy/BEST 16 MiB",
        "  cpu                 18 MiB    16 GiB       16 MiB  tidy/BEST 16 MiB, QUERY 2 MiB",
        "  warning: left behind by this cell: 288 MiB on gpu:0 (simulated) in 3 blocks, held by leaky.kept;",
        "           to release: leaky.kept.clear()",
        "  warning: left behind by this cell: 16 MiB on cpu, held by best; to release: del best", "",
        "  lives, event by event (not to scale) · █ 96 MiB ▁ less · gpu:0 (simulated) · ▶ alive at the end",
        "  notebook  QUERY    2 MiB  cpu    ▁▁▁▁▁▁▁  ▁▁▁▁▁▁▁  ▁▁▁▁▁▁▁",
        "  leaky     QUERY    2 MiB  gpu:0   ▁▁       ▁▁       ▁▁",
        "            STATES  96 MiB  gpu:0    ████████████████████████▶",
        "                    96 MiB  gpu:0             ███████████████▶",
        "                    96 MiB  gpu:0                      ██████▶",
        "  tidy      BEST    16 MiB  gpu:0      ▃▃       ▃▃       ▃▃",
        "            BEST    16 MiB  cpu         ▃▃▃      ▃▃▃      ▃▃▃▶", "", "  alive at the end",
        "  tensor        size  type             device             made by  held by",
        "  STATES ×3  288 MiB  FP32 [25165824]  gpu:0 (simulated)  leaky    leaky.kept",
        "  BEST        16 MiB  FP32 [4194304]   cpu                tidy     best",
    ]  # fmt: skip


def test_text_does_not_change_with_the_clock() -> None:
    record = samples.transfers()
    data = json.loads(json.dumps(record.to_dict()))
    for life in data["lives"]:
        life["born"] *= 3
        life["died"] *= 3 if life["died"] > 0 else 1
    assert as_text(Lifetimes.from_dict(data)).split("\n")[1:] == as_text(record).split("\n")[1:]


def test_nothing_is_a_line_without_a_figure() -> None:
    assert as_text(samples.empty()) == "memory · nothing passed through a request · 1.00 µs"
    page = Page(as_html(samples.empty()))
    assert page.find("img") == []
    assert "nothing passed through a request" in page.text


@settings(max_examples=15, deadline=None)
@given(tracks())
def test_any_track_has_text_and_a_picture(record: Lifetimes) -> None:
    assert as_text(record).startswith("memory of In [1]")
    assert ("▶" in as_text(record)) == bool(record.alive())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert lifetimes_svg(record).startswith("<svg")


def test_text_names_the_lines_that_made_the_peak() -> None:
    text = " ".join(as_text(samples.lined()).split())
    assert "STATES keep:14 96 MiB gpu:0" in text
    assert "in 6 blocks, made by leaky in keep:14, held by cache and leaky.kept;" in text
    assert "by line at the peak of gpu:0 (simulated): 592 MiB at 11.3 ms" in text
    assert 'leaky keep:14 576 MiB 97% self.kept.append(Tensor("STATES", states))' in text
    assert "by line at the peak" not in as_text(samples.leak())
    lives = tuple(replace(life, tensor="", kind="allocation") for life in samples.lined().lives)
    assert "keep:14 96 MiB gpu:0" in " ".join(as_text(replace(samples.lined(), lives=lives)).split())
    text = as_text(samples.many(3000))  # folded
    assert "3,000 blocks" in text
    assert re.search(r"\+\d+ names ×\d", text)
    assert text.count("\n") < 60


def test_a_verdict_is_about_many_tensors_that_one_execute_got() -> None:
    record = samples.tiles()
    sentence, advice = verdict(record)
    assert sentence == (
        "At the peak of cpu, all 4 tensors `TILE` of `draw` were alive at the same time: 4 MiB of 4 MiB. "
        "One execute of `atlas` got them all."
    )
    assert advice.startswith("Perhaps `atlas` keeps each until it has the last")
    assert advice.endswith("use and drop each before the next call of `draw`: up to 3 MiB less.")
    lines = " ".join(as_text(record).split())
    assert lines.index(sentence) < lines.index(advice) < lines.index("alive at the peak")
    assert sentence.replace("`", "") in Page(as_html(record)).text
    early = replace(record, lives=(replace(record.lives[0], id=9, born=0, died=1), *record.lives[1:]))
    assert "3 of 4 tensors `TILE`" in verdict(early)[0]
    kept = replace(record, lives=(*record.lives[1:], replace(record.lives[0], died=-1)))
    for others in (
        samples.tiles(takers=(1, 1, 1, 6)),  # several executes
        samples.tiles(takers=(0, 0, 0, 0)),  # the notebook
        samples.tiles(makers=(2, 2, 3, 3)),  # several tensors of one request
        samples.tiles((1, 1), (2, 3)),  # few
        samples.tiles(table=5 * samples.MIB),  # most of the peak is something else
        kept,  # there is a warning instead
        *(make() for make in samples.ALL.values()),
    ):
        assert verdict(others) == ("", "")


def test_hostile_names_do_nothing() -> None:
    display = render(samples.hostile())
    page = Page(display.html)
    assert {tag for tag, _ in page.tags} <= ALLOWED_TAGS | {"img"}
    names = {name for _, attributes in page.tags for name in attributes}
    assert names <= ALLOWED_ATTRIBUTES | {"src", "alt", "width", "height"}
    assert {attributes.get("style", "") for _, attributes in page.tags} <= {"", *ALLOWED_STYLES}
    assert "<script>alert(1)</script>" in page.text
    assert "\x1b" not in display.text


@pytest.mark.parametrize("name", list(samples.ALL))
def test_the_figure_is_an_image_that_comes_out_the_same(svgs: dict[str, str], name: str) -> None:
    svg = svgs[name]
    root = ET.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert lifetimes_svg(samples.ALL[name]()) == svg
    assert "<script" not in svg.replace("<!--", "").split("<!--")[0]
    assert len(svg) < 600_000
    assert "202" not in (root.findtext(".//{http://purl.org/dc/elements/1.1/}date") or "")
    if name == "digits":
        [image] = Page(as_html(samples.digits())).find("img")
        shown = unquote((image["src"] or "").removeprefix("data:image/svg+xml;charset=utf-8,"))
        assert shown == svg.replace('"', "'")


def in_a_new_process(code: str, given: bytes = b"") -> str:
    """What code writes, where no picture was drawn before: models choose their colours anew."""
    return subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, check=True).stdout.decode()


def test_the_figure_says_where_the_memory_went() -> None:
    words = svg_words(lifetimes_svg(samples.leak()))
    assert any(word.startswith("592 MiB: leaky/STATES ×6 576 MiB, tidy/BEST 16") for word in words)
    assert "576 MiB left behind" in words
    assert "gpu:0 (simulated)" in words
    assert {f"leaky.kept[{n}]" for n in range(6)} <= set(words)
    assert {"notebook", "leaky", "tidy", "transfer", "passed to a model", "still alive"} <= set(words)


def test_a_capacity_that_was_nearly_reached_is_drawn() -> None:
    gpu = replace(samples.GPU, total=700 * samples.MIB, used=50 * samples.MIB)
    words = svg_words(lifetimes_svg(replace(samples.leak(), devices=(gpu,))))
    assert "╌ of 700 MiB" in words
    assert "50 MiB before" in words
    assert "╌ of 2 GiB" not in svg_words(lifetimes_svg(samples.leak()))


@pytest.mark.slow
def test_words_stay_within_the_figure_and_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    boxes: list[tuple[str, float, float, float, float]] = []
    write = Pen.words

    def words(pen: Pen, text: str, x: float, y: float, **how: Any) -> None:
        size, width = how.get("size", 11), width_of(text, how.get("size", 11)) * 0.8
        left = x / pen.end * pen.plot + how.get("right", 0)
        left -= {"start": 0.0, "end": width}.get(how.get("align", "start"), width / 2)
        if text:
            boxes.append((text, left, left + width, y - size / 2, y + size / 2))
        write(pen, text, x, y, **how)

    monkeypatch.setattr(Pen, "words", words)
    for name in ("leak", "transfers", "digits", "many"):
        boxes.clear()
        lifetimes_svg(samples.ALL[name]())
        assert boxes
        for i, (one, left, right, top, bottom) in enumerate(boxes):
            assert -250 < left < right < 960, (name, one)
            for other, *there in boxes[i + 1 :]:
                apart = right <= there[0] or there[1] <= left or bottom <= there[2] or there[3] <= top
                assert apart, (name, one, other)


@pytest.mark.slow
def test_a_saved_track_draws_later_without_models() -> None:
    render_it = "from bls_notebook.display import render; sys.stdout.buffer.write(render(record).html.encode())"
    read = (
        "import sys, json; from bls_notebook.lifetimes.records import Lifetimes;"
        "record = Lifetimes.from_dict(json.load(sys.stdin));"
    )
    made = "import sys; from tests.lifetimes import samples as s; record = s.transfers();"
    data = json.dumps(samples.transfers().to_dict())
    assert in_a_new_process(read + render_it, data.encode()) == in_a_new_process(made + render_it)


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
def test_stacked_bytes_add_up(record: Lifetimes) -> None:
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


def test_a_row_of_blocks_that_differ_says_how_large_at_most() -> None:
    record = samples.leak()
    halves = tuple(replace(life, bytes=life.bytes // 2) if life.id % 2 else life for life in record.lives)
    for lives, wanted in ((record.lives, "96 MiB"), (halves, "≤ 96 MiB")):
        [lane] = [each for each in packed(replace(record, lives=lives))["info"]["lanes"] if each["label"] == "STATES"]
        assert lane["size"] == wanted
        assert lane["owners"][1:] == [f"leaky.kept[{n}]" for n in range(6)]


@pytest.mark.parametrize("most", [1, 1 << 20, 1 << 40])
def test_larger_blocks_are_drawn_higher(most: int) -> None:
    heights = [tall(most >> shift, most) for shift in range(6)]
    assert (heights[0], heights) == (1, sorted(heights, reverse=True))
    assert tall(0, most) > 0  # it can be seen
