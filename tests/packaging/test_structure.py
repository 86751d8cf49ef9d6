"""The package keeps to the rules of its structure, and the check finds each kind of violation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging import structure


@pytest.mark.slow
def test_the_package_follows_the_rules() -> None:
    assert structure.violations() == []


def test_each_kind_of_violation_is_found(tmp_path: Path) -> None:
    root = tmp_path / "made"
    for folder in ("engine", "repository", "profiling", "checking"):
        (root / folder).mkdir(parents=True)
        (root / folder / "__init__.py").write_text("")
    (root / "__init__.py").write_text("from .profiling import verdict\n")
    (root / "engine" / "long.py").write_text("x = 1\n" * 601)
    (root / "engine" / "runner.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .queue import Queue\n"
        "def profile():\n    from made.profiling.verdict import words\nWHERE = 'profiling.verdict'\n"
    )
    (root / "engine" / "queue.py").write_text("def run():\n    import made.engine.runner\nclass Queue: ...\n")
    (root / "profiling" / "verdict.py").write_text(
        "from made.checking import rules\nclass Queue: ...\n"
        "def close(repo, self):\n    repo._server.close(self._server, repo._service)\n"
    )
    (root / "checking" / "rules.py").write_text("")
    (root / "repository" / "catalog.py").write_text("def close(repo):\n    repo._server.close()\n")
    assert structure.violations(root) == [
        "class name used twice: Queue: made.engine.queue, made.profiling.verdict",
        "core imports a capability: made.engine.runner -> made.profiling.verdict",
        "core names a capability's module: made.engine.runner: profiling.verdict",
        "cycle: made.engine.queue, made.engine.runner",
        "long: made.engine.long: 601 lines, at most 600",
        "pair not listed: made.profiling.verdict -> made.checking.rules",
        "underscore name of a repository: made.profiling.verdict: repo._server",
        "underscore name of a repository: made.profiling.verdict: repo._service",
    ]
