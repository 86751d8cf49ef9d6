"""Loads the versions of a model on a remote server: its configuration, and no code.

The server checks requests; it knows its models as they are now. Nothing is checked here.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

from bls_notebook.backends.remote import RemoteBackend
from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.server import Server
from bls_notebook.engine.core.spec import InstanceSpec
from bls_notebook.engine.errors import ModelLoadError
from bls_notebook.engine.schedulers.selection import scheduler_for
from bls_notebook.engine.tensors.request_check import RequestCheck
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.repository.config import ModelConfigMessage, model_spec
from bls_notebook.repository.source.model_source import ModelSource, RemoteModel

DEVICE = "remote"


class _ServerChecks(RequestCheck):
    """Leaves it to the server to check a request."""

    __slots__ = ()

    def problem(self, request: InferenceRequest) -> str | None:
        """Find nothing wrong."""
        return None


def load_remote(server: Server, source: ModelSource, remote: RemoteModel) -> dict[int, LoadedModel]:
    """Return the versions of a model that its server has ready, by number."""
    name = source.name
    if source.config is not None:
        raise ModelLoadError(
            f"model {name!r} is remote, and its configuration is its server's ({remote.address}); change it there", name
        )
    with remote.described(name) as model:
        model.config.name = name
        return {
            number: _loaded(server, remote.address, model.config, number, open_version)
            for number, open_version in model.open.items()
        }


def _loaded(
    server: Server,
    address: str,
    config: ModelConfigMessage,
    number: int,
    open_version: Callable[[bool, tuple[str, ...]], RemoteBackend],
) -> LoadedModel:
    plain = deepcopy(config)  # its tensors as clients send them: reshaping is the server's
    for tensor in (*plain.input, *plain.output):
        tensor.ClearField("reshape")
    whole = model_spec(config)
    instance = InstanceSpec(address, "CPU", 0)
    spec = replace(model_spec(plain), config=config, json=whole.json, instances=(instance,), instance_kind="")
    backend = open_version(spec.decoupled, tuple(spec.outputs))
    made = Instance(address, backend, DEVICE, spec=instance)
    model = LoadedModel(server, spec, number, "", [made], remote=address)
    model.be(replace(model.seen, instances=()))  # it takes any number at a time
    model.cpu_only = True
    model.check = _ServerChecks(spec)
    model.scheduler = scheduler_for(model)
    return model
