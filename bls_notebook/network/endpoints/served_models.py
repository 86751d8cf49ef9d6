"""The operations of an endpoint on a repository's models, for both protocols: metadata, statistics, loading.

Only two parts of a request reach the file system: a model's name, which the repository checks, and the files
that a load request brings along.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar

from bls_notebook.engine import BLSError, LoadedModel, TensorSpec, root_of, start_in_thread, unknown_model
from bls_notebook.extending import Host
from bls_notebook.network.kserve.errors import (
    INTERNAL,
    INVALID,
    NOT_FOUND,
    UNAVAILABLE,
    ProtocolError,
    of_model,
    refuse,
)
from bls_notebook.network.kserve.request import DecodedRequest
from bls_notebook.pb_utils import InferenceResponse
from bls_notebook.repository import ModelRepository, statistics_of

EXTENSIONS = (
    "classification", "sequence", "model_repository", "model_repository(unload_dependents)",
    "schedule_policy", "model_configuration", "system_shared_memory", "binary_tensor_data", "parameters",
    "statistics", "trace", "logging",
)  # fmt: skip
_Result = TypeVar("_Result")
_REASON = re.compile(r"^load failed for model '.*?': version \d+ is at UNAVAILABLE state: ", re.DOTALL)
_NUMBER = re.compile(r"\s*[+-]?\d{1,1000}", re.ASCII)
_NO_VERSION = "at least one version must be available"
_NOT_LOADED = "not loaded"  # the index's reason for a model on disk that was never loaded
_UNLOADED = "unloaded"  # its reason for a model that was unloaded: on request, or "unloaded: it needs ..."
_TWICE = "model appears in two or more repositories"


class ServedModels:
    """The models of a repository, as clients of an endpoint see them."""

    def __init__(self, repository: ModelRepository, strict_readiness: bool = True) -> None:
        self.repository, self._strict = repository, strict_readiness
        self.host = Host(repository)

    def ready(self) -> bool:
        """Return whether the server is ready; with strict readiness, each model that was not unloaded must be, too.

        May be slow, because models are asked: call it in a thread.
        """
        if self.repository.closed or not self._strict:
            return not self.repository.closed
        rows = [row for row in self.repository.index() if not row.reason.startswith((_NOT_LOADED, _UNLOADED))]
        return all(row.state == "READY" for row in rows) and all(
            model.ready() for name in self.host.model_keys() for model in self.host.versions(name).values()
        )

    def find(self, name: str, version: str = "") -> LoadedModel:
        """Return a loaded version, by default the newest; ProtocolError in Triton's words if there is none."""
        number = version_of(version)
        return self.host.find(name, number) or self._refuse_unknown(name, number)

    def model_ready(self, name: str, version: str = "") -> bool:
        """Return whether a version is ready, by default the newest; ProtocolError if there is none."""
        return self.find(name, version).ready()

    def _refuse_unknown(self, name: str, number: int) -> NoReturn:
        identifiers = self.host.identifiers(name)
        if identifiers is None or len(identifiers) != 1:
            refuse(self.host.why_unknown(name, number), NOT_FOUND if identifiers == [] else INVALID)
        known = [row.version for row in self.repository.index() if row.name == name and row.reason != _NOT_LOADED]
        refuse(unknown_model(identifiers[0], number, known), UNAVAILABLE if number in known else NOT_FOUND)

    def about(self) -> dict[str, Any]:
        """Return the server's metadata: Triton's name, for clients that check it, and ours as an extension."""
        # Looked up in sys.modules, because a capability must not import the package's root.
        version = str(sys.modules["bls_notebook"].__version__)
        return {"name": "triton", "version": version, "extensions": [*EXTENSIONS, "bls_notebook"]}

    def metadata(self, name: str, version: str = "") -> dict[str, Any]:
        spec = self.find(name, version).spec
        versions = sorted(self.host.versions(name)) if not version else [version_of(version)]
        config = spec.config
        return {
            "name": name,
            "versions": [str(number) for number in versions],
            "platform": config.platform or config.backend,
            "inputs": [_described(each) for each in spec.inputs.values()],
            "outputs": [_described(each) for each in spec.outputs.values()],
        }

    def statistics(self, name: str = "", version: str = "") -> dict[str, Any]:
        """Return the statistics of each loaded version of a model; without a name, of all models."""
        number = version_of(version)
        if name and not self.host.versions(name):
            refuse(f"requested model '{name}' is not available")
        rows = [
            statistics_of(model)
            for served in ([name] if name else self.host.model_keys())
            for version_number, model in sorted(self.host.versions(served).items())
            if number in (-1, version_number)
        ]
        if name and not rows:
            refuse(f"requested model version is not available for model '{name}'")
        return {"model_stats": rows}

    def index(self, ready: bool = False) -> list[dict[str, str]]:
        """Return the repository index in Triton's form.

        A model has only its name if it was never loaded, or if its load failed before a version was.
        """
        rows = []
        for record in self.repository.index():
            if ready and record.state != "READY":
                continue
            refused = record.server_reason if record.state == "UNAVAILABLE" else ""
            if refused and (record.source == "files" or _NO_VERSION in refused):
                continue  # a server lists folders, and versions
            if record.reason == _NOT_LOADED or (refused and not _REASON.search(refused)):
                rows.append({"name": record.name})
                continue
            reason = _REASON.sub("", refused).removesuffix(";\n") or record.reason
            row = {"name": record.name, "version": str(record.version), "state": record.state, "reason": reason}
            has_reason = record.reason and record.state != "UNLOADING"
            absent = ("version",) if record.reason == _TWICE else () if has_reason else ("reason",)
            rows.append({key: value for key, value in row.items() if key not in absent})
        return rows

    def load(self, name: str, parameters: Mapping[str, str | bytes]) -> None:
        """Load a model from the repository, or from the files in the request. Slow: call it in a thread.

        The parameters are ``config`` as JSON text, and ``file:<version>/<name>`` as bytes.
        """
        files = {key: value for key, value in parameters.items() if isinstance(value, bytes)}
        with _load_errors(name):
            self.repository.load(name, parameters.get("config") or None, files or None)  # type: ignore[arg-type]

    def unload(self, name: str, unload_dependents: bool = False) -> None:
        """Unload a model, if it is loaded; its requests finish later. Slow: call it in a thread."""
        with _load_errors(name):
            self.host.unload(name, unload_dependents)


@contextmanager
def _load_errors(name: str) -> Iterator[None]:
    """Turn errors of loading into ProtocolErrors with Triton's texts."""
    try:
        yield
    except BLSError as error:
        reason = getattr(error, "reason", "")
        polled = f"failed to load '{name}', failed to poll from model repository"
        if reason.startswith("explicit model load"):
            raise ProtocolError(reason, UNAVAILABLE) from None
        if not reason or reason == polled:
            raise ProtocolError(polled, INTERNAL) from None
        raise ProtocolError(reason) from None


def version_of(text: str) -> int:
    """Return the number of a version as C's `stol` reads it, up to the first other character; -1 for an empty text."""
    if not text:
        return -1
    number = _NUMBER.match(text)
    if number is None or abs(int(number[0])) >= 1 << 63:
        refuse(
            f"failed to get model version from specified version string '{text}' (details: stol), version "
            "should be an integral value > 0"
        )
    if int(number[0]) < 0:
        refuse(f"invalid model version specified '{text}' , version should be an integral value > 0")
    return int(number[0])


def _described(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


def send(call: DecodedRequest, stream: bool = False) -> Any:
    """Send a request; return an asyncio future of its response, or of its stream. Cancelling it cancels the request."""
    request = call.request()
    call.inputs = []  # the engine copies inputs that are referred to elsewhere
    return root_of(call.model.server).async_exec(request, stream, True)


def without_error(response: InferenceResponse) -> InferenceResponse:
    """Return a response, or raise its error as a ProtocolError."""
    if response._error is not None:
        raise of_model(response._error)
    return response


def is_empty(response: InferenceResponse) -> bool:
    """Return whether a response has neither outputs nor an error."""
    return not response._outputs and response._error is None


async def in_thread(function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Await a slow call in one of the engine's threads, which Python does not wait for at exit."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Result] = loop.create_future()

    def settle(settle_future: Callable[[Any], None], value: Any) -> None:
        if not future.done():  # not cancelled
            settle_future(value)

    def run() -> None:
        # Neither frames nor futures in cycles: they would keep large bodies until a garbage collection.
        try:
            call = future.set_result, function(*arguments)
        except Exception as error:
            error.__context__ = error.__cause__ = None
            call = future.set_exception, error.with_traceback(None)  # type: ignore[assignment]
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, *call)

    start_in_thread(run)
    return await future
