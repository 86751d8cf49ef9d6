"""`Regrouping`: other instance groups for a version that serves, without loading it again.

Guarantees: an instance whose like is wanted still (the same in all but the name and count of its group) stays
as it is, with what it remembers; only the others come and go. Nothing that serves changes before `commit`.

Mirrors core/src/backend_model.cc (UpdateInstanceGroup, PrepareInstances): of instances that are alike the
last stays, under the name that it has, and new ones are told the configuration of the first load.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from copy import deepcopy
from dataclasses import replace

from bls_notebook.engine.core.instance import Instance
from bls_notebook.engine.core.model import LoadedModel
from bls_notebook.engine.core.spec import InstanceSpec, ModelSpec
from bls_notebook.repository.config import ModelConfigMessage, model_spec
from bls_notebook.repository.source.model_source import ModelSource

from .instance_maker import InstanceMaker
from .warmup import warm_up


def regrouped_spec(spec: ModelSpec, config: ModelConfigMessage) -> ModelSpec | None:
    """Return the spec of a version with the instance groups of another configuration; None for the same."""
    new = deepcopy(spec.config)
    del new.instance_group[:]
    new.instance_group.extend(config.instance_group)
    return None if new == spec.config else replace(model_spec(new), json=spec.json)


class Regrouping:
    """Instances for a version that serves: some that it has, and new ones, made and warmed up.

    Where the model raises something, nothing is left of the new ones.
    """

    def __init__(self, model: LoadedModel, spec: ModelSpec, source: ModelSource) -> None:
        self.model = model
        self._spec = spec
        self._maker: InstanceMaker = model.maker
        there: dict[object, list[Instance]] = defaultdict(list)
        for instance in (*model.instances, *model.passive):
            there[instance.spec.like].append(instance)
        kept: list[Instance] = []
        missing: list[InstanceSpec] = []
        for wanted in spec.instances:
            alike = there[wanted.like]
            if alike:
                kept.append(alike.pop())
            else:
                missing.append(wanted)
        self._new = self._maker.make(missing, spec.json)
        self._instances = [*kept, *self._new]
        try:
            warm_up(model, [i for i in self._new if not i.spec.passive], source.folder)
        except BaseException:
            self.undo()
            raise

    def undo(self) -> None:
        self._maker.give_up(self._new)

    def commit(self) -> threading.Event:
        """Serve with these instances; see `LoadedModel.regroup`."""
        self._maker.taken(self.model)
        return self.model.regroup(self._spec, self._instances)
