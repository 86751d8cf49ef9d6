"""The profiles that `compare` accepts, live or saved, as sides of a comparison."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import bls_notebook as bls
from bls_notebook.engine import BLSError

from .analysis.before_after import ComparedRuns
from .analysis.line_times import model_lines
from .records.comparison import Comparison
from .session import Session, SessionAnalysis

Profiled = SessionAnalysis | Comparison | str | os.PathLike[str] | Sequence[Any]


def is_profile(value: object) -> bool:
    """Return whether a value is a profile, or a list of profiles, rather than the inputs of requests."""
    if isinstance(value, (list, tuple)):
        return bool(value) and not any(isinstance(each, Mapping) for each in value)
    return isinstance(value, (SessionAnalysis, Comparison, str, os.PathLike))


def side_of(profiles: Any, when: str) -> ComparedRuns:
    """Return the runs of a profile, of the path of one, or of a list of these."""
    each = [*map(_opened, profiles if isinstance(profiles, (list, tuple)) else [profiles])]
    sessions = [one.sequential if isinstance(one, Comparison) else getattr(one, "record", None) for one in each]
    known = [session for session in sessions if isinstance(session, Session)]
    if len(known) < len(sessions) or not known:
        kinds = ", ".join(sorted({type(one).__name__ for one in each})) or "nothing"
        raise BLSError(f"compare: {when}: got {kinds}, expected a profile, the file of one, or a list of these")
    lines = [line for one in each if isinstance(one, Comparison) for line in one.settings[0].lines]
    runs = ComparedRuns(_name(profiles, known, when), known, lines or model_lines(*known))
    match each:
        case [Comparison(requests=requests, settings=[now, *_])]:
            return replace(runs, requests=requests, gathered=now.gathered_quartiles)
    return runs


def _opened(value: Any) -> Any:
    return bls.open_file(Path(value)) if isinstance(value, (str, os.PathLike)) else value


def _name(profiles: Any, sessions: Sequence[Session], when: str) -> str:
    if isinstance(profiles, (str, os.PathLike)):
        return os.path.basename(profiles)
    if isinstance(profiles, (list, tuple)) and len(sessions) > 1:
        return f"{when}, {len(sessions)} runs"
    return when if isinstance(profiles, Comparison) else sessions[0].name or when
