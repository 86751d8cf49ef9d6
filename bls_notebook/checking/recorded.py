"""What was recorded of a model that serves: what its source was warned of, what it was seen to do."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from bls_notebook.records.quantities import count
from bls_notebook.records.visible import first_line

from .material import Material
from .records import Finding

_MOST = 3  # refusals of a model that are told


def recorded_findings(model: Material, told: Collection[str]) -> Iterator[Finding]:
    """Yield how its responses differed from its configuration, and why requests were refused.

    `told` are lines about which something was found without it.
    """
    serving = model.serving
    if serving is None:
        return
    of_model = f"model '{model.name}', "
    for words in tuple(serving.outputs.found):
        what, _, mend = words.removeprefix(of_model).partition("; ")
        if not any(repr(name) in what for name in told):
            yield Finding(
                "warning", "seen-output", model.name, f"a response had {what}",
                "It was seen here; a server passes it in silence.", _sentence(mend), model.where,
            )  # fmt: skip
    check = serving.check
    refused = dict(getattr(check, "then", check).refused)  # a stand-in may be before it
    for words, times in sorted(refused.items(), key=lambda pair: -pair[1])[:_MOST]:
        yield Finding(
            "warning", "seen-refused", model.name, f"{count(times, 'request')} refused: {first_line(words)}",
            "What was sent does not fit its configuration: a server refuses it too.",
            "Correct what is sent, or `input` and max_batch_size in config.pbtxt.", model.where,
        )  # fmt: skip


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}." if words else "Have the code and config.pbtxt say the same."
