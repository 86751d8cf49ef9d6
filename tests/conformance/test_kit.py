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
from typing import Any

import pytest

from bls_notebook.checking.releases import changes, newest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIVE = HERE / "live_divergences.toml"
RELEASE = HERE / "release_differences.toml"
NEWEST, OLDER = "golden-2026.json", "24.10"
MOST = 5  # divergences on purpose
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


def different(report: str) -> set[str]:
    """Return the scenarios of a report whose outcomes differ."""
    assert "\noutcome " in f"\n{report}", report[-3000:]
    return set(re.findall(r"^- (\S+)$", report, re.MULTILINE))


def listed(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("part", ["", "structure"])
def test_every_recorded_outcome_is_the_newest_servers(part: str) -> None:
    done = check("--root", str(kit() / part), "--golden", NEWEST)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.slow
def test_outcomes_that_differ_from_an_older_server_are_explained_by_its_release() -> None:
    reports = [check("--root", str(kit() / part), "--golden", "golden.json").stdout for part in ("", "structure")]
    assert {name for report in reports for name in different(report)} == listed(RELEASE).keys() - {"live"}


def test_differences_from_an_older_server_name_changes_of_the_table_of_releases() -> None:
    recorded = listed(RELEASE)
    for change in {*recorded.pop("live").values(), *recorded.values()} - {"build"}:
        assert changes()[change].affects(OLDER) != changes()[change].affects(newest())


def test_divergences_are_few_and_each_has_a_reason() -> None:
    assert len(listed(LIVE)) <= MOST
    assert all(isinstance(reason, str) and len(reason.split()) >= 5 for reason in listed(LIVE).values())


def test_divergences_of_the_live_server_name_tests() -> None:
    files = [*HERE.glob("test_live_*.py"), *HERE.glob("model_repository/script*/1/*deeds.py")]
    source = "".join(file.read_text() for file in files)
    for name in [*listed(LIVE), *listed(RELEASE)["live"]]:
        function, _, case = name.partition("[")
        assert f"def {function}(" in source
        assert case.rstrip("]").rpartition("-")[2] in source
