"""Styles are global to a page: no display changes another, and each looks the same with and without them."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import bls_notebook
from bls_notebook.capabilities import registry
from bls_notebook.course.guess_magic import Guess, Shown, guess_display
from bls_notebook.course.guess_magic import shown as outcome
from bls_notebook.display import render, render_config
from bls_notebook.display.as_html import COMMON, parts, stylesheet
from bls_notebook.display.progress_bar import bar_html
from bls_notebook.display.svg import ALARM, DIM, INK, LEFT_BEHIND, NOTEBOOK, model_inks, readable
from bls_notebook.display.widgets import widget_file
from bls_notebook.profiling.session import Session
from bls_notebook.shipping.records import Verified
from tests.display.page import Page
from tests.display.samples import everything, findings, lists, response
from tests.lifetimes import samples as lifetimes_samples
from tests.profiling.test_comparison_report import comparison, overlap
from tests.profiling.test_session_report import pipeline
from tests.profiling.test_tuning_words import tuning

# The parts of the stylesheet, and the widgets' files, whose classes have a prefix each.
WIDGETS = {
    "chart.css": ("bls-chart",),
    "guess.css": ("bls-guess-ask",),
    "lifetimes.css": ("bls-life",),
    "inspect.css": ("bls-inspect",),
    "timeline.css": ("bls-timeline", "bls-tl"),
    "watch.css": ("bls-watch",),
}
# Of other people: these keep notebooks from reading formulas.
OTHERS = {"mathjax_ignore", "tex2jax_ignore"}
WITHIN = {"bls-name", "bls-dim"}  # common ones, which parts may say more of inside their own
SAME = {"bls-session-same"}  # neither faster nor slower looks like any figure

# Colors of JupyterLab's light theme, for the text that takes its color from the page.
LIGHT = {"--jp-ui-font-color1": "#212121", "--jp-content-link-color": "#0d47a1"}
SURFACES = ("#ffffff", "#f2f2f2")  # the page, and a row under the pointer


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colors ``#rrggbb`` by WCAG 2, from 1 to 21."""

    def luminance(colour: str) -> float:
        parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


ONE: list[Any] = [
    *everything(),
    Verified("a", "m/a", 2, changed=("1/model.py",)),
    findings(findings=(), memory=()), Session((), (), 1), pipeline(), pipeline().statistics(),
    comparison(), overlap(), tuning(),
    *(make() for make in lifetimes_samples.ALL.values()),
]  # fmt: skip
MANY = lists()
KINDS = ("ModelRecord", "ResponseRecord", "StreamRecord", "StatisticsRecord", "FamilyRecord", "EnvironmentRecord")

PARTS = {name: rules for name, rules in parts().items() if name not in COMMON}


def displays() -> list[str]:
    shown = [*(render(each) for each in [*ONE, *MANY]), render([response()], stream=True)]
    shown.append(render([response()], stream=True, texts=[("OUT", "text")]))
    shown.append(guess_display(Guess(("a", "b"), outcome=(Shown("t", "<pre>t</pre>"),))))
    shown.append(guess_display(Guess(made="a", outcome=outcome("", [{"image/svg+xml": "<svg/>"}]))))
    shown += [render([], empty=kind) for kind in KINDS] + [render_config("m", 'a: { b: "c" } # d\ne: 1')]
    return [*(display.html for display in shown), bar_html("w", 0.5), bar_html("w", None)]


def classes(sheet: str) -> set[str]:
    return set(re.findall(r"\.(bls-[\w-]+)", sheet))


def selectors(sheet: str) -> list[str]:
    """The selectors of all rules; a comma inside brackets parts none."""
    rules = re.sub(r"/\*.*?\*/", "", sheet, flags=re.DOTALL).split("}")
    heads = [rule.split("{")[0] for rule in rules if "{" in rule]
    return [each.strip() for head in heads for each in re.split(r",(?![^()]*\))", head)]


def sheets() -> dict[str, set[str]]:
    return {
        "common": classes("".join(parts()[name] for name in COMMON)) | {"bls-out"},
        **{name: classes(sheet) - WITHIN for name, sheet in PARTS.items()},
        **{name: classes(widget_file(name).read_text()) for name in WIDGETS},
    }


def test_no_class_belongs_to_two() -> None:
    for (one, some), (other, more) in combinations(sheets().items(), 2):
        assert not some & more, (one, other)


@pytest.mark.parametrize("part", PARTS)
def test_a_parts_rules_are_for_its_own_classes_and_weigh_more_than_the_common_ones(part: str) -> None:
    assert classes(PARTS[part])
    assert all(re.match(f"bls-{part}(-|$)", name) for name in classes(PARTS[part]) - WITHIN)
    own = stylesheet(part).removeprefix(stylesheet())
    for selector in selectors(own):
        assert re.match(r"(\.bls-out){4}(:is\(.* \*\))? ", selector), selector
        assert f" .bls-{part}" in selector, selector


def test_every_widget_keeps_to_its_own_classes() -> None:
    assert {*WIDGETS, "display.css"} == {file.name for file in widget_file("common.js").parent.glob("*.css")}
    for name, prefixes in WIDGETS.items():
        for selector in selectors(widget_file(name).read_text()):
            assert selector.startswith("@") or re.match(rf"\.({'|'.join(prefixes)})\b", selector), selector


def test_every_rule_is_scoped_and_self_contained() -> None:
    sheet = stylesheet(*PARTS)
    assert all(each.startswith(".bls-out.bls-out.bls-out") for each in selectors(sheet))
    assert not re.search(r"url\(|@import|//|expression|<", sheet)
    assert sheet.count("{") == sheet.count("}")
    assert len(sheet) < 18500


def test_every_kind_of_display_is_looked_at() -> None:
    drawings = {cls.rpartition(":")[2]: drawing for cls, (_, drawing) in registry().drawings().items()}
    # Others with a display of their own (a call graph, a watch, tensors) have tests elsewhere.
    own = {"Lifetimes"}
    looked_at = {type(each).__name__ for each in ONE}
    assert looked_at == own | {name for name, each in drawings.items() if each.document}
    assert {type(each[0]).__name__ for each in MANY} == set(KINDS)
    assert {name for name, each in drawings.items() if each.many} == set(KINDS)


@pytest.mark.slow
def test_every_display_brings_the_rules_of_its_classes() -> None:
    for page in map(Page, displays()):
        used = {each for _, attributes in page.tags for each in (attributes.get("class") or "").split()}
        assert used - OTHERS - SAME <= classes(page.styles[0]) | {"bls-out"}, page.text[:50]
        assert page.styles[0].startswith(stylesheet())


def over_white(colour: str) -> str:
    """Return ``rgba(r,g,b,a)`` over white as ``#rrggbb``."""
    *parts, alpha = map(float, re.findall(r"[\d.]+", colour))
    return "#" + "".join(f"{round(alpha * part + (1 - alpha) * 255):02x}" for part in parts)


@pytest.mark.parametrize("file", ["display.css", *WIDGETS])
def test_text_has_enough_contrast_on_a_light_page(file: str) -> None:
    sheet = re.sub(r"/\*.*?\*/", "", widget_file(file).read_text(), flags=re.DOTALL)
    common = widget_file("chart.css").read_text() if file != "display.css" else ""
    rules = [rule.split("{", 1) for rule in sheet.split("}") if "{" in rule]
    light = [(selector, body) for selector, body in rules if "dark" not in selector]
    known = dict(re.findall(r"(--[bci]-\w+): ?([^;}]+)", common.partition("bls-chart-dark")[0]))
    known |= dict(re.findall(r"(--[bci]-\w+): ?([^;}]+)", ";".join(body for _, body in light)))
    checked = 0
    for selector, body in light:
        grounds = [over_white(each) for each in re.findall(r"background: ?(rgba\([^)]*\))", body)] or SURFACES
        for colour in re.findall(r"(?<![-\w])color: ?([^;}!]+)", body):
            while match := re.match(r"var\((--[bci]-\w+)\)", colour):
                colour = known[match[1]]
            if match := re.match(r"var\((--jp-[\w-]+)", colour):
                colour = LIGHT[match[1]]
            if colour.strip() not in ("inherit", "currentColor"):
                assert min(contrast(colour.strip(), ground) for ground in grounds) >= 4.5, (selector, colour)
                checked += 1
    assert checked or file == "guess.css"


def test_text_in_pictures_has_enough_contrast() -> None:
    files = (
        "display/svg.py",
        "display/records/responses.py",
        "profiling/timeline/picture.py",
        "lifetimes/display/lifetime_chart.py",
    )
    sources = [(Path(bls_notebook.__file__).parent / file).read_text() for file in files]
    written = {colour for source in sources for colour in re.findall(r'colour="(#\w{6})"', source)}
    for colour in {INK, DIM, LEFT_BEHIND} | written:
        assert contrast(colour, "#ffffff") >= 4.5, colour
    for ink in (ALARM, NOTEBOOK, *model_inks("abcdefghij", {}).values()):
        for ground in (ink.light, ink.dark):
            assert contrast(readable(ground), ground) >= 4.5, ground
