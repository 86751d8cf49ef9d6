"""What has a name in the models that are in service: where the search for who holds memory begins."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from bls_notebook.devices.allocation_log import owner_kinds
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.server import Server, servers
from bls_notebook.engine.description import ModelHome
from bls_notebook.engine.ticket import Ticket
from bls_notebook.engine.waiting.stream import TicketStream
from bls_notebook.pb_utils.iterator import ResponseIterator
from bls_notebook.pb_utils.request import InferenceRequest
from bls_notebook.pb_utils.response import InferenceResponse
from bls_notebook.pb_utils.tensor import Tensor

from .holders import ATOMS, SearchRoot, providers

DEFAULT_REMEDY = "repo.reload({name!r})"
_remedy = DEFAULT_REMEDY
owner_kinds.update(
    {
        Tensor: "tensor",
        InferenceRequest: "request",
        InferenceResponse: "response",
        ResponseIterator: "iterator",
        TicketStream: "iterator",
        Ticket: "request",
    }
)


def say_how_to_reload(remedy: str) -> None:
    """Set what is to be typed so that a model lets go of what it keeps; ``{name}`` stands for the model."""
    global _remedy
    _remedy = remedy


def model_roots() -> Iterator[SearchRoot]:
    """Yield the models in service: their instances, what their classes have, the globals of their files."""
    for server in list(servers):
        for name in server.names():
            yield from _of_model(server, name)


def _of_model(server: Server, name: str) -> Iterator[SearchRoot]:
    for loaded in server.serving(name).values():
        for instance in loaded.instances:
            loop = instance.event_loop
            if loop is not None:
                for task in asyncio.all_tasks(loop):
                    yield SearchRoot("frame", f"{instance.name}.execute()", task)
        yield from roots_of(loaded)


def roots_of(loaded: LoadedModel) -> Iterator[SearchRoot]:
    """Yield what a version keeps: its instances' models, what their classes have, globals of their files."""
    remedy = _remedy.format(name=loaded.name)
    for instance in loaded.instances:
        model = getattr(instance.backend, "model", None)
        if model is None:
            continue
        label = loaded.name if len(loaded.instances) == 1 else instance.name
        yield SearchRoot("attribute", label, model, remedy)
        for kind in type(model).__mro__[:-1]:
            for attribute, value in list(vars(kind).items()):
                if not attribute.startswith("__") and not issubclass(type(value), ATOMS):
                    yield SearchRoot("attribute", f"{label}.{attribute}", value, remedy)
        yield from _of_files(instance.modules, label, remedy)


def _of_files(home: ModelHome | None, label: str, remedy: str) -> Iterator[SearchRoot]:
    for modname, found in [] if home is None else list(home.modules.items()):
        file = modname.rpartition(".")[2]
        for variable, value in list(vars(found).items()):
            if not variable.startswith("__") and value is not home and not issubclass(type(value), ATOMS):
                yield SearchRoot("attribute", f"{label}/{file}.py: {variable}", value, remedy)


providers.append(model_roots)
