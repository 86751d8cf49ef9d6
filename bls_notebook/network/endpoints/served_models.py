"""The models of a repository for both protocols: inference, metadata, statistics, loading.

Nothing of a request reaches the file system but a model's name, which the repository checks, and the contents
of files that a model is loaded from instead of its own.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from bls_notebook.engine.calling import root_of
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.spec import TensorSpec
from bls_notebook.engine.errors import BLSError
from bls_notebook.engine.waiting.threads import start_in_thread
from bls_notebook.extending import Host
from bls_notebook.network.kserve.errors import INTERNAL, NOT_FOUND, UNSUPPORTED, ProtocolError, of_model, refuse
from bls_notebook.network.kserve.request import DecodedRequest
from bls_notebook.pb_utils import InferenceResponse
from bls_notebook.repository.repository import ModelRepository
from bls_notebook.repository.statistics import statistics_of

EXTENSIONS = (
    "classification", "sequence", "model_repository", "model_repository(unload_dependents)",
    "schedule_policy", "model_configuration", "system_shared_memory", "binary_tensor_data", "parameters",
    "statistics",
)  # fmt: skip
_Result = TypeVar("_Result")
_NOT_LOADED = "not loaded"  # what the index says of a model that nobody has asked for


class ServedModels:
    """The models of a repository, for clients."""

    def __init__(self, repository: ModelRepository) -> None:
        self.repository = repository
        self.host = Host(repository)

    def ready(self) -> bool:
        """Whether the repository is open."""
        return not self.repository.closed

    def find(self, name: str, version: str = "") -> LoadedModel:
        """Return a version that serves, by default the newest; ProtocolError in Triton's words if there is none."""
        number = version_of(version)
        model = self.host.find(name, number)
        if model is None:
            return self._refuse_unknown(name, number)
        return model

    def model_ready(self, name: str, version: str = "") -> bool:
        """Whether a version serves."""
        model = self.host.find(name, version_of(version))
        return model is not None and model.ready()

    def _refuse_unknown(self, name: str, number: int) -> NoReturn:
        what = "is not found"
        if number != -1:
            what = f"version {number} is not found"
        elif any(row.name == name and row.reason != _NOT_LOADED for row in self.repository.index()):
            what = "has no available versions"
        refuse(f"Request for unknown model: '{name}' {what}", NOT_FOUND)

    def about(self) -> dict[str, Any]:
        """Return the server's metadata."""
        # From the imported package: this module must not import it.
        version = str(sys.modules["bls_notebook"].__version__)
        return {"name": "bls_notebook", "version": version, "extensions": list(EXTENSIONS)}

    def metadata(self, name: str, version: str = "") -> dict[str, Any]:
        """Return a model's metadata."""
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
        """Return the statistics of each version that serves; of all models without a name."""
        number = version_of(version)
        if name and not self.host.versions(name):
            refuse(f"requested model '{name}' is not available")
        rows = [
            statistics_of(model)
            for each in ([name] if name else self.host.names())
            for at, model in sorted(self.host.versions(each).items())
            if number in (-1, at)
        ]
        if name and not rows:
            refuse(f"requested model version is not available for model '{name}'")
        return {"model_stats": rows}

    def index(self, ready: bool = False) -> list[dict[str, str]]:
        """Return the repository index, as Triton has it: of a model that was never loaded only its name."""
        rows = []
        for record in self.repository.index():
            if ready and record.state != "READY":
                continue
            if record.reason == _NOT_LOADED:
                rows.append({"name": record.name})
                continue
            row = {"name": record.name, "version": str(record.version), "state": record.state}
            rows.append({**row, "reason": record.reason} if record.reason else row)
        return rows

    # Loading takes as long as a model takes, so the fronts call these in a thread.

    def load(self, name: str, parameters: Mapping[str, str | bytes]) -> None:
        """Load a model that the repository has, or one of the given files.

        The parameters are ``config`` as JSON text, and ``file:<version>/<name>`` as bytes.
        """
        files = {key: value for key, value in parameters.items() if isinstance(value, bytes)}
        config = parameters.get("config")
        with _load_errors(name):
            self.repository.load(name, config or None, files or None)  # type: ignore[arg-type]

    def unload(self, name: str, unload_dependents: bool = False) -> None:
        """Unload a model; one that is not there is no error."""
        with _load_errors(name):
            self.repository.unload(name, unload_dependents)


@contextmanager
def _load_errors(name: str) -> Iterator[None]:
    """Raise errors of loading in Triton's words."""
    try:
        yield
    except BLSError as error:
        reason = getattr(error, "reason", "")
        polled = f"failed to load '{name}', failed to poll from model repository"
        if reason.startswith("explicit model load"):
            raise ProtocolError(reason, UNSUPPORTED) from None
        if not reason or reason == polled:
            raise ProtocolError(polled, INTERNAL) from None
        raise ProtocolError(reason) from None


def version_of(text: str) -> int:
    """Return the number of a version; -1 for no version."""
    if not text or text == "-1":
        return -1
    if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) <= 0:
        refuse(
            f"failed to get model version from specified version string '{text}' (details: stol), version "
            "should be an integral value > 0"
        )
    return int(text)


def _described(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


def send(call: DecodedRequest, stream: bool = False) -> Any:
    """Send a request; return an asyncio future of its response, or of its stream. Cancelling it cancels the request."""
    return root_of(call.model.server).async_exec(call.request(), stream, True)


def without_error(response: InferenceResponse) -> InferenceResponse:
    """Return a response; raise its error."""
    if response._error is not None:
        raise of_model(response._error)
    return response


def is_empty(response: InferenceResponse) -> bool:
    """Whether a response is only a final flag."""
    return not response._outputs and response._error is None


async def in_thread(function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Await a slow call in one of the engine's threads, which Python does not wait for at exit."""
    future: Future[_Result] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)

    start_in_thread(run)
    return await asyncio.wrap_future(future)
