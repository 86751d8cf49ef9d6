"""Find callees whose answers depend on chance or on earlier requests, by asking each of them again."""

from __future__ import annotations

from collections import defaultdict
from time import monotonic
from typing import Any, NamedTuple

from .counterfactual import SECONDS, Runs, equal
from .perturbation import ZEROS, Kept, KeptResponse, changed


class CalleeStates(NamedTuple):
    """Callees whose answers to equal requests differ at once (``varying``) or after other requests (``stateful``).

    The time limit left no time for the ``unasked`` callees.
    """

    varying: set[str]
    stateful: set[str]
    unasked: set[str]


def callee_states(runs: Runs) -> CalleeStates:
    """Ask each callee again: as before, after other requests, in reverse order, and as before.

    Two different requests to each callee are enough. Requests of sequences are left out: their order matters anyway.
    """
    ends, states = monotonic() + SECONDS, CalleeStates(set(), set(), set())
    requests: defaultdict[str, dict[object, int]] = defaultdict(dict)
    for number, recorded in enumerate(runs.recorded):
        if not recorded.call.sequence[0]:
            requests[recorded.call.model].setdefault(recorded.sent.inputs, number)
    chosen = sorted({choose(numbers.values()) for numbers in requests.values() for choose in (min, max)})
    first: dict[int, Kept] = {}

    def asked(number: int, others: bool = False) -> Kept:
        runs.asked += 1
        call = runs.recorded[number].call
        inputs = {name: tensor.as_numpy() for name, tensor in call.inputs.items()}
        if others:
            inputs = {name: _other_input(array, number) for name, array in inputs.items()}
        options: Any = {"outputs": list(call.outputs) or None, "parameters": dict(call.parameters) or None}
        return runs.ask(call.model, inputs, runs.recorded[number].decoupled, **options)

    for step, number in enumerate([*chosen, *chosen, *reversed(chosen), *chosen]):
        model, others = runs.recorded[number].call.model, len(chosen) <= step < 2 * len(chosen)
        if monotonic() > ends:
            states.unasked.update(requests.keys() - {runs.recorded[n].call.model for n in first})
            break
        answer = asked(number, others)
        expected = first.get(number, tuple(runs.recorded[number].responses))
        if not others and not equal([answer], [expected]):
            is_steady = number in first or equal([asked(number)], [answer])
            (states.stateful if is_steady else states.varying).add(model)
        first.setdefault(number, answer)
    return states._replace(stateful=states.stateful - states.varying)


def _other_input(array: Any, salt: int) -> Any:
    """Return another array of the same kind; integers stay in their range, so that they are valid indices."""
    constant = array.dtype.kind in "iu" and array.size and array.min() == array.max()
    other = changed((KeptResponse({"": array}),), ZEROS if constant else 0, salt, {}, {})
    return array if other is None else other[0].outputs[""]
