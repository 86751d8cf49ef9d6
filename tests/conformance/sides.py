"""The same request to both sides, and what they answered in a form that can be compared."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

import bls_notebook as bls
from bls_notebook.engine.errors import BLSError
from bls_notebook.shipping.proof.proof_script import normal
from bls_notebook.shipping.servers.server_programs import TritonServerError
from bls_notebook.shipping.servers.tritonserver import TritonRequestError, TritonServer

__all__ = ["Answer", "Sides", "normal", "without_newer"]

SECONDS = 60.0  # a server that has not answered by then will not
# Fields of a configuration that newer servers have, and this one does not.
NEWER = {"max_inflight_requests"}


@dataclass(frozen=True)
class Answer:
    """Outputs, or an error."""

    outputs: dict[str, np.ndarray[Any, Any]]
    error: str | None = None
    version: int = 0
    request_id: str = ""
    parameters: str = "{}"

    def as_text(self) -> Any:
        """Everything, in a form that is equal only where every bit is."""
        if self.error is not None:
            return normal(self.error)
        outputs = {
            name: (str(a.dtype), a.shape, a.ravel().tolist() if a.dtype.kind == "O" else a.tobytes())
            for name, a in self.outputs.items()
        }
        return outputs, self.version, self.request_id, self.parameters


class Sides:
    """Here, and a real server.

    The server dies, or stops answering, at random of some errors that it ought to report; then it is started
    again, twice for a request, and asked again.
    """

    def __init__(self, here: bls.ModelRepository, real: TritonServer) -> None:
        self.here = here
        self.real = real
        self._reviving = threading.Lock()

    def on_real(self, action: Callable[[], Any], again: int = 2) -> Any:
        """Do something with the server, and again where it died of it, or does not answer."""
        before = self.real.pid
        try:
            return action()
        except TritonRequestError:
            raise
        except TritonServerError as error:
            if not again:
                raise
            with self._reviving:
                if self.real.pid is None or (self.real.pid == before and "did not answer" in str(error)):
                    self.real.stop(graceful=False)
                    self.real.start()
                elif self.real.pid == before:
                    raise
        return self.on_real(action, again - 1)

    def ask_here(self, model: str, inputs: Mapping[str, Any], **more: Any) -> Answer:
        response = self.here.infer(model, inputs, **more)
        if response.error is not None:
            return Answer({}, response.error.message())
        # what a web client gets: BYTES without regard to how the model had written them
        return Answer(
            response.as_numpy(),
            None,
            response.version,
            response.request_id,
            json.dumps(response.parameters(), sort_keys=True),
        )

    def ask_real(self, model: str, inputs: Mapping[str, Any], **more: Any) -> Answer:
        try:
            result = self.on_real(lambda: self.real.infer(model, inputs, wait=SECONDS, **more))
        except TritonRequestError as error:
            return Answer({}, str(error))
        parameters = json.dumps(result.parameters, sort_keys=True)
        return Answer(result.as_numpy(), None, int(result.version), result.request_id, parameters)

    def same(self, model: str, inputs: Mapping[str, Any], close: bool = False, **more: Any) -> Answer:
        """Ask both, and fail where they disagree.

        Parameters
        ----------
        close : bool
            Floats need only be close: the two have different versions of NumPy and scikit-learn.
        """
        here = self.ask_here(model, inputs, **more)
        real = self.ask_real(model, inputs, **more)
        if close and here.error is None and real.error is None:
            assert here.outputs.keys() == real.outputs.keys()
            for name, wanted in real.outputs.items():
                got = here.outputs[name]
                assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
                if wanted.dtype.kind == "f":
                    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
                else:
                    np.testing.assert_array_equal(got, wanted)
        else:
            got, wanted = here.as_text(), real.as_text()
            assert got == wanted, f"\nhere {got}\nreal {wanted}"
        return here

    def same_report(self, model: str, inputs: Mapping[str, Any], **more: Any) -> Any:
        """As `same`, where the answer is a REPORT in JSON with errors inside, which are normalised too."""
        here, real = self.ask_here(model, inputs, **more), self.ask_real(model, inputs, **more)
        assert (here.error, real.error) == (None, None)
        assert here.outputs.keys() == real.outputs.keys()
        got, wanted = (_plain(json.loads(answer.outputs["REPORT"][0])) for answer in (here, real))
        assert got == wanted, f"\nhere {got}\nreal {wanted}"
        return got

    def same_load(self, name: str, config: Mapping[str, Any] | None = None) -> str | None:
        """Load a model on both; its error where both refuse it."""
        got = wanted = None
        text = None if config is None else json.dumps(config)
        try:
            self.on_real(lambda: self.real.load(name, text))
        except TritonRequestError as error:
            wanted = str(error)
        try:
            self.here.load(name, text)
        except BLSError as error:
            got = str(error)
        assert (got is None) == (wanted is None), f"here {got!r}, real {wanted!r}"
        return wanted

    def same_loads(self, configs: Mapping[str, Mapping[str, Any] | None]) -> dict[str, str | None]:
        """Load models on both at the same time; the error of each, None for those that both take."""
        while True:
            server = self.real.pid
            with ThreadPoolExecutor(len(configs)) as pool:
                errors = list(pool.map(self.same_load, configs, configs.values()))
            if self.real.pid == server:  # else it has been started again, without the models that it had
                return dict(zip(configs, errors, strict=True))


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return normal(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def without_newer(value: Any) -> Any:
    """A configuration without the fields that this server does not know."""
    if isinstance(value, dict):
        return {key: without_newer(item) for key, item in value.items() if key not in NEWER}
    return [without_newer(item) for item in value] if isinstance(value, list) else value
