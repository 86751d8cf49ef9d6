"""Models with other instance counts for a while, as they were afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from google.protobuf.json_format import MessageToDict

from .repository import ModelRepository

__all__ = ["with_instances"]


@contextmanager
def with_instances(repository: ModelRepository, models: Iterable[str], count: int) -> Iterator[None]:
    """Load models again with an instance count; as they were at the end, also on an error or Ctrl-C.

    Parameters
    ----------
    repository : ModelRepository
    models : iterable of str
    count : int
        For ``instance_group { count }``; of several groups the first is kept.

    Raises
    ------
    BLSError
        A model cannot be loaded again; all are as they were then.
    """
    before: dict[str, dict[str, Any]] = {}
    try:
        for name in models:
            config = MessageToDict(repository.config(name), preserving_proto_field_name=True)
            before[name] = config
            groups = config.get("instance_group") or [{}]
            repository.load(name, {**config, "instance_group": [{**groups[0], "count": count}]})
        yield
    finally:
        for name, config in before.items():
            repository.load(name, config)
