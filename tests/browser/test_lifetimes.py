"""The chart of a memory track in JupyterLab: pixels where blocks are, hover, filter, zoom, click, keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bls_notebook.display.svg import ALARM, NOTEBOOK, model_inks
from tests.lifetimes import samples

pytestmark = pytest.mark.browser

SETUP = "from tests.lifetimes import samples\nfrom bls_notebook.lifetimes.display.widget import LifetimesWidget"
# As widgets/lifetimes_paint.js places things in a wide notebook.
LEFT, RIGHT, PANEL, AXIS, HEAD, ROW, BAR = 180, 150, 74, 24, 24, 18, 13
LEAKY_INK = model_inks(["leaky", "tidy"], {})["leaky"].light  # as in a new kernel

# The colours in a box of a canvas: rgb -> how many pixels.
_COLOURS = """([selector, x, y, w, h]) => {
  const canvas = document.querySelector(selector), ratio = window.devicePixelRatio;
  const data = canvas.getContext("2d").getImageData(x * ratio, y * ratio, w * ratio, h * ratio).data;
  const found = {};
  for (let i = 0; i < data.length; i += 4) {
    const key = "#" + [...data.slice(i, i + 3)].map((v) => v.toString(16).padStart(2, "0")).join("");
    if (data[i + 3] === 255) found[key] = (found[key] ?? 0) + 1;
  }
  return found;
}"""


class Chart:
    """The chart in the second cell of a notebook."""

    def __init__(self, notebook: Any) -> None:
        self.notebook, self.page = notebook, notebook.page
        self.root = self.page.locator(".bls-life")
        self.root.wait_for()
        self.page.wait_for_function("() => document.querySelector('.bls-life-bars').width > 300")
        self.frames()

    def frames(self) -> None:
        """Wait until what was asked for is drawn."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def until(self, holds: Callable[[], bool], tries: int = 100) -> bool:
        """Wait, for so many frames at most, until something holds."""
        for _ in range(tries):
            if holds():
                return True
            self.frames()
        return False

    def x(self, us: float, end: float) -> float:
        width = self.page.locator(".bls-life-chart").evaluate("(chart) => chart.clientWidth")
        return LEFT + us / end * (width - LEFT - RIGHT)

    def colours(self, canvas: str, x: float, y: float, w: float = 6, h: float = 6) -> dict[str, int]:
        self.frames()
        found: dict[str, int] = self.page.evaluate(_COLOURS, [canvas, x - w / 2, y - h / 2, w, h])
        return found

    def point(self, x: float, y: float, panels: int) -> tuple[float, float]:
        """Where a point of the bars is on the page."""
        box = self.page.locator(".bls-life-chart").bounding_box()
        return box["x"] + x, box["y"] + panels * PANEL + AXIS + y


# In `samples.leak()`: notebook (1 row), leaky (QUERY, then STATES six times), tidy (BEST on each device).
END = 12_400
LEAKY = HEAD + ROW + 4 + HEAD
STATES = [LEAKY + ROW * (1 + n) + ROW / 2 for n in range(6)]


@pytest.fixture
def leak(open_notebook: Any) -> Chart:
    return Chart(open_notebook([SETUP, "chart = LifetimesWidget(samples.leak())\nchart"]))


def test_blocks_are_where_they_lived_and_answer_hover_click_and_filter(leak: Chart) -> None:
    for number, y in enumerate(STATES):
        born = 2000 * number + 500
        assert LEAKY_INK in leak.colours("canvas.bls-life-bars", leak.x(born + 1500, END), y)
        assert LEAKY_INK not in leak.colours("canvas.bls-life-bars", leak.x(born - 150, END), y)
    # Two MiB are no more than a line at the foot of their row.
    foot = HEAD + ROW / 2 + BAR / 2 - 3
    assert NOTEBOOK.light in leak.colours("canvas.bls-life-bars", leak.x(1400, END), foot)
    assert NOTEBOOK.light not in leak.colours("canvas.bls-life-bars", leak.x(1400, END), HEAD + ROW / 2 - 3)
    # What stayed behind fills the device's panel at its end.
    assert ALARM.light in leak.colours("canvas.bls-life-panels", leak.x(12_000, END), PANEL - 20)
    assert ALARM.light not in leak.colours("canvas.bls-life-panels", leak.x(200, END), PANEL - 20)

    x, y = leak.point(leak.x(8000, END), STATES[1], 2)
    leak.page.mouse.move(x, y)
    tip = leak.page.locator(".bls-life-tip")
    tip.wait_for(state="visible")
    assert "STATES 96 MiB on gpu:0 (simulated)" in " ".join(tip.inner_text().split())
    assert "held by leaky.kept[1]" in tip.inner_text()

    leak.page.mouse.click(x, y)
    wanted = next(life.id for life in samples.leak().lives if life.tensor == "STATES" and life.born == 2_500_000)
    assert leak.notebook.ask_until(f"chart.selected == {wanted}")
    assert leak.notebook.ask("chart.life.holders[0].name") == "leaky.kept[1]"
    details = leak.page.locator(".bls-life-details").inner_text()
    assert "made by leaky, request 3" in details
    assert "input of tidy, request 4" in details
    assert "leaky.kept.clear()" in details

    # From Python to the page.
    leak.notebook.ask("[setattr(chart, 'selected', 1), 1][1]")
    leak.page.locator(".bls-life-details", has_text="QUERY").wait_for()
    leak.page.locator(".bls-life-details .bls-life-link").first.click()  # to the copy of it
    assert leak.notebook.ask_until("chart.life.how == 'transfer'")
    leak.page.locator(".bls-life-close").click()
    assert leak.notebook.ask_until("chart.selected == 0")

    chip = leak.page.get_by_role("button", name="gpu:0 (simulated)", exact=True)
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false"
    assert LEAKY_INK not in leak.colours("canvas.bls-life-bars", 500, 60, 600, 110)
    chip.click()
    assert LEAKY_INK in leak.colours("canvas.bls-life-bars", 500, 120, 600, 110)
    leak.page.get_by_role("button", name="leaky", exact=True).click()
    assert ALARM.light not in leak.colours("canvas.bls-life-panels", leak.x(12_000, END), PANEL - 20)


def test_search_finds_blocks_by_line_below_the_verdict_in_a_view_that_replaces_the_display(open_notebook: Any) -> None:
    view = "import os\nos.environ['VSCODE_PID'] = '1'  # JupyterLab, too, shows the view rather than the HTML"
    chart = Chart(open_notebook([f"{SETUP}\n{view}", "chart = LifetimesWidget(samples.lined())\nchart"]))
    said = chart.notebook.output(1).first
    assert said.locator(".bls-warnings li").count() == 2
    assert said.locator("img.bls-figure").count() == 1  # the flame graph; the widget covers the chart
    chart.root.get_by_role("searchbox").fill("keep:14")
    assert chart.page.locator(".bls-chart-found").inner_text() == "6"
    chart.page.locator(".bls-life-chart").focus()
    chart.page.keyboard.press("n")
    chart.page.keyboard.press("Enter")
    details = chart.page.locator(".bls-life-details")
    details.wait_for()
    text = " ".join(details.inner_text().split())
    assert "made by leaky, request 1, instance leaky_0_0, In [3] in keep:14 self.kept" in text


def test_zoom_by_wheel_drag_and_keys_that_go_from_block_to_block(leak: Chart) -> None:
    at = (leak.x(3000, END), STATES[0])
    assert LEAKY_INK in leak.colours("canvas.bls-life-bars", *at)
    x, y = leak.point(leak.x(500, END), STATES[0], 2)
    leak.page.mouse.move(x, y)
    leak.page.keyboard.down("Control")
    leak.page.mouse.wheel(0, -1500)
    leak.page.keyboard.up("Control")
    # What is under the pointer stays there: the block is born at it, so that left of it there is none.
    assert leak.until(lambda: LEAKY_INK in leak.colours("canvas.bls-life-bars", leak.x(700, END), STATES[0]))
    assert LEAKY_INK not in leak.colours("canvas.bls-life-bars", leak.x(430, END), STATES[0])
    leak.page.mouse.down()
    leak.page.mouse.move(x + 300, y, steps=5)
    leak.page.mouse.up()
    assert LEAKY_INK not in leak.colours("canvas.bls-life-bars", leak.x(700, END), STATES[0])
    assert leak.notebook.ask("chart.selected") == 0  # a drag is no click
    leak.page.locator(".bls-life-chart").focus()
    leak.page.keyboard.press("0")
    assert LEAKY_INK in leak.colours("canvas.bls-life-bars", *at)
    said = leak.page.locator(".bls-life-said")
    leak.page.keyboard.press("Home")
    assert "QUERY 2 MiB on cpu" in " ".join(said.inner_text().split())
    leak.page.keyboard.press("ArrowDown")
    leak.page.keyboard.press("ArrowDown")
    assert "held by leaky.kept[0]" in said.inner_text()
    leak.page.keyboard.press("Enter")
    assert leak.notebook.ask_until("chart.life is not None and chart.life.tensor == 'STATES'")
    leak.page.keyboard.press("Escape")
    assert leak.notebook.ask_until("chart.selected == 0")
    label = leak.page.locator(".bls-life-chart").get_attribute("aria-label") or ""
    assert "memory of In [3]" in label
    assert "Arrow keys" in label


@pytest.mark.extra
def test_dark_theme_and_thousands_of_blocks(open_notebook: Any) -> None:
    notebook = open_notebook([SETUP, "chart = LifetimesWidget(samples.many())\nchart"])
    chart = Chart(notebook)
    assert "10,000 blocks" in notebook.output(1).first.inner_text()
    light = chart.colours("canvas.bls-life-panels", 600, PANEL - 12, 300, 6)
    assert ALARM.light in light
    notebook.theme("Dark")
    box = ("canvas.bls-life-panels", 600, PANEL - 12, 300, 6)
    assert chart.until(lambda: ALARM.dark in chart.colours(*box))
    height = chart.page.locator(".bls-life-scroll").evaluate("(el) => [el.clientHeight, el.scrollHeight]")
    assert height[0] < 700 < height[1]
    # A folded row opens on a click at its name.
    rows = chart.page.locator(".bls-life-scroll")
    # By the locator, which waits until the page has stopped moving after the change of themes.
    place = {"x": 100, "y": 3 * PANEL + AXIS + HEAD + ROW / 2}
    chart.page.locator(".bls-life-chart").click(position=place)
    assert chart.until(lambda: rows.evaluate("(el) => el.scrollHeight") > height[1])
