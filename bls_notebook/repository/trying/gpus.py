"""GPUs for models that ask for one where there is none: simulated ones, and that is told."""

from __future__ import annotations

from collections.abc import Iterable

from bls_notebook.backends.registry import find_backend
from bls_notebook.devices.registry import MOST_GPUS, gpu_count, gpus
from bls_notebook.observe.quantities import listed
from bls_notebook.repository.config import ModelConfigMessage, model_config_pb2
from bls_notebook.repository.gpus import simulate_gpus, simulated_for

from .one import Plan


def ready_gpus(plans: Iterable[Plan]) -> tuple[str, ...]:
    """Simulate as many GPUs as models ask for, where there are none; return what there is to say of it."""
    wanted = [
        (plan.name, max(_asks_for(plan.config), int(plan.takes_cuda)))
        for plan in plans
        if plan.config is not None and _runs(plan)
    ]
    who = [name for name, count in wanted if count]
    if not who:
        return ()
    most = min(MOST_GPUS, max(count for _, count in wanted))
    if gpu_count() == 0:
        return (simulated_for(listed(who, 6), most),)
    found = gpus()
    if found is not None and found.simulated and found.count < most:
        simulate_gpus(most)
    return ()


def _runs(plan: Plan) -> bool:
    """Whether a model may turn out to be real."""
    return plan.may_run and (plan.runs_code or find_backend(plan.backend) is not None)


def _asks_for(config: ModelConfigMessage) -> int:
    """How many GPUs a configuration takes for granted; 0 where it does not ask for any."""
    gpu = model_config_pb2().ModelInstanceGroup.KIND_GPU
    groups = [group for group in config.instance_group if group.kind == gpu]
    return max((max(group.gpus, default=0) + 1 for group in groups), default=0)
