"""The rules of `check`. Severities and texts are in rules.json, by the code of the finding or by ``code:case``."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from .records import Finding


@cache
def rules() -> dict[str, tuple[str, str, str, str]]:
    """Return the severity, the finding, the reason and the remedy of each rule."""
    return {
        rule: tuple(texts) for rule, texts in json.loads(Path(__file__).with_name("rules.json").read_bytes()).items()
    }


def number_of_rules() -> int:
    """Return how many kinds of problems `check` can find."""
    return len({rule.partition(":")[0] for rule in rules()})


def finding(rule: str, model: str, file: str = "", line: int = 0, **facts: object) -> Finding:
    """Make a finding by filling a rule's texts with facts."""
    severity, *texts = rules()[rule]
    what, why, mend = (text.format(**facts) for text in texts)
    return Finding(severity, rule.partition(":")[0], model, what, why, mend, file, line)
