"""Check calls between models: missing callees and tensors, cycles, and calls of sequence models."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from bls_notebook.engine import BLSError, EnsemblePlan, ModelSpec
from bls_notebook.records import count, nearest
from bls_notebook.repository import check_members, members_of
from bls_notebook.repository.config import model_spec, pick_versions
from bls_notebook.repository.source import version_folders

from .array_types import KnownArray
from .checked_model import CheckedModel, data_type, full_shape
from .name_scope import TensorNames, last_name
from .python_source import CalleeRequest, PythonSource
from .records import Finding

Models = Mapping[str, CheckedModel]


def callee_findings(model: CheckedModel, models: Models, remote: Mapping[str, str]) -> Iterator[Finding]:
    """Yield problems with a model's callees or ensemble steps.

    `remote` has the server addresses of remote models, by model name.
    """
    if model.is_ensemble:
        yield from _step_findings(model, models, remote)
        return
    code = model.newest()
    if code is None or code.mistake:
        return
    if code.calls and any(sample.batch_size for sample in model.given.model_warmup):
        yield model.in_code("start-refused:warmup", code, code.calls[0].line)
    for call in code.calls:
        if call.model in remote:
            what = f"it calls {call.model!r}, a model on the server {remote[call.model]}"
            yield model.in_code("callee-remote", code, call.line, what=what)
        elif call.model:
            yield from _call_findings(model, code, call, models)


def _missing(name: str, models: Models, used: Iterable[str], outputs: Iterable[str]) -> str:
    """Return the remedy for a missing callee, of which its caller reads `outputs`.

    A name that its caller has or calls is not the one that it means, nor one of a model without these outputs.
    """
    fitting = {other for other, model in models.items() if not model.outputs or model.outputs.keys() >= set(outputs)}
    close = nearest(name, sorted(fitting - set(used)))
    return f"Correct the name (did you mean {close!r}?)." if close else f"Put {name!r} into the repository."


def _call_findings(model: CheckedModel, code: PythonSource, call: CalleeRequest, models: Models) -> Iterator[Finding]:
    callee = models.get(call.model)
    if callee is None:
        if "load_model" not in code.words:
            used = (model.name, *(each.model for each in code.calls))
            missing = _missing(call.model, models, used, call.outputs or ())
            yield model.in_code("callee-missing", code, call.line, callee=call.model, missing=missing)
        return
    versions = pick_versions(callee.config, version_folders(callee.folder))
    if call.version is not None and call.version > 0 and versions and call.version not in versions:
        served = ", ".join(map(str, versions))
        yield model.in_code("callee-version", code, call.line, version=call.version, callee=call.model, what=served)
    asks = any(sent.args or {"decoupled", None} & {word.arg for word in sent.keywords} for sent in call.sent)
    if callee.decoupled and call.sent and not asks:
        yield model.in_code("callee-decoupled", code, call.line, callee=call.model)
    if callee.known:
        yield from _call_tensor_findings(model, code, call, callee)


def _call_tensor_findings(
    model: CheckedModel, code: PythonSource, call: CalleeRequest, callee: CheckedModel
) -> Iterator[Finding]:
    def differs(kind: str, line: int, name: str, known: Mapping[str, object], why: str) -> Finding:
        have = f"it has {', '.join(known)}" if known else "it has none"
        used = {tensor for tensor, _ in (*call.read, *call.inputs.names)} | {*(call.outputs or ())}
        close = nearest(name, sorted(known.keys() - used))
        mend = f"Did you mean {close!r}?" if close else f"Use a name that {callee.name!r} has, or add this one to it."
        return model.in_code(
            f"callee-{kind}", code, line, callee=callee.name, kind=kind, name=name, have=have, why=why, mend=mend
        )  # fmt: skip

    if _starves(callee, call.outputs or ()):
        asked = _choices([tuple(call.outputs or ())])
        yield model.in_code("ensemble-starves:call", code, call.line, asked=asked, name=callee.name)
    for name in call.outputs or ():
        if name not in callee.outputs:
            yield differs("output", call.line, name, callee.outputs, "The response is an error.")
    for name, line in call.read:
        if name not in callee.outputs:
            why = "`get_output_tensor_by_name` returns None, and using it fails."
            yield differs("output", line, name, callee.outputs, why)
        elif call.outputs and name not in call.outputs:
            yield model.in_code("output-not-requested", code, line, name=name, callee=callee.name)
    inputs = call.inputs
    if call.forwards and model.known and not any(tensor.optional for tensor in model.config.input):
        inputs = TensorNames(tuple((name, call.line) for name in model.inputs))
    for name, line in inputs.names:
        if name not in callee.inputs and name not in callee.controls:
            yield differs("input", line, name, callee.inputs, "The response is an error.")
        elif name in callee.inputs:
            array = KnownArray("", name, True) if call.forwards else code.arrays.get((name, line), KnownArray())
            if problem := _misfit(model, array, callee, name):
                yield model.in_code("callee-misfit", code, line, problem=problem, name=model.name, callee=callee.name)
    sent = {name for name, _ in inputs.names}
    if inputs.certain:
        for name, tensor in callee.inputs.items():
            if name not in sent and not tensor.optional:
                yield model.in_code("callee-input-lacking", code, call.line, name=name, callee=callee.name)


def _misfit(model: CheckedModel, array: KnownArray, callee: CheckedModel, name: str) -> str:
    """Return how an array certainly differs from the data type or shape of a callee's input; else an empty string."""
    expected = data_type(callee.inputs[name])
    dtype = model.dtype_of(array)
    if dtype and dtype != expected:
        return f"input {name!r} of {callee.name!r} is {expected}, but the code sends {dtype}"
    own = model.inputs.get(array.input) if array.whole and model.known else None
    if own is None:
        return ""
    sent, declared = full_shape(model, own), full_shape(callee, callee.inputs[name])
    fits = len(sent) == len(declared) and all(a == b or -1 in (a, b) for a, b in zip(sent, declared, strict=True))
    if fits or not sent or not declared:
        return ""
    batch = f" (max_batch_size {callee.config.max_batch_size})" if callee.config.max_batch_size else ""
    return f"input {name!r} of {callee.name!r} has shape {declared}{batch}, but the code sends {array.input!r}: {sent}"


def _step_findings(model: CheckedModel, models: Models, remote: Mapping[str, str]) -> Iterator[Finding]:
    missing_steps = [name for name in members_of(model.config) if name and name not in models]
    for name in missing_steps:
        place = "ensemble_scheduling.step.model_name"
        if name in remote:
            what = f"its step {name!r} is a model on the server {remote[name]}"
            yield model.in_config("callee-remote", place, value=name, what=what)
            continue
        steps = [step for step in model.config.ensemble_scheduling.step if step.model_name == name]
        outputs = {output for step in steps for output in step.output_map}
        missing = _missing(name, models, (model.name, *members_of(model.config)), outputs)
        yield model.in_config("callee-missing:step", place, value=name, missing=missing)
    if missing_steps or model.problem:
        return
    yield from _starvation_findings(model, models)
    members = [models[name] for name in members_of(model.config)]
    if not all(member.known and not member.is_ensemble for member in members):
        return

    def find(name: str, version: int) -> ModelSpec | None:
        versions = pick_versions(models[name].config, version_folders(models[name].folder))
        return model_spec(models[name].config) if version < 0 or version in (versions or [version]) else None

    try:
        check_members(model_spec(model.config), find)
    except BLSError as error:
        what, _, mend = str(error).partition("could not be loaded: ")[2].partition("; ")
        yield model.in_config("ensemble-misfit", "ensemble_scheduling", what=what, mend=mend)


_MANY_OUTPUTS = 8  # with more, only single outputs and all but one are tried
_MOST_SUBSETS = 3  # in a finding


def _starvation_findings(model: CheckedModel, models: Models) -> Iterator[Finding]:
    """Yield requests for some of the outputs of an ensemble, or of its steps, that end without them."""
    outputs = tuple(model.outputs)
    sizes = range(1, len(outputs)) if len(outputs) <= _MANY_OUTPUTS else (1, len(outputs) - 1)
    subsets = [subset for size in sizes for subset in combinations(outputs, size)]
    if starving := [subset for subset in subsets if _starves(model, subset)]:
        yield model.in_config("ensemble-starves", "output", asked=_choices(starving), name=model.name)
    for step in model.config.ensemble_scheduling.step:
        member = models[step.model_name]
        if _starves(member, step.output_map):
            asked, place = _choices([tuple(sorted(step.output_map))]), "ensemble_scheduling.step.model_name"
            yield model.in_config(
                "ensemble-starves:step", place, value=step.model_name, asked=asked, name=member.name
            )  # fmt: skip


def _starves(model: CheckedModel, outputs: Iterable[str]) -> bool:
    """Return whether an ensemble never answers a request for these outputs."""
    requested = frozenset(outputs)
    usable = model.is_ensemble and not model.problem and requested and requested.issubset(model.outputs)
    return bool(usable) and EnsemblePlan(model_spec(model.config)).starves(requested)


def _choices(subsets: Sequence[tuple[str, ...]]) -> str:
    asked = ", or for ".join(" and ".join(subset) + " alone" for subset in subsets[:_MOST_SUBSETS])
    return asked + (
        f" (or {count(len(subsets) - _MOST_SUBSETS, 'other choice')})" if len(subsets) > _MOST_SUBSETS else ""
    )


def cycle_findings(models: Models) -> Iterator[Finding]:
    """Yield models that call themselves, directly or through others, while they occupy an instance."""
    edges = {name: tuple(_called_models(model)) for name, model in models.items()}
    ensembles = {name: edges[name] for name, model in models.items() if model.is_ensemble}
    for name in ensembles:
        if (chain := _cycle_from(name, ensembles, models)) is not None:
            what, mend = f"it is a step of itself: {' -> '.join(chain)}", "Remove one of these steps."
            yield models[name].in_config("ensemble-misfit", "ensemble_scheduling", what=what, mend=mend)
    for name, model in models.items():
        if model.is_ensemble or model.decoupled or not model.is_python:
            continue
        chain = _cycle_from(name, edges, models)
        if chain is None:
            continue
        line = next((line for callee, line in edges[name] if callee == chain[1]), 0)
        code = model.newest()
        path = " -> ".join(chain)
        if code is None:
            continue
        rule = "callee-cycle" if model.instances == 1 else "callee-cycle:instances"
        yield model.in_code(rule, code, line, path=path, instances=model.instances)


def _called_models(model: CheckedModel) -> Iterator[tuple[str, int]]:
    """Yield the callees that a model waits for, with line numbers."""
    if model.is_ensemble:
        yield from ((name, 0) for name in members_of(model.config))
    elif (code := model.newest()) is not None and not model.decoupled:
        # A request to a fixed version may reach another version than the caller.
        yield from ((call.model, call.line) for call in code.calls if call.model and (call.version or -1) < 0)


def _cycle_from(name: str, edges: Mapping[str, tuple[tuple[str, int], ...]], models: Models) -> list[str] | None:
    """Return the shortest chain of calls from a model back to itself."""
    todo = [name]
    caller = {name: ""}
    for current in todo:  # the loop extends `todo`
        for callee, _ in edges.get(current, ()):
            if callee == name:
                chain = [name]
                while current:
                    chain.append(current)
                    current = caller[current]
                return chain[::-1]
            if callee not in caller and callee in models:
                caller[callee] = current
                todo.append(callee)
    return None


def sequence_findings(model: CheckedModel, models: Mapping[str, CheckedModel]) -> Iterator[Finding]:
    """Yield problems with sequences: state spread over instances, incomplete calls of sequence models."""
    code = model.newest()
    if code is None or code.mistake:
        return
    batched = model.config.HasField("sequence_batching")
    if model.instances > 1 and not batched and (line := _keeps_state(code)):
        yield model.in_code("sequence-no-batcher", code, line, instances=model.instances)
    flags: dict[str, list[str]] = {}
    lines: dict[str, int] = {}
    for call in code.calls:
        callee = models.get(call.model)
        if callee is None or not callee.config.HasField("sequence_batching") or not call.plain:
            continue
        if callee.config.sequence_batching.iterative_sequence:  # the server assigns an ID
            continue
        if "correlation_id" not in call.keywords:
            yield model.in_code("sequence-no-id", code, call.line, callee=call.model)
            continue
        flags.setdefault(call.model, []).extend(call.flags if call.flags is not None else ())
        lines.setdefault(call.model, call.line)
    for name, used_flags in flags.items():
        if "?" in used_flags or "set_flags" in code.words:
            continue
        if not any(flag.endswith("SEQUENCE_START") for flag in used_flags):
            yield model.in_code("sequence-no-start", code, lines[name], name=name)
        elif not any(flag.endswith("SEQUENCE_END") for flag in used_flags):
            yield model.in_code("sequence-no-end", code, lines[name], name=name)


def _keeps_state(code: PythonSource) -> int:
    """Return the line of `execute` that reads the correlation ID if it also stores state under it, else 0."""
    nodes = list(ast.walk(code.execute)) if code.execute is not None else []
    reads = [node for node in nodes if isinstance(node, ast.Call) and last_name(node.func) == "correlation_id"]
    assigned = [
        node for node in nodes if isinstance(node, ast.Assign) and any(n in reads for n in ast.walk(node.value))
    ]
    keys = {target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)}
    for node in nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            of_self = any(isinstance(n, ast.Name) and n.id == "self" for n in ast.walk(node.value))
            if of_self and any(n in reads or getattr(n, "id", "") in keys for n in ast.walk(node.slice)):
                return min(read.lineno for read in reads)
    return 0
