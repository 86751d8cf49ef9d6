"""The time of executions by line of code, from samples. Pure.

A share is of the sampled time; times the measured time of the executions, it gives a line's time. Shares of fewer than
`_LEAST` samples, or below `SMALL`, are left out: they would be other ones in the next run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bls_notebook.profiling.intervals import total, union
from bls_notebook.profiling.records.line_times import LineTime, ModelLines
from bls_notebook.profiling.records.spans import LineSamples, SessionData, Source, StackLine
from bls_notebook.profiling.records.verdicts import LoopSeen
from bls_notebook.records import grouped

from .span_tree import SpanTree, serving

_LEAST, SMALL = 3, 0.02


def model_lines(*sessions: SessionData) -> tuple[ModelLines, ...]:
    """Return the time by line of each model whose executions were sampled, over all sessions, most time first."""
    times: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    seen: defaultdict[tuple[str, int], list[_Seen]] = defaultdict(list)
    for session in sessions:
        tree = SpanTree.of(session)
        sampled = set()
        for each in session.samples:
            span = tree.spans[each.span]
            sampled.add((span.model, span.version))
            lines = session.stacks[each.stack - 1].lines if each.stack else ()
            seen[span.model, span.version].append(_Seen(each, lines, session.sources))
        for members in tree.members.values():
            if (key := (members[0].model, members[0].version)) in sampled and members[0].ran:
                begin, end = serving(members[0])
                times[key].append(end - begin)
    found = (_model(*key, times[key], each) for key, each in seen.items())
    return tuple(sorted(found, key=lambda model: (-model.ns, model.model, model.version)))


def loop_shares(session: SessionData) -> tuple[LoopSeen, ...]:
    """Return the fraction of the time with requests in which each decoupled async model's loop ran its own code."""
    tree = SpanTree.of(session)
    loops = {(model.name, model.version) for model in session.models if model.decoupled and model.is_async}
    ran = Counter[tuple[str, int]]()
    for each in session.samples:
        span = tree.spans[each.span]
        ran[span.model, span.version] += each.ns if each.stack and not each.waits else 0
    busy = grouped(((span.model, span.version), serving(span)) for span in session.spans)
    return tuple(LoopSeen(*key, min(1.0, ran[key] / max(1, total(union(busy[key]))))) for key in ran if key in loops)


@dataclass(frozen=True, slots=True)
class _Seen:
    samples: LineSamples
    lines: Sequence[StackLine]
    sources: Sequence[Source]

    def place(self, line: StackLine) -> tuple[str, int, str, str]:
        source = self.sources[line.source - 1]
        texts = source.text.splitlines()
        return source.name, line.line, line.function, texts[line.line - 1].strip() if line.line <= len(texts) else ""


@dataclass(slots=True)
class _Sums:
    all: int = 0
    own: int = 0
    waits: int = 0
    samples: int = 0


def _model(name: str, version: int, times: Sequence[int], seen: Iterable[_Seen]) -> ModelLines:
    sums: defaultdict[tuple[str, int, str, str], _Sums] = defaultdict(_Sums)
    whole = unseen = samples = 0
    for each in seen:
        ns, count = each.samples.ns, each.samples.samples
        whole += ns
        samples += count
        unseen += ns if not each.lines else 0
        for place in dict.fromkeys(map(each.place, each.lines)):  # a recursive function counts once
            sums[place].all += ns
            sums[place].samples += count
        for line in each.lines[-1:]:
            own = sums[each.place(line)]
            own.own += ns
            own.waits += ns if each.samples.waits else 0
    spent, whole = sum(times), max(whole, 1)
    lines = (
        LineTime(*place, of.all / whole, of.own / whole, of.waits / whole, round(of.own / whole * spent), of.samples)
        for place, of in sums.items()
        if of.samples >= _LEAST and of.all >= SMALL * whole
    )
    ordered = tuple(sorted(lines, key=lambda line: (-line.own, -line.share, line.file, line.line)))
    return ModelLines(name, version, len(times), spent, samples, unseen / whole, ordered)
