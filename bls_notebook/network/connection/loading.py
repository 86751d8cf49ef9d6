"""Loads the versions of a model that a server elsewhere runs: its configuration, and no code.

What a request may be is for the server to say, which knows its models as they are now; nothing is checked
here.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

from bls_notebook.backends.errors import BackendError
from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.server import Server
from bls_notebook.engine.core.spec import InstanceSpec
from bls_notebook.engine.errors import ModelLoadError
from bls_notebook.engine.schedulers.choose import scheduler_for
from bls_notebook.engine.tensors.request_check import RequestCheck
from bls_notebook.engine.waiting.ctrl_c import may_be_interrupted
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.repository.config import ModelConfigMessage, model_config_class, model_spec, parse_json
from bls_notebook.repository.source.model_source import ModelSource

from . import Link, RemoteError, RemoteInstance, RemoteModel, RemoteServer
from .described import config_of_metadata

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
            f"model {name!r} is remote, and its configuration is its server's ({remote.server.address}); "
            "change it there",
            name,
        )
    try:
        link = taken(remote.server)
    except BackendError as error:
        raise ModelLoadError(f"model {name!r}: {error}", name) from error
    try:
        metadata = link.metadata(remote.name, "")
        config = _config(link.config(remote.name, ""), metadata, remote.name)
        config.name = name
        versions = metadata["versions"]
        numbers = sorted(int(v) for v in versions if v.isascii() and v.isdigit() and int(v) > 0) or [1]
        # The newest is asked for without its number, so that one which takes its place there is found.
        asked = {number: "" if number == numbers[-1] else str(number) for number in numbers}
        return {n: _loaded(server, link, remote.name, config, n, asked[n]) for n in numbers}
    except RemoteError as error:
        where = "" if error.lost else f"{link.address}: "
        raise ModelLoadError(f"model {name!r} at {where}{error}", name) from error
    finally:
        link.release()


def taken(server: RemoteServer) -> Link:
    """Return the link of a server, to be released; Ctrl-C gets through where it waits."""
    link = server.take()
    for function in link.waits:
        may_be_interrupted(function.__code__, waits=True)
    return link


def _config(given: Any, metadata: Any, name: str) -> ModelConfigMessage:
    if isinstance(given, bytes):
        return model_config_class().FromString(given)
    document = config_of_metadata(name, metadata) if given is None else given
    return parse_json(document, model=name, source="the server's configuration", newer=True)


def _loaded(
    server: Server, link: Link, there: str, config: ModelConfigMessage, number: int, asked: str
) -> LoadedModel:
    address = str(link.address)
    plain = deepcopy(config)  # its tensors as clients send them: reshaping is the server's
    for tensor in (*plain.input, *plain.output):
        tensor.ClearField("reshape")
    whole = model_spec(config)
    instance = InstanceSpec(address, "CPU", 0)
    spec = replace(model_spec(plain), config=config, json=whole.json, instances=(instance,), instance_kind="")
    backend = RemoteInstance(link, there, asked, spec.decoupled, tuple(spec.outputs))
    made = Instance(address, backend, DEVICE, spec=instance)
    model = LoadedModel(server, spec, number, "", [made], remote=address)
    model.be(replace(model.seen, instances=()))  # it takes any number at a time
    model.cpu_only = True
    model.check = _ServerChecks(spec)
    model.scheduler = scheduler_for(model)
    return model
