"""The package is in order, and the check would see it if it were not."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

_spec = importlib.util.spec_from_file_location("house", Path(__file__).with_name("house.py"))
assert _spec is not None
assert _spec.loader is not None
house: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(house)


def test_the_package_is_in_order() -> None:
    assert house.complaints() == []


def test_what_is_out_of_order_is_said(tmp_path: Path) -> None:
    root = tmp_path / "made"
    (root / "many").mkdir(parents=True)
    for file in (root / "__init__.py", root / "many" / "__init__.py"):
        file.write_text("")
    (root / "long.py").write_text("x = 1\n" * 401)
    (root / "first.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .many import m0\n"
    )
    (root / "many" / "m0.py").write_text("def f():\n    import made.many.m1\n")
    (root / "many" / "m1.py").write_text("from made.first import x\n")
    for number in range(2, 21):
        (root / "many" / f"m{number}.py").write_text("")
    assert house.complaints(root) == [
        "imports in a circle: made.first, made.many.m0, made.many.m1",
        "made/many: 21 modules, at most 20",
        "made.long: 401 lines, at most 400",
    ]
