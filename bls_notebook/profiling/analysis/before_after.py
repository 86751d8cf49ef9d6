"""Compare two profiles: the times of requests, models and lines, and whether a difference exceeds the noise. Pure.

The time of a model or a line does not include its callees; it is the sum over what one request caused. The noise of a
difference is the largest of three relative differences: `_FLOOR`; the spread of the middle halves of both sides, plus
what waits for processors may explain; and the difference of means that chance would exceed once in a hundred times.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from statistics import stdev

from bls_notebook.profiling.intervals import total
from bls_notebook.profiling.records.before_after import BeforeAfter, TimeChange
from bls_notebook.profiling.records.line_times import LineTime, ModelLines
from bls_notebook.profiling.records.spans import SessionData, Span
from bls_notebook.profiling.records.verdicts import listed, time_of, times
from bls_notebook.records import NONE, Quartiles, count, grouped, quartiles

from .span_tree import SpanTree, serving

_FLOOR = 0.03
_FEWEST = 3  # requests from which on the noise is known
_T = {2: 9.92, 3: 5.84, 4: 4.6, 5: 4.03, 6: 3.71, 7: 3.5}  # Student's t for 99%, by degrees of freedom
_MANY = 3.2
_SMALL = 0.02  # of a request: a shorter time of a model or line is left out
_BUSY = 0.1  # waits for processors from which on they are named
_LINES = 8


@dataclass(frozen=True)
class ComparedRuns:
    """The runs before or after, with the time by line in all of them.

    Of a comparison of exec with async_exec, ``gathered`` has the times of the ``requests`` sent all at once.
    """

    name: str
    sessions: Sequence[SessionData]
    lines: Sequence[ModelLines]
    requests: int = 0
    gathered: Quartiles = NONE

    def roots(self) -> dict[str, list[Span]]:
        """Return the requests that no model sent and that succeeded, by model."""
        spans = (span for session in self.sessions for span in session.spans)
        return grouped((span.model, span) for span in spans if not span.parent and span.state == "ok")

    def own_times(self, models: Iterable[str]) -> dict[str, list[int]]:
        """Return the own time of each model for each request to one of `models`."""
        sums: list[Counter[str]] = []
        for session in self.sessions:
            tree = SpanTree.of(session)
            root: dict[int, int] = {}
            by_root: dict[int, Counter[str]] = {}
            for span in session.spans:  # senders come first
                root[span.id] = root.get(span.parent, 0) if span.parent else span.id
                if not span.parent and span.state == "ok" and span.model in models:
                    by_root[span.id] = Counter()
            for members in tree.members.values():
                own = by_root.get(root[members[0].id])
                if own is not None and members[0].ran and not tree.is_ensemble(members[0]):
                    begin, end = serving(members[0])
                    execution = tree.execution(members[0].id)
                    alone = execution not in tree.children
                    own[members[0].model] += end - begin if alone else total(tree.self_time(execution))
            sums += by_root.values()
        return {name: [each[name] for each in sums] for name in sorted({name for each in sums for name in each})}

    @property
    def waits(self) -> float:
        """The time that threads waited for processors, relative to the time of the requests."""
        spent = sum(span.duration for each in self.roots().values() for span in each)
        return sum(session.disturbed for session in self.sessions) / spent if spent else 0.0


def before_after(before: ComparedRuns, after: ComparedRuns) -> BeforeAfter:
    """Compare the profiles of one workload before and after a change."""
    if before.name == after.name:  # such as cells of two notebooks
        before, after = replace(before, name="before"), replace(after, name="after")
    first, last = before.roots(), after.roots()
    common = [name for name in first if name in last]
    notes = [*_different_models(first, last), *_different_inputs(common, first, last), *_failures(before, after)]
    if not common:
        what = "no request succeeded in both" if not notes else notes.pop(0)
        return BeforeAfter(before.name, after.name, f"Nothing to compare: {what}.", notes=tuple(notes))
    busy = max(before.waits, after.waits)
    waits = abs(before.waits - after.waits) + busy / 4
    whole = [
        _change("request", name, [s.duration for s in first[name]], [s.duration for s in last[name]], waits)
        for name in sorted(common, key=lambda name: -sum(span.duration for span in first[name]))
    ]
    models = [*_models(before, after, common, waits, whole)]
    lines = [*_lines(before, after, common, models, whole)]
    notes += [*_changed_models(before, after)]
    if busy >= _BUSY:
        notes.append(f"the machine was busy: threads waited for a processor for {busy:.0%} of the requests' time")
    other = any(note.startswith("the inputs differ") for note in notes)
    together = [*_gathered(before, after, common[0], waits)]
    said = _sentence(whole[0], models, lines, other)
    if at_once := "".join(map(_sentence_of_gathered, together)):
        said = f"{at_once}{said[0].lower()}{said[1:]}"
    return BeforeAfter(before.name, after.name, said, (*together, *whole, *models, *lines), tuple(notes))


def _gathered(before: ComparedRuns, after: ComparedRuns, model: str, waits: float) -> Iterator[TimeChange]:
    """Yield the change of the time of as many requests sent all at once, if both sides measured it."""
    sides = before.gathered, after.gathered
    if before.requests != after.requests or not all(side.median for side in sides):
        return
    few = min(side.count for side in sides) < _FEWEST
    noise = 0.0 if few else max(_FLOOR, waits + sum((side.q3 - side.q1) / 2 / side.median for side in sides))
    verdict = _judged(before.gathered.median, after.gathered.median, noise)
    text = f"{count(before.requests, 'request')} at once"
    yield TimeChange("gathered", model, verdict, *sides, noise, text=text)


def _sentence_of_gathered(change: TimeChange) -> str:
    if change.verdict not in ("faster", "slower") or change.noise >= 1:
        return ""
    pair = f"{time_of(change.before.median)} before, {time_of(change.after.median)} after"
    gain = f"{spelled(ratio_of(change))}× {change.verdict}"
    return f"{change.text} are {gain}: {pair} (noise {noise_of(change)}). One after the other, "


def _noise(before: Sequence[int], after: Sequence[int], waits: float) -> float:
    """Return the relative difference that may be chance; 0 if there are too few measurements."""
    sides = [(values, quartiles(values)) for values in (before, after)]
    if any(q.count < _FEWEST or not q.median for _, q in sides):
        return 0.0
    spread = sum((q.q3 - q.q1) / 2 / q.median for _, q in sides)
    variance = 0.0
    for values, q in sides:
        deviation = stdev(values) if q.count < 8 else (q.q3 - q.q1) / 1.35
        variance += (deviation / q.median) ** 2 / q.count
    chance = _T.get(min(q.count for _, q in sides) - 1, _MANY) * math.sqrt(variance)
    return max(_FLOOR, spread + waits, chance)


def _judged(before: float, after: float, noise: float) -> str:
    if not before or not after:
        return "new" if after else "gone"
    if not noise:
        return "unknown"
    if abs(math.log(after / before)) <= math.log1p(noise):
        return "noise"
    return "faster" if after < before else "slower"


def _change(kind: str, model: str, before: Sequence[int], after: Sequence[int], waits: float) -> TimeChange:
    noise, sides = _noise(before, after, waits), (quartiles(before), quartiles(after))
    return TimeChange(kind, model, _judged(sides[0].median, sides[1].median, noise), *sides, noise)


def _models(
    before: ComparedRuns, after: ComparedRuns, common: Sequence[str], waits: float, whole: Sequence[TimeChange]
) -> Iterator[TimeChange]:
    first, last = before.own_times(common), after.own_times(common)
    least = _SMALL * min(max(change.before.median, change.after.median) for change in whole)
    changes = [_change("model", name, first.get(name, [0]), last.get(name, [0]), waits) for name in {**first, **last}]
    changes = [each for each in changes if max(each.before.median, each.after.median) >= least]
    yield from sorted(changes, key=lambda each: -abs(each.after.median - each.before.median))


def _lines(
    before: ComparedRuns,
    after: ComparedRuns,
    common: Sequence[str],
    models: Sequence[TimeChange],
    whole: Sequence[TimeChange],
) -> Iterator[TimeChange]:
    """Yield the lines whose time changed by more than the noise, the largest change first."""
    found = []
    for model in models:
        first, last = (_lines_of(side, model.model, common) for side in (before, after))
        if first is None or last is None:
            continue
        partner = _partners(before, after, model.model)
        pairs = {partner.get((line.file, line.line)): (line, ns) for line, ns in first}
        pairs.pop(None, None)
        matched = {(line.file, line.line) for line, _ in last}
        rows: list[tuple[_Line | None, _Line | None]]
        rows = [(pairs.get((line.file, line.line)), (line, ns)) for line, ns in last]
        rows += [(old, None) for at, old in pairs.items() if at not in matched]
        rows += [((line, ns), None) for line, ns in first if (line.file, line.line) not in partner]
        found += [_line_change(model, old, new) for old, new in rows]
    least = _SMALL * max(whole[0].before.median, whole[0].after.median)
    found = [each for each in found if abs(each.after.median - each.before.median) >= least]
    found = [each for each in found if each.verdict not in ("noise", "unknown")]
    yield from sorted(found, key=lambda each: -abs(each.after.median - each.before.median))[:_LINES]


_Line = tuple[LineTime, float]


def _lines_of(side: ComparedRuns, model: str, common: Sequence[str]) -> list[_Line] | None:
    """Return the lines of a model with their own time for a request; None without enough samples."""
    known = [each for each in side.lines if each.model == model and each.known]
    requests = sum(len(spans) for name, spans in side.roots().items() if name in common)
    trees = map(SpanTree.of, side.sessions)
    executions = sum(m[0].model == model and m[0].ran for tree in trees for m in tree.members.values())
    if not known or not requests or not executions:
        return None
    sites = {
        (session.sources[span.source - 1].name, span.line)
        for session in side.sessions
        for span in session.spans
        if span.source and session.sources[span.source - 1].model == model
    }
    # Lines may be of more runs than the sessions: scale by executions. Waits for callees are the callees' time.
    lines = ((line, line.ns / each.executions * executions / requests) for each in known for line in each.lines)
    return [(line, ns) for line, ns in lines if line.own and (line.file, line.line) not in sites]


def _line_change(model: TimeChange, old: _Line | None, new: _Line | None) -> TimeChange:
    first, last = (0.0 if each is None else each[1] for each in (old, new))
    seen = [each[0] for each in (old, new) if each is not None]
    chance = 2 * math.sqrt(sum((1 - line.own) / max(1.0, line.samples * line.own / line.share) for line in seen))
    noise = model.noise and model.noise + chance
    line_before, line = (0 if each is None else each[0].line for each in (old, new))
    text_before, text = ("" if each is None else each[0].text for each in (old, new))
    before, after = (Quartiles(1, ns, ns, ns, ns, ns, ns) for ns in (first, last))
    verdict = _judged(first, last, noise) if model.noise else "unknown"
    return TimeChange("line", model.model, verdict, before, after, noise, line_before, line, text_before, text)


def _partners(before: ComparedRuns, after: ComparedRuns, model: str) -> dict[tuple[str, int], tuple[str, int]]:
    """Return the lines after by the lines before: equal lines, and lines that replaced as many."""
    old, new = (
        {s.name: s.text.splitlines() for s in side.sessions[0].sources if s.model == model} for side in (before, after)
    )
    found: dict[tuple[str, int], tuple[str, int]] = {}
    for name in old.keys() & new.keys():
        for tag, a, a_end, b, b_end in SequenceMatcher(None, old[name], new[name], autojunk=False).get_opcodes():
            if tag == "equal" or (tag == "replace" and a_end - a == b_end - b):
                found |= {(name, a + k + 1): (name, b + k + 1) for k in range(a_end - a)}
    return found


_Roots = dict[str, list[Span]]


def _different_models(first: _Roots, last: _Roots) -> Iterator[str]:
    if first.keys() != last.keys():
        before, after = (listed([f"`{name}`" for name in side]) or "no model" for side in (first, last))
        yield f"the models differ: before, requests went to {before}, after, to {after}"


def _different_inputs(common: Sequence[str], first: _Roots, last: _Roots) -> Iterator[str]:
    for name in common:
        sides = []
        for spans in (first[name], last[name]):
            shapes = dict.fromkeys(", ".join(f"{t.name} {list(t.dims)}" for t in span.inputs) for span in spans)
            sides.append([*shapes] if any(shapes) else None)
        if None not in sides and set(sides[0] or ()) != set(sides[1] or ()):
            before, after = ("; ".join((side or [])[:3]) for side in sides)
            yield f"the inputs differ: `{name}` got {before} before, {after} after"
        elif {span.bytes_in for span in first[name]} != {span.bytes_in for span in last[name]}:
            sizes = (sum(span.bytes_in for span in spans) / len(spans) for spans in (first[name], last[name]))
            yield "the inputs differ: `{}` got {:,.0f} bytes a request before, {:,.0f} after".format(name, *sizes)


def _failures(before: ComparedRuns, after: ComparedRuns) -> Iterator[str]:
    for side, when in (before, "before"), (after, "after"):
        roots = [span for session in side.sessions for span in session.spans if not span.parent]
        failed = sum(span.state != "ok" for span in roots)
        if failed:
            yield f"{failed} of {count(len(roots), 'request')} {when} did not succeed and do not count"


def _changed_models(before: ComparedRuns, after: ComparedRuns) -> Iterator[str]:
    first, last = ({model.name: model for model in side.sessions[0].models} for side in (before, after))
    for old, new in ((old, last[name]) for name, old in first.items() if name in last):
        what = ["code"] if old.code != new.code else []
        counts = len(old.instances), len(new.instances)
        if counts[0] != counts[1]:
            what.append("instances ({} before, {} after)".format(*counts))
        elif old.config != new.config:
            what.append("configuration")
        if what:
            yield f"`{old.name}` has other {listed(what)}"


def _sentence(whole: TimeChange, models: Sequence[TimeChange], lines: Sequence[TimeChange], other: bool) -> str:
    pair = f"{time_of(whole.before.median)} before, {time_of(whole.after.median)} after"
    with_other = ", with other inputs" if other else ""
    if whole.verdict == "unknown":
        few = "One side has fewer than 3 requests, so the noise is unknown."
        return f"A request to `{whole.model}` took {pair}{with_other}. {few}"
    noise = f"noise {noise_of(whole)}"
    if whole.verdict == "noise":
        return f"No difference beyond the noise{with_other}: a request to `{whole.model}` took {pair} ({noise})."
    if whole.noise >= 1:
        known = f"A request to `{whole.model}` is {whole.verdict}{with_other}"
        return f"{known}: {pair}. By how much is unknown: chance alone can make a request {noise_of(whole)} as long."
    said = f"A request to `{whole.model}` is {spelled(ratio_of(whole))}× {whole.verdict}{with_other}: {pair} ({noise})"
    way = whole.after.median - whole.before.median
    why = next((each for each in lines if (each.after.median - each.before.median) * way > 0), None)
    if why is None:
        why = next((e for e in models if e.verdict not in _NO and (e.after.median - e.before.median) * way > 0), None)
    if why is None:
        return f"{said}."
    most = abs(why.after.median - why.before.median) >= abs(way) / 2
    sides = f"{time_of(why.before.median)} before, {time_of(why.after.median)} after"
    return f"{said}, {'most' if most else 'a part'} of it in {why.place}: {sides}."


_NO = ("noise", "unknown")


def ratio_of(change: TimeChange) -> float:
    """Return the factor by which a time became shorter or longer."""
    return change.factor if change.verdict == "slower" else 1 / change.factor


def noise_of(change: TimeChange) -> str:
    """Spell the noise: in percent, or as a factor if it is larger than the time itself."""
    return f"±{change.noise:.0%}" if change.noise < 1 else f"{spelled(1 + change.noise)}×"


def spelled(factor: float) -> str:
    """Spell a factor; near 1 with two digits."""
    return f"{factor:.2f}" if factor < 1.95 else times(factor)
