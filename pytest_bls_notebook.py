"""The pytest plugin of bls_notebook: nothing of the package is imported before a test asks for it.

It stands outside of the package, which pytest would import as a whole otherwise, for every run of any tests.
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
_QUIT = "Exit: Quitting debugger"  # how pdb's q ends all tests; here it was the end of a model's execute
_HELP = "see docs/testing.md of bls_notebook"


class _PbUtils:
    """Finds what models import as `triton_python_backend_utils`, where nothing else of that name is found."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Say where it is."""
        return ModuleSpec(name, self) if name in _PB_UTILS else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the package's own."""
        from bls_notebook import pb_utils

        self._own = pb_utils.__spec__
        return pb_utils

    def exec_module(self, module: ModuleType) -> None:
        """It has been run, and keeps its own name."""
        module.__spec__ = self._own


# At once, since a conftest.py may import a model; and last, so that it is never in the way of another.
sys.meta_path.append(_PbUtils())

_repository: pytest.StashKey[Any] = pytest.StashKey()
_shared: pytest.StashKey[dict[object, Any]] = pytest.StashKey()
_servers: pytest.StashKey[Servers] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options to the command line and the configuration."""
    group = parser.getgroup("bls_notebook", "models of a Triton repository")
    _add_server(parser, "--bls-triton")  # also where --triton is somebody else's
    group.addoption("--bls-update-snapshots", action="store_true", help="write the files of assert_same_answers anew")
    parser.addini("triton_repository", "folders in Triton's layout, for the fixture of that name", "paths", [])
    parser.addini("triton_fill", "key=value, for templates in the models' config.pbtxt", "linelist", [])
    parser.addini("triton_repository_scope", "function: models are loaded for each test; session: once")


@pytest.hookimpl(hookwrapper=True)
def pytest_load_initial_conftests(parser: pytest.Parser) -> Generator[None, Any, None]:
    """Add `--triton` once every conftest.py has added its options: where one has it, it is theirs."""
    yield
    try:
        free = "--triton=1" in parser.parse_known_and_unknown_args(["--triton=1"])[1]
    except pytest.UsageError:
        free = False
    if free:
        _add_server(parser, "--triton")


def _add_server(parser: pytest.Parser, name: str) -> None:
    told = "send requests of the fixture triton_repository to a real tritonserver; tests of what a server "
    parser.getgroup("bls_notebook").addoption(
        name, action="store_true", default=False, dest="bls_triton", help=f"{told}does not tell are skipped"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, and hand options on to unittest's tests."""
    config.addinivalue_line(
        "markers",
        "triton_repository(*folders, fill=None, scope='function', **options): the models that the fixture "
        f"triton_repository has; {_HELP}",
    )
    config.stash[_shared] = {}
    if config.getoption("--bls-update-snapshots"):
        os.environ["BLS_UPDATE_SNAPSHOTS"] = "1"
    if config.getoption("bls_triton"):
        os.environ["BLS_TRITON"] = "1"


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close what all tests shared."""
    for repository in config.stash.get(_shared, {}).values():
        repository.close()
    servers = config.stash.get(_servers, None)
    if servers is not None:
        servers.close()


@pytest.fixture
def triton_repository(request: pytest.FixtureRequest) -> Iterator[RepositoryUnderTest]:
    """A model repository of the folders that the ini option, or the marker, `triton_repository` names.

    A model is loaded when it is first sent a request, after those that it calls. It has all of
    `bls_notebook.ModelRepository` (`infer`, `stream`, `define`, `stub` ...) and assertions: `assert_called`,
    `assert_not_called`, `assert_called_in_order`, `assert_overlapped`, `assert_batched`,
    `assert_nothing_left`, `assert_peak`, `assert_no_warnings`, `assert_no_errors`, `assert_answer`,
    `assert_same_answers`, `assert_that`.
    """
    config = request.config
    marker = request.node.get_closest_marker("triton_repository")
    options: dict[str, Any] = {"fill": _fill(config) or None, **(marker.kwargs if marker else {})}
    scope = options.pop("scope", config.getini("triton_repository_scope") or "function")
    if scope not in _SCOPES:
        _refuse(f"scope: got {scope!r}, expected one of {', '.join(_SCOPES)}")
    here = request.path.parent
    given = [_folder(path, here, config.rootpath) for path in (marker.args if marker else ())]
    paths = given or list(config.getini("triton_repository"))
    for path in paths:
        if not path.is_dir():
            _refuse(f"{str(path)!r} is no folder; {_HELP}")
    repository = _made(config, paths, here, scope, options)
    request.node.stash[_repository] = repository
    try:
        yield repository
    finally:
        if scope == "session":
            repository.reset()
        else:
            repository.close()


def _refuse(told: str) -> NoReturn:
    pytest.fail(f"triton_repository: {told}", pytrace=False)


def _made(
    config: pytest.Config, paths: list[Path], here: Path, scope: str, options: dict[str, Any]
) -> RepositoryUnderTest:
    from bls_notebook.testing import RepositoryUnderTest

    key = (tuple(paths), repr(sorted(options.items())))
    repository = config.stash[_shared].get(key) if scope == "session" else None
    if repository is None:
        try:
            repository = RepositoryUnderTest(*paths, servers=_servers_of(config), **options)
        except (TypeError, ValueError) as error:  # options of the marker
            told = str(error).replace("ModelRepository.__init__() ", "")
            raise pytest.fail.Exception(f"triton_repository: {told}", pytrace=False) from None
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
    """A folder from that of the test's file, or else from the root of all tests."""
    return here / path if (here / path).is_dir() else root / path


def _fill(config: pytest.Config) -> dict[str, str]:
    lines = [line.partition("=") for line in config.getini("triton_fill")]
    if any(not sign for _, sign, _ in lines):
        _refuse("triton_fill: expected lines of key=value")
    return {key.strip(): value.strip() for key, _, value in lines}


@pytest.hookimpl(hookwrapper=True)  # as older versions of pytest know it too
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Tell of the errors and calls of models where a test failed."""
    repository = item.stash.get(_repository, None)
    if repository is not None and call.excinfo is not None and not item.config.getoption("fulltrace"):
        _shorten(call.excinfo)
    report: pytest.TestReport = (yield).get_result()
    if repository is not None and report.when == "call" and report.failed:
        try:
            told = repository.failure_text(str(call.excinfo.value) if call.excinfo else "")
        except Exception as error:  # the test's own failure is what counts
            told = f"what models did cannot be told: {error!r}"
        if told:
            report.sections.append(("Triton models", told))
        if any(_QUIT in span.error for span in repository.session.spans):
            item.session.shouldstop = "the debugger was quit"
    if report.when == "teardown" and repository is not None:
        del item.stash[_repository]


def _shorten(excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Hide the package's own lines, where the test or a model is what there is to mend."""
    from bls_notebook import BLSError

    for frame, _ in traceback.walk_tb(excinfo.tb):
        if _is_ours(frame):
            frame.f_globals["__tracebackhide__"] = _hides
    if isinstance(excinfo.value, BLSError):
        excinfo.value.__cause__ = None  # its words have what there is to know


def _hides(excinfo: pytest.ExceptionInfo[BaseException] | None) -> bool:
    from bls_notebook import BLSError

    if excinfo is None or isinstance(excinfo.value, (BLSError, AssertionError)):
        return True
    *_, (last, _) = traceback.walk_tb(excinfo.tb)
    return not _is_ours(last)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith("bls_notebook.")
