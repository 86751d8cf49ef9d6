"""`RepositoryUnderTest`: a repository for a test; it loads models on first use and records their requests."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import shutil
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from bls_notebook.engine import BLSError
from bls_notebook.extending import Host
from bls_notebook.pb_utils import Tensor
from bls_notebook.records import MAX_CONFIG, ErrorRecord, ModelRecord, read_file, source_text
from bls_notebook.repository import ModelRepository, Response, members_of_source
from bls_notebook.repository.config import parse_config, to_json, to_pbtxt
from bls_notebook.repository.source import check_model_name

from .assertions import Assertions
from .recorded_calls import RecordedCalls
from .triton_servers import Servers, skipping

if TYPE_CHECKING:
    from bls_notebook.repository import ModelStub

    _Repository = ModelRepository  # for type checkers; `__getattr__` gives its methods
else:
    _Repository = object

_MOST_ERRORS = 20
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _takes_arguments_of(
    function: Callable[Concatenate[Any, _Arguments], object],
) -> Callable[[Callable[..., _Result]], Callable[Concatenate[Any, _Arguments], _Result]]:
    """Give the decorated method, which passes its arguments to `function`, the signature of `function`."""
    parameters = list(inspect.signature(function).parameters.values())

    def decorate(method: Callable[..., _Result]) -> Callable[Concatenate[Any, _Arguments], _Result]:
        annotation = method.__annotations__.get("return")
        method.__signature__ = inspect.Signature(parameters, return_annotation=annotation)  # type: ignore[attr-defined]
        return method

    return decorate


def _link(file: str, place: str) -> None:
    """Link a file: with a link, coverage counts the original file."""
    try:
        os.symlink(file, place)
    except OSError:  # Windows lets only some users create links
        shutil.copy2(file, place)


class RepositoryUnderTest(Assertions, _Repository):
    """A `ModelRepository` for a test, with assertions on its requests.

    It has all methods and attributes of its ``repository``. The first request to a model of the folders loads it,
    whether the test or a model sends it; a stubbed model is not loaded. Every request is recorded.

    Parameters
    ----------
    *paths : str or Path
        Folders in Triton's layout.
    here : str or Path
        The folder of snapshots.
    update_snapshots : bool
        Whether to write snapshots instead of comparing them.
    servers : Servers, optional
        Sends the test's requests to a real tritonserver; by default the models run in this process.
    **options
        Options of `ModelRepository`: ``fill``, ``strict``, ``backend_directory`` ...

    Examples
    --------
    >>> def test_page(triton_repository):
    ...     with triton_repository.stub("resize", {"OUT": image}):
    ...         answer = triton_repository.infer("page", {"IN": image})
    ...     assert answer.error is None
    ...     triton_repository.assert_called("resize", 1, caller="page")
    """

    def __init__(
        self,
        *paths: str | Path,
        here: str | Path = ".",
        update_snapshots: bool = False,
        servers: Servers | None = None,
        **options: Any,
    ) -> None:
        self._servers = servers
        self._errors: list[ErrorRecord] = []
        self._loads: dict[str, int] = {}
        self._warned: list[tuple[str, str]] = []
        self._files: Path | None = None  # a folder with links to the models of `load_file`
        self.here = Path(here)
        self.update_snapshots = update_snapshots
        self.repository = ModelRepository(*paths, **options)
        self._host = Host(self.repository)
        self._profile = RecordedCalls()
        known = self._served = set[str]()
        self._host.before_serving(lambda versions: known.update(model.name for model in versions.values()))
        mine = weakref.ref(self)
        self._host.on_missing(lambda name: _load_missing(mine(), name))
        self.forget()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name == "repository":  # its constructor failed
                raise AttributeError(name)
            return getattr(self.repository, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self.repository)})

    def __enter__(self) -> RepositoryUnderTest:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self.repository)

    @property
    def strict(self) -> bool:
        """True if warnings fail the request; may be set at any time."""
        return self.repository.strict

    @strict.setter
    def strict(self, value: bool) -> None:
        self.repository.strict = value

    def load_file(self, path: str | Path, config: str | Mapping[str, Any] | None = None, name: str = "") -> ModelRecord:
        """Load a model by the path of its model.py, in any folder; the model sees the files beside it.

        Parameters
        ----------
        path : str or Path
            The file ``model.py``.
        config : str or dict, optional
            Replaces config.pbtxt. Default: config.pbtxt of the model's folder or, else, beside model.py.
        name : str
            The model's name. Default: the name of its folder; for a version folder, of the folder above.
        """
        file = Path(path).resolve()
        if not file.is_file():
            raise BLSError(f"load_file: {str(path)!r} is no file; expected the path of a model.py")
        in_version = file.parent.name.isdigit()
        folder = file.parent.parent if in_version else file.parent
        name = name or folder.name
        check_model_name(name)
        if any((path / name).resolve() == folder for path in self.paths):  # it is in the repository
            return self.repository.load(name, None if config is None else to_json(parse_config(config, model=name)))
        if self._files is None:
            self._files = self._host.add_folder(self._host.add_folder())
        place = self._files / name
        if not place.exists():
            version = place / (file.parent.name if in_version else "1")
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(file.parent, version, ignore=ignore, copy_function=_link, ignore_dangling_symlinks=True)
        text = "" if config is None else to_pbtxt(parse_config(config, model=name))
        for config_file in (folder / "config.pbtxt", file.parent / "config.pbtxt"):
            if not text and config_file.is_file():
                text = read_file(config_file, MAX_CONFIG).decode()
        if text:
            (place / "config.pbtxt").write_text(text, encoding="utf-8")
        return self.repository.load(name)

    def _need(self, name: object, needed: frozenset[str] = frozenset()) -> None:
        """Load a model of the folders, after its callees."""
        if not isinstance(name, str) or name in needed:
            return
        if self.repository.ready(name) or self._host.versions(name, own=True):
            return
        unloaded = any(
            record.name == name and record.reason == "unloaded" for record in self.repository.index(folders=False)
        )
        if unloaded or not any((path / name).is_dir() for path in self.paths):
            return  # the request's error names the remedy
        source = self._host.source(name)
        called = set(members_of_source(source))
        if self._servers is not None:  # a server needs all callees at its start; here the first request loads one
            files = [*source.folder.rglob("*.py"), *source.folder.glob("config.pbtxt")]
            called |= self._named("".join(map(source_text, files)))
        for callee in sorted(called):
            self._need(callee, needed | {name})
        self.repository.load(name)

    def _named(self, text: str) -> set[str]:
        """Return the models of the folders that a text names in quotes."""
        folders = {folder.name for path in self.paths for folder in path.iterdir() if folder.is_dir()}
        return folders.intersection(re.findall(r"""["']([^"'\n]+)["']""", text))

    @_takes_arguments_of(ModelRepository.infer)
    def infer(self, *arguments: Any, **options: Any) -> Response:
        """Send a request and wait for the response, like `ModelRepository.infer`."""
        if (server := self._before(arguments, options)) is not None:
            return self._noted(server.infer(self.repository, *arguments, **options))
        return self._noted(self.repository.infer(*arguments, **options))

    @_takes_arguments_of(ModelRepository.infer)
    async def infer_async(self, *arguments: Any, **options: Any) -> Response:
        """Send a request and await the response, like `infer`."""
        if (server := self._before(arguments, options)) is not None:
            return self._noted(await asyncio.to_thread(server.infer, self.repository, *arguments, **options))
        return self._noted(await self.repository.infer_async(*arguments, **options))

    @_takes_arguments_of(ModelRepository.infer)
    def stream(self, *arguments: Any, **options: Any) -> Iterator[Response]:
        """Send a request to a decoupled model and iterate over its responses, like `ModelRepository.stream`."""
        if (server := self._before(arguments, options)) is not None:
            return map(self._noted, server.stream(self.repository, *arguments, **options))
        return map(self._noted, self.repository.stream(*arguments, **options))

    @_takes_arguments_of(ModelRepository.infer)
    async def stream_async(self, *arguments: Any, **options: Any) -> AsyncIterator[Response]:
        """Send a request to a decoupled model and await its responses, like `stream`."""
        if (server := self._before(arguments, options)) is not None:
            for response in server.stream(self.repository, *arguments, **options):
                yield self._noted(response)
            return
        async for response in self.repository.stream_async(*arguments, **options):
            yield self._noted(response)

    def _before(self, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Servers | None:
        """Load the model if necessary; return the servers to send its request to, None for this process."""
        name = arguments[0] if arguments else options.get("name")
        self._need(name)
        if self._servers is not None:  # an input may name a callee
            inputs = arguments[1] if len(arguments) > 1 else options.get("inputs") or {}
            texts = [np.asarray(value) for value in inputs.values() if not isinstance(value, Tensor)]
            for callee in self._named(" ".join(repr(a.tolist()) for a in texts if a.dtype.kind in "OSU")):
                self._need(callee)
        return self._servers if isinstance(name, str) and self.repository.ready(name) else None

    def _noted(self, response: Response) -> Response:
        if response.error is not None and len(self._errors) < _MOST_ERRORS:
            error = response.record.error
            if error is not None:
                self._errors.append(error)
        warnings = response.warnings[1:] if response.stubs else response.warnings  # the first one names the stubs
        self._warned += [(response.model, warning) for warning in warnings]
        return response

    def reset(self) -> None:
        """Prepare for the next test: unload everything except unchanged models of the folders."""
        self.repository.clear(keep_folders=True)
        self._end_profile()

    @_takes_arguments_of(ModelRepository.stub)
    def stub(self, *arguments: Any, **options: Any) -> ModelStub:
        """Substitute a stub for a model, like `ModelRepository.stub`."""
        if self._servers is not None:
            skipping("a server's models cannot be stubbed")
        return self.repository.stub(*arguments, **options)

    def close(self, seconds: float = 5.0) -> None:
        """Close the repository, like `ModelRepository.close`."""
        self._end_profile()
        self.repository.close(seconds)


def _load_missing(repository: RepositoryUnderTest | None, name: str) -> str:
    """Load a callee on its first request; return the error message, or an empty string."""
    try:
        if repository is not None:
            begin = time.perf_counter_ns()
            repository._need(name)
            if repository.repository.ready(name):
                repository._loads[name] = time.perf_counter_ns() - begin
    except BLSError as error:
        return str(error)
    return ""
