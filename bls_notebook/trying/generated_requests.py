"""The third step of a trial: send each real model generated requests until it answers one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field, replace
from itertools import count
from math import prod
from typing import Any

from bls_notebook.engine import BLSError, place, running_line
from bls_notebook.extending import Host
from bls_notebook.pb_utils import TRITONSERVER_REQUEST_FLAG_SEQUENCE_END as END
from bls_notebook.pb_utils import TRITONSERVER_REQUEST_FLAG_SEQUENCE_START as START
from bls_notebook.progress import progress
from bls_notebook.records import ModelRecord, first_line, listed, went_through
from bls_notebook.repository import ModelRepository, Values, entries, in_order, reached

from .example_request import STYLES, example_inputs, request_line
from .load_or_stub import TrialLoad, load_stub
from .trial_plan import TrialPlan

_MOST_ELEMENTS = 1 << 24  # of a generated request
_correlations = count(1)  # of sequences


@dataclass(frozen=True)
class RequestOutcome:
    """Outcome of generated requests to a model; `problem` is the first error if it answered none.

    `inputs` has the inputs of the answered request, as Python expressions; `slow`: no response came in time.
    """

    asked: bool = True
    problem: str = ""
    warnings: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)
    slow: bool = False


@dataclass(frozen=True)
class TrialRequests:
    """The outcomes of generated requests, and an example line for each entry: a model that no other model calls."""

    outcomes: Mapping[str, RequestOutcome]
    entries: tuple[str, ...]
    lines: tuple[str, ...]
    notes: tuple[str, ...] = ()


def send_requests(host: Host, plan: TrialPlan, load: TrialLoad, seconds: float) -> TrialRequests:
    """Send the requests, and wait at most so long for each answer (0: send none).

    If a model fails because of a stub's zeros, stubs answer random numbers.
    """
    outcomes: dict[str, RequestOutcome] = {}
    others: dict[str, RequestOutcome] = {}
    failed: list[str] = []
    notes: tuple[str, ...] = ()
    stubs = {name for name, outcome in load.outcomes.items() if outcome.stub is not None}
    try:
        if seconds:
            outcomes.update(_outcomes(host, plan, load, seconds))  # keeps those before Ctrl-C
        if plan.options.values == "zeros":
            failed = [name for name in sorted(_failed(outcomes)) if reached(name, plan.calls) & stubs]
        if failed:
            _serve_stubs(host, plan, load, "random")
            others = dict(_outcomes(host, plan, load, seconds))
    except KeyboardInterrupt:
        others = {}
    if others and len(_failed(others)) < len(_failed(outcomes)):
        cured = listed([name for name in failed if not others[name].problem], 6)
        outcomes, notes = others, (f"the stubs answer random numbers, because {cured} fails with zeros",)
    elif failed:
        _serve_stubs(host, plan, load, "zeros")
    kinds = {name: outcome.kind for name, outcome in load.outcomes.items()}
    names = [name for name in entries(plan.calls) if kinds.get(name, "absent") != "absent"]
    names.sort(key=lambda name: kinds[name] != "real")
    lines = (
        request_line(
            host.repository.model(name),
            outcomes.get(name, RequestOutcome()).inputs or _inputs(host, plan, name, ""),
            _in_sequences(host.repository, name),
        )
        for name in names
    )
    return TrialRequests(outcomes, tuple(names), tuple(lines), notes)


def _failed(outcomes: Mapping[str, RequestOutcome]) -> set[str]:
    return {name for name, outcome in outcomes.items() if outcome.problem}


def _serve_stubs(host: Host, plan: TrialPlan, load: TrialLoad, values: Values) -> None:
    for source in (outcome.stub for outcome in load.outcomes.values()):
        if source is not None and source.stub is not None:
            load_stub(host, replace(source, stub=replace(source.stub, values=values)), plan.options.load_timeout)


def _outcomes(host: Host, plan: TrialPlan, load: TrialLoad, seconds: float) -> Iterator[tuple[str, RequestOutcome]]:
    """Send requests to each real model, and yield its name and the outcome."""
    named = {name: model.named for name, model in plan.models.items()}
    # Callees come first: if one does not answer, its callers need not be asked.
    real = [name for name in in_order(named) if name in load.outcomes and load.outcomes[name].kind == "real"]
    slow = set[str]()
    with progress("sending generated requests", len(real), "model") as shown:
        for name in real:
            if callees := sorted(reached(name, named) & slow):
                why = f"it calls {listed(callees, 3)}, which did not answer within {seconds:g} s"
                yield name, RequestOutcome(False, warnings=(f"no request was sent: {why}",))
            else:
                outcome = _outcome(host, plan, name, seconds)
                slow |= {name} if outcome.slow else set()
                yield name, outcome
            shown.step()


def _outcome(host: Host, plan: TrialPlan, name: str, seconds: float) -> RequestOutcome:
    """Send a model different requests until it answers one."""
    record = host.repository.model(name)
    elements = sum(prod(map(abs, spec.dims)) for spec in record.inputs)
    if elements > _MOST_ELEMENTS:
        return RequestOutcome(False, warnings=(f"no request was generated: its inputs have {elements:,} elements",))
    tried: list[dict[str, str]] = []
    first: RequestOutcome | None = None
    for style in STYLES:
        if (inputs := _inputs(host, plan, name, style)) in tried:
            continue
        tried.append(inputs)
        outcome = _sent(host, record, inputs, seconds)
        if not outcome.problem:
            return outcome
        first = replace(first or outcome, slow=outcome.slow)
        if outcome.slow:
            break
    return first or RequestOutcome(False)


def _sent(host: Host, record: ModelRecord, inputs: Mapping[str, str], seconds: float) -> RequestOutcome:
    """Send a model one request; a model that batches sequences gets the start, the middle and the end of one."""
    if not _in_sequences(host.repository, record.name):
        return _answer(host, record, inputs, seconds, {})
    correlation_id, outcome = next(_correlations), RequestOutcome()
    for flags in (START, 0, END):
        outcome = _answer(host, record, inputs, seconds, {"correlation_id": correlation_id, "flags": flags})
        if outcome.problem:
            break
    return outcome


_EMPTY = "the response has none of the outputs that the configuration declares"


def _answer(
    host: Host, record: ModelRecord, inputs: Mapping[str, str], seconds: float, options: Mapping[str, Any]
) -> RequestOutcome:
    """Send a model one request."""
    try:
        values = {name: eval(text, {}) for name, text in inputs.items()}  # our own literals
        sent = host.send(host.request(record.name, values, **options), stream=record.decoupled)
    except BLSError as error:
        return RequestOutcome(problem=first_line(str(error)))
    try:
        answer = sent.result(seconds)
    except FutureTimeoutError:
        lines = [line for line in map(running_line, list(sent.root.children)) if line.line]
        where = f": it was in {place(lines[0])}" if lines else ""
        return RequestOutcome(problem=f"no answer within {seconds:g} s{where}", slow=True)
    finally:
        sent.cancel()  # no effect if it is answered
    responses = answer if record.decoupled else [answer]
    errors = [first_line(r.error.message(), 400) for r in responses if r.error is not None]
    if not (errors or options or record.decoupled or any(map(len, responses))) and record.outputs:
        errors = [_EMPTY]
    warnings = tuple(dict.fromkeys(w for r in responses for w in r.warnings if w != went_through(r.stubs)))
    stubs = listed(dict.fromkeys(stub for r in responses for stub in r.stubs), 6)
    made_up = f" (after made-up answers of {stubs})" if errors and stubs else ""
    return RequestOutcome(True, "".join(errors[:1]) + made_up, warnings, {} if errors else inputs)


def _inputs(host: Host, plan: TrialPlan, name: str, style: str) -> dict[str, str]:
    """Return the inputs of a request in a style."""
    record = host.repository.model(name)
    models = {name, *reached(name, plan.calls)} & plan.models.keys()
    sources = [source for model in models for source in plan.models[model].sources]
    return example_inputs(record, _likely_callee(host.repository, record), style, sources)


def _in_sequences(repository: ModelRepository, name: str) -> bool:
    """Return whether the model, or a direct or indirect step of it, batches sequences."""
    found, pending = {name}, [name]
    while pending:
        config = repository.config(pending.pop())
        if config.HasField("sequence_batching"):
            return True
        new = {step.model_name for step in config.ensemble_scheduling.step} - found
        found |= new
        pending += filter(repository.ready, new)
    return False


def _likely_callee(repository: ModelRepository, record: ModelRecord) -> str:
    """Guess the callee that an input may name: its inputs are inputs of this model, as many as possible."""
    names = {spec.name for spec in record.inputs if "model" not in spec.name.lower()}
    fits = dict[str, int]()
    for other in repository.index():
        if other.state == "READY" and other.name != record.name:
            missing = {spec.name for spec in other.inputs if not spec.optional} - names
            fits[other.name] = len(names & {spec.name for spec in other.inputs}) - len(missing)
    return max(fits, key=lambda name: (fits[name], name), default="")
