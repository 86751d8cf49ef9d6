"""A second look at the model of an exercise: other requests, other answers of its callees, and their failures.

``exercises/`` has a file for each exercise, with the sections Model (the signature), Callees, Requests and Solution.
The outputs (Other) or the code (Variant) of a callee may be changed.
The solution is the reference: the model of the learner must do the same, with at most as many requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import ref

from numpy.random import default_rng

import bls_notebook as bls
from bls_notebook.extending import Host, VariantChange, host_of
from bls_notebook.records import BLSError
from bls_notebook.repository.config import parse_config
from bls_notebook.testing.claim_checks import Judgement
from bls_notebook.testing.claim_values import GivenAnswer, answer_of

from .case_text import arrays
from .puzzle_check import CALLEES
from .puzzle_requests import LIMIT
from .puzzle_text import section_code, sections_of, signature_config
from .second_look import (
    KEPT,
    ChangedCallee,
    LookedAt,
    RequestTimes,
    by_time,
    first_difference,
    growth,
    hides_slips,
    kept_more,
    left_after_errors,
    look,
    peek,
    remembers_ended,
    second_look,
    slower,
    source_of,
    times_of,
)

FOLDER = Path(__file__).with_name("exercises")
_Result = TypeVar("_Result")
_FASTER = 0.97  # times the time of the reference, which only waits
OTHER = "the same for other requests"


def exercise_names() -> list[str]:
    """Return the names of the exercises that have a reference."""
    return sorted(file.stem for file in FOLDER.glob("*.md"))


def look_at_exercise(
    name: str, model: str = "", repo: bls.ModelRepository | None = None, is_failed: bool = False
) -> Judgement | None:
    """Return a judgement that fails if a model differs from the reference of an exercise; None if it does the same.

    `model` is the learner's model, by default the one that the exercise names. If a claim of the exercise `is_failed`,
    more time or memory than the reference needs is no news.
    """
    if name not in exercise_names():
        raise BLSError(f"exercise: got {name!r}, expected one of {', '.join(exercise_names())}")
    texts = sections_of((FOLDER / f"{name}.md").read_text("utf-8"))
    if texts["Solution"].startswith("As in "):
        other = texts["Solution"].split()[2].strip(".")
        texts["Solution"] = sections_of((FOLDER / f"{other}.md").read_text("utf-8"))["Solution"]
    items = [line[2:] for line in texts["Requests"].splitlines()]
    items = [item for line in items for item in _repeated(line)]
    requests = [item for item in items if item[0].isupper()]
    options = {item.split()[0]: item.split()[-1] for item in items if not item[0].isupper()}
    callees = [line[2:] for line in texts["Callees"].splitlines() if line.startswith("- ")]
    others = {title[6:]: section_code(text) for title, text in texts.items() if title.startswith("Other ")}
    signature = texts["Model"].strip().strip("`")
    model = model or name
    reference = {model: _change(model, signature if "->" in signature else "", texts["Solution"])}
    for title, text in texts.items():
        if title.startswith("Reference "):
            reference[title[10:]] = _change(title[10:], text.partition("\n")[0].strip("`"), text)
    side = _Sides(host_of(repo), model, reference, requests, "typed" in options)
    variants = {title[8:]: section_code(text) for title, text in texts.items() if title.startswith("Variant ")}
    with side.host.uncounted():
        found = _judged(side, callees, others, options, is_failed)
        return _by_variants(side, variants) if found is None and variants else found


def _repeated(line: str) -> list[str]:
    """Return a request once or, of a line such as ``3 x IMAGE UINT8 [8, 8] 0..16``, several times."""
    times, _, item = line.rpartition(" x ")
    return [item] * int(times or 1)


def _change(model: str, signature: str, text: str) -> VariantChange:
    """Return the reference of a model; without a signature, it has the configuration of the learner's model."""
    change = VariantChange(section_code(text), "reference")
    if not signature:
        return change
    return replace(change, config=_json_form(parse_config(signature_config(signature), model=model)))


def _json_form(config: Any) -> dict[str, Any]:
    from google.protobuf.json_format import MessageToDict  # slow to import

    form: dict[str, Any] = MessageToDict(config, preserving_proto_field_name=True)
    return form


def _judged(
    side: _Sides, callees: list[str], others: Mapping[str, str], options: Mapping[str, str], is_failed: bool
) -> Judgement | None:
    found = peek(source_of(side.host, [side.model]))
    if found is not None:
        return found
    found = first_difference(side.own({}).answers, side.reference({}).answers)
    if found is not None:
        return replace(found, claim=OTHER, seen=f"for other inputs, {found.seen}")
    if others:
        changed = {name: ChangedCallee(name, code=code) for name, code in others.items()}
        found = first_difference(side.own(changed).answers, side.reference(changed).answers)
        if found is not None:
            return replace(found, claim=OTHER, seen=f"with another {next(iter(others))}, {found.seen}")
    if "changed" not in options:
        found = second_look(callees, side.own, side.reference, counts="batched" not in options)
    if found is None and callees:
        found = hides_slips(side.own({}, slip=True), callees, side.reference({}, slip=True))
    if found is None and "parameter" in options:
        found = _by_parameter(side, *options["parameter"].split("="))
    if found is None and "waits" in options:
        with bls.profile() as profile:
            side.own({})
        judged = bls.judge(profile.record, f"waits <= {options['waits']} of {side.model}")
        found = None if judged else replace(judged, seen=f"for other inputs, {judged.seen}")
    if found is None and "kept" in options and not is_failed:
        found = side.measure(side.fresh, lambda: left_after_errors(side.host, callees, side._send))
    if found is None and "kept" in options and not is_failed:
        grown = partial(side.growth, callees)
        mine, wanted = (partial(side.measure, change, grown) for change in (side.fresh, side.change))
        found = kept_more(mine, wanted, KEPT, "The memory of the model grows with every request.")
    if found is None and "forgets" in options and not is_failed:
        found = side.measure(side.fresh, lambda: remembers_ended(side.host, side.model, side._send))
    if found is None and ("time" in options or ("fast" in options and not is_failed)):
        found = _by_time(side, "time" in options, is_failed)
    return found


def _by_parameter(side: _Sides, name: str, value: str) -> Judgement | None:
    """Compare the model with the reference while a parameter of their configuration has another value."""
    config = _json_form(side.host.ready(side.model).spec.config)
    config.setdefault("parameters", {})[name] = {"string_value": value}
    sent = ({side.model: replace(change[side.model], config=config)} for change in (side.fresh, side.change))
    found = first_difference(*(side.measure(change, side._send) for change in sent))
    if found is None:
        return None
    hint = f"Read the parameter `{name}` of the configuration: it may have another value. {found.hint}"
    return replace(found, claim=OTHER, seen=f"with the parameter {name} = {value}, {found.seen}", hint=hint)


def _by_variants(side: _Sides, sources: Mapping[str, str]) -> Judgement | None:
    """Compare the model with the reference while callees have other code, and the configuration of their side."""
    sent = (
        {**change, **{name: replace(change.get(name, VariantChange()), source=text) for name, text in sources.items()}}
        for change in (side.fresh, side.change)
    )
    found = first_difference(*(side.measure(change, side._send) for change in sent))
    if found is None:
        return None
    hint = f"Use the outputs of each call: your model must not do the work of a callee itself. {found.hint}"
    return replace(found, claim=CALLEES, seen=f"with another {next(iter(sources))}, {found.seen}", hint=hint)


def _by_time(side: _Sides, only_waits: bool, may_be_slower: bool) -> Judgement | None:
    """Return a judgement that fails if requests take longer than with the reference or, if it only waits, shorter."""

    def judge(mine: RequestTimes, wanted: RequestTimes) -> Judgement | None:
        if only_waits and mine[0] < wanted[0] * _FASTER:
            seen = f"{mine[0] * 1e3:.0f} ms for a request, which takes {wanted[0] * 1e3:.0f} ms"
            return Judgement("time", False, seen, "Overlap the requests; each must still take its time.")
        return None if may_be_slower else slower(mine, wanted)

    own, reference = (partial(side.measure, change, side.shortest) for change in (side.fresh, side.change))
    return by_time(own, reference, judge=judge)


class _SeenReference:
    """The looks at the reference of the exercise that was checked last: a learner checks many models against it."""

    def __init__(self) -> None:
        self.surroundings: Sequence[object] = ()
        self.looks: dict[tuple[object, ...], LookedAt] = {}


_seen = _SeenReference()


class _Sides:
    """The learner's model and the reference, both in the learner's repository, with a fresh state for each look."""

    def __init__(
        self, host: Host, model: str, change: Mapping[str, VariantChange], requests: list[str], typed: bool
    ) -> None:
        self.host, self.change, self.fresh, self.model = host, change, {model: VariantChange()}, model
        self._requests, self._is_typed, self._sent = requests, typed, 0

    def own(self, callees: Mapping[str, ChangedCallee], slip: bool = False) -> LookedAt:
        return self.measure(self.fresh, lambda: self._look(callees, slip))

    def reference(self, callees: Mapping[str, ChangedCallee], slip: bool = False) -> LookedAt:
        """Look at the reference or return the last look, if nothing has changed that it depends on."""
        key, surroundings = (slip, *(callee.change for callee in callees.values())), self._surroundings()
        if _seen.surroundings != surroundings:
            _seen.surroundings, _seen.looks = surroundings, {}
        if key not in _seen.looks:
            _seen.looks[key] = self.measure(self.change, lambda: self._look(callees, slip))
        return _seen.looks[key]

    def _surroundings(self) -> list[object]:
        """Return what the answers of the reference depend on, beside its callees' changes."""
        host = self.host
        configs = [host.ready(name).spec.config.SerializeToString(deterministic=True) for name in self.change]
        others = [name for name in host.model_keys() if name not in self.change]
        models = [{version: ref(model) for version, model in host.versions(name).items()} for name in others]
        devices = [device.name for device in bls.list_devices()]
        return [self.model, self.change, self._requests, self._is_typed, configs, others, models, devices]

    def _look(self, callees: Mapping[str, ChangedCallee], slip: bool) -> LookedAt:
        return look(self.host, callees, self._send, self.model if slip else "")

    def measure(self, change: Mapping[str, VariantChange], run: Callable[[], _Result]) -> _Result:
        with self.host.variant(change) as variant, variant.serving():
            return run()

    def growth(self, callees: Sequence[str]) -> int:
        return growth(self.host, [self.model], lambda: len(self._send()), callees)

    def shortest(self) -> RequestTimes:
        """Return the shortest times of a request."""
        seconds, waited = min(times_of(self._send) for _ in range(2))
        return seconds / len(self._requests), waited / len(self._requests)

    def _send(self) -> list[list[GivenAnswer]]:
        host, answers = self.host, []
        self._sent += 10  # sequences have new IDs
        draw = default_rng(len(self._requests))
        loaded = host.ready(self.model)
        is_stream = loaded.decoupled
        for text in self._requests:
            options: dict[str, Any] = {}
            tensors, _, sequence = text.partition("; sequence ")
            if sequence:
                key, *flags = sequence.split()
                options = {"correlation_id": self._sent + int(key), "flags": ("start" in flags) + 2 * ("end" in flags)}
            tensors, _, output = tensors.partition("; only ")
            if output:
                options["outputs"] = [output]
            inputs = arrays(f"x {tensors}", draw)
            if self._is_typed:  # the learner may choose another data type
                inputs = {spec.name: inputs[spec.name].astype(spec.dtype) for spec in loaded.spec.inputs.values()}
            if tensors.endswith("; on the GPU"):
                inputs = {key: bls.cupy().asarray(value) for key, value in inputs.items()}
            sent = host.send(host.request(self.model, inputs, **options), stream=is_stream)
            result = sent.result(LIMIT)
            responses = list(map(answer_of, result if is_stream else [result]))
            answers.append([r for r in responses if r.record.tensors or r.record.error] if is_stream else responses)
        return answers
