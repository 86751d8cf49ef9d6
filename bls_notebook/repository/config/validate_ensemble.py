"""What Triton refuses of an ensemble by itself: the flow of tensors through its steps.

Whether the steps' models exist and agree on data types and shapes can only be told once those are loaded.
What is wrong is said in the words of the server's log, with what to do after them.
"""

from __future__ import annotations

from collections.abc import Iterator

from .proto import ModelConfigMessage


def ensemble_problems(config: ModelConfigMessage) -> Iterator[str]:
    """Yield what keeps the tensors of an ensemble from being each written once, and used."""
    steps = config.ensemble_scheduling.step
    if config.platform != "ensemble":
        yield 'ensemble_scheduling is only for ensembles; set platform: "ensemble", and no backend'
    if config.instance_group:
        yield (
            f"instance group should not be specified for ensemble '{config.name}'; leave it out (its members "
            "have their own)"
        )
    for name, given in (
        ("optimization", config.HasField("optimization")),
        ("model_warmup", len(config.model_warmup)),
    ):
        if given:
            yield f"an ensemble has no {name}; leave it out (its members have their own)"
    if not steps:
        yield f"must specify 'step' for ensemble '{config.name}'; add one for each model"
    writers: dict[str, int] = {}  # the step that writes each tensor
    for number, step in enumerate(steps):
        where = f"step {number} of ensemble '{config.name}'"
        if not step.model_name:
            yield f"must specify 'model_name' in {where}; name the model that it runs"
        for which in ("input", "output"):
            if not getattr(step, f"{which}_map"):
                yield (
                    f"must specify '{which}_map' in {where}; map the {which}s of '{step.model_name}' to "
                    "tensors of the ensemble"
                )
        for tensor in step.output_map.values():
            if tensor in writers:
                yield (
                    f"ensemble tensor '{tensor}' can appear in an output map only once for ensemble "
                    f"'{config.name}' step {number}; step {writers[tensor]} writes it too: give each output "
                    "a name of its own"
                )
            writers[tensor] = number
    yield from _of_flow(config, writers)


def _of_flow(config: ModelConfigMessage, writers: dict[str, int]) -> Iterator[str]:
    steps = config.ensemble_scheduling.step
    read = {tensor for step in steps for tensor in step.input_map.values()}
    inputs = [tensor.name for tensor in config.input]
    outputs = [tensor.name for tensor in config.output]
    unused = f"for ensemble {config.name}' is not used"  # with one quote, as there
    for name in inputs:
        if name not in read and name not in writers:
            yield f"ensemble input '{name}' {unused}; use it in an input_map, or leave it out"
    for name in outputs:
        if name not in read and name not in writers:
            yield f"ensemble output '{name}' {unused}: no step writes it; add it to an output_map"
    ready = set(inputs)
    waiting = list(range(len(steps)))
    while runnable := [n for n in waiting if ready.issuperset(steps[n].input_map.values())]:
        waiting = [n for n in waiting if n not in runnable]
        for number in runnable:
            ready.update(steps[number].output_map.values())
    for name in outputs:
        if name not in ready:
            lacking = _lacking(config, name, writers, ready)
            why = f": at least one of its depending tensors, '{lacking}', is not connected"
            why = why if lacking != name else ""
            yield (
                f"output '{name}' for ensemble '{config.name}' is not written{why}; "
                "connect it to an input or to a step's output"
            )
    for name in sorted((read | writers.keys()) - set(outputs)):
        if name not in ready or name not in read:
            what = "is written but never used" if name in ready else "is never written"
            yield (
                f"ensemble tensor '{name}' is unused in ensemble '{config.name}': it {what}; connect it, or "
                "leave it out"
            )


def _lacking(config: ModelConfigMessage, name: str, writers: dict[str, int], ready: set[str]) -> str:
    """Follow a tensor that is never written back to the first one that nothing provides."""
    seen = {name}
    while name in writers:
        step = config.ensemble_scheduling.step[writers[name]]
        back = [t for t in sorted(step.input_map.values()) if t not in ready and t not in seen]
        if not back:
            break
        name = back[0]
        seen.add(name)
    return name
