"""One version of a model that is stood in for, while it loads; its own code is asked where that can be."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping

from bls_notebook.backends.protocol import BackendInstance, BackendModel, VersionFiles
from bls_notebook.pb_utils.model_config import ModelConfig
from bls_notebook.records.visible import first_line

from .answering import AnsweringInstance
from .how import Stub
from .instance import StubInstance

log = logging.getLogger("bls_notebook")


def stub_instance(stub: Stub, arguments: Mapping[str, str]) -> BackendInstance:
    """Return an instance of a stub; `arguments` are those of a Python model's `initialize`."""
    if stub.make is not None:
        return stub.make(arguments)
    config = json.loads(arguments["model_config"])
    if stub.answers is None:
        return StubInstance(config, stub)
    name, version = arguments["model_instance_name"], int(arguments["model_version"])
    return AnsweringInstance(config, stub, stub.answers, name, version)


class StubModel:
    """One version of a model that is stood in for."""

    def __init__(self, stub: Stub, files: VersionFiles) -> None:
        self._stub = stub
        self._own: BackendModel | None = None
        if stub.asks is not None:
            try:
                self._own = stub.asks(files)
            except (Exception, SystemExit) as error:
                log.debug("model '%s' cannot be asked for its configuration: %s", files.name, error)

    @property
    def auto_complete_config(self) -> Callable[[ModelConfig], ModelConfig] | None:
        """The model's own, None where it has none or could not be opened."""
        own = None if self._own is None else self._own.auto_complete_config
        if own is None:
            return None

        def complete(config: ModelConfig) -> ModelConfig:
            before = json.dumps(config.as_dict())
            try:
                return own(config)
            except (Exception, SystemExit) as error:
                log.warning("auto_complete_config failed: %s", first_line(str(error)))
                return ModelConfig(before)

        return complete

    def make_instance(self, arguments: dict[str, str]) -> BackendInstance:
        self._own = None
        return stub_instance(self._stub, arguments)
