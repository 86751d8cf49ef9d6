"""Reports of comparisons: `compare`, `tune` and `overlap`. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bls_notebook.display import change_block, config_block, join, parts, tag
from bls_notebook.display import document as doc
from bls_notebook.records import Quartiles, Remedy, count, grouped, ns, percent

from .analysis.tuning_words import batches_of
from .change_report import before_after_blocks
from .dependences.analysis import named
from .dependences.records import CodeChange, Overlap
from .line_report import slowest_lines
from .records.comparison import Comparison, Verification, failures
from .records.tuning import Tuning
from .records.verdicts import give_or_take, listed, times
from .session_report import timeline_widget, verdict_words
from .timeline.picture import timeline_block

# Causes with which the number of instances has nothing to do: there a prediction for it would only distract.
_NOT_OF_INSTANCES = ("little", "batched", "batch_in_turn", "helped", "one", "failed")
_MEASURED_THERE = "on a server"  # the heading of a column


def comparison_document(comparison: Comparison, *, widget: Any = None) -> doc.Document:
    """Describe a comparison: the sentence, figures, timelines, and what other instance counts would bring.

    A `widget` covers the picture of both timelines while a kernel is there.
    """
    verdict = comparison.verdict
    blocks: list[doc.Block] = [
        doc.Line([parts.name(comparison.model), parts.quiet(_compared(comparison))]),
        *(before_after_blocks(comparison.change) if comparison.change is not None else []),
        *slowest_lines(comparison.sequential.statistics(), comparison.settings[0].lines),
        *verdict_words(verdict),
    ]
    blocks += [doc.Words(parts.quiet(parts.coded(line)), indent="  ") for line in comparison.gathered.unbatched]
    blocks.append(doc.Tiles(_comparison_figures(comparison)))
    if comparison.gathered.spans:
        blocks.append(timeline_block((comparison.sequential, comparison.gathered), widget=widget, gap=True))
    heads, rows = _what_if(comparison)
    if rows:
        marked = [doc.Row(cells, "session-advised" if cells[0] == str(verdict.count) else "") for cells in rows]
        columns = [doc.Column(head, "r") for head in heads]
        blocks.append(doc.Table("What other instance counts bring", columns, marked))
    if apart := _apart(comparison):
        said = f"{listed([f'`{name}`' for name in apart])}: each instance is a process here, as on a server, so the "
        said += f"column “{_MEASURED_THERE}” is measured, on the processors of this machine."
        blocks.append(doc.Words(parts.quiet(parts.coded(said)), indent="  "))
    if verdict.count:
        tune = Remedy("`bls.tune`", "`%blstune` (`bls.tune`)")
        hint = f"{tune} looks for the smallest setting, of each model by itself."
        blocks.append(doc.Words(parts.quiet(parts.coded(hint)), indent="  "))
    if comparison.verification is not None:
        said = _verification(comparison.verification)
        shown = join(tag("b", "verified"), tag("span", parts.coded(said).html), by=" ")
        blocks.append(doc.Note("verified", said, tag("div", shown, cls="head")))
    return doc.Document(blocks, styles="session figure")


def _compared(comparison: Comparison) -> str:
    runs = f"{count(comparison.repeat, 'run')} of each, medians"
    if comparison.settings[0].problem:
        runs = "not compared, as requests failed"
    return f"{count(comparison.requests, 'request')}, exec against async_exec; {runs}"


def _comparison_figures(comparison: Comparison) -> list[tuple[str, str, str]]:
    now = comparison.settings[0]
    if now.problem:
        both = (("exec", now.sequential), ("async_exec", now.gathered))
        return [(f"failed by {way}", f"{failures(run)} of {now.measured.requests}", "") for way, run in both]
    figures = comparison.gathered.statistics()
    return [
        ("sequential exec", ns(now.measured.sequential), _spread(now.sequential_quartiles)),
        ("gathered async_exec", ns(now.measured.gathered), _spread(now.gathered_quartiles)),
        ("speed-up", f"{times(now.measured.speedup)}×", f"{times(comparison.verdict.best)}× at best"),
        (
            "overlap",
            percent(figures.overlap, figures.busy),
            "of the busy time of the gathered run: two requests or more were worked on at once",
        ),
        (
            "a request queued",
            percent(figures.waited, figures.wall),
            f"of the gathered run; {ns(figures.queued)} for all requests together",
        ),
    ]


def _spread(spread: Quartiles) -> str:
    return (
        f"{count(spread.count, 'run')}: middle half {ns(spread.q1)} to {ns(spread.q3)}, "
        f"all {ns(spread.least)} to {ns(spread.most)}"
    )


def _apart(comparison: Comparison) -> tuple[str, ...]:
    """Return the models whose instances the table counts if all of them are processes; else nothing."""
    models = comparison.verdict.models or (comparison.model,)
    seen = {model.name: model.processes for model in comparison.gathered.models}
    return models if not comparison.settings[0].problem and all(seen.get(name) for name in models) else ()


def _what_if(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows; measured cells stay empty if nothing was run.

    Instances that are processes run as on a server, so the measurements, today's among them, are a server's speed-up.
    """
    verdict, apart = comparison.verdict, _apart(comparison)
    models = verdict.models or (comparison.model,)
    heads = [f"instances of {', '.join(models)}", "predicted", "speed-up", "" if apart else "on a server", "measured"]
    heads.append(_MEASURED_THERE if apart else "speed-up")
    today = 0 if comparison.settings[0].problem else comparison.settings[0].measured.sequential
    measured = {s.count: s for s in comparison.settings[1:]}
    if apart:
        now = {len(model.instances) for model in comparison.gathered.models if model.name in apart}
        measured = {now.pop(): comparison.settings[0], **measured} if len(now) == 1 else measured
    predicted = {} if verdict.cause in _NOT_OF_INSTANCES else {w.count: w for w in verdict.what_ifs}
    rows = []
    for number in sorted({*measured, *predicted}):
        cells = [str(number)]
        what = predicted.get(number)
        on_server = "" if apart or not what else f"{times(what.on_server)}×"
        cells += [ns(what.wall), f"{times(what.speedup)}×", on_server] if what else [""] * 3
        setting = measured.get(number)
        wall = setting.measured.gathered if setting else 0
        if setting and setting.problem:
            cells += ["failed", ""]
        else:
            cells += [ns(wall), f"{times(today / wall)}×" if today else ""] if wall else ["", ""]
        rows.append(cells)
    keep = [i for i in range(len(heads)) if any(cells[i] for cells in rows)]
    return [heads[i] for i in keep], [[cells[i] for i in keep] for cells in rows]


def _verification(verification: Verification) -> str:
    whom = " and ".join(f"`{model}`" for model in verification.models)
    if verification.error:
        with_them = f"{count(verification.count, 'instance')} of {whom}"
        return f"could not be run with {with_them}: {verification.error}"
    measured = f"{times(verification.measured)}×{give_or_take(verification.relative_error)}"
    with_them = f"with {count(verification.count, 'instance')} of {whom}"
    if not verification.predicted:
        return f"{with_them}: measured {measured} of today's exec (nothing was predicted)"
    predicted = f"predicted {times(verification.predicted)}×"
    return f"{with_them}: {predicted}, measured {measured} of today's exec ({verification.off:.0%} off)"


def comparison_widget(comparison: Comparison, width: int) -> Any:
    """Return the interactive timeline of both runs; None if nothing was recorded."""
    return timeline_widget(comparison.sequential, comparison.gathered) if comparison.gathered.spans else None


def tuning_document(tuning: Tuning, *, widget: Any = None) -> doc.Document:
    """Describe what a search for the smallest setting found.

    A `widget` covers the picture of the timelines while a kernel is there.
    """
    blocks: list[doc.Block] = [
        doc.Line([parts.name(tuning.model), parts.quiet(_tuned(tuning))]),
        doc.Words(parts.coded(tuning.sentence), "session-verdict", "  "),
    ]
    blocks += [doc.Words(parts.coded(each), "session-advice", "  ") for each in tuning.advice]
    if tuning.changed and not tuning.measured.found and not tuning.problem:
        run = "Predicted, and not run, as `--no-verify` (`verify=False`) says."
        blocks.append(doc.Words(parts.quiet(parts.coded(run)), indent="  "))
    if not tuning.models:
        return doc.Document(blocks, styles="session figure")
    blocks.append(doc.Tiles(_tuning_figures(tuning)))
    if (tuning.explained and tuning.confirmed) or tuning.problem or tuning.pbtxt:
        blocks.append(_settings(tuning))
    if tuning.then is not None:
        blocks.append(timeline_block((tuning.gathered, tuning.then), widget=widget, gap=True))
    if tuning.pbtxt:
        lines = "\n".join(text.rstrip() for _, text in tuning.pbtxt)
        blocks.append(doc.Fold("What to change in config.pbtxt", [config_block(lines)], is_open=True))
    return doc.Document(blocks, styles="session figure config")


def _tuned(tuning: Tuning) -> str:
    if not tuning.models:
        return f"{count(tuning.requests, 'request')} at once"
    how = f"{count(tuning.replays, 'setting')} computed from {count(tuning.runs, 'run')}"
    return f"the smallest setting for {count(tuning.requests, 'request')} at once; {how}"


def _tuning_figures(tuning: Tuning) -> list[tuple[str, str, str]]:
    walls, took = tuning.predicted, tuning.measured
    figures = [("as it is", ns(took.now), "measured")]
    if not tuning.changed or not tuning.explained:
        return figures
    figures.append(("predicted", ns(walls.found), f"{ns(walls.best)} at best"))
    if took.found:
        figures.append(("measured", ns(took.found), f"{tuning.off:.0%} off"))
        figures.append(("speed-up", f"{times(took.now / took.found)}×", "measured"))
    return figures


def _settings(tuning: Tuning) -> doc.Table:
    on_server = any(model.on_server.count != model.found.count for model in tuning.models)
    batching = any(model.found.batches or model.now.batches for model in tuning.models)
    memory = any(max(model.host_bytes, model.device_bytes) > 0 for model in tuning.models)
    columns = [doc.Column("model"), doc.Column("instances now", "r"), doc.Column("enough", "r")]
    columns += [doc.Column("on a server", "r")] if on_server else []
    columns += [doc.Column("batches now"), doc.Column("enough")] if batching else []
    columns += [doc.Column("memory each", "r")] if memory else []
    rows = []
    for model in tuning.models:
        cells: list[doc.Said] = [model.name, str(model.now.count), str(model.found.count)]
        cells += [str(model.on_server.count)] if on_server else []
        cells += [batches_of(model.now), batches_of(model.found)] if batching else []
        taken = max(model.host_bytes, model.device_bytes)
        cells += [parts.memory(taken) if taken > 0 else parts.NOTHING] if memory else []
        rows.append(doc.Row(cells, "session-advised" if model.changed else ""))
    return doc.Table("Instances and batches of each model", columns, rows)


def tuning_widget(tuning: Tuning, width: int) -> Any:
    """Return the interactive timeline of the runs before and after; None if the change was not run."""
    return None if tuning.then is None else timeline_widget(tuning.gathered, tuning.then)


_CODE_LINES, _CALL_ROWS = 40, 30  # lines of a change, rows of calls
_DEPENDENCE_KINDS = {"control": " (decides)", "unknown": " (unknown)"}


def overlap_document(overlap: Overlap, *, widget: Any = None) -> doc.Document:
    """Describe the result of `overlap`; a `widget` covers the picture of the timelines in a live notebook."""
    runs = f"{count(overlap.runs, 'run')} of the model in {overlap.seconds:.1f} s"
    asked = f"{count(overlap.callee_requests, 'request')} to its callees"
    blocks: list[doc.Block] = [
        doc.Line([parts.name(overlap.model), parts.quiet(f"{count(overlap.requests, 'request')}; {runs}, {asked}")]),
        doc.Words(parts.coded(overlap.sentence), "session-verdict", "  "),
    ]
    if len(overlap.stages) > 1 and (overlap.together or overlap.already):
        blocks.append(doc.Words(parts.coded(f"Possible order: {_order(overlap)}."), "session-advice", "  "))
    if overlap.code is not None:
        blocks += _code_change(overlap.code)
    blocks += [doc.Words(parts.quiet(parts.coded(f"note: {each}")), indent="  ") for each in overlap.notes]
    if len(overlap.calls) > 1 and not overlap.problem:
        blocks.append(_call_table(overlap))
    if overlap.written.spans:
        blocks.append(doc.Tiles(_overlap_figures(overlap)))
        sessions = (overlap.written,) if overlap.changed is None else (overlap.written, overlap.changed)
        blocks.append(timeline_block(sessions, widget=widget, gap=True))
    return doc.Document(blocks, styles="session figure changes tried")


def _order(overlap: Overlap) -> str:
    """Say in which stages the calls of the first request can be sent: ```a` and `b` together, then `c```."""
    first = [s for s in overlap.stages if overlap.calls[s[0]].request == overlap.calls[0].request]
    words = [named(overlap.calls, stage) + (" together" if len(stage) > 1 else "") for stage in first]
    return ", then ".join([*words[:9], *([f"{len(words) - 9} more"] if len(words) > 9 else [])])


def _doubt_words(text: str) -> doc.Block:
    return doc.Words(parts.coded(text), "session-doubt", "  ")


def _code_change(code: CodeChange) -> Iterator[doc.Block]:
    if code.change is not None:
        inner = [change_block(code.change, _CODE_LINES)]
    else:
        by_hand = " By hand, where the requests have these names:" if code.template else ""
        inner = [_doubt_words(f"Not changed for you: {code.reason}.{by_hand}"), parts.pasted(code.template)]
    title = f"the code to write, in {code.file}" if code.file else "the code to write"
    yield parts.opened(title, inner)
    if code.proof:
        yield doc.Words(parts.coded(code.proof), "session-verdict", "  ") if code.proven else _doubt_words(code.proof)


def _call_table(overlap: Overlap) -> doc.Block:
    rows = []
    for number, call in enumerate(overlap.calls[:_CALL_ROWS]):
        own = ((_DEPENDENCE_KINDS.get(d.outcome, ""), d.earlier) for d in overlap.dependences if d.later == number)
        needs = ", ".join(named(overlap.calls, group) + kind for kind, group in grouped(own).items())
        line = str(call.line.line) if call.line is not None else ""
        rows.append(doc.Row([str(number + 1), parts.code(call.model), line, parts.coded(needs or "nothing")]))
    title = f"what each of the {len(overlap.calls)} calls needs"
    title += f" (the first {_CALL_ROWS})" if len(overlap.calls) > _CALL_ROWS else ""
    return parts.opened(title, [doc.Table("calls", doc.columns("call:r|model|line:r|needs"), rows)], False)


def _overlap_figures(overlap: Overlap) -> list[tuple[str, str, str]]:
    figures = [("as written", ns(overlap.written.wall), "")]
    if overlap.together or overlap.batch:
        figures.append(("predicted", f"{times(overlap.predicted)}×", "from the spans of the run as written"))
    if overlap.changed is not None:
        figures.append(("calls together", ns(overlap.changed.wall), "median"))
        figures.append(("speed-up, run by run", f"{times(overlap.speedup)}×", "with equal answers"))
    return figures


def overlap_widget(overlap: Overlap, width: int) -> Any:
    """Return the interactive timeline of the runs; None if nothing was recorded."""
    sessions = (overlap.written,) if overlap.changed is None else (overlap.written, overlap.changed)
    return timeline_widget(*sessions) if overlap.written.spans else None
