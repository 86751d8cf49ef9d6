"""The timeline in a real browser: what is on the screen and under the pointer, and what Python learns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from bls_notebook.display.svg import model_inks
from bls_notebook.profiling.analysis.span_tree import SpanTree, serving
from bls_notebook.profiling.intervals import Interval, total
from bls_notebook.profiling.session import Session, Span
from bls_notebook.profiling.timeline.widget import session_columns
from tests.browser.lab import OpenNotebook
from tests.profiling.sessions import MS, everything, pipeline

pytestmark = pytest.mark.browser

WHOLE = 1.015  # what the axis shows at first, in lengths of the session
HEAD = """
from tests.profiling.sessions import everything, many, pipeline
from bls_notebook.profiling.timeline.widget import Timeline
"""

PIXEL = """([number, x, y]) => {
  const pen = document.querySelectorAll('.bls-tl-stage')[number].querySelector('canvas').getContext('2d');
  const ratio = window.devicePixelRatio;
  const [r, g, b, a] = pen.getImageData(Math.round(x * ratio), Math.round(y * ratio), 1, 1).data;
  if (a !== 255) return `${r},${g},${b},${a}`;
  return '#' + [r, g, b].map(part => part.toString(16).padStart(2, '0')).join('');
}"""

LANES = """(number) => {
  const lanes = document.querySelectorAll('.bls-tl-lanes')[number];
  return [...lanes.querySelectorAll('.bls-tl-label:not(.bls-tl-two)')]
    .map(label => [label.innerText.replace(/\\s+/g, ' ').trim(), parseFloat(label.style.top)]);
}"""

WHEEL = """([number, x, y, delta, ctrl]) => {
  const canvas = document.querySelectorAll('.bls-tl-over')[number], box = canvas.getBoundingClientRect();
  const event = new WheelEvent('wheel', {deltaY: delta, ctrlKey: ctrl, bubbles: true, cancelable: true,
    clientX: box.left + x, clientY: box.top + y});
  canvas.dispatchEvent(event);
  return event.defaultPrevented;
}"""

DRAWN = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


class Shown:
    """A timeline on the page, the `number`th; its variable in the kernel is `name`."""

    def __init__(self, notebook: OpenNotebook, number: int, name: str, wall: int) -> None:
        self.notebook, self.number, self.name, self.wall = notebook, number, name, wall
        self.page = notebook.page
        self.page.wait_for_function("(n) => document.querySelectorAll('.bls-tl-over').length > n", arg=number)
        self.over = self.page.locator(".bls-tl-over").nth(number)
        self.root = self.page.locator(".bls-timeline:not(.bls-tl-tip)").nth(number)
        self.tip = self.page.locator(".bls-tl-tip").nth(number)
        self.lanes = dict(self.page.evaluate(LANES, number))
        self.over.scroll_into_view_if_needed()

    @property
    def width(self) -> float:
        return float(self.over.bounding_box()["width"])

    def x(self, ns: float) -> float:
        """Where a moment is while all is shown."""
        return ns / (self.wall * WHOLE) * self.width

    def y(self, lane: str) -> float:
        """The top of a lane's blocks, which are 18 pixels high."""
        [top] = [top for label, top in self.lanes.items() if label.startswith(lane)]
        return float(top)

    def pixel(self, ns: float, lane: str, deep: float = 2) -> str:
        self.page.evaluate(DRAWN)
        return str(self.page.evaluate(PIXEL, [self.number, self.x(ns), self.y(lane) + deep]))

    def move(self, x: float, y: float) -> None:
        box = self.over.bounding_box()
        self.page.mouse.move(box["x"] + x, box["y"] + y)

    def hover(self, ns: float, lane: str) -> str:
        """Move the pointer onto a block; what the tooltip says."""
        self.move(self.x(ns), self.y(lane) + 9)
        self.tip.wait_for(state="visible")
        return str(self.tip.inner_text())

    def wheel(self, x: float, y: float, delta: float, ctrl: bool = True) -> bool:
        taken = self.page.evaluate(WHEEL, [self.number, x, y, delta, ctrl])
        self.page.evaluate(DRAWN)
        return bool(taken)

    def faded(self, ns: float, lane: str) -> bool:
        """Whether what is drawn there is pale: less than its full colour, perhaps over a line."""
        return self.pixel(ns, lane) not in {ink.light for ink in INKS.values()} | {"0,0,0,0"}

    def reset(self) -> None:
        """Show all of it again, with nothing chosen."""
        self.over.focus()
        for key in ("Escape", "Escape", "Escape", "Escape", "0"):
            self.page.keyboard.press(key)
        self.move(1, 1)

    def ask(self, trait: str) -> Any:
        return self.notebook.ask(f"{self.name}.{trait}")


@pytest.fixture(scope="module")
def notebook(open_for_module: Any) -> OpenNotebook:
    return open_for_module([
        HEAD, "one = Timeline(pipeline(True))\none", "all_ = Timeline(everything())\nall_",
        "two = Timeline(pipeline(False), pipeline(True))\ntwo",
    ])  # fmt: skip


@pytest.fixture
def one(notebook: OpenNotebook) -> Iterator[Shown]:
    shown = Shown(notebook, 0, "one", pipeline(True).wall)
    yield shown
    notebook.theme("Light")
    shown.reset()


@pytest.fixture
def all_(notebook: OpenNotebook) -> Iterator[Shown]:
    shown = Shown(notebook, 1, "all_", everything().wall)
    yield shown
    shown.reset()


INNER = """%%tritonmodel inner -q --input X FP32 [-1] --output Y FP32 [-1]
import triton_python_backend_utils as pb_utils, time
class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.02)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", requests[0].inputs()[0].as_numpy())])]
"""
OUTER = """%%tritonmodel outer -q --input X FP32 [-1] --output Y FP32 [-1]
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        inputs = requests[0].inputs()
        request = pb_utils.InferenceRequest(model_name="inner", requested_output_names=["Y"], inputs=inputs)
        answer = request.exec()
        return [pb_utils.InferenceResponse(answer.output_tensors())]
"""
CHOSEN: dict[str, int] = {}  # as the kernel chooses, which shows these in the same order
INKS = model_inks(["reader", "resize", "classify"], CHOSEN)
# The middle of a request.
[IMAGE_3] = [
    (s.started + s.inferred) / 2 for s in pipeline(True).spans if (s.model, s.request_id) == ("resize", "image 3")
]


def test_blocks_are_where_the_session_says_in_the_colours_of_their_models(one: Shown) -> None:
    resized = [span for span in pipeline(True).spans if span.model == "resize"]
    for span in resized[:3]:
        middle = (span.started + span.inferred) / 2
        assert one.pixel(middle, "resize · 0") == INKS["resize"].light
    [first, *_] = [span for span in pipeline(True).spans if span.model == "classify"]
    assert one.pixel(first.started + 10 * MS, "classify · 0") == INKS["classify"].light
    assert one.pixel(resized[-1].ended + 10 * MS, "resize · 0") == "0,0,0,0"  # nothing runs there
    # A caller is pale while its calls run, and the queue is hatched above the lane.
    assert one.faded(50 * MS, "reader · 0")
    assert one.pixel(0.3 * MS, "reader · 0") == INKS["reader"].light
    rows = {one.pixel(3 * MS + step * 0.15 * MS, "resize · 0", -6) for step in range(12)}
    assert len(rows) > 1  # lines, and what is between them
    curves = session_columns(pipeline(True), model_inks(["", *INKS]))["curves"]
    scale = [str(curves["working"]["most"]), "0", str(curves["queued"]["most"])]
    assert one.root.locator(".bls-tl-scale").all_inner_texts() == scale


def test_the_timeline_changes_with_the_theme(one: Shown) -> None:
    where = (40 * MS, "resize · 0")
    assert one.pixel(*where) == INKS["resize"].light
    one.notebook.theme("Dark")
    one.page.wait_for_function(
        f"([number, x, y]) => ({PIXEL})([number, x, y]) === '{INKS['resize'].dark}'",
        arg=[one.number, one.x(where[0]), one.y(where[1]) + 2],
    )
    background = one.root.evaluate("(element) => getComputedStyle(element).color")
    assert background.startswith(("rgba(255, 255, 255", "rgb(255, 255, 255"))


def test_hovering_tells_everything_about_a_request(one: Shown) -> None:
    said = one.hover(IMAGE_3, "resize · 0")
    for words in (
        "resize “image 3” instance 0", "input", "20.0 µs", "queue", "35.9 ms", "execute", "12.0 ms", "output",
        "15.0 µs", "called by reader “page 7” (async_exec)", "4 KiB in, 1 KiB out",
    ):  # fmt: skip
        assert words in said
    one.move(one.x(119 * MS), one.y("resize · 0"))
    one.tip.wait_for(state="hidden")
    said = one.hover(60 * MS, "reader · 0")
    assert "sent by the notebook" in said
    assert "called resize × 8, classify × 8" in said


def test_streams_batches_errors_and_devices_are_told(all_: Shown) -> None:
    assert "5 responses, the first after 3.00 ms" in all_.hover(42 * MS, "speak · 0")
    assert "in a batch of 4" in all_.hover(30 * MS, "embed · 0")
    failed = all_.hover(30 * MS, "detect · 1")
    assert "ValueError: no weights for <digit> 7" in failed
    assert "5.00 ms on gpu:0" in failed
    detect = model_inks([span.model for span in everything().spans], CHOSEN)["detect"]
    assert all_.pixel(5 * MS, "gpu:0") == detect.light
    assert "12 requests not recorded" in all_.root.inner_text()


def test_the_wheel_zooms_with_ctrl_and_else_leaves_the_page_alone(one: Shown) -> None:
    middle, y = one.x(IMAGE_3), one.y("resize · 0")
    assert one.wheel(middle, y, -300, ctrl=False) is False
    assert "wheel zooms" in one.root.inner_text()
    for _ in range(5):
        assert one.wheel(middle, y, -300) is True
    for away in (-200, 0, 200):  # the block, about 83 pixels wide before, is under all of these now
        one.move(middle + away, y + 9)
        one.page.wait_for_timeout(30)
        assert "image 3" in one.tip.inner_text()
    for _ in range(8):
        one.wheel(middle, y, 300)
    assert one.pixel(IMAGE_3, "resize · 0") == INKS["resize"].light


def test_dragging_pans(one: Shown) -> None:
    y = one.y("resize · 0") + 9
    for _ in range(3):
        one.wheel(one.width / 2, y, -300)
    one.move(600, y)
    before = one.tip.inner_text().splitlines()[0]
    one.page.mouse.down()
    one.move(500, y)
    one.move(300, y)
    one.page.mouse.up()
    one.move(301, y)
    assert one.tip.inner_text().splitlines()[0] == before  # it came along
    one.move(600, y)
    assert one.tip.inner_text().splitlines()[0] != before


def range_figures(session: Session, begin: float, end: float) -> dict[str, Any]:
    """What happened between two moments, worked out in another way than the browser does."""
    tree = SpanTree(session)
    spans = [span for span in session.spans if span.sent <= end and span.ended >= begin]

    def within(pieces: Iterable[Interval]) -> int:
        return total((max(a, int(begin)), min(b, int(end))) for a, b in pieces if a < end and b > begin)

    def figures(chosen: list[Span]) -> dict[str, Any]:
        queued = sum(within([(span.queued, span.started)]) for span in chosen)
        return {"requests": len(chosen), "failed": sum(s.state == "error" for s in chosen), "queued": queued}

    models = []
    for name in dict.fromkeys(span.model for span in spans):
        own = [span for span in spans if span.model == name]
        busy = sum(within([serving(span)]) for span in own if tree.execution(span.id) == span.id)
        models.append({"model": name, "busy": busy, **figures(own)})
    events = tree.working_events()
    work = within(((a - 1) // 2, b // 2) for a, b in zip(events[::2], events[1::2], strict=True))
    return {**figures(spans), "work": work, "models": models}


def test_selecting_a_range_gives_its_figures_here_and_in_python(one: Shown) -> None:
    one.page.locator(".bls-tl-ruler").nth(one.number).scroll_into_view_if_needed()
    ruler = one.page.locator(".bls-tl-ruler").nth(one.number).bounding_box()
    one.page.mouse.move(ruler["x"] + one.x(30 * MS), ruler["y"] + 12)
    one.page.mouse.down()
    one.page.mouse.move(ruler["x"] + one.x(45 * MS), ruler["y"] + 12)
    one.page.mouse.move(ruler["x"] + one.x(70 * MS), ruler["y"] + 12)
    one.page.mouse.up()
    selection = one.notebook.ask_until("one.selection")
    begin, end = selection["begin"], selection["end"]
    assert begin == pytest.approx(30 * MS, abs=MS)
    assert end == pytest.approx(70 * MS, abs=MS)
    expected = range_figures(pipeline(True), begin, end)
    [found] = selection["sessions"]
    for name in ("requests", "failed", "queued", "work"):
        assert found[name] == pytest.approx(expected[name], abs=100 if name in ("queued", "work") else 0)
    by_name = {model["model"]: model for model in found["models"]}
    for model in expected["models"]:
        assert by_name[model["model"]] == pytest.approx(model, abs=100)
    card = one.root.locator(".bls-tl-card-range").inner_text()
    assert f"{expected['work'] / (end - begin):.2f} at once" in card
    assert "resize" in card
    one.root.get_by_role("button", name="Clear").click()
    assert one.notebook.ask_until("one.selection == {}")


def test_the_timeline_is_usable_by_keys_and_screen_readers(one: Shown) -> None:
    assert one.over.get_attribute("role") == "application"
    assert "17 requests" in one.over.get_attribute("aria-label")
    cells = one.page.locator(".jp-Notebook .jp-Cell").count()
    one.over.focus()
    live = one.root.locator(".bls-tl-live")
    for key, said in (
        ("ArrowRight", "notebook waits for reader “page 7”"),
        ("ArrowDown", "reader “page 7”, instance 0; from 0 ns to 119 ms"),
        ("ArrowDown", "resize “image"),
        ("Home", "resize"),
        ("ArrowLeft", "resize “image"),
    ):
        one.page.keyboard.press(key)
        assert said in live.inner_text()
    told = live.inner_text()
    [span] = [s for s in pipeline(True).spans if told.startswith(f"{s.model} “{s.request_id}”")]
    assert one.notebook.ask_until(f"one.focus.get('id') == {span.id}")
    assert one.tip.is_visible()
    one.page.keyboard.press("p")
    assert "reader “page 7”" in live.inner_text()
    one.page.keyboard.press("[")
    one.page.keyboard.press("]")
    assert "Selected 0 ns to 119 ms: 17 requests" in live.inner_text()
    one.page.keyboard.press("?")
    assert "go from request to request" in one.root.inner_text()
    one.page.keyboard.press("?")
    for key in ("b", "x", "d", "d"):  # commands of the notebook, which are not meant here
        one.page.keyboard.press(key)
    assert one.page.locator(".jp-Notebook .jp-Cell").count() == cells


def test_a_click_tells_of_the_request_and_shows_the_code_that_sent_and_served_it(open_notebook: Any) -> None:
    notebook = open_notebook([
        "%load_ext bls_notebook\nimport bls_notebook as bls, numpy as np", INNER, OUTER,
        "with bls.profile() as session:\n    bls.mark('begin')\n"
        "    bls.current_repository().infer('outer', {'X': np.ones(3, np.float32)})",
        "from bls_notebook.profiling.timeline.widget import Timeline\nw = Timeline(session)\nw",
    ])  # fmt: skip
    shown = Shown(notebook, 0, "w", 1)
    said = shown.root.locator(".bls-tl-request")
    shown.over.focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "Enter"):
        shown.page.keyboard.press(key)
    told = said.inner_text()
    for words in (
        "sent by outer, line 8", "served by inner, from line 4", "answer = request.exec()",
        "time.sleep(0.02)",
        "called by outer (exec)", "inputs, 12 B", "FP32", "[3]",
    ):  # fmt: skip
        assert words in told
    assert said.locator(".bls-tl-here").first.inner_text().endswith("answer = request.exec()")
    assert notebook.ask_until("w.focus.get('id') == 2")
    box = shown.over.bounding_box()
    shown.move(box["width"] * 0.6, shown.y("notebook") + 9)
    assert "waits for outer" in shown.tip.inner_text()
    said.get_by_role("button", name="Show cell").first.click()
    shown.page.wait_for_function(
        "(cell) => cell.getBoundingClientRect().top > 0", arg=notebook.cell(2).element_handle()
    )
    shown.over.focus()
    shown.page.keyboard.press("Escape")
    assert said.count() == 0


def test_search_finds_by_request_id_and_by_error(one: Shown, all_: Shown) -> None:
    box = one.root.get_by_role("searchbox")
    box.fill("image 3")
    assert one.root.locator(".bls-chart-found").inner_text() == "2"
    assert one.faded(IMAGE_3 + 12 * MS, "resize · 0")
    assert one.pixel(IMAGE_3, "resize · 0") == INKS["resize"].light
    box.press("Enter")
    assert "image 3" in one.root.locator(".bls-tl-live").inner_text()
    box.fill("")
    other = all_.root.get_by_role("searchbox")
    other.fill("no weights")
    assert all_.root.locator(".bls-chart-found").inner_text() == "1"
    other.fill("")


def test_a_model_can_be_shown_alone_and_the_critical_path_is_lit(one: Shown) -> None:
    button = one.root.get_by_role("button", name="classify")
    button.click(modifiers=["Shift"])
    assert button.get_attribute("aria-pressed") == "true"
    assert one.root.get_by_role("button", name="resize").get_attribute("aria-pressed") == "false"
    assert one.faded(45 * MS, "resize · 0")
    assert one.pixel(20 * MS, "classify · 0") == INKS["classify"].light
    button.click(modifiers=["Shift"])
    assert one.pixel(45 * MS, "resize · 0") == INKS["resize"].light
    one.root.get_by_role("button", name="Critical path").click()
    card = one.root.locator(".bls-tl-card-path").inner_text()
    assert "resize 95.6 ms" in card
    assert "classify 21.0 ms" in card
    assert one.faded(22 * MS, "classify · 0")  # this one is not on it
    assert one.pixel(45 * MS, "resize · 0") == INKS["resize"].light


def test_full_screen_and_back(one: Shown) -> None:
    one.root.get_by_role("button", name="Full screen").click()
    one.page.wait_for_function("() => document.fullscreenElement?.matches('.bls-timeline')")
    one.page.evaluate(DRAWN)
    screen = one.page.viewport_size
    assert one.root.bounding_box()["width"] == screen["width"]
    assert "execute" in one.hover(45 * MS, "resize · 0")  # the tooltip is on the screen too
    one.page.keyboard.press("f")
    one.page.wait_for_function("() => !document.fullscreenElement")
    assert one.root.bounding_box()["width"] < screen["width"]


def test_two_sessions_share_an_axis(notebook: OpenNotebook) -> None:
    two = Shown(notebook, 2, "two", pipeline(False).wall)
    text = two.root.inner_text()
    assert "sequential" in text
    assert "gathered" in text
    assert "1.0 at work on average" in text
    labels = notebook.page.evaluate(LANES, 2)
    tops = [top for label, top in labels if label.startswith("resize")]
    x = two.x(40 * MS)
    # At 40 ms the sequential run is between two images, the gathered one in the fourth.
    assert notebook.page.evaluate(PIXEL, [2, x, tops[1] + 2]) == INKS["resize"].light
    assert notebook.page.evaluate(PIXEL, [2, two.x(20 * MS), tops[0] + 2]) != INKS["resize"].light
    assert notebook.page.evaluate(PIXEL, [2, two.x(190 * MS), tops[1] + 2]) == "0,0,0,0"


def test_the_path_of_many_requests_comes_from_python_when_it_is_asked_for(open_notebook: Any) -> None:
    notebook = open_notebook([HEAD, "big = Timeline(many(3500))\nbig"])
    assert notebook.ask("len(big.paths)") == 0
    root = notebook.page.locator(".bls-timeline").first
    root.get_by_role("button", name="Critical path").click()
    root.locator(".bls-tl-card-path").wait_for()
    assert notebook.ask("len(big.paths)") == 1


def test_a_session_is_a_widget_while_the_kernel_lives_and_a_picture_after(open_notebook: Any) -> None:
    notebook = open_notebook(["%load_ext bls_notebook", "from tests.profiling.sessions import *\npipeline(True)"])
    page = notebook.page
    page.wait_for_selector(".bls-tl-over")
    assert "at once" in notebook.output(1).first.inner_text()  # the figures around it stay
    assert page.locator("img.bls-figure").count() == 0
    page.evaluate("() => window.jupyterapp.shell.currentWidget.context.save()")
    page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    page.reload()
    page.wait_for_selector("img.bls-figure")
    page.wait_for_function("() => document.querySelector('img.bls-figure').naturalWidth > 0")
    assert page.locator("img.bls-figure").bounding_box()["width"] > 400
    assert page.locator(".bls-tl-over").count() == 0
    assert not math.isclose(page.locator("img.bls-figure").bounding_box()["height"], 0)
