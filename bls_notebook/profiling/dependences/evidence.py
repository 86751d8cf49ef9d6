"""Infer dependences between calls from runs with changed answers, and choose the answers to change next. Pure.

Calls are numbered in the order of sending. Answers are changed in groups, so that independent calls cost one run for
each change; a group is split only if a later call changed and more than one answer can be the cause.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

ENOUGH = 2  # changes of an answer that reached a later call, at least, before the two count as independent
SEQUENCE = -1  # in place of a change: both calls belong to one sequence
TIMEOUT = -2  # in place of a change: the later call is sent only if the earlier one takes long
_SINGLY = 12  # answers that are changed one at a time, at most
_MILD = 3  # changes, the mildest ones, that are tried again in smaller groups


class ObservedCall(NamedTuple):
    """A call of a run: its sender, the callee, the contents of its inputs (`OPTIONS` included) by name, its number."""

    sender: tuple[object, ...]
    model: str
    inputs: tuple[tuple[str, object], ...]
    number: int

    @property
    def request(self) -> int:
        """The number of the model's own request; -1 of a thread that does not know it."""
        number = self.sender[-1] if self.sender else -1
        return number if isinstance(number, int) else -1


OPTIONS = "its options"  # listed like an input: version, parameters, requested outputs, sequence, timeout


class RunDifference(NamedTuple):
    """The difference between a run and the recorded one.

    ``changed`` maps each call with other inputs to their names, and each call that was not sent although the model
    went on to nothing; ``same`` calls were sent as before; others were not reached. ``added`` are the callees of new
    calls, ``used`` the calls whose answers were changed. ``looped`` calls were sent as before, but by a loop that had
    more or fewer rounds, which proves nothing about them.
    """

    changed: Mapping[int, tuple[str, ...]]
    same: AbstractSet[int]
    added: tuple[str, ...] = ()
    used: AbstractSet[int] = frozenset()
    looped: AbstractSet[int] = frozenset()


def difference(base: Sequence[ObservedCall], run: Sequence[ObservedCall], failed: AbstractSet[int]) -> RunDifference:
    """Align a run with the recorded one, by sender and callee: calls with equal inputs first, then by their order.

    `failed` requests ended with a new error: it is not known then whether their other calls would have been sent.
    """
    rest: defaultdict[tuple[object, ...], list[ObservedCall]] = defaultdict(list)
    for sent in sorted(run, key=lambda call: call.number):
        rest[sent[:2]].append(sent)
    same, changed = set[int](), dict[int, tuple[str, ...]]()
    for number, call in enumerate(base):
        if equal := [sent for sent in rest[call[:2]] if sent.inputs == call.inputs]:
            rest[call[:2]].remove(equal[0])
            same.add(number)
    for number in sorted(set(range(len(base))) - same, key=lambda n: base[n].number):
        call = base[number]
        if others := rest[call[:2]]:
            changed[number] = tuple(sorted({name for name, _ in set(others.pop(0).inputs) ^ set(call.inputs)}))
        elif call.request not in failed and (call.request >= 0 or not failed):
            changed[number] = ()
    loops = {key for key, others in rest.items() if others} | {base[n][:2] for n, names in changed.items() if not names}
    looped = {n for n in same if base[n][:2] in loops}
    added = tuple(sent.model for others in rest.values() for sent in others)
    return RunDifference(changed, same - looped, added, looped=looped)


class DependenceEvidence(NamedTuple):
    """The change of ``together`` answers that showed a dependence; ``inputs`` differed (none: the call was missing)."""

    change: int
    inputs: tuple[str, ...] = ()
    together: int = 1


@dataclass
class Evidence:
    """Evidence for each pair of calls.

    ``possible`` lists for each call the earlier calls of its `execute` that were answered before it was sent.
    ``found`` are dependences (earlier, later); ``tried`` has the changes of an answer without effect on a later call,
    ``looped`` those that changed the number of rounds of its loop.
    """

    possible: list[set[int]]
    found: dict[tuple[int, int], DependenceEvidence] = field(default_factory=dict)
    tried: defaultdict[tuple[int, int], set[int]] = field(default_factory=lambda: defaultdict(set))
    looped: defaultdict[tuple[int, int], set[int]] = field(default_factory=lambda: defaultdict(set))

    def needed(self, earlier: int, later: int, enough: int = ENOUGH) -> int:
        """Return how many changes without effect show that the later call does not depend on the earlier one.

        If changes also alter the rounds of its loop, the call may be sent by chance: it needs as many without effect.
        """
        return max(enough, len(self.looped[earlier, later]))

    def ancestors(self) -> list[set[int]]:
        """Return the direct and indirect dependences of each call."""
        return closure(self.found, len(self.possible))

    def open(self, enough: int = 0) -> list[set[int]]:
        """Return for each call the earlier ones that it may depend on; with `enough`, those tried less often."""
        pairs = [{(n, call) for n in self.possible[call] - before} for call, before in enumerate(self.ancestors())]
        return [{p[0] for p in some if not enough or len(self.tried[p]) < self.needed(*p, enough)} for some in pairs]


ChangedRun = Callable[[set[int], int], RunDifference]
"""Runs the model with one change of several answers; `used` is empty if the change alters none of them."""


def explore(evidence: Evidence, changes: Sequence[int], run: ChangedRun) -> None:
    """Change answers until every pair of calls has been tried with every change, or `run` raises."""
    for change in changes:
        left = evidence.open()
        while group := _cover(left, evidence.ancestors()):
            try_change(evidence, change, group, run)
            before, still = evidence.ancestors(), evidence.open()
            left = [
                (answers if before[call] & group else answers - group) & still[call]
                for call, answers in enumerate(left)
            ]
    for change in changes[:_MILD]:  # of a group, one answer may have made the model fail and so have hidden later calls
        for part in _parts(set().union(*evidence.open(ENOUGH))):
            if any(answers & part for answers in evidence.open(ENOUGH)):
                try_change(evidence, change, part, run)


def try_change(evidence: Evidence, change: int, group: set[int], run: ChangedRun) -> None:
    """Run with one group changed; find which answers caused a change of later calls, with more runs if need be."""
    open_ = evidence.open()
    suspects: dict[int, set[int]] = {}  # answers of which at least one changed the call
    first: dict[int, set[int]] = {}  # all of them
    inputs: dict[tuple[int, int], tuple[int, tuple[str, ...]]] = {}  # of the run that changed the fewest answers

    def step(part: set[int]) -> None:
        difference, before = run(part, change), evidence.ancestors()
        for call, answers in enumerate(open_):
            causes = answers & difference.used
            if call in difference.same:
                for cause in causes:
                    evidence.tried[cause, call].add(change)
                suspects.get(call, set()).difference_update(causes)
            elif call in difference.looped:
                for cause in causes:
                    evidence.looped[cause, call].add(change)
            elif causes and call in difference.changed and not before[call] & difference.used:
                suspects.setdefault(call, set(causes))
                first.setdefault(call, causes)
                seen = len(causes), difference.changed[call]
                inputs.update({(cause, call): min(inputs.get((cause, call), seen), seen) for cause in causes})
                find(call, causes if len(causes) == 1 else set())
        # The last one left of many is the cause; of a few, it is changed alone, too: several may decide together.
        for call, causes in suspects.items() if len(group) > _SINGLY else ():
            find(call, causes if len(causes) == 1 else set())

    def find(call: int, causes: set[int]) -> None:
        for cause in causes:
            evidence.found.setdefault((cause, call), DependenceEvidence(change, inputs[cause, call][1], len(causes)))

    def unclear() -> set[int]:
        before = evidence.ancestors()
        return set().union(*(causes - before[call] for call, causes in suspects.items()))

    try:
        step(group)
        for part in _parts(unclear()):
            if unclear() & part:
                step(part)
    finally:  # the causes cannot be separated, or the runs are used up: each may be one
        for call, causes in suspects.items():
            # Of a group, one answer may explain the change, and the model have failed with each of the others.
            if not any((cause, call) in evidence.found for cause in first[call]):
                find(call, causes or first[call])


def _cover(left: Sequence[set[int]], before: Sequence[set[int]]) -> set[int]:
    """Return answers to change together: those left of as many calls as possible, none of which masks another."""
    group, masking = set[int](), set[int]()
    for call in sorted(range(len(left)), key=lambda call: -len(left[call])):
        if left[call] and not before[call] & group and not masking & left[call]:
            group |= left[call]
            masking |= before[call]
    return group


def _parts(answers: set[int]) -> list[set[int]]:
    """Split a group: into single answers, or so that each pair of its members is apart in at least one part."""
    if len(answers) <= _SINGLY:
        return [{answer} for answer in sorted(answers, reverse=True)]  # the latest first, which may imply the others
    places, bits = list(enumerate(sorted(answers))), range((len(answers) - 1).bit_length())
    return [{answer for place, answer in places if place >> bit & 1 == side} for bit in bits for side in (0, 1)]


def closure(pairs: Iterable[tuple[int, int]], count: int) -> list[set[int]]:
    """Return for each of `count` calls its predecessors in the pairs, theirs, and so on."""
    out: list[set[int]] = [set() for _ in range(count)]
    for earlier, later in sorted(pairs, key=lambda pair: pair[1]):
        out[later] |= {earlier, *out[earlier]}
    return out
