"""Custom metrics: families of counters, gauges and histograms."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ._runtime import current_caller

__all__ = ["Metric", "MetricFamily", "MetricKind"]


class MetricKind(enum.Enum):
    """Kinds of metric families."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


def _number(function: str, value: object) -> float:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"{function}(): expected a number, got {value!r} of type {type(value).__name__}")
    return float(value)


class Metric:
    """One metric of a family: its family's name and a set of labels. Made by `MetricFamily.Metric`.

    Equal labels of one family share one value.
    """

    __slots__ = ("_backing",)

    _backing: Any

    def __init__(self) -> None:
        raise TypeError("Metric: No constructor defined! Metrics are made by MetricFamily.Metric(labels)")

    @classmethod
    def _of(cls, backing: Any) -> Metric:
        metric = cls.__new__(cls)
        metric._backing = backing
        return metric

    def increment(self, value: float, /) -> None:
        """Add to a counter (never a negative amount) or a gauge.

        Raises
        ------
        TritonModelException
            The kind of the family does not allow it.
        """
        self._backing.increment(_number("increment", value))

    def set(self, value: float, /) -> None:
        """Set a gauge. Raises TritonModelException for other kinds."""
        self._backing.set(_number("set", value))

    def observe(self, value: float, /) -> None:
        """Add an observation to a histogram. Raises TritonModelException for other kinds."""
        self._backing.observe(_number("observe", value))

    def value(self) -> float:
        """Return the value of a counter or gauge. Raises TritonModelException for a histogram."""
        return float(self._backing.value())


class MetricFamily:
    """A family of metrics: a name, a description and a kind.

    Parameters
    ----------
    name : str
        Of letters, digits, underscores and colons, as Prometheus has it.
    description : str
        Shown as help.
    kind : MetricKind
        `MetricFamily.COUNTER`, `MetricFamily.GAUGE` or `MetricFamily.HISTOGRAM`.

    Raises
    ------
    TritonModelException
        A bad name, or a name that is in use with another kind.
    TypeError
        An argument of a wrong type.
    """

    COUNTER: ClassVar[MetricKind] = MetricKind.COUNTER
    GAUGE: ClassVar[MetricKind] = MetricKind.GAUGE
    HISTOGRAM: ClassVar[MetricKind] = MetricKind.HISTOGRAM

    def __init__(self, name: str, description: str, kind: MetricKind) -> None:
        if not isinstance(name, str) or not isinstance(description, str):
            raise TypeError(
                f"MetricFamily: name and description must be str, got {name!r} and {description!r}"
            )
        if not isinstance(kind, MetricKind):
            raise TypeError(f"MetricFamily: kind must be MetricFamily.COUNTER, ..., got {kind!r}")
        self._backing = current_caller().metric_family(name, description, kind.value)

    def Metric(  # noqa: N802 - Triton's own name
        self,
        labels: Mapping[str, str] | None = None,
        buckets: Sequence[float] | None = None,
    ) -> Metric:
        """Return the metric of the family with these labels.

        Parameters
        ----------
        labels : mapping of str to str
        buckets : list of float
            Increasing upper bounds; required for a histogram, refused for other kinds.

        Raises
        ------
        TritonModelException
            Bad labels or buckets.
        """
        if labels is not None and not isinstance(labels, Mapping):
            raise TypeError(f"Metric(): labels must be a dict of text to text, got {labels!r}")
        plain = {str(k): str(v) for k, v in (labels or {}).items()}
        bounds = None if buckets is None else [_number("Metric", b) for b in buckets]
        return Metric._of(self._backing.metric(plain, bounds))
