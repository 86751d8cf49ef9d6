"""The result of `tune` as a report: sentence, settings today and recommended, and the config to change."""

from __future__ import annotations

from typing import Any

from bls_notebook.display import document as doc
from bls_notebook.display import parts
from bls_notebook.display.records.models import config_block
from bls_notebook.display.units import count, ns
from bls_notebook.profiling.analysis.setting_search import batches_of
from bls_notebook.profiling.analysis.verdict_text import times
from bls_notebook.profiling.records.tuning import TunedModel, Tuning
from bls_notebook.profiling.timeline.picture import timeline_block


def tuning_document(tuning: Tuning, *, widget: Any = None) -> doc.Document:
    """Describe what a search for the smallest setting found.

    A `widget` covers the picture of the timelines while a kernel is there.
    """
    blocks: list[doc.Block] = [
        doc.Line([parts.name(tuning.model), parts.quiet(_what(tuning))]),
        doc.Words(parts.coded(tuning.sentence), "session-verdict", "  "),
    ]
    blocks += [doc.Words(parts.coded(each), "session-advice", "  ") for each in tuning.advice]
    if tuning.changed and not tuning.measured.found and not tuning.problem:
        run = "Predicted, and not run: `--verify` (`verify=True`) runs it."
        blocks.append(doc.Words(parts.quiet(parts.coded(run)), indent="  "))
    if not tuning.models:
        return doc.Document(blocks, styles="session figure")
    blocks.append(doc.Tiles(_figures(tuning)))
    if tuning.confirmed or tuning.problem or tuning.pbtxt:
        blocks.append(_table(tuning))
    if tuning.then is not None:
        blocks.append(timeline_block((tuning.gathered, tuning.then), widget=widget, gap=True))
    if tuning.pbtxt:
        lines = "\n".join(text.rstrip() for _, text in tuning.pbtxt)
        blocks.append(doc.Fold("What to change in config.pbtxt", [config_block(lines)], is_open=True))
    if tuning.model_analyzer:
        whole = doc.Fold("To measure on a server: Model Analyzer", [config_block(tuning.model_analyzer)])
        said = parts.quiet('For Model Analyzer on a server: save("model_analyzer.yaml")')
        blocks.append(doc.Forms([doc.Words(said, indent="  ")], [whole]))
    return doc.Document(blocks, styles="session figure config")


def _what(tuning: Tuning) -> str:
    if not tuning.models:
        return f"{count(tuning.requests, 'request')} at once"
    how = f"{count(tuning.replays, 'setting')} computed from {count(tuning.runs, 'run')}"
    return f"the smallest setting for {count(tuning.requests, 'request')} at once; {how}"


def _figures(tuning: Tuning) -> list[tuple[str, str, str]]:
    """Label, value, and what it means."""
    walls, took = tuning.predicted, tuning.measured
    figures = [("as it is", ns(took.now), "measured")]
    if not tuning.changed:
        return figures
    figures.append(("predicted", ns(walls.found), f"{ns(walls.best)} at best"))
    if took.found:
        figures.append(("measured", ns(took.found), f"{tuning.off:.0%} off"))
        figures.append(("speed-up", f"{times(took.now / took.found)}×", "measured"))
    return figures


def _table(tuning: Tuning) -> doc.Table:
    on_server = any(model.on_server.count != model.found.count for model in tuning.models)
    batching = any(model.found.batches or model.now.batches for model in tuning.models)
    memory = any(max(model.host_bytes, model.device_bytes) > 0 for model in tuning.models)
    columns = [doc.Column("model"), doc.Column("instances now", "r"), doc.Column("enough", "r")]
    columns += [doc.Column("on a server", "r")] * on_server
    columns += [doc.Column("batches now"), doc.Column("enough")] * batching
    columns += [doc.Column("memory each", "r")] * memory
    rows = []
    for model in tuning.models:
        cells: list[doc.Said] = [model.name, str(model.now.count), str(model.found.count)]
        cells += [str(model.on_server.count)] * on_server
        cells += [batches_of(model.now), batches_of(model.found)] if batching else []
        cells += [_memory(model)] * memory
        rows.append(doc.Row(cells, "session-advised" if model.changed else ""))
    return doc.Table("Instances and batches of each model", columns, rows)


def _memory(model: TunedModel) -> doc.Said:
    taken = max(model.host_bytes, model.device_bytes)
    return parts.memory(taken) if taken > 0 else parts.NOTHING


def tuning_widget(tuning: Tuning, width: int) -> Any:
    """Return the interactive timeline of the runs before and after; None if the change was not run."""
    if tuning.then is None:
        return None
    from bls_notebook.profiling.timeline.widget import Timeline  # needs anywidget

    return Timeline(tuning.gathered, tuning.then)
