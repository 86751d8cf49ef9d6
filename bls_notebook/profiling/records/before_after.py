"""`BeforeAfter`: what became faster or slower between two profiles. Frozen, JSON-able."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.records import NONE, Quartiles, Record


@dataclass(frozen=True, slots=True, repr=False)
class TimeChange(Record):
    """The time of a request (``kind`` request), of a model itself for it (model), or of one of its lines (line).

    Of two comparisons, also the time of all requests at once (gathered), whose ``text`` has their number.

    Times are ns for one request; times of lines are means. ``noise`` is the relative difference that repeated
    requests show without a change, 0 if unknown. ``verdict`` is faster, slower, noise, unknown (measured too seldom
    to know the noise), new or gone. A line has its numbers and texts before and after; 0 and empty if it is not in
    one of the profiles, or was not seen there.
    """

    kind: str
    model: str
    verdict: str
    before: Quartiles = NONE
    after: Quartiles = NONE
    noise: float = 0.0
    line_before: int = 0
    line: int = 0
    text_before: str = ""
    text: str = ""

    @property
    def factor(self) -> float:
        """The time after relative to the time before; 0 if either is missing."""
        return self.after.median / self.before.median if self.before.median else 0.0

    @property
    def place(self) -> str:
        """The model itself, or its line, in words."""
        if self.kind != "line":
            return f"`{self.model}` itself"
        both = self.text and self.text_before and self.text != self.text_before
        text = f"`{self.text_before}` → `{self.text}`" if both else f"`{self.text or self.text_before}`"
        return f"`{self.model}`, line {self.line or self.line_before}, {text}"


@dataclass(frozen=True, slots=True, repr=False)
class BeforeAfter(Record):
    """Two profiles of one workload: the ``sentence``, the times of requests, models and lines, and ``notes``.

    ``notes`` name differences of the workloads and reasons for noise: inputs, models, code, instances, failures, and
    waits for processors.
    """

    before: str
    after: str
    sentence: str
    changes: tuple[TimeChange, ...] = ()
    notes: tuple[str, ...] = ()
