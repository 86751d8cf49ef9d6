"""``%blscheck`` judges claims about the last recording; ``%%blscheck`` runs a cell and judges claims about it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import bls_notebook as bls
from bls_notebook.magics.arguments import Parser, Variables, evaluate, help_text, identifier
from bls_notebook.magics.cell_body import cell_body
from bls_notebook.magics.cell_errors import fail_on, reported
from bls_notebook.magics.magic import Magic
from bls_notebook.magics.notebook import Notebook
from bls_notebook.profiling.records.comparison import CAUSES
from bls_notebook.testing.claim_checks import FORMS

if TYPE_CHECKING:
    from bls_notebook.records.repository import ModelRecord


def next_words(words: Sequence[str], models: Sequence[ModelRecord]) -> list[str]:
    """Return the completions of a claim's next word; none where a number is expected."""
    last = max((at for at, word in enumerate(words) if word == "and"), default=-1)
    claim = list(words[last + 1 :])
    if not claim:
        return list(FORMS)
    if claim[0] not in FORMS:
        return []
    usage = [part.strip("[]") for part in FORMS[claim[0]].usage.split()]
    with_unit = next((at for at, part in enumerate(usage) if part in ("SIZE", "TIME")), len(usage))
    if len(claim) > with_unit + 1 and not claim[with_unit + 1][0].isupper() and claim[with_unit].isdecimal():
        del claim[with_unit + 1]  # "5 ms" is one part
    if len(claim) >= len(usage):
        return ["and"]
    expected = usage[len(claim)]
    ready = [model for model in models if model.state == "READY"]
    candidates = {
        "MODEL": [model.name for model in ready],
        "NAME": [spec.name for model in ready for spec in model.outputs],
        "DEVICE": [device.name for device in bls.list_devices()],
        "CAUSE": list(CAUSES),
        "OP": ["==", "!=", "<", "<=", ">", ">="],
        "IS": ["==", "!="],
    }
    if expected in ("of", "on"):
        return [expected, "and"]
    return list(dict.fromkeys(candidates.get(expected, ())))


def _help(magic: str) -> tuple[str, str]:
    description, examples = help_text(__file__, magic)
    return description.format(claims=help_text(__file__, "claims")[0]), examples


PARSER = Parser("%blscheck", *_help("%blscheck"))
PARSER.usage = "%(prog)s CLAIM [and CLAIM ...] [--of NAME]"
_add = PARSER.add_argument
_add("claim", metavar="CLAIM", nargs="*", help="a claim, such as: overlapped 4 of scanner")
_add("--of", type=identifier, metavar="NAME", help="a variable with the recording (default: the last one)")

CELL_PARSER = Parser("%%blscheck", *_help("%%blscheck"))
CELL_PARSER.usage = "%(prog)s CLAIM [and CLAIM ...]"
CELL_PARSER.add_argument("claim", metavar="CLAIM", nargs="*", help="a claim, such as: overlapped 4 of scanner")


def bls_check_line(notebook: Notebook, line: str, cell: str, variables: Variables) -> None:
    """Judge claims and show the observations."""
    arguments = PARSER.parse([word.text for word in PARSER.words_of(line)])
    recorded: Any = _last_records(notebook)
    if arguments.of:
        recorded = evaluate(arguments.of, variables, "%blscheck: --of")
    _judge(notebook, recorded, _claims(PARSER, arguments.claim))


def bls_check_cell(notebook: Notebook, line: str, cell: str, variables: Variables) -> object:
    """Run a cell and judge claims about it."""
    __tracebackhide__ = True
    from bls_notebook.testing.claim_checks import recorded_by

    claims = _claims(CELL_PARSER, CELL_PARSER.parse([w.text for w in CELL_PARSER.words_of(line)]).claim)
    with reported(notebook):
        magics = {recorded_by(claim) for claim in claims}
    body = cell_body(notebook, "%%blscheck", cell)
    name = f"In [{notebook.cell_number}]"
    recorders: list[Any] = [bls.profile(name=name)] * ("%%blsprofile" in magics)
    recorders += [bls.track_memory(name=name)] * ("%%blsmemory" in magics)
    with ExitStack() as recordings:
        with reported(notebook):
            for recorder in recorders:
                recordings.enter_context(recorder)
        value = body()
    for recorder in recorders:
        notebook.remember(recorder)
    if "%bls" in magics and value is not None:
        notebook.remember(value)
    _judge(notebook, _last_records(notebook), claims)
    return None if cell.rstrip().endswith(";") else value


def _last_records(notebook: Notebook) -> dict[str, Any]:
    """Return what claims can judge: the last record of each magic, by the magic's name."""
    from bls_notebook.testing.claim_checks import records_of

    records: dict[str, Any] = {}
    for record in notebook.recorded.values():
        records.update(records_of(record))
    return records


def _claims(parser: Parser, words: list[str]) -> list[str]:
    claims = [claim.strip() for claim in re.split(r"(?:^|\s)and(?:\s|$)", " ".join(words))]
    if not all(claims):
        parser.error("missing: a claim, such as overlapped 4")
    return claims


def _judge(notebook: Notebook, recorded: Any, claims: list[str]) -> None:
    with reported(notebook):
        judged = [bls.judge(recorded, claim) for claim in claims]
    for judgement in judged:
        fail_on(notebook, [] if judgement else [repr(judgement)], judgement)
        notebook.show(judgement)


LINE_MAGIC = Magic(PARSER, bls_check_line)
CELL_MAGIC = Magic(CELL_PARSER, bls_check_cell)
