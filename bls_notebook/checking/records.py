"""Findings of a check, the rules that they come from, and the shared memory that Python models need.

The severity and the texts of a rule are in rules.json, by the code of the finding or by ``code:case``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bls_notebook.records import Record, shortened

SEVERITIES = ("error", "warning", "note")  # worst first
_LONGEST = 2000  # characters of a text, which may quote names of megabytes


@dataclass(frozen=True, slots=True, repr=False)
class Finding(Record):
    """One problem, and how to fix it.

    ``severity`` is ``error`` (a load fails, or every request on this path), ``warning`` (it may fail) or
    ``note`` (nothing fails). ``code`` identifies the kind of problem and never changes; ``line`` is 0 if
    the finding has no line.
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
        """``model.py:12``, a file alone, or an empty string."""
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True, repr=False)
class SharedMemory(Record):
    """Shared memory (``/dev/shm``) that the instances of a Python model need on a server, in bytes.

    ``each`` is per instance: a lower bound unless the sizes of all tensors are `known`.
    """

    model: str
    instances: int
    each: int
    known: bool = True

    @property
    def bytes(self) -> int:
        return self.instances * self.each


@dataclass(frozen=True, slots=True, repr=False)
class Findings(Record):
    """Findings of a check of ``models``, worst first; ``memory`` has an entry for each Python model.

    ``release`` is the server's release for which the models were checked; empty for any.
    """

    models: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    memory: tuple[SharedMemory, ...] = ()
    release: str = ""

    @property
    def has_problems(self) -> bool:
        """True if any finding is an error or a warning."""
        return any(finding.severity != "note" for finding in self.findings)

    @property
    def shm_bytes(self) -> int:
        """Shared memory of all models together, in bytes."""
        return sum(need.bytes for need in self.memory)


@cache
def rules() -> dict[str, tuple[str, str, str, str]]:
    """Return the severity, the finding, the reason and the remedy of each rule."""
    return {
        rule: tuple(texts) for rule, texts in json.loads(Path(__file__).with_name("rules.json").read_bytes()).items()
    }


@cache
def names() -> dict[str, Any]:
    """Return the names that checks know, of functions, modules and backends, and the forms of later syntax."""
    known: dict[str, Any] = json.loads(Path(__file__).with_name("names.json").read_bytes())
    return known


def number_of_rules() -> int:
    """Return how many kinds of problems `check` can find."""
    return len({rule.partition(":")[0] for rule in rules()})


def finding(rule: str, model: str, file: str = "", line: int = 0, **facts: object) -> Finding:
    """Make a finding by filling a rule's texts with facts."""
    severity, *texts = rules()[rule]
    what, why, mend = (shortened(text.format(**facts), _LONGEST) for text in texts)
    return Finding(severity, rule.partition(":")[0], model, what, why, mend, file, line)
