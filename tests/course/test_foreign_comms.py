"""Kernels with a comm manager of their own, such as hosted ones: the pictures are there without widgets."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

LESSON = {
    "timeline": "%%blsprofile\n%bls times IN=[1.0]",
    "lifetimes": "%%blsmemory\nkept = %bls times IN=[1.0]\nkept",
    "inspector": "import numpy as np\n%blsinspect np.arange(64.0).reshape(8, 8)",
    "guess": '%%blsguess "one" "two"\n%blsprofile times IN=[1.0] -n 2 --repeat 1',
}


class Deaf:
    """A comm whose messages reach no frontend."""

    comm_id = "0"

    def __init__(self, **options: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: None


def refused(**options: Any) -> Any:
    raise RuntimeError(f"no target {options['target_name']!r}")


@pytest.mark.parametrize("create", [refused, Deaf])
def test_pictures_are_static_without_widgets(cells: Any, monkeypatch: pytest.MonkeyPatch, create: Any) -> None:
    comm = pytest.importorskip("comm")
    pytest.importorskip("anywidget")
    monkeypatch.setattr(comm, "create_comm", create)
    monkeypatch.setattr(comm, "get_comm_manager", lambda: object())
    monkeypatch.setattr("bls_notebook.display.widgets.can_live", lambda: True)
    alive: deque[Any] = deque()
    monkeypatch.setattr("bls_notebook.display.widgets._alive", alive)
    cells.model()
    for name, cell in LESSON.items():
        shown = cells(cell)
        assert shown.success, (name, shown.stderr)
        assert shown.stderr == "", name
        assert "<svg" in shown.html or "data:image/svg+xml" in shown.html or "data:image/png" in shown.html, name
        assert not any("application/vnd.jupyter.widget-view+json" in bundle for bundle in shown.bundles), name
        assert ("data-bls-place" in shown.html) == (create is Deaf), name
    while alive:
        alive.pop().close()
