"""``%blsinspect``: inspect a response, a tensor or a model, or compare two; ``%blswatch``: a live panel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import bls_notebook as bls
from bls_notebook.magics import MagicCall, evaluate
from bls_notebook.operations import OperationSpec, option, timeout, whole_number

if TYPE_CHECKING:
    from .inspection import Inspection


def _inspect(call: MagicCall, values: Sequence[str] = (), **options: Any) -> Inspection:
    if len(values) > 2:
        call.parser.refuse(values[2])
    inspection = bls.inspect(*([_value(call, word) for word in values] or [_latest(call)]), **options)
    if len(values) == 1 and not inspection.name and values[0].isidentifier():
        inspection.name = values[0]
        inspection = inspection.asked()
    return inspection


def _value(call: MagicCall, word: str) -> Any:
    """Return the value of an expression; a model's name needs no quotes."""
    known = {record.name for record in bls.current_repository().index()}
    is_model = word in known and word not in call.variables
    value = word if is_model else evaluate(word, call.variables, call.name)
    if value is None:
        call.error(f"{word} is None, expected a VALUE; with -q, %bls returns None")
    return value


def _latest(call: MagicCall) -> Any:
    response = None if call.notebook.latest is None else call.notebook.latest()
    if response is None:
        call.error("nothing to inspect: there was no response yet, or it was freed; expected a VALUE")
    return response


INSPECT = OperationSpec(
    """Show the contents of a response, a tensor or an array on any device. It shows image-shaped tensors as pictures,
    rows of numbers as a line and a sound, BYTES as text, JSON or files; with min, max, mean, NaN and a histogram,
    computed on the tensor's own device. For a model: its source, its configuration with the defaults, the present
    state of its instances, its queue, its memory, its last error, its callers and callees. Two values are compared
    side by side. Without a value: the last response of %bls. In scripts: bls.inspect(). Guide:
    docs/guides/debugging.md.""",
    options=(
        option("values", "VALUE", "an expression for a response or a tensor, or a model's name", nargs="*"),
        option("--at", "SLICE", "a slice of the tensor, such as [0,:,:,1]"),
        option("--rate", "N", "play the tensor as a sound with N samples per second", whole_number(100)),
    ),
    examples="""
    %blsinspect answer
    %blsinspect answer["OUT"] --at [0,:,:,1]
    %blsinspect before after
    %blsinspect add_sub
    """,
    usage="[VALUE [OTHER]] [options]",
    form="text",
    notebook=_inspect,
)

WATCH = OperationSpec(
    """Show a live panel: the state of each model, its queue, rate and latency, and the memory. The panel updates
    while cells run, until its output is cleared. To dock it beside the notebook, click it with the right button and
    choose Create New View for Cell Output. Its buttons load, unload and reload models. In a terminal, or without
    anywidget, it is a table of the present state. In scripts: bls.watch(). Guide: docs/guides/observing.md.""",
    lambda interval=0.5: bls.watch(interval),
    (timeout("time between samples (default: 500ms)", "--interval"),),
    "%blswatch",
)
