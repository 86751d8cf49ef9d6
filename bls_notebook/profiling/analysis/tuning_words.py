"""The result of `tune` in words: its sentence, its advice, and the lines of config.pbtxt that change. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bls_notebook.profiling.records.spans import SessionData
from bls_notebook.profiling.records.tuning import ModelSetting, TunedModel, Tuning
from bls_notebook.profiling.records.verdicts import listed, time_of, times
from bls_notebook.records import size, visible

from .setting_search import ENOUGH, MOST
from .span_tree import SpanTree

_SHARED = (
    "The limit does not appear when requests run one after the other: something that instances share (a lock, a "
    "connection, the bandwidth of memory), or the cost of sending so many at once."
)
UNKNOWN = ("busy", "shared_instance")  # causes with which it is unknown whether more instances help
_AS_LONG = 1.02  # a smaller ratio of two times is no difference


def sentence(found: Tuning) -> str:
    """Return the sentence that names the setting and its gain."""
    if not found.models:
        nothing = "" if found.verdict.cause in UNKNOWN else "Nothing to tune. "
        return f"{nothing}{found.verdict.sentence}"
    walls, took, several = found.predicted, found.measured, f"{found.requests} requests at once"
    setting = in_words((m.name, m.now, m.found) for m in found.models)
    if found.problem:
        return f"With {setting}, it could not be run: {found.problem}."
    if not found.explained:
        return (
            f"Unknown: as it is, {several} took {time_of(took.now)}, but by the recorded work they would take "
            f"{time_of(walls.now)}. What other settings bring cannot be predicted."
        )
    if not found.changed and 0 < took.best < ENOUGH * took.now:
        twice = f"{time_of(took.now)} today, and {time_of(took.best)} with up to twice as many instances"
        return f"No better setting was predicted, but there is one: {several} took {twice}."
    if not found.changed:
        so = f"The setting is the smallest that gets there: {several} took {time_of(took.now)}."
        return f"{so} {_more(found)}".strip()
    if not found.confirmed:
        ms, predicted, now = map(time_of, (took.found, walls.found, took.now))
        return f"With {setting}, {several} took {ms}, not the predicted {predicted}; with the setting as it is, {now}."
    both, how = (took, "took") if took.found else (walls, "are predicted to take")
    gain = both.now / max(1, both.found)
    if gain < 1 / ENOUGH:
        less = f"{several} {how} {time_of(both.found)}, and as it is {time_of(both.now)}"
        return f"Less would do, {setting}: {less}. {_more(found)}".strip()
    words = f"{several} {how} {time_of(both.found)} instead of {time_of(both.now)}: {times(gain)} times as fast"
    return f"With {setting}, {words}. {_more(found)}".strip()


def _more(found: Tuning) -> str:
    """Say what more instances brought, if that was run; else, what they are predicted to bring."""
    took, walls = found.measured, found.predicted
    if took.best:
        twice = f"with up to twice as many instances, they took {time_of(took.best)}"
        least = (took.found or took.now) * ENOUGH
        return f"More brings nothing: {twice}." if took.best >= least else f"{twice[0].upper()}{twice[1:]}."
    if walls.found > _AS_LONG * walls.best:
        return f"With more, {time_of(walls.best)} is predicted at best."
    return "" if took.found else "With more, no gain is predicted."


def advice(found: Tuning) -> tuple[str, ...]:
    return tuple(each.strip() for each in _advice(found) if each.strip())


def _advice(found: Tuning) -> Iterator[str]:
    if found.models and not found.explained and found.measured.found:
        setting = in_words((m.name, m.now, m.found) for m in found.models)
        took, now = map(time_of, (found.measured.found, found.measured.now))
        yield f"With {setting}, they took {took} instead of {now}."
    if found.verdict.cause == "batch_in_turn":
        yield f"{found.verdict.sentence} {found.verdict.advice}"
    if found.verdict.note:
        yield found.verdict.note
    if found.verdict.advice and not found.models:
        yield found.verdict.advice
    leave = "" if found.pbtxt else " Leave the setting as it is."
    if found.models and found.verdict.cause == "contention":
        yield f"{found.verdict.sentence} {found.verdict.advice}{leave}"
    elif not found.confirmed and not found.problem and found.explained and not found.pbtxt:
        # If other programs used the processors, the run says nothing about the models.
        yield (_smaller_batches(found) or ("" if found.verdict.note else _SHARED)) + leave
    here, there = found.predicted, found.on_server
    differs = [m for m in found.models if m.on_server != m.found]
    if found.explained and found.models and differs and there.found * _WORTH < here.found:
        setting = in_words((m.name, m.now, m.on_server) for m in found.models)
        yield (
            "Here instances share one Python, and one at a time holds its lock (GIL). On a Triton server each is a "
            f"process: with {setting or 'the setting as it is'}, on as many processors, the prediction is "
            f"{time_of(there.found)}."
        )
    for model in found.models:
        if model.most < min(MOST, sum(s.model == model.name and s.ran for s in found.gathered.spans)):
            takes = model.device_bytes if model.device_bytes > 0 else model.host_bytes
            yield f"An instance of `{model.name}` takes {size(takes)}: there is memory for {model.most}."
    blind = [
        f"`{m.name}`"
        for m in found.models
        if m.found.count > m.now.count and m.kind == "KIND_GPU" and m.device_bytes < 0
    ]
    if blind:
        yield f"The GPU memory of an instance of {listed(blind)} is unknown."
    yield from (f"{each[0].upper()}{each[1:]}." for each in found.unseen)


def _smaller_batches(found: Tuning) -> str:
    """Say that batches were smaller with more instances; empty if they were not."""
    for model in found.changed:
        now, then = (_requests_of_a_batch(run, model.name) for run in (found.gathered, found.then or found.gathered))
        if then * _WORTH < now:
            mean = f"{then:.1f} requests on average instead of {now:.1f}"
            return f"More instances of `{model.name}` served smaller batches: {mean}."
    return ""


def _requests_of_a_batch(session: SessionData, model: str) -> float:
    ran = [m for m in SpanTree.of(session).members.values() if m[0].model == model and m[0].ran]
    return sum(map(len, ran)) / max(1, len(ran))


_WORTH = 1.15


def in_words(settings: Iterable[tuple[str, ModelSetting, ModelSetting]]) -> str:
    """Describe the changes: "3 instances of `resize`, 2 of `detect` and batches of 8 for `detect`"."""
    counts: list[str] = []
    batches: list[str] = []
    for name, now, then in settings:
        if then.count != now.count:
            unit = "" if counts else f" instance{'' if then.count == 1 else 's'}"
            counts.append(f"{then.count}{unit} of `{name}`")
        if batches_of(then) != batches_of(now):
            batches.append(f"{batches_of(then)} for `{name}`")
    return listed([*counts, *batches])


def batches_of(setting: ModelSetting) -> str:
    if not setting.batches:
        return "no batches"
    sizes = " or ".join(map(str, setting.preferred)) or f"up to {setting.max_batch_size}"
    delay = f" within {time_of(1000 * setting.delay)}" if setting.delay else ""
    return f"batches of {sizes}{delay}"


def config_lines(model: TunedModel) -> str:
    """Return the lines of a model's config.pbtxt that its setting changes; empty for none.

    The configuration serves a server too. If that needs more instances, the lines have as many: they do no harm here.
    """
    now, found = model.now, model.found
    lines = [f"# config.pbtxt of {visible(model.name)}"]
    total = max(found.count, model.on_server.count)
    if total != now.count:
        count, was = -(-total // model.devices), -(-now.count // model.devices)
        fields = " ".join(filter(None, (f"count: {count}", visible(model.group))))
        group = f"instance_group [{{ {fields} }}]"
        here = f"; {found.count} in this kernel" if found.count < total else ""
        lines.append(f"{group}  # {was} now{here}")
    if found.max_batch_size != now.max_batch_size:
        lines.append(f"max_batch_size: {found.max_batch_size}  # {now.max_batch_size} now")
    if batches_of(found) != batches_of(now):
        fields = f"preferred_batch_size: [ {', '.join(map(str, found.preferred))} ]"
        if found.delay:
            fields += f" max_queue_delay_microseconds: {found.delay}"
        lines.append(f"dynamic_batching {{ {fields} }}  # {batches_of(now)} now")
    return "\n".join(lines) + "\n" if lines[1:] else ""
