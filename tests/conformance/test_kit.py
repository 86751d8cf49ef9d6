"""The recorded kit: what a real server answered to many scenarios, and what is answered here.

The kit lies beside a checkout of the developers, not in the repository; elsewhere this is skipped.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DIVERGENCES = HERE / "divergences.toml"
LIVE = HERE / "live_divergences.toml"
STRUCTURE = HERE / "structure_divergences.toml"
STRUCTURE_GOLDEN = "golden-2026.json"
MOST = 5  # divergences on purpose, in each file
WORDING = 90  # percent of the error texts


@cache
def kit() -> Path:
    """Where the kit is."""
    named = os.environ.get("BLS_NOTEBOOK_CONFORMANCE")
    folder = Path(named) if named else ROOT.parent / "shared" / "conformance"
    if (folder / "check.py").is_file():
        return folder
    if named:  # somebody counts on it
        raise FileNotFoundError(f"BLS_NOTEBOOK_CONFORMANCE={named}: no check.py there")
    pytest.skip("the recorded conformance kit is not beside this checkout")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def check(*options: str) -> subprocess.CompletedProcess[str]:
    """Run the kit's comparison in a process of its own; its report is in `stdout`."""
    done = subprocess.run(
        [sys.executable, str(kit() / "check.py"), "--show", "--wording", str(WORDING), *options],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    print(done.stdout)
    return done


@pytest.mark.slow
def test_every_recorded_outcome_is_the_same_here() -> None:
    done = check("--divergences", str(DIVERGENCES))
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.slow
def test_threads_and_releases_are_the_servers_but_for_listed_outcomes() -> None:
    root = kit() / "structure"
    done = check("--root", str(root), "--golden", STRUCTURE_GOLDEN)
    assert "\noutcome " in f"\n{done.stdout}", done.stdout[-3000:]
    different = set(re.findall(r"^- (\S+)$", done.stdout, re.MULTILINE))
    listed = tomllib.loads(STRUCTURE.read_text()).keys()
    assert different - listed == set(), done.stdout[-3000:]
    assert listed - different == set(), "the same here by now: remove their lines"
    assert not any("thread" in scenario or "database" in scenario for scenario in listed)


@pytest.mark.parametrize("file", [DIVERGENCES, LIVE])
def test_divergences_are_few_and_each_has_a_reason(file: Path) -> None:
    table = tomllib.loads(file.read_text())
    assert len(table) <= MOST
    assert all(isinstance(reason, str) and len(reason.split()) >= 5 for reason in table.values())


@pytest.mark.parametrize(
    ("file", "golden"), [(DIVERGENCES, "golden.json"), (STRUCTURE, f"structure/{STRUCTURE_GOLDEN}")]
)
def test_divergences_name_recorded_scenarios(file: Path, golden: str) -> None:
    import json

    known = json.loads((kit() / golden).read_text())["scenarios"]
    assert tomllib.loads(file.read_text()).keys() <= known.keys()


def test_divergences_of_the_live_server_name_tests() -> None:
    files = [*HERE.glob("test_live_*.py"), *HERE.glob("model_repository/script*/1/*deeds.py")]
    source = "".join(file.read_text() for file in files)
    for name in tomllib.loads(LIVE.read_text()):
        function, _, case = name.partition("[")
        assert f"def {function}(" in source
        assert case.rstrip("]").rpartition("-")[2] in source
