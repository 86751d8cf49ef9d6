from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bls_notebook.display.as_html import document_html
from bls_notebook.display.as_text import document_text
from bls_notebook.inspection.display import watch_document
from bls_notebook.inspection.records import ModelNow, WatchRecord
from bls_notebook.records.statistics import DeviceRecord
from tests.display.page import Page
from tests.display.samples import HOSTILE

NOW = WatchRecord(
    0.0,
    "models",
    (
        ModelNow("a", instances=3, busy=2, queue=4, answered=1000, failed=1, p50=1_200_000, p99=9_000_000),
        ModelNow("b", state="UNAVAILABLE", reason="no module named x"),
        ModelNow("c", state="UNAVAILABLE", reason="not loaded"),
        ModelNow("d", state="UNAVAILABLE", reason="unloaded"),
    ),
    (DeviceRecord("cpu", "x86", total=100), DeviceRecord("gpu:0", "h", True, 10, 5, 1, 100)),
)


class Watched:
    """Stands for a `Watch`."""

    seconds = 0.5

    def __init__(self) -> None:
        self.followers: list[Callable[[WatchRecord], None]] = []
        self.acted: list[tuple[str, str]] = []
        self.problem = ""

    def follow(self, told: Callable[[WatchRecord], None]) -> Callable[[], None]:
        self.followers.append(told)
        return lambda: self.followers.remove(told)

    def act(self, verb: str, name: str, done: Callable[[str], None]) -> None:
        self.acted.append((verb, name))
        done(self.problem)

    def look(self, record: WatchRecord = NOW) -> None:
        for told in list(self.followers):
            told(record)


def test_a_terminal_has_a_table_of_the_moment() -> None:
    lines = document_text(watch_document(NOW)).splitlines()
    assert lines[1].split() == ["model", "state", "busy", "queue", "answered", "failed", "p50", "p99"]
    assert lines[2].split() == ["a", "READY", "2", "of", "3", "4", "1,000", "1", "1.20", "ms", "9.00", "ms"]
    assert "no module named x" in lines[3]
    assert lines[4] == "2 models not loaded"
    assert "gpu:0 (simulated)" in lines[-1]
    assert "anywidget" not in "".join(lines)
    assert "pip install anywidget" in document_text(watch_document(NOW, missing=True))
    assert "no models" in document_text(watch_document(WatchRecord(0.0, "memory")))
    page = Page(document_html(watch_document(WatchRecord(0.0, "m", NOW.models))))
    assert len(page.find("th", "bls-num")) == 6  # numbers are at the right, names at the left


def test_nothing_breaks_out() -> None:
    h = HOSTILE
    hostile = WatchRecord(0.0, h, (ModelNow(h, 1, h, h), ModelNow(h, 2, reason=h)), (DeviceRecord(h, h, total=1),))
    page = Page(document_html(watch_document(hostile)))
    assert page.find("script") == page.find("img") == []


def test_a_panel_looks_while_it_is_seen() -> None:
    watched = Watched()
    panel = pytest.importorskip("bls_notebook.inspection.inspector_widget").WatchWidget(watched)
    watched.look()
    assert [row["name"] for row in panel.now["rows"]] == ["a", "b"]
    assert [row["name"] for row in panel.rest] == ["c", "d"]
    assert panel.now["rows"][0]["ink"] != panel.now["rows"][1]["ink"]
    assert panel.now["devices"][1]["simulated"]
    watched.look()
    past = panel.get_state()["past"]
    assert past[str(panel.now["rows"][0]["id"])] == [[0.0, 0.0, 1_200_000, 9_000_000]] * 2
    assert panel.get_state("now").keys() == {"now"}
    panel._message(panel, {"views": 2}, [])
    panel._message(panel, {"views": 0}, [])
    assert not watched.followers
    panel._message(panel, {"views": 1}, [])
    assert len(watched.followers) == 1
    panel.close()
    assert not watched.followers


def test_buttons_name_the_model_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    panel = pytest.importorskip("bls_notebook.inspection.inspector_widget").WatchWidget(watched)
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(type(panel), "send", lambda self, content: sent.append(content))
    watched.look(WatchRecord(0.0, "m", (ModelNow("a\x1bb"),)))
    [row] = panel.now["rows"]
    assert row["name"] == "a\\x1bb"
    watched.problem = "it\x1b failed"
    panel._message(panel, {"verb": "load", "id": row["id"]}, [])
    assert watched.acted == [("load", "a\x1bb")]
    assert sent == [{"begun": row["id"]}, {"done": row["id"], "verb": "load", "problem": "it\\x1b failed"}]
    for odd in ({"verb": "load", "id": 99}, {"verb": "load"}, "load", {"verb": "load", "id": [1]}):
        panel._message(panel, odd, [])
    assert len(watched.acted) == 1
    panel.close()
