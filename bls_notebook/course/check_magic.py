"""``%blscheck`` judges a claim by what was recorded last; ``%%blscheck`` by what a cell does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import bls_notebook as bls
from bls_notebook.magics.arguments import Parser, Variables, evaluate, identifier
from bls_notebook.magics.cell_body import cell_body
from bls_notebook.magics.cell_errors import fail_on, reported
from bls_notebook.magics.magic import Magic
from bls_notebook.magics.notebook import Notebook
from bls_notebook.profiling.records.comparison import CAUSES
from bls_notebook.testing.claim_checks import FORMS

if TYPE_CHECKING:
    from bls_notebook.records.repository import ModelRecord


def after(words: Sequence[str], models: Sequence[ModelRecord]) -> list[str]:
    """Return what may follow the words of a line, by how claims are written; nothing for numbers."""
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
    known = {
        "MODEL": [model.name for model in ready],
        "NAME": [spec.name for model in ready for spec in model.outputs],
        "DEVICE": [device.name for device in bls.list_devices()],
        "CAUSE": list(CAUSES),
        "OP": ["==", "!=", "<", "<=", ">", ">="],
        "IS": ["==", "!="],
    }
    if expected in ("of", "on"):
        return [expected, "and"]
    return list(dict.fromkeys(known.get(expected, ())))


_CLAIMS = (
    "About requests: overlapped N [of MODEL], called MODEL [N], requests, queued, moved (tensors between "
    "devices), wall. About memory: nothing_left [on DEVICE], peak. About responses, by %bls: output NAME == "
    "VALUE, device, errors, responses, first (how soon). About exec against async_exec, by %blsprofile: "
    "verdict == CAUSE, speedup. Several are joined by `and`. "
)
PARSER = Parser(
    "%blscheck",
    "Judges a claim by what was recorded last, says what was seen, and has a hint where the claim does not "
    "hold: so an exercise is checked by what its model did, not by how it is written. " + _CLAIMS + "What "
    "%%blsprofile, %%blsmemory, %blsprofile and %bls record can be judged. In scripts: "
    "assert bls.judge(profile, 'overlapped 4').",
    """\
  %blscheck overlapped 4 of scanner
  %blscheck peak < 2 MB on gpu:0 and nothing_left
  %blscheck speedup > 2
  %blscheck queued < 5 ms of resize --of profile
""",
)
PARSER.usage = "%(prog)s CLAIM [and CLAIM ...] [--of NAME]"
_add = PARSER.add_argument
_add("claim", metavar="CLAIM", nargs="*", help="what should be so")
_add("--of", type=identifier, metavar="NAME", help="a variable with the record (default: the last one)")

CELL_PARSER = Parser(
    "%%blscheck",
    "Runs the cell, records its requests or its memory as the claim needs it, and judges the claim as "
    "%blscheck does. " + _CLAIMS,
    """\
  %%blscheck overlapped 4 of scanner
  %bls page IMAGES=images[:4] -q
""",
)
CELL_PARSER.usage = "%(prog)s CLAIM [and CLAIM ...]"
CELL_PARSER.add_argument("claim", metavar="CLAIM", nargs="*", help="what should be so")


def bls_check_line(notebook: Notebook, line: str, cell: str, variables: Variables) -> None:
    """Judge claims, and show what was seen."""
    arguments = PARSER.parse([word.text for word in PARSER.words_of(line)])
    recorded: Any = _last_records(notebook)
    if arguments.of:
        recorded = evaluate(arguments.of, variables, "%blscheck: --of")
    _judge(notebook, recorded, _claims(PARSER, arguments.claim))


def bls_check_cell(notebook: Notebook, line: str, cell: str, variables: Variables) -> object:
    """Run a cell, and judge claims of what it did."""
    __tracebackhide__ = True
    from bls_notebook.testing.claim_checks import recorded_by

    claims = _claims(CELL_PARSER, CELL_PARSER.parse([w.text for w in CELL_PARSER.words_of(line)]).claim)
    with reported(notebook):
        needed = {recorded_by(claim) for claim in claims}
    body = cell_body(notebook, "%%blscheck", cell)
    name = f"In [{notebook.cell_number}]"
    recorders: list[Any] = [bls.profile(name=name)] * ("%%blsprofile" in needed)
    recorders += [bls.track_memory(name=name)] * ("%%blsmemory" in needed)
    with ExitStack() as on:
        with reported(notebook):
            for recorder in recorders:
                on.enter_context(recorder)
        value = body()
    for recorder in recorders:
        notebook.remember(recorder)
    if "%bls" in needed and value is not None:
        notebook.remember(value)
    _judge(notebook, _last_records(notebook), claims)
    return None if cell.rstrip().endswith(";") else value


def _last_records(notebook: Notebook) -> dict[str, Any]:
    """Return what claims can be about, by the magic that recorded it last."""
    from bls_notebook.testing.claim_checks import records_of

    found: dict[str, Any] = {}
    for record in notebook.recorded.values():
        found.update(records_of(record))
    return found


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
