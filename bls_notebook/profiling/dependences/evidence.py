"""What changed answers have shown about dependences between calls, and which answers to change next. Pure.

Calls are numbered in the order of sending. Answers are changed in groups, so that independent calls cost one run for
each kind of change; a group is split only if a later call changed and more than one answer can be the cause.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import NamedTuple

ENOUGH = 2  # changes of an answer that reached a later call, at least, before the two count as independent
_SINGLY = 5  # answers of a group that are changed one at a time rather than by halves


class ObservedCall(NamedTuple):
    """A call of a run: the key of its sender's call, the callee, a digest of its inputs, and its number."""

    sender: tuple[object, ...]
    model: str
    digest: bytes
    number: int


class RunDifference(NamedTuple):
    """How a run differs from the recorded one.

    ``inputs`` are calls with other inputs, ``missing`` those that were not sent although the model went on,
    ``same`` those that were sent as before; others were not reached. ``added`` are the callees of new calls,
    ``used`` the calls whose answers were changed.
    """

    inputs: AbstractSet[int]
    missing: AbstractSet[int]
    same: AbstractSet[int]
    added: tuple[str, ...]
    used: AbstractSet[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.inputs or self.missing or self.added)


def difference(
    base: Sequence[ObservedCall], run: Sequence[ObservedCall], failed: Callable[[ObservedCall], bool]
) -> RunDifference:
    """Align a run with the recorded one, by sender and callee, and within these by inputs.

    `failed` says whether the request that a call belongs to ended with a new error, so that it is not known
    whether the call would have been sent.
    """
    groups: defaultdict[tuple[object, str], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for side, calls in enumerate((base, run)):
        for place in sorted(range(len(calls)), key=lambda n: calls[n].number):
            groups[calls[place].sender, calls[place].model][side].append(place)
    inputs, missing, same = set[int](), set[int](), set[int]()
    added: list[str] = []
    for (_, model), (before, after) in groups.items():
        digests = [base[n].digest for n in before], [run[n].digest for n in after]
        for kind, a, b, c, d in SequenceMatcher(None, *digests, autojunk=False).get_opcodes():
            if kind == "equal":
                same.update(before[a:b])
                continue
            both = a + min(b - a, d - c)
            inputs.update(before[a:both])
            missing.update(n for n in before[both:b] if not failed(base[n]))
            added += [model] * (d - c - (both - a))
    return RunDifference(inputs, missing, same, tuple(added))


@dataclass
class Evidence:
    """Evidence for each pair of calls.

    ``possible`` has for each call the earlier ones of its `execute` whose answers came before it was sent,
    ``ordered`` those that it has to follow for another reason. ``found`` are dependences (earlier, later) by kind
    and change; ``tried`` counts the changes of an answer that had no effect on a later call.
    """

    possible: list[set[int]]
    ordered: list[set[int]]
    found: dict[tuple[int, int], tuple[str, int]] = field(default_factory=dict)
    tried: Counter[tuple[int, int]] = field(default_factory=Counter)

    def ancestors(self) -> list[set[int]]:
        """Return for each call those that it depends on, directly or not."""
        parents = [set(each) for each in self.ordered]
        for earlier, later in self.found:
            parents[later].add(earlier)
        return closure(parents)

    def open(self, enough: int = 0) -> list[set[int]]:
        """Return for each call the earlier ones that it may depend on; with `enough`, those tried less often."""
        return [
            {n for n in self.possible[call] - before if not enough or self.tried[n, call] < enough}
            for call, before in enumerate(self.ancestors())
        ]

    def learn(self, change: int, seen: RunDifference, open_: Sequence[set[int]]) -> dict[int, set[int]]:
        """Take note of a run; return the calls that changed, each with the answers that may be the cause."""
        suspects: dict[int, set[int]] = {}
        before = self.ancestors()
        for call, earlier in enumerate(open_):
            causes = earlier & seen.used
            if causes and call in seen.same:
                self.tried.update((cause, call) for cause in causes)
            elif causes and (call in seen.inputs or call in seen.missing) and not before[call] & seen.used:
                suspects[call] = causes
                if len(causes) == 1:
                    self.find(causes, call, change, seen)
        return suspects

    def find(self, causes: set[int], call: int, change: int, seen: RunDifference) -> None:
        """Take note of a dependence on the single cause, shown by a change."""
        self.found.setdefault((min(causes), call), ("data" if call in seen.inputs else "control", change))


Run = Callable[[set[int], int], RunDifference | None]
"""Runs the model with one change of several answers; None if the change leaves these as they are."""


def explore(evidence: Evidence, changes: Sequence[int], run: Run) -> None:
    """Change answers until every pair of calls has been tried with every change, or `run` raises."""
    for change in changes:
        left = evidence.open()
        while any(left):
            group = _group(left, evidence)
            _resolve(evidence, change, group, run)
            now, before = evidence.open(), evidence.ancestors()
            covered = [set() if before[call] & group else earlier & group for call, earlier in enumerate(left)]
            if not any(covered):
                break
            left = [(earlier - done) & still for earlier, done, still in zip(left, covered, now, strict=True)]


def _group(left: Sequence[set[int]], evidence: Evidence) -> set[int]:
    """Return answers to change together: for as many pairs as possible, with nothing that masks them."""
    group, before = set[int](), evidence.ancestors()
    for call in range(len(left)):
        gain = lost = 0
        for later, earlier in enumerate(left):
            if earlier and not before[later] & group:
                if call in before[later]:
                    lost += len(earlier & group)
                else:
                    gain += call in earlier
        if gain > lost:
            group.add(call)
    return group


def _resolve(evidence: Evidence, change: int, group: set[int], run: Run) -> None:
    """Run with one group changed; find which answers were the cause of what changed."""
    left = evidence.open()
    first = run(group, change)
    if first is None:
        return
    unclear = {c: causes for c, causes in evidence.learn(change, first, left).items() if len(causes) > 1}
    explained: set[int] = set()  # calls with a known cause: the rest of their suspects may be innocent
    reached = first.same | first.inputs | first.missing
    thin: set[int] = set()  # answers that kept a later call from being sent, and were not tried enough on it
    for call, earlier in enumerate(evidence.open(ENOUGH)):
        thin |= set() if call in reached else earlier & first.used

    def narrow(part: set[int]) -> None:
        seen = run(part, change)
        found = {} if seen is None else evidence.learn(change, seen, left)
        before = evidence.ancestors()
        for call, causes in list(unclear.items()):
            if len(found.get(call, ())) == 1 or causes & before[call]:
                explained.add(call)
            if len(part) == 1 or (seen is not None and call not in found and call in seen.same):
                causes = causes - part
            causes = causes - before[call]
            if call not in explained and len(causes) == 1:
                evidence.find(causes, call, change, first)
                causes = set()
            unclear[call] = causes
            if not causes:
                del unclear[call]

    for part in _parts(sorted(first.used)) if unclear or thin else ():
        if thin & part or any(causes & part and causes - part for causes in unclear.values()):
            narrow(part)
    while unclear:  # several causes: the latest first, which often implies the earlier ones
        narrow({max(map(max, unclear.values()))})


def _parts(calls: Sequence[int]) -> Iterator[set[int]]:
    """Split a group so that each pair of its members is apart in at least one part."""
    if len(calls) <= _SINGLY:
        yield from ({call} for call in reversed(calls))
        return
    for bit in range((len(calls) - 1).bit_length()):
        for side in (0, 1):
            yield {call for place, call in enumerate(calls) if place >> bit & 1 == side}


def closure(parents: Sequence[set[int]]) -> list[set[int]]:
    """Return for each call its parents, their parents, and so on."""
    out: list[set[int]] = []
    for each in parents:
        out.append(each.union(*(out[parent] for parent in each)))
    return out


def stages(blocked: Sequence[set[int]], senders: Sequence[object]) -> list[list[int]]:
    """Return the calls of each `execute` by the earliest stage in which they can be sent."""
    depth: list[int] = []
    out: dict[tuple[int, int], list[int]] = {}
    order = list(dict.fromkeys(senders))
    for call, before in enumerate(blocked):
        depth.append(1 + max((depth[earlier] for earlier in before), default=0))
        out.setdefault((order.index(senders[call]), depth[call]), []).append(call)
    return [out[key] for key in sorted(out)]
