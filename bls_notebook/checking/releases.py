"""Releases of Triton, and what changed in them for models: `releases.json`.

Each change names a problem, the first release that has it (`since`; empty if all before have it) and the first release
without it (`until`; empty if no release is without it), with its source. Its texts are in rules.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bls_notebook.engine import BLSError
from bls_notebook.records import listed


@dataclass(frozen=True)
class ReleaseChange:
    """A problem that models have in the releases from `since` until before `until`.

    `name` is what the model uses: a name of the API, a field of config.pbtxt. `field` is such a field, and `names` are
    dotted Python names, whose mere use is the problem. `image`: it depends on the packages of NVIDIA's image.
    """

    name: str
    since: str
    until: str
    source: str
    field: str = ""
    names: tuple[str, ...] = ()
    image: bool = False

    def affects(self, release: str) -> bool:
        """Return whether a release has the problem."""
        return self.since <= release and (not self.until or release < self.until)

    def facts(self) -> dict[str, str]:
        """Return the facts for the texts of its rule; `last` is the last release with the problem."""
        releases = [*versions()]
        last, last_before = (
            releases[releases.index(at) - 1] if at in releases[1:] else "" for at in (self.until, self.since)
        )
        return {"since": self.since, "until": self.until, "last": last, "last_before": last_before}


@cache
def _table() -> dict[str, Any]:
    return dict(json.loads(Path(__file__).with_name("releases.json").read_text("utf-8")))


def versions() -> Mapping[str, str]:
    """Return the known releases in order, each with the version of its server."""
    return dict(_table()["releases"])


@cache
def changes() -> Mapping[str, ReleaseChange]:
    """Return the changes by their rules."""
    rows: dict[str, dict[str, Any]] = _table()["changes"]
    return {rule: ReleaseChange(**{**row, "names": tuple(row.get("names", ()))}) for rule, row in rows.items()}


def newest() -> str:
    """Return the newest known release."""
    return max(versions())


def known_release(release: str) -> str:
    """Return a release such as ``25.03``; BLSError if it is not in the table."""
    if release not in versions():
        raise BLSError(f"release {release!r} is not known; known are {listed([*versions()], 40)}")
    return release


def release_of(version: str) -> str:
    """Return the release of a server's version, such as ``2.51.0``; empty if it is not in the table."""
    numbers = version.split(".")
    exact = [release for release, known in versions().items() if known == version]
    near = [release for release, known in versions().items() if known.split(".")[:2] == numbers[:2]]
    return (exact or near or [""])[0]
