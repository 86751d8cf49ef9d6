"""The check of the package's structure, which `make lint` runs, finds each kind of violation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packaging import structure


def test_each_kind_of_violation_is_found(tmp_path: Path) -> None:
    root = tmp_path / "made"
    for folder in ("engine", "repository", "profiling", "checking"):
        (root / folder).mkdir(parents=True)
        (root / folder / "__init__.py").write_text("")
    for capability in ("profiling", "checking"):
        (root / capability / "capability.py").write_text(f"CAPABILITY = Capability({capability!r})\n")
    (root / "__init__.py").write_text("from .profiling import verdict\n")
    (root / "engine" / "long.py").write_text("x = 1\n" * 601)
    (root / "engine" / "runner.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .queue import Queue\n"
        "def profile():\n    from made.profiling.verdict import words\nWHERE = 'profiling.verdict'\n"
    )
    (root / "engine" / "queue.py").write_text(
        "def run():\n    import made.engine.runner\nclass Queue: ...\nJob = int\n"
    )
    (root / "profiling" / "verdict.py").write_text(
        "from made.checking import rules\nclass Queue: ...\nJob = str\n"
        "def close(repo, self):\n    repo._server.close(self._server, repo._service)\n"
    )
    (root / "checking" / "rules.py").write_text("")
    (root / "repository" / "catalog.py").write_text("def close(repo):\n    repo._server.close()\n")
    (tmp_path / "picture.md").write_text("CORE  CAPABILITIES:\nengine  profiling  timelines\n        checking\n")
    assert structure.violations(root, tmp_path / "picture.md") == [
        "core imports a capability: made.engine.runner -> made.profiling.verdict",
        "core names a capability's module: made.engine.runner: profiling.verdict",
        "cycle: made.engine.queue, made.engine.runner",
        "import not declared: made.profiling.verdict -> made.checking.rules: add 'checking' to needs of profiling",
        "long: made.engine.long: 601 lines, at most 600",
        "type name used twice: Job: made.engine.queue, made.profiling.verdict",
        "type name used twice: Queue: made.engine.queue, made.profiling.verdict",
        "underscore name of a repository: made.profiling.verdict: repo._server",
        "underscore name of a repository: made.profiling.verdict: repo._service",
    ]


PAIRS = """
CORE        CAPABILITIES: each imports what its arrow leads to

magics      course     exercises ──► testing,
 ▼                                   network
records     testing    a plugin  ──► network
            network
```
after     a picture ──► nothing
"""


@pytest.mark.parametrize(
    ("file", "old", "new", "found"),
    [
        ("course/case.py", "", "", []),
        ("network/late.py", "", "def run():\n    import made.testing.claim\n",
         ["import not declared: made.network.late -> made.testing.claim: add 'testing' to needs or uses of network"]),
        ("testing/claim.py", "import made.network.wire", "def run():\n    import made.network.wire",
         ["declared but not imported: 'network' in needs of testing"]),
        ("course/case.py", "    import made.network.wire", "    ...",
         ["declared but not imported: 'network' in uses of course"]),
        ("course/case.py", "def run():\n    import", "import",
         ["declared but not imported: 'network' in uses of course",
          "import not declared: made.course.case -> made.network.wire: add 'network' to needs of course"]),
        ("../picture.md", "testing,\n", "testing\n",
         ["picture in picture.md: the arrow of course leads to network, testing"]),
        ("../picture.md", "a plugin  ──► network", "a plugin",
         ["picture in picture.md: the arrow of testing leads to network"]),
    ],
)  # fmt: skip
def test_imports_between_capabilities_are_those_of_their_declarations(
    file: str, old: str, new: str, found: list[str], tmp_path: Path
) -> None:
    texts = {
        "__init__.py": "",
        "course/capability.py": "CAPABILITY = Capability('course', needs=('testing',), uses=('network',))\n",
        "course/case.py": "import made.testing.claim\ndef run():\n    import made.network.wire\n",
        "testing/capability.py": "CAPABILITY = Capability('testing', needs=('network',))\n",
        "testing/claim.py": "import made.network.wire\n",
        "network/capability.py": "CAPABILITY = Capability('network')\n",
        "network/wire.py": "",
        "network/late.py": "",
        "../picture.md": PAIRS,
    }
    assert old in texts[file]
    texts[file] = texts[file].replace(old, new) if old else texts[file] + new
    for name, text in texts.items():
        (tmp_path / "made" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "made" / name).write_text(text)
    assert structure.violations(tmp_path / "made", tmp_path / "picture.md") == found


def test_capabilities_import_the_interface_of_the_core_which_offers_only_what_is_used(tmp_path: Path) -> None:
    texts = {
        "__init__.py": "",
        "extending.py": "INTERFACE = ('extending', 'records', 'engine.observer')\n",
        "records/__init__.py": "offer(__name__, {'units': 'count size', 'base': 'Record plain'})\n",
        "records/units.py": "",
        "engine/__init__.py": "",
        "engine/observer.py": "",
        "engine/runner.py": "import made.records.units\n",
        "course/capability.py": "from made.extending import Capability\nCAPABILITY = Capability('course')\n",
        "course/case.py": "from made import records as shown\nfrom made.records import count\nshown.plain\n"
        "from made.engine import observer\ndef run():\n    from made.records.units import size\n",
    }
    for name, text in texts.items():
        (tmp_path / "made" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "made" / name).write_text(text)
    (tmp_path / "picture.md").write_text("")
    assert structure.violations(tmp_path / "made", tmp_path / "picture.md") == [
        "not in the core's interface: made.course.case -> made.records.units",
        "offered but not imported: Record of made.records",
        "offered but not imported: size of made.records",
    ]
