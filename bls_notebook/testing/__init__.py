"""For people who test their own models; see `docs/testing.md`.

With pytest there is the fixture `triton_repository`; `TritonTestCase` gives unittest the same. Neither is
imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bls_notebook.pb_utils.request import responses_of

    from .cases import TritonTestCase
    from .clock import FakeClock
    from .under_test import RepositoryUnderTest

__all__ = ["FakeClock", "RepositoryUnderTest", "TritonTestCase", "responses_of"]

_LATER = {
    "FakeClock": "testing.clock",
    "RepositoryUnderTest": "testing.under_test",
    "TritonTestCase": "testing.cases",
    "responses_of": "pb_utils.request",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"bls_notebook.{_LATER[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
