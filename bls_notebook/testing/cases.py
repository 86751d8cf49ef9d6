"""`TritonTestCase`: a repository for each test of unittest."""

from __future__ import annotations

import inspect
import os
import unittest
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from .under_test import RepositoryUnderTest


class TritonTestCase(unittest.TestCase):
    """A test case whose ``repository`` is new for each test, and closed after it.

    Attributes
    ----------
    triton_repository : str or sequence of str
        Folders in Triton's layout, from the folder of the test's file; of the class.
    triton_options : mapping
        Options of `ModelRepository`, such as ``{"fill": {...}}``; of the class.
    repository : RepositoryUnderTest
        With the assertions of the fixture `triton_repository`.

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
        """Make the repository."""
        super().setUp()
        here = Path(inspect.getfile(type(self))).resolve().parent
        paths = self.triton_repository
        self.repository = RepositoryUnderTest(
            *(here / path for path in ([paths] if isinstance(paths, str) else paths)),
            here=here,
            update_snapshots=bool(os.environ.get("BLS_UPDATE_SNAPSHOTS")),
            **self.triton_options,
        )
        self.addCleanup(self.repository.close)
