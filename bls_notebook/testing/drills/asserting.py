"""`assert_survives`: a drill as a test."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from bls_notebook.testing.records.drilled import VERDICTS, Drilled

from .driller import drill

BAD = tuple(verdict for verdict, worth in VERDICTS.items() if worth == "bad")


def assert_survives(
    model: str, inputs: Mapping[str, Any], *, refuse: Collection[str] = BAD, **options: Any
) -> Drilled:
    """Assert that a model does nothing bad while the models that it calls misbehave.

    Parameters
    ----------
    model : str
    inputs : mapping of str to array_like
        Of a request that is answered when all is well.
    refuse : collection of str
        The verdicts that fail the test, such as ``("crash", "hang", "leak", "spoilt")``; by default all that
        are bad, ``rubbish`` among them.
    **options
        As of `drill`: ``faults``, ``pairs``, ``timeout``, ``repo``, ...

    Returns
    -------
    Drilled

    Raises
    ------
    AssertionError
        It does; the message has each such case, with the line of code.
    """
    __tracebackhide__ = True
    unknown = [verdict for verdict in refuse if verdict not in VERDICTS]
    if unknown:
        raise ValueError(f"refuse: got {unknown[0]!r}, expected verdicts: {', '.join(VERDICTS)}")
    found = drill(model, inputs, **options)
    told = []
    for case in found.cases:
        if case.verdict in refuse:
            at = case.at or case.sent
            where = f"\n    {at.file}:{at.line}: {at.code}" if at is not None else ""
            told.append(f"  {case.name}: {case.verdict}: {case.said}{where}")
    if told:
        raise AssertionError(
            "\n".join([f"{model} does not survive {len(told)} of {len(found.cases)} faults:", *told])
        )
    return found
