"""The pytest plugin of bls_notebook. It imports the package only if a test needs it.

This module is outside the package because pytest imports a plugin's package in every test run of every project.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Generator, Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from bls_notebook.testing import RepositoryUnderTest
    from bls_notebook.testing.triton_servers import Servers

_PB_UTILS = ("triton_python_backend_utils", "c_python_backend_utils")
_SCOPES = ("function", "session")
_QUIT = "Exit: Quitting debugger"  # the exception of pdb's `q`, which here ended a model's execute
_HELP = "see docs/guides/testing.md of bls_notebook"


class _PbUtils:
    """Finds `triton_python_backend_utils`, which models import, if no other module has this name."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's specification."""
        return ModuleSpec(name, self) if name in _PB_UTILS else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return `bls_notebook.pb_utils`."""
        from bls_notebook import pb_utils

        self._own = pb_utils.__spec__
        return pb_utils

    def exec_module(self, module: ModuleType) -> None:
        """Restore the specification of `pb_utils`, which was executed before."""
        module.__spec__ = self._own


# Appended now because a conftest.py may import a model, and at the end so that other finders take precedence.
sys.meta_path.append(_PbUtils())

_repository: pytest.StashKey[Any] = pytest.StashKey()
_shared: pytest.StashKey[dict[object, Any]] = pytest.StashKey()
_servers: pytest.StashKey[Servers] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options to the command line and the configuration."""
    group = parser.getgroup("bls_notebook", "models of a Triton repository")
    _add_server(parser, "--bls-triton")  # for projects with their own --triton
    group.addoption("--bls-update-snapshots", action="store_true", help="rewrite the files of assert_same_answers")
    parser.addini("triton_repository", "folders in Triton's layout, for the fixture of that name", "paths", [])
    parser.addini("triton_fill", "key=value, for templates in the models' config.pbtxt", "linelist", [])
    parser.addini("triton_repository_scope", "function: models are loaded for each test; session: once")


@pytest.hookimpl(hookwrapper=True)
def pytest_load_initial_conftests(parser: pytest.Parser) -> Generator[None, Any, None]:
    """Add `--triton` after every conftest.py has added its options, unless one of them has this option."""
    yield
    try:
        free = "--triton=1" in parser.parse_known_and_unknown_args(["--triton=1"])[1]
    except pytest.UsageError:
        free = False
    if free:
        _add_server(parser, "--triton")


def _add_server(parser: pytest.Parser, name: str) -> None:
    text = (
        "send requests of the fixture triton_repository to a real tritonserver; skips assertions on facts that a "
        "server does not report"
    )
    parser.getgroup("bls_notebook").addoption(name, action="store_true", default=False, dest="bls_triton", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and pass options to unittest's tests in environment variables."""
    config.addinivalue_line(
        "markers",
        "triton_repository(*folders, fill=None, scope='function', **options): the folders and options of the "
        f"fixture triton_repository; {_HELP}",
    )
    config.stash[_shared] = {}
    if config.getoption("--bls-update-snapshots"):
        os.environ["BLS_UPDATE_SNAPSHOTS"] = "1"
    if config.getoption("bls_triton"):
        os.environ["BLS_TRITON"] = "1"


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close shared repositories and servers."""
    for repository in config.stash.get(_shared, {}).values():
        repository.close()
    servers = config.stash.get(_servers, None)
    if servers is not None:
        servers.close()


@pytest.fixture
def triton_repository(request: pytest.FixtureRequest) -> Iterator[RepositoryUnderTest]:
    """A model repository of the folders in the marker `triton_repository`, else in the ini option of that name.

    The first request to a model loads it. The repository has all methods of `bls_notebook.ModelRepository` (`infer`,
    `stream`, `define`, `stub` ...) and assertions: `assert_called`, `assert_not_called`, `assert_called_in_order`,
    `assert_overlapped`, `assert_batched`, `assert_nothing_left`, `assert_peak`, `assert_no_warnings`,
    `assert_no_errors`, `assert_answer`, `assert_same_answers`, `assert_that`.
    """
    config = request.config
    marker = request.node.get_closest_marker("triton_repository")
    options: dict[str, Any] = {"fill": _fill(config) or None, **(marker.kwargs if marker else {})}
    scope = options.pop("scope", config.getini("triton_repository_scope") or "function")
    if scope not in _SCOPES:
        _refuse(f"scope: got {scope!r}, expected one of {', '.join(_SCOPES)}")
    here = request.path.parent
    folders = [_folder(path, here, config.rootpath) for path in (marker.args if marker else ())]
    paths = folders or list(config.getini("triton_repository"))
    for path in paths:
        if not path.is_dir():
            _refuse(f"{str(path)!r} is no folder; {_HELP}")
    repository = _repository_for(config, paths, here, scope, options)
    request.node.stash[_repository] = repository
    try:
        yield repository
    finally:
        if scope == "session":
            repository.reset()
        else:
            repository.close()


def _refuse(problem: str) -> NoReturn:
    pytest.fail(f"triton_repository: {problem}", pytrace=False)


def _repository_for(
    config: pytest.Config, paths: list[Path], here: Path, scope: str, options: dict[str, Any]
) -> RepositoryUnderTest:
    from bls_notebook.testing import RepositoryUnderTest

    key = (tuple(paths), repr(sorted(options.items())))
    repository = config.stash[_shared].get(key) if scope == "session" else None
    if repository is None:
        try:
            repository = RepositoryUnderTest(*paths, servers=_servers_of(config), **options)
        except (TypeError, ValueError) as error:  # wrong options in the marker
            problem = str(error).replace("ModelRepository.__init__() ", "")
            raise pytest.fail.Exception(f"triton_repository: {problem}", pytrace=False) from None
        if scope == "session":
            config.stash[_shared][key] = repository
    else:
        repository.forget()
    repository.here = here
    repository.update_snapshots = config.getoption("--bls-update-snapshots")
    return repository


def _servers_of(config: pytest.Config) -> Servers | None:
    if not config.getoption("bls_triton"):
        return None
    from bls_notebook.testing.triton_servers import Servers

    return config.stash.setdefault(_servers, Servers())


def _folder(path: str | Path, here: Path, root: Path) -> Path:
    """Return a path relative to the folder of the test's file or, if that is missing, to pytest's root."""
    return here / path if (here / path).is_dir() else root / path


def _fill(config: pytest.Config) -> dict[str, str]:
    lines = [line.partition("=") for line in config.getini("triton_fill")]
    if any(not sign for _, sign, _ in lines):
        _refuse("triton_fill: expected lines of key=value")
    return {key.strip(): value.strip() for key, _, value in lines}


@pytest.hookimpl(hookwrapper=True)  # older versions of pytest have no other wrappers
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Add the errors and calls of models to the report of a failed test."""
    repository = item.stash.get(_repository, None)
    if repository is not None and call.excinfo is not None and not item.config.getoption("fulltrace"):
        _shorten(call.excinfo)
    report: pytest.TestReport = (yield).get_result()
    if repository is not None and report.when == "call" and report.failed:
        try:
            text = repository.failure_text(str(call.excinfo.value) if call.excinfo else "")
        except Exception as error:  # must not hide the test's own failure
            text = f"errors and calls of models cannot be shown: {error!r}"
        if text:
            report.sections.append(("Triton models", text))
        if any(_QUIT in span.error for span in repository.session.spans):
            item.session.shouldstop = "the debugger was quit"
    if report.when == "teardown" and repository is not None:
        del item.stash[_repository]


def _shorten(excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Hide the package's own frames in the traceback: the mistake is in the test or in a model."""
    from bls_notebook import BLSError

    for frame, _ in traceback.walk_tb(excinfo.tb):
        if _is_ours(frame):
            frame.f_globals["__tracebackhide__"] = _hides
    if isinstance(excinfo.value, BLSError):
        excinfo.value.__cause__ = None  # the message has all facts


def _hides(excinfo: pytest.ExceptionInfo[BaseException] | None) -> bool:
    from bls_notebook import BLSError

    if excinfo is None or isinstance(excinfo.value, (BLSError, AssertionError)):
        return True
    *_, (last, _) = traceback.walk_tb(excinfo.tb)
    return not _is_ours(last)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith("bls_notebook.")
