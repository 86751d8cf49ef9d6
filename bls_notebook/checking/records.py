"""What will bite in a model repository, as it was found without running its code: frozen, JSON-able."""

from __future__ import annotations

from dataclasses import dataclass

from bls_notebook.records.plain import Record

SEVERITIES = ("error", "warning", "note")  # from the worst on


@dataclass(frozen=True, slots=True, repr=False)
class Finding(Record):
    """One thing that was found, and what to do about it.

    ``severity`` is ``error`` (it fails: a load, or every request that comes this way), ``warning`` (it
    may bite) or ``note`` (good to know; nothing fails). ``code`` is stable, for those who filter; ``file``
    and ``line`` say where; 0 is no line.
    """

    severity: str
    code: str
    model: str
    what: str
    why: str = ""
    mend: str = ""
    file: str = ""
    line: int = 0

    @property
    def where(self) -> str:
        """The place: ``model.py:12``; empty where there is none."""
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True, repr=False)
class SharedMemory(Record):
    """What the instances of a Python model need of ``/dev/shm`` on a server, in bytes.

    ``each`` is of one instance; at least that where tensors have sizes that are not `known`.
    """

    model: str
    instances: int
    each: int
    known: bool = True

    @property
    def bytes(self) -> int:
        """What all its instances need."""
        return self.instances * self.each


@dataclass(frozen=True, slots=True, repr=False)
class Findings(Record):
    """What a check has found in ``models``, the worst first; ``memory`` has a row for each Python model."""

    models: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    memory: tuple[SharedMemory, ...] = ()

    @property
    def bites(self) -> bool:
        """Whether anything was found that is more than a note."""
        return any(finding.severity != "note" for finding in self.findings)

    @property
    def shm_bytes(self) -> int:
        """What the instances of all models need of ``/dev/shm`` together, in bytes."""
        return sum(need.bytes for need in self.memory)
