"""The form of a change that has to be made by hand, with the names of the models filled in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from bls_notebook.profiling.records.program import Call


def template(calls: Sequence[Call]) -> str:
    """Return code that sends calls together; those of one model in a list."""
    lines: dict[str, list[int]] = {}
    for call in calls:
        lines.setdefault(call.model, []).append(call.lines[-1] if call.lines else 0)
    counts = Counter(call.model for call in calls)
    if len(counts) == 1:
        (model,) = counts
        name = _name(model)
        return "\n".join(
            [
                f"{name}_requests = [...]  # make all {counts[model]} first{_where(lines[model])}",
                f"{name}_responses = await asyncio.gather(*[r.async_exec() for r in {name}_requests])",
                "# then look at the responses, in the order of before",
            ]
        )
    taken: list[tuple[str, str]] = []
    for model, count in counts.items():
        name = _name(model)
        if count == 1:
            taken.append((f"{name}_response", f"{name}_request.async_exec(),{_comment(lines[model])}"))
        else:
            many = f"asyncio.gather(*[r.async_exec() for r in {name}_requests]),{_comment(lines[model])}"
            taken.append((f"{name}_responses", many))
    head = f"{', '.join(name for name, _ in taken)} = await asyncio.gather("
    body = [f"    {call}" for _, call in taken]
    return "\n".join([head, *body, ")", "# then look at the responses, in the order of before"])


def _name(model: str) -> str:
    return re.sub(r"\W|^(?=\d)", "_", model)


def _where(lines: Sequence[int]) -> str:
    known = sorted({line for line in lines if line})
    return f", at line {known[0]}" if known else ""


def _comment(lines: Sequence[int]) -> str:
    known = sorted({line for line in lines if line})
    return f"  # sent at line {known[0]} now" if known else ""
