"""`TritonTestCase`: a base class for unittest with a new repository for each test."""

from __future__ import annotations

import atexit
import inspect
import os
import unittest
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, cast

from .repository_under_test import RepositoryUnderTest
from .triton_servers import Servers


class TritonTestCase(unittest.TestCase):
    """A test case whose ``repository`` is new for each test, and closed after it.

    Failures show the errors and calls of models. With the environment variable ``BLS_TRITON=1``, a real
    tritonserver answers the requests.

    Attributes
    ----------
    triton_repository : str or sequence of str
        Class attribute: folders in Triton's layout, relative to the folder of the test's file.
    triton_options : mapping
        Class attribute: options of `ModelRepository`, such as ``{"fill": {...}}``.
    repository : RepositoryUnderTest
        The repository, with the assertions of the fixture `triton_repository`.

    Examples
    --------
    >>> class TestPage(TritonTestCase):
    ...     triton_repository = "../models"
    ...
    ...     def test_page(self):
    ...         with self.repository.stub("resize", {"OUT": image}):
    ...             self.assertIsNone(self.repository.infer("page", {"IN": image}).error)
    ...         self.repository.assert_called("resize", 1)
    """

    triton_repository: ClassVar[str | Sequence[str]] = ()
    triton_options: ClassVar[Mapping[str, Any]] = {}
    repository: RepositoryUnderTest

    def setUp(self) -> None:
        """Create the repository."""
        super().setUp()
        here = Path(inspect.getfile(type(self))).resolve().parent
        paths = self.triton_repository
        self.repository = RepositoryUnderTest(
            *(here / path for path in ([paths] if isinstance(paths, str) else paths)),
            here=here,
            update_snapshots=bool(os.environ.get("BLS_UPDATE_SNAPSHOTS")),
            servers=_servers() if os.environ.get("BLS_TRITON") else None,
            **self.triton_options,
        )
        self.addCleanup(self.repository.close)

    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        """Run the test; a failure shows the errors and calls of models."""
        return super().run(None if result is None else cast(unittest.TestResult, _ResultWithNotes(result, self)))


@cache
def _servers() -> Servers:
    servers = Servers()
    atexit.register(servers.close)
    return servers


class _ResultWithNotes:
    """A result of unittest that adds the errors and calls of models to failures."""

    def __init__(self, result: unittest.TestResult, case: TritonTestCase) -> None:
        self._result = result
        self._case = case

    def __getattr__(self, name: str) -> Any:
        add = getattr(self._result, name)
        if name not in ("addFailure", "addError", "addSubTest"):
            return add

        def added(*arguments: Any) -> None:
            if arguments[-1] is not None:
                self._add_note(arguments[-1][1])
            add(*arguments)

        return added

    def _add_note(self, error: BaseException) -> None:
        repository = getattr(self._case, "repository", None)
        note = "" if repository is None else repository.failure_text(str(error))
        if note and hasattr(error, "add_note"):
            error.add_note(f"\n{note}")
        elif note:  # Python 3.10
            error.args = (f"{error}\n\n{note}",)
