"""Models with other instance counts for a while, as they were afterwards.

Guarantees: the versions that serve are set aside, not unloaded, and serve again at the end: with the same
instances and what these remember, also on an error and on Ctrl-C, and where the files on disk have changed
or the model could not be loaded a second time. Whatever somebody else loaded meanwhile stays.
One at a time of a model, or one within the other: the last to begin has to end first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    # Within this, Ctrl-C ends models and waits, and nothing between them.
    with CtrlC(), ExitStack() as stack:
        for name in models:
            stack.enter_context(_other_instances(repository, name, count))
        yield


@contextmanager
def _other_instances(repository: ModelRepository, name: str, count: int) -> Iterator[None]:
    server = repository._server
    from google.protobuf.json_format import MessageToDict  # heavy, and first needed here

    config: dict[str, Any] = MessageToDict(repository.config(name), preserving_proto_field_name=True)
    groups = config.get("instance_group") or [{}]
    config = {**config, "instance_group": [{**groups[0], "count": count}]}
    with repository._catalog.service.lock_of(name):
        serving = server.serving(name)
        folder = Path(next(iter(serving.values())).directory).parent
        try:
            loaded = load_versions(server, ModelSource(name, folder, str(folder), config, True))
        except (OSError, ModelLoadError) as error:
            if folder.is_dir():
                raise
            raise BLSError(f"model {name!r} cannot be loaded with {count} instances: {error}") from error
        for version in loaded.keys() - serving.keys():
            loaded.pop(version).close()
        server.exchange(name, loaded)
    try:
        yield
    finally:
        with repository._catalog.service.lock_of(name):
            if server.serving(name) == loaded:
                server.replace(name, serving)
            else:
                stay = server.serving(name).values()
                for model in (*serving.values(), *loaded.values()):
                    if model not in stay:
                        model.close()
