"""What changed answers have shown about dependences between calls, and which answers to change next. Pure.

Calls are numbered in the order of sending. A set of calls is an integer: bit n is call n. Answers are changed
in groups, so that independent calls cost one run for each kind of change; a group is split only if a later
call changed and more than one answer can be the cause.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import NamedTuple

ENOUGH = 2  # changes of an answer that reached a later call, at least, before it counts as independent
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

    inputs: int
    missing: int
    same: int
    added: tuple[str, ...]
    used: int = 0

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
    inputs = missing = same = 0
    added: list[str] = []
    for (_, model), (before, after) in groups.items():
        digests = [base[n].digest for n in before], [run[n].digest for n in after]
        for kind, a, b, c, d in SequenceMatcher(None, *digests, autojunk=False).get_opcodes():
            if kind == "equal":
                same |= sum(1 << n for n in before[a:b])
                continue
            both = a + min(b - a, d - c)
            inputs |= sum(1 << n for n in before[a:both])
            missing |= sum(1 << n for n in before[both:b] if not failed(base[n]))
            added += [model] * (d - c - (both - a))
    return RunDifference(inputs, missing, same, tuple(added))


@dataclass
class Evidence:
    """What is known of each pair of calls.

    ``possible`` has for each call the earlier ones of its `execute` whose answers came before it was sent;
    ``ordered`` those that it has to follow for another reason. ``found`` are dependences: kind, and change.
    """

    possible: list[int]
    ordered: list[int]
    found: dict[tuple[int, int], tuple[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._parents = list(self.ordered)
        self._without: list[list[int]] = [[] for _ in self.possible]  # earlier calls changed without effect:
        # in one run or more, in two or more, ...

    def ancestors(self) -> list[int]:
        """Return for each call those that it depends on, directly or not."""
        return closure(self._parents)

    def open(self, enough: int = 0) -> list[int]:
        """Return for each call the earlier ones that it may depend on; with `enough`, those tried less."""
        out = []
        for call, before in enumerate(self.ancestors()):
            tried = self._without[call][enough - 1] if 0 < enough <= len(self._without[call]) else 0
            out.append(self.possible[call] & ~before & ~tried)
        return out

    def tried(self, earlier: int, later: int) -> int:
        """Return how many changes of an answer had no effect on a later call."""
        return sum(mask >> earlier & 1 for mask in self._without[later])

    def learn(self, change: int, seen: RunDifference, open_: Sequence[int]) -> dict[int, int]:
        """Take note of a run; return the calls that changed, each with the answers that may be the cause."""
        suspects: dict[int, int] = {}
        before = self.ancestors()
        for call, mask in enumerate(open_):
            causes = mask & seen.used
            if not causes:
                continue
            if seen.same >> call & 1:
                without = self._without[call]
                for level in range(len(without) + 1):
                    if level == len(without):
                        without.append(0)
                    without[level], causes = without[level] | causes, without[level] & causes
            elif (seen.inputs | seen.missing) >> call & 1 and not before[call] & seen.used:
                suspects[call] = causes
                if is_single(causes):
                    self.find(causes, call, change, seen)
        return suspects

    def find(self, cause: int, call: int, change: int, seen: RunDifference) -> None:
        """Take note of a dependence, shown by a change."""
        kind = "data" if seen.inputs >> call & 1 else "control"
        self.found.setdefault((cause.bit_length() - 1, call), (kind, change))
        self._parents[call] |= cause


Run = Callable[[int, int], "RunDifference | None"]
"""Runs the model with one change of several answers; None if the change leaves these as they are."""


def explore(evidence: Evidence, changes: Sequence[int], run: Run) -> None:
    """Change answers until every pair of calls has been tried with every change, or `run` raises."""
    for change in changes:
        left = evidence.open()
        while any(left):
            group = _group(left, evidence)
            _resolve(evidence, change, group, run)
            now = evidence.open()
            before = evidence.ancestors()
            covered = [0 if before[call] & group else mask & group for call, mask in enumerate(left)]
            if not any(covered):
                break
            left = [mask & ~done & still for mask, done, still in zip(left, covered, now, strict=True)]


def _group(left: Sequence[int], evidence: Evidence) -> int:
    """Return answers to change together: for as many pairs as possible, with nothing that masks them."""
    group, before = 0, evidence.ancestors()
    for call in range(len(left)):
        bit = 1 << call
        gain = lost = 0
        for later, mask in enumerate(left):
            if mask and not before[later] & group:
                if before[later] & bit:
                    lost += (mask & group).bit_count()
                else:
                    gain += mask >> call & 1
        if gain > lost:
            group |= bit
    return group


def _resolve(evidence: Evidence, change: int, group: int, run: Run) -> None:
    """Run with one group changed; find which answers were the cause of what changed."""
    left = evidence.open()
    first = run(group, change)
    if first is None:
        return
    unclear = {c: causes for c, causes in evidence.learn(change, first, left).items() if not is_single(causes)}
    explained: set[int] = set()  # calls with a known cause: the rest of their suspects may be innocent
    reached = first.same | first.inputs | first.missing
    thin = 0  # answers that kept a later call from being sent, and were not tried enough on it
    for call, mask in enumerate(evidence.open(ENOUGH)):
        thin |= 0 if reached >> call & 1 else mask & first.used

    def narrow(part: int) -> None:
        seen = run(part, change)
        found = {} if seen is None else evidence.learn(change, seen, left)
        before = evidence.ancestors()
        for call, causes in list(unclear.items()):
            if is_single(found.get(call, 0)) or causes & before[call]:
                explained.add(call)
            if is_single(part) or (seen is not None and call not in found and seen.same >> call & 1):
                causes &= ~part
            causes &= ~before[call]
            if call not in explained and is_single(causes):
                evidence.find(causes, call, change, first)
                causes = 0
            unclear[call] = causes
            if not causes:
                del unclear[call]

    for part in _parts(first.used) if unclear or thin else ():
        if thin & part or any(causes & part and causes & ~part for causes in unclear.values()):
            narrow(part)
    while unclear:  # several causes: the latest first, which often implies the earlier ones
        narrow(1 << max(unclear.values()).bit_length() - 1)


def _parts(group: int) -> Iterator[int]:
    """Split a group so that each pair of its members is apart in at least one part."""
    calls = list(members(group))
    if len(calls) <= _SINGLY:
        yield from (1 << call for call in reversed(calls))
        return
    for bit in range((len(calls) - 1).bit_length()):
        for side in (0, 1):
            yield sum(1 << call for place, call in enumerate(calls) if place >> bit & 1 == side)


def is_single(mask: int) -> bool:
    """Whether a set has one call."""
    return mask > 0 and mask & (mask - 1) == 0


def members(mask: int) -> Iterator[int]:
    """Return the calls of a set, the first one first."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


def closure(parents: Sequence[int]) -> list[int]:
    """Return for each call its parents, their parents, and so on."""
    out: list[int] = []
    for mask in parents:
        out.append(mask)
        for parent in members(mask):
            out[-1] |= out[parent]
    return out


def stages(blocked: Sequence[int], senders: Sequence[object]) -> list[list[int]]:
    """Return the calls of each `execute` by the earliest stage in which they can be sent."""
    depth: list[int] = []
    out: dict[tuple[int, int], list[int]] = {}
    order = list(dict.fromkeys(senders))
    for call, mask in enumerate(blocked):
        depth.append(1 + max((depth[before] for before in members(mask)), default=0))
        out.setdefault((order.index(senders[call]), depth[call]), []).append(call)
    return [out[key] for key in sorted(out)]
