"""Find callees whose answers depend on chance or on earlier requests, by asking them again."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Any, NamedTuple

from .counterfactual import RecordedCall, Runs, equal, kept_responses
from .perturbation import Kept, KeptResponse, SeenValues, changed

_SECONDS = 10.0


class CalleeStates(NamedTuple):
    """Callees by how they answered equal requests.

    ``varying`` ones differently at once, ``stateful`` ones differently after other requests or after runs of
    the model; ``unasked`` ones were not asked again in time.
    """

    varying: frozenset[str] = frozenset()
    stateful: frozenset[str] = frozenset()
    unasked: frozenset[str] = frozenset()


def callee_states(runs: Runs) -> CalleeStates:
    """Ask each callee again: as before, after other requests, in reverse order, and as before.

    Two different requests to each callee are enough. Requests of sequences are left out, as their order
    matters anyway.
    """
    ends = monotonic() + _SECONDS
    requests: dict[str, dict[bytes, int]] = {}
    for number, each in enumerate(runs.recorded):
        if not each.call.sequence[0]:
            requests.setdefault(each.call.model, {}).setdefault(each.sent.digest, number)
    chosen = sorted({n for numbers in requests.values() for n in [*numbers.values()][:: max(1, len(numbers) - 1)]})
    varying: set[str] = set()
    stateful: set[str] = set()
    first: dict[int, Kept] = {}
    for number in chosen:
        if monotonic() < ends:
            each = runs.recorded[number]
            first[number] = _ask(runs, each)
            if not equal([first[number]], [tuple(each.responses)]):
                again = _ask(runs, each)
                (stateful if equal([again], [first[number]]) else varying).add(each.call.model)
    for number in first:
        if monotonic() < ends:
            _ask(runs, runs.recorded[number], _other_inputs(runs.recorded[number], number))
    for number in (*reversed(first), *first):
        each = runs.recorded[number]
        known = each.call.model in varying or monotonic() > ends
        if not known and not equal([_ask(runs, each)], [first[number]]):
            stateful.add(each.call.model)
    unasked = {runs.recorded[number].call.model for number in chosen if number not in first}
    return CalleeStates(frozenset(varying), frozenset(stateful - varying), frozenset(unasked))


def _ask(runs: Runs, each: RecordedCall, inputs: Mapping[str, Any] | None = None) -> Kept:
    runs.asked += 1
    call = each.call
    given = {name: tensor.as_numpy() for name, tensor in call.inputs.items()} if inputs is None else inputs
    options: Any = {"outputs": list(call.outputs) or None, "parameters": dict(call.parameters) or None}
    return kept_responses(runs.repository, call.model, given, each.decoupled, **options)


def _other_inputs(each: RecordedCall, salt: int) -> dict[str, Any]:
    """Return other inputs of the same kind; integers stay in their range, so that they are valid indices."""
    out = {name: tensor.as_numpy() for name, tensor in each.call.inputs.items()}
    for name, array in list(out.items()):
        constant = array.dtype.kind in "iu" and array.size and array.min() == array.max()
        for change in (2,) if constant else (3, 0):  # zeros; reversed, else scaled
            new = changed((KeptResponse({name: array}),), change, salt, SeenValues())
            if new is not None:
                out[name] = new[0].outputs[name]
                break
    return out
