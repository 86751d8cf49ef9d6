"""Models with other instance counts, or other batches, for a while; as they were afterwards.

Guarantees: the versions that serve are set aside, not unloaded, and serve again at the end: with the same
instances and what these remember, also on an error and on Ctrl-C, and where the files on disk have changed
or the model could not be loaded a second time. Whatever somebody else loaded meanwhile stays.
One at a time of a model, or one within the other: the last to begin has to end first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bls_notebook.engine.errors import BLSError, ModelLoadError
from bls_notebook.engine.waiting.ctrl_c import CtrlC

from .loading.loader import load_versions
from .repository import ModelRepository
from .source.model_source import ModelSource


@contextmanager
def with_instances(repository: ModelRepository, models: Iterable[str], count: int) -> Iterator[None]:
    """Have other instances of models serve, with an instance count; those that serve now do so again after.

    Of several instance groups the first is kept. Where a model cannot be loaded with so many, all are
    as they were.
    """
    with with_fields(repository, {name: with_count(repository, name, count) for name in models}):
        yield


def with_count(repository: ModelRepository, name: str, count: int) -> dict[str, Any]:
    """Return the field of a model's configuration that gives it another instance count, for `with_fields`."""
    group = _plain(repository, name).get("instance_group") or [{}]
    return {"instance_group": [{**group[0], "count": count}]}


@contextmanager
def with_fields(repository: ModelRepository, changes: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Have models serve with other fields in their configurations, None for none; see `with_instances`."""
    # Within this, Ctrl-C ends models and waits, and nothing between them.
    with CtrlC(), ExitStack() as stack:
        for name, fields in changes.items():
            stack.enter_context(_other(repository, name, fields))
        yield


def _plain(repository: ModelRepository, name: str) -> dict[str, Any]:
    from google.protobuf.json_format import MessageToDict  # heavy, and first needed here

    config: dict[str, Any] = MessageToDict(repository.config(name), preserving_proto_field_name=True)
    return config


@contextmanager
def _other(repository: ModelRepository, name: str, fields: Mapping[str, Any]) -> Iterator[None]:
    server = repository._server
    config = {**_plain(repository, name), **fields}
    config = {field: value for field, value in config.items() if value is not None}
    with repository._catalog.service.lock_of(name):
        serving = server.own(name)
        folder = Path(next(iter(serving.values())).directory).parent
        try:
            loaded = load_versions(server, ModelSource(name, folder, str(folder), config, True))
        except (OSError, ModelLoadError) as error:
            if folder.is_dir():
                raise
            count = sum(group.get("count", 1) for group in config.get("instance_group", ()))
            raise BLSError(f"model {name!r} cannot be loaded with {count} instances: {error}") from error
        for version in loaded.keys() - serving.keys():
            loaded.pop(version).close()
        server.exchange(name, loaded)
    try:
        yield
    finally:
        with repository._catalog.service.lock_of(name):
            if server.own(name) == loaded:
                server.replace(name, serving)
            else:
                stay = server.own(name).values()
                for model in (*serving.values(), *loaded.values()):
                    if model not in stay:
                        model.close()
