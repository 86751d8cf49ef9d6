from __future__ import annotations

import pytest

from bls_notebook.display import render
from bls_notebook.display.widgets import VIEW, with_view
from tests.profiling.sessions import many, pipeline

pytest.importorskip("anywidget")

from bls_notebook.profiling.timeline.widget import Timeline


def test_the_critical_path_of_many_requests_waits_until_it_is_wanted() -> None:
    assert len(Timeline(pipeline(True)).paths) == 1
    assert [raw["name"] for raw in Timeline(pipeline(False), pipeline(True)).sessions] == ["sequential", "gathered"]
    timeline = Timeline(many(3500))
    assert timeline.paths == []
    timeline.wants_paths = True  # as the browser does
    assert len(timeline.paths) == 1


def test_its_bundle_is_text_and_a_picture_that_it_covers() -> None:
    timeline = Timeline(pipeline(True))
    bundle = timeline._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert f'data-bls-place="{timeline.place}"' in bundle["text/html"]
    assert "data:image/svg+xml" in bundle["text/html"]


def test_frontends_that_start_widgets_for_their_view_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSCODE_PID", "1")
    timeline = Timeline(pipeline(True))
    assert with_view({}, timeline)[VIEW]["model_id"] == timeline.model_id
    assert with_view({}, None) == {}


def test_a_timeline_widget_is_made_in_a_kernel_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert render(pipeline(True), live=True).widget is None
    monkeypatch.setattr("bls_notebook.display.widgets.can_live", lambda: True)
    session = pipeline(True)
    shown = render(session, live=True).widget
    assert isinstance(shown, Timeline)
    assert (shown.lit, shown.titled, Timeline(session).titled) == (False, False, True)
