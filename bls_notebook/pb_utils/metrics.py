"""Custom metrics: families of counters, gauges and histograms.

Guarantees: safe from any thread. As in the real stub, metrics are unusable and raise once their family is deleted.
(The values are in `engine.metrics`.)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar
from weakref import ref

from . import _runtime
from .errors import ServerEnum, TritonModelException, failed_for

_CLEARED = (
    "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' "
    "object should be deleted AFTER its corresponding 'Metric' objects have been deleted."
)
_CREATING = "Failed to create metric."


class MetricKind(ServerEnum):
    """Kinds of metric families, with Triton's numbers."""

    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2

    def __str__(self) -> str:
        return f"MetricKind.{self.name}"  # as Triton prints it


def _number(function: str, value: object) -> float:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(
            f"{function}(): incompatible function arguments; expected a number, got {value!r} of type "
            f"{type(value).__name__}"
        )
    return float(value)


class Metric:
    """One metric of a family, with a set of labels. Made by `MetricFamily.Metric`.

    Equal labels of one family share one value. Keep the `MetricFamily` object (such as in ``self``) as long as the
    metric is used.

    Raises
    ------
    TritonModelException
        From every method: the kind of the family does not allow it, or the family has been deleted.
    TypeError
        From every method: the value is not a number.
    """

    __slots__ = ("_backing", "_family")

    _backing: Any
    _family: ref[MetricFamily]

    def __init__(self) -> None:
        raise TypeError("Metric: No constructor defined! Metrics are made by MetricFamily.Metric(labels)")

    @classmethod
    def _of(cls, backing: Any, family: MetricFamily) -> Metric:
        metric = cls.__new__(cls)
        metric._backing = backing
        metric._family = ref(family)
        return metric

    def _do(self, verb: str, method: str, *values: float) -> Any:
        family = self._family()
        if family is None:
            raise TritonModelException(f"Failed to {verb} metric value: {_CLEARED}")
        try:
            return getattr(self._backing, method)(*values)
        except ValueError as error:
            raise failed_for(family._backing.instance, f"Failed to {verb} metric value", error) from error

    def increment(self, value: float, /) -> None:
        """Add to a counter (never a negative amount) or a gauge."""
        self._do("increment", "increment", _number("increment", value))

    def set(self, value: float, /) -> None:
        """Set a gauge."""
        self._do("set", "set", _number("set", value))

    def observe(self, value: float, /) -> None:
        """Add an observation to a histogram."""
        self._do("observe", "observe", _number("observe", value))

    def value(self) -> float:
        """Return the value of a counter or gauge."""
        return float(self._do("get", "value"))


class MetricFamily:
    """A family of metrics. Mirrors python_backend/src/metric_family.cc.

    Parameters
    ----------
    name : str
        Letters, digits, underscores and colons.
    description : str
    kind : MetricKind
        `MetricFamily.COUNTER`, `MetricFamily.GAUGE` or `MetricFamily.HISTOGRAM`.

    Raises
    ------
    TritonModelException
        The name is invalid, or in use with another kind.
    TypeError
        An argument has the wrong type.
    """

    COUNTER: ClassVar[MetricKind] = MetricKind.COUNTER
    GAUGE: ClassVar[MetricKind] = MetricKind.GAUGE
    HISTOGRAM: ClassVar[MetricKind] = MetricKind.HISTOGRAM

    __slots__ = ("__weakref__", "_backing", "_kind")

    def __init__(self, name: str, description: str, kind: MetricKind) -> None:
        if not isinstance(name, str) or not isinstance(description, str):
            raise TypeError(f"MetricFamily: name and description must be str, got {name!r} and {description!r}")
        if not isinstance(kind, MetricKind):
            raise TypeError(f"MetricFamily: kind must be MetricFamily.COUNTER, ..., got {kind!r}")
        self._kind = kind
        caller = _runtime.caller_var.get() or _runtime.find_caller(sys._getframe(1))
        make = _runtime.loose_family
        if caller is not None:
            make = partial(caller.server.metric_family, caller.instance_name, caller.directory)
        self._backing = make(name, description, kind.name.lower())

    def Metric(  # noqa: N802 - Triton's own name
        self, labels: Mapping[str, str] | None = None, buckets: Sequence[float] | None = None
    ) -> Metric:
        """Return the metric of the family with these labels.

        Parameters
        ----------
        labels : dict of str to str
        buckets : list of float
            Increasing upper bounds; required for a histogram, refused for other kinds.

        Raises
        ------
        TritonModelException
            `labels` or `buckets` have a wrong type, are missing, or do not fit the kind.
        RuntimeError
            A bucket is not a number.
        """
        if labels is not None and not isinstance(labels, dict):
            raise TritonModelException(f"{_CREATING} Labels must be a dictionary.")
        # The real stub passes labels as JSON, which converts keys that are numbers to text.
        plain: dict[str, Any] = json.loads(json.dumps(labels)) or {}
        if buckets is None:
            if self._kind is MetricKind.HISTOGRAM:
                raise TritonModelException(f"{_CREATING} Missing required buckets.")
            return Metric._of(self._backing.metric(plain, None), self)
        if not isinstance(buckets, list):
            raise TritonModelException(f"{_CREATING} Buckets must be a list.")
        if self._kind is not MetricKind.HISTOGRAM:
            raise TritonModelException(f"{_CREATING} Unexpected buckets found.")
        try:
            bounds = [_number("Metric", bound) for bound in buckets]
        except TypeError as error:
            raise RuntimeError(f"Unable to cast buckets {buckets!r} to numbers") from error
        return Metric._of(self._backing.metric(plain, bounds), self)

    def __del__(self) -> None:
        backing = getattr(self, "_backing", None)
        if backing is not None:
            backing.drop()
