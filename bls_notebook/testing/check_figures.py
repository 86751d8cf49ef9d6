"""Figures of a check that claims judge, with hints: problems, and shared memory on a server. Pure."""

from __future__ import annotations

from bls_notebook.checking.records import Finding, Findings
from bls_notebook.records import size


def problems(findings: Findings) -> list[Finding]:
    """Return the errors and warnings."""
    return [finding for finding in findings.findings if finding.severity != "note"]


def first_problem(findings: Findings) -> str:
    """Return the place, the text and the remedy of the worst problem; empty if there is none."""
    return " ".join(f"{worst.where} of {worst.model}: {worst.what}. {worst.mend}" for worst in problems(findings)[:1])


def largest_pools(findings: Findings) -> str:
    """Return the models that need most shared memory, and what reduces it."""
    needs = sorted(findings.memory, key=lambda need: -need.bytes)
    listed = ", ".join(f"{need.model} {need.instances} x {size(need.each)}" for need in needs[:3])
    hint = f"Largest first: {listed}. Fewer instances, smaller batches or smaller data types need less."
    unknown = " and ".join(need.model for need in needs if not need.known)
    return hint + (f" Not counted: tensors of {unknown} whose size is unknown (-1 in `dims`)." if unknown else "")
